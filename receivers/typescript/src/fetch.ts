/** For everything that speaks Fetch: Hono, Next.js route handlers, Bun, Deno, Cloudflare Workers. */

import type { Answer } from "./answer.js";
import { bodyIsGone, checkAnnounced, readChunks } from "./stream.js";
import type { Webhook } from "./webhook.js";

/** A handler that takes a `Request` and answers with a `Response`. */
export function fetchHandler(webhook: Webhook): (request: Request) => Promise<Response> {
  return async (request) => {
    const { method, url, headers } = request;
    return responseOf(await webhook.handle({ method, url, headers, body: (limit) => bodyOf(request, limit) }));
  };
}

async function bodyOf(request: Request, limit: number): Promise<Uint8Array> {
  if (request.bodyUsed) throw bodyIsGone("give the handler the request before anything else reads its body");
  checkAnnounced(request.headers.get("content-length"), limit);
  return request.body === null ? new Uint8Array() : readChunks(chunksOf(request.body), limit);
}

/** Not every runtime lets a stream be iterated. */
async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Of a body that is too long, the rest is not wanted. A stream that failed cannot be cancelled.
    await reader.cancel().catch(() => undefined);
  }
}

function responseOf(answer: Answer): Response {
  return new Response(answer.body, { status: answer.status, headers: answer.headers });
}
