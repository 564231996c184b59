/** The names of the headers of an attempt, and how an endpoint may change them. */

import { HEADER_NAME_LEN_MAX } from "./limits.js";
import { unexpected } from "./text.js";

/** The headers by what they carry, in the order in which they are sent, with their default names. */
export const DEFAULT_NAMES = {
  webhook_id: "webhook-id",
  webhook_timestamp: "webhook-timestamp",
  webhook_signature: "webhook-signature",
  x_webhook_signature: "X-Webhook-Signature",
  idempotency_key: "Idempotency-Key",
  x_event_type: "X-Event-Type",
  x_event_time: "X-Event-Time",
  x_schema_version: "X-Schema-Version",
  x_key: "X-Key",
  x_lane: "X-Lane",
  x_seq: "X-Seq",
  x_after: "X-After",
  x_attempt: "X-Attempt",
  x_replay: "X-Replay",
  x_thin: "X-Thin",
} as const;

/** A header of an attempt, as the sender's API calls it. */
export type HeaderKey = keyof typeof DEFAULT_NAMES;

/** The header names of one endpoint. */
export type HeaderNames = Readonly<Record<HeaderKey, string>>;

/** A header was given a name that it cannot have. */
export class BadHeaderName extends Error {
  override name = "BadHeaderName";

  constructor(
    readonly header: string,
    problem: string,
  ) {
    super(`name of \`${header}\`: ${problem}`);
  }
}

/** The default names, but for these. Two headers with one name are refused. */
export function headerNames(renamed: Partial<Record<HeaderKey, string>> = {}): HeaderNames {
  for (const [header, name] of Object.entries(renamed)) checkName(header, name);
  const names: HeaderNames = { ...DEFAULT_NAMES, ...renamed };
  checkDistinct(names);
  return names;
}

function checkDistinct(names: HeaderNames): void {
  const seen = new Set<string>();
  for (const [header, name] of Object.entries(names)) {
    const lower = name.toLowerCase();
    if (seen.has(lower)) {
      throw new BadHeaderName(header, unexpected("a name that no other header has", name));
    }
    seen.add(lower);
  }
}

/** Names that HTTP, tracing or the request itself needs. */
const RESERVED = new Set([
  "authorization",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "cookie",
  "date",
  "expect",
  "forwarded",
  "host",
  "keep-alive",
  "te",
  "traceparent",
  "tracestate",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "user-agent",
  "via",
]);

function checkName(header: string, name: string): void {
  const refuse = (expected: string) => new BadHeaderName(header, unexpected(expected, name));
  if (!Object.hasOwn(DEFAULT_NAMES, header)) {
    throw new BadHeaderName(header, `expected one of ${Object.keys(DEFAULT_NAMES).join(", ")}`);
  }
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name) || name.length > HEADER_NAME_LEN_MAX) {
    throw refuse("a header name of 1 to 64 letters, digits, `-` and the like");
  }
  const lower = name.toLowerCase();
  if (RESERVED.has(lower) || lower.startsWith("proxy-") || lower.startsWith("ce-")) {
    throw refuse("a header name that the request does not need itself");
  }
}

/** What every HTTP library has for headers: a Fetch `Headers`, Node's object, or pairs. */
export type HeadersLike =
  | { get(name: string): string | null; forEach(visit: (value: string, name: string) => void): void }
  | Readonly<Record<string, string | readonly string[] | undefined>>
  | Iterable<readonly [string, string]>;

/** A request's headers by lower-case name. Of a name that came twice, all values with commas between. */
export function readHeaders(headers: HeadersLike): Map<string, string> {
  const read = new Map<string, string>();
  const add = (name: string, value: string) => {
    const lower = name.toLowerCase();
    const before = read.get(lower);
    read.set(lower, before === undefined ? value : `${before}, ${value}`);
  };
  if (isFetchHeaders(headers)) {
    headers.forEach((value, name) => {
      add(name, value);
    });
  } else if (isPairs(headers)) {
    for (const [name, value] of headers) add(name, value);
  } else {
    for (const name in headers) addAll(add, name, headers[name]);
  }
  return read;
}

function addAll(add: (name: string, value: string) => void, name: string, value: unknown): void {
  if (typeof value === "string") add(name, value);
  else if (Array.isArray(value)) for (const one of value) add(name, String(one));
}

function isFetchHeaders(headers: HeadersLike): headers is Extract<HeadersLike, { forEach: unknown }> {
  return typeof (headers as { get?: unknown }).get === "function" && "forEach" in headers;
}

function isPairs(headers: HeadersLike): headers is Iterable<readonly [string, string]> {
  return Symbol.iterator in headers;
}
