/**
 * What the sender is answered: every status code of the package, in one place.
 *
 * The sender retries 408, 409, 425, 429 and 5xx; 400, 401, 405 and 413 end the delivery.
 */

import type { Verdict } from "./inbox.js";
import { FULL_RETRY_AFTER } from "./limits.js";
import type { Rejection } from "./rejection.js";

/** An answer, for whatever HTTP library is at hand. Its body tells an outsider nothing. */
export interface Answer {
  readonly status: number;
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export function answer(status: number, body: string, headers: Record<string, string> = {}): Answer {
  return { status, headers: { "content-type": "text/plain; charset=utf-8", ...headers }, body };
}

/** The event was taken, now or before. */
export const TAKEN = answer(200, "taken");

/** The store or the effect failed, or something else went wrong that may be right the next time. */
export const TROUBLE = answer(503, "try again");

/** The queue is full. */
export const FULL = answer(429, "try again later", { "retry-after": String(FULL_RETRY_AFTER) });

const GAP = answer(425, "the event before it is unknown here");
const BUSY = answer(409, "being processed");

/** The answer to a verdict, once what follows from it is done. */
export function answerTo(verdict: Verdict): Answer {
  if (verdict.kind === "busy") return BUSY;
  return verdict.kind === "gap" && !verdict.applies ? GAP : TAKEN;
}

/** The answer to a request that was refused. The reason is for the receiver's own log. */
export function answerRejected(rejection: Rejection): Answer {
  switch (rejection.code) {
    case "unsigned":
    case "no_match":
    case "stale":
    case "future":
      return answer(401, "not authentic");
    case "too_large":
      return answer(413, "too large");
    case "interrupted":
      return answer(408, "the body did not arrive");
    default:
      return answer(400, "not readable");
  }
}
