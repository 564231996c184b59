/** Reading a body up to a limit, from whatever stream it comes. */

import { Buffer } from "node:buffer";
import { Rejection } from "./rejection.js";

/** Reads chunks until their end. What is longer than the limit is rejected as soon as that shows. */
export async function readChunks(chunks: AsyncIterable<unknown>, limit: number): Promise<Buffer> {
  const read: Buffer[] = [];
  let length = 0;
  for await (const chunk of interruptible(chunks)) {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : Buffer.from(chunk as Uint8Array);
    length += bytes.length;
    if (length > limit) throw Rejection.tooLarge(limit);
    read.push(bytes);
  }
  return Buffer.concat(read);
}

/** A connection that ends within a body makes its stream fail. */
async function* interruptible(chunks: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  try {
    yield* chunks;
  } catch {
    throw Rejection.interrupted();
  }
}

/** Rejects by what the sender announces, before anything is read. */
export function checkAnnounced(length: string | null | undefined, limit: number): void {
  if (length != null && /^[0-9]+$/.test(length) && Number(length) > limit) throw Rejection.tooLarge(limit);
}

/** A body parser has read the stream, and what it left is not what was signed. */
export function bodyIsGone(advice: string): Error {
  return new Error(`the body was read before the webhook could, and the bytes that were signed are gone: ${advice}`);
}
