/** For Fastify 5. */

import type { Readable } from "node:stream";
import { bodyIsGone, checkAnnounced, readChunks } from "./stream.js";
import type { Webhook } from "./webhook.js";

/** What of Fastify is used, as loosely as its types demand: they are not needed to compile against this package. */
export interface FastifyLike {
  removeAllContentTypeParsers: (...values: never[]) => unknown;
  addContentTypeParser: (...values: never[]) => unknown;
  route: (...values: never[]) => unknown;
}

interface Fastify {
  removeAllContentTypeParsers(): void;
  addContentTypeParser(
    contentType: string,
    parser: (request: unknown, payload: Readable, done: (error: Error | null, body?: unknown) => void) => void,
  ): void;
  route(options: {
    method: string[];
    url: string;
    handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;
  }): void;
}

interface FastifyRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: unknown;
}

interface FastifyReply {
  code(status: number): FastifyReply;
  headers(headers: Record<string, string>): FastifyReply;
  send(body: string): unknown;
}

export interface FastifyWebhookOptions {
  readonly webhook: Webhook;
  /** The path of the route, such as `/hook`. */
  readonly path: string;
}

/**
 * A plugin: `app.register(fastifyWebhook, { webhook, path: "/hook" })`. Within it no body is parsed; the parsers of the
 * rest of the application stay as they are.
 */
export async function fastifyWebhook(instance: FastifyLike, options: FastifyWebhookOptions): Promise<void> {
  const app = instance as unknown as Fastify;
  const { webhook, path } = options;
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
  app.route({
    method: webhook.methods,
    url: path,
    handler: async (request, reply) => {
      const { method, url, headers } = request;
      const body = (limit: number) => bodyOf(request, limit);
      const answer = await webhook.handle({ method, url, headers, body });
      const close = answer.status === 413 ? { connection: "close" } : {};
      return reply
        .code(answer.status)
        .headers({ ...answer.headers, ...close })
        .send(answer.body);
    },
  });
}

async function bodyOf(request: FastifyRequest, limit: number): Promise<Uint8Array> {
  const { body, headers } = request;
  if (body === undefined || body === null) return new Uint8Array();
  if (body instanceof Uint8Array) return body;
  const stream = body as Readable;
  if (typeof stream.iterator !== "function" || stream.readableDidRead) {
    throw bodyIsGone("register the webhook's plugin without a hook that reads its payload");
  }
  const announced = headers["content-length"];
  checkAnnounced(typeof announced === "string" ? announced : undefined, limit);
  return readChunks(stream.iterator({ destroyOnReturn: false }), limit);
}
