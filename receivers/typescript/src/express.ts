/** For Express 5. */

import type { Buffer } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import { bodyOf, send } from "./node.js";
import { bodyIsGone } from "./stream.js";
import type { Webhook } from "./webhook.js";

/** A request of Express, as far as it matters here. */
export interface ExpressRequest extends IncomingMessage {
  originalUrl?: string;
  body?: unknown;
  rawBody?: unknown;
}

/**
 * A handler for `app.all(path, …)` or `app.post(path, …)`. It needs the bytes as they arrived. Any of these will do: no
 * body parser ran before; `express.raw()` did; or the parser was told to keep them,
 * `express.json({ verify: keepRawBody })`.
 */
export function expressHandler(webhook: Webhook): (request: ExpressRequest, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const { method = "", headers, originalUrl: url = request.url ?? "" } = request;
    const body = (limit: number) => rawBodyOf(request, limit);
    send(response, await webhook.handle({ method, url, headers, body }));
  };
}

/** The `verify` option of Express's body parsers: keeps the bytes beside what is parsed. */
export function keepRawBody(request: IncomingMessage, _response: unknown, bytes: Buffer): void {
  (request as ExpressRequest).rawBody = bytes;
}

async function rawBodyOf(request: ExpressRequest, limit: number): Promise<Uint8Array> {
  for (const kept of [request.rawBody, request.body]) {
    if (kept instanceof Uint8Array) return kept;
  }
  if (request.readableEnded || request.readableDidRead) {
    throw bodyIsGone(
      "put the webhook before `express.json()`, or give the parser `express.json({ verify: keepRawBody })`",
    );
  }
  return bodyOf(request, limit);
}
