/** For Node's own `http` and `https` servers, and all that are built on their requests. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Answer } from "./answer.js";
import { bodyIsGone, checkAnnounced, readChunks } from "./stream.js";
import type { Webhook } from "./webhook.js";

/** A listener for `createServer`. Route by path before it, if the server has others. */
export function nodeHandler(webhook: Webhook): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const { method = "", url = "", headers } = request;
    const body = (limit: number) => bodyOf(request, limit);
    send(response, await webhook.handle({ method, url, headers, body }));
  };
}

/** Reads the stream, unless it was read before. */
export async function bodyOf(request: IncomingMessage, limit: number): Promise<Uint8Array> {
  if (request.readableEnded || request.readableDidRead) {
    throw bodyIsGone("let the webhook handle the request before any body parser does");
  }
  checkAnnounced(request.headers["content-length"], limit);
  // The stream is not destroyed when it is left: the answer goes over the same connection.
  return readChunks(request.iterator({ destroyOnReturn: false }), limit);
}

export function send(response: ServerResponse, answer: Answer): void {
  response.statusCode = answer.status;
  for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
  // What is left of a body that was not read to its end would otherwise be waited for.
  if (answer.status === 413) response.setHeader("connection", "close");
  response.end(answer.body);
}
