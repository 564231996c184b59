/** What a request's headers say of its event and attempt. */

import { Buffer } from "node:buffer";
import type { HeaderKey, HeaderNames } from "./header-names.js";
import { EVENT_TYPE_LEN_MAX, ID_LEN_MAX, KEY_LEN_MAX, LINE_ID_LEN_MAX, SEQ_MAX, U32_MAX } from "./limits.js";
import { Rejection } from "./rejection.js";
import { BadText, parseDigits } from "./text.js";
import { isTime } from "./time.js";

/**
 * What to deduplicate and to order by. Of Railpost's headers only the id and the timestamp are signed, with
 * the body; the rest is as trustworthy as the connection.
 */
export interface Received {
  /** The event's id: what to deduplicate by. */
  readonly eventId: string;
  /** The event's key, if it has one. */
  readonly key?: string | undefined;
  /** The line of numbers that it stands in (`X-Lane`): what an inbox keeps its place by. */
  readonly line?: string | undefined;
  /** The delivery's number in its line. */
  readonly seq?: bigint | undefined;
  /** The seq that must have been applied before, if the sender says so; otherwise it is the one before. */
  readonly after?: bigint | undefined;
  /** Which attempt it is, from 1, if the sender counts. */
  readonly attempt?: number | undefined;
  /** Whether a person asked for it. */
  readonly replay: boolean;
  /** Whether the body says where to fetch the event instead of holding it (`X-Thin`). */
  readonly isThin?: boolean | undefined;
  /** When it was sent, in seconds since 1970. */
  readonly timestamp: number;
  /** The event's type, if the sender says so. */
  readonly eventType?: string | undefined;
  /** When the event happened, if the sender says so. */
  readonly eventTime?: Date | undefined;
  /** The version of the schema that the payload follows, if it has one. */
  readonly schemaVersion?: number | undefined;
}

/** A request's headers, seen under the names that this endpoint gives them. */
export class Incoming {
  constructor(
    readonly names: HeaderNames,
    readonly headers: ReadonlyMap<string, string>,
  ) {}

  get(header: HeaderKey): string | undefined {
    return this.headers.get(this.names[header].toLowerCase());
  }

  /** What a header holds, read by `parse`; nothing if it is absent. */
  read<T>(header: HeaderKey, parse: (text: string) => T): T | undefined {
    const text = this.get(header);
    return text === undefined ? undefined : readAs(this.names[header], text, parse);
  }

  /** The same, but it must be there. */
  require<T>(header: HeaderKey, parse: (text: string) => T): T {
    const value = this.read(header, parse);
    if (value === undefined) throw Rejection.missing(this.names[header]);
    return value;
  }
}

/** Reads a header's text. What `parse` refuses becomes a rejection that names the header. */
export function readAs<T>(header: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text);
  } catch (error) {
    if (error instanceof BadText) throw Rejection.malformed(header, error.message);
    throw error;
  }
}

/** Reads all headers of an attempt. It verifies nothing. */
export function parseReceived(incoming: Incoming): Received {
  return {
    eventId: readEventId(incoming),
    key: incoming.read("x_key", parseKey),
    line: incoming.read("x_lane", parseLine),
    seq: incoming.read("x_seq", parseSeq),
    after: incoming.read("x_after", parseAfter),
    attempt: incoming.read("x_attempt", parseAttempt),
    replay: incoming.read("x_replay", parseTruth) ?? false,
    isThin: incoming.read("x_thin", parseTruth) ?? false,
    timestamp: Number(incoming.require("webhook_timestamp", parseTimestamp)),
    eventType: incoming.read("x_event_type", parseEventType),
    eventTime: incoming.read("x_event_time", parseEventTime),
    schemaVersion: incoming.read("x_schema_version", parseSchemaVersion),
  };
}

/** The id comes from `webhook-id`; `Idempotency-Key` must agree if it is there too. */
function readEventId(incoming: Incoming): string {
  const id = incoming.require("webhook_id", parseEventId);
  incoming.read("idempotency_key", (again) => {
    if (again !== id) throw new BadText("the same event id in both its headers", again);
  });
  return id;
}

/**
 * The seq of its line that must have been applied before it; 0 if nothing has to be. Nothing for an event
 * that stands in no line.
 */
export function follows(received: Received): bigint | undefined {
  if (received.line === undefined || received.seq === undefined) return undefined;
  const before = received.seq - 1n;
  return received.after === undefined || received.after > before ? before : received.after;
}

export function parseEventId(text: string): string {
  if (text.length <= ID_LEN_MAX && /^[A-Za-z0-9_:-]+$/.test(text)) return text;
  throw new BadText("an event id of 1 to 64 ASCII letters, digits, `_`, `-` and `:`", text);
}

export function parseLine(text: string): string {
  if (text.length <= LINE_ID_LEN_MAX && /^[!-~]+$/.test(text)) return text;
  throw new BadText("the id of a line: 1 to 64 visible ASCII characters", text);
}

export function parseSeq(text: string): bigint {
  const expected = "a seq: a whole number from 1 to 9223372036854775807";
  const seq = parseDigits(expected, text, SEQ_MAX);
  if (seq === 0n) throw new BadText(expected, text);
  return seq;
}

function parseAfter(text: string): bigint {
  return parseDigits("a seq, or 0", text, SEQ_MAX);
}

function parseAttempt(text: string): number {
  const expected = "an attempt's number from 1";
  const attempt = Number(parseDigits(expected, text, BigInt(U32_MAX)));
  if (attempt === 0) throw new BadText(expected, text);
  return attempt;
}

function parseTruth(text: string): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw new BadText("`true` or `false`", text);
}

/** Digits alone, as they were signed. */
export function parseTimestamp(text: string): bigint {
  return parseDigits("a timestamp in seconds since 1970, in digits", text, SEQ_MAX);
}

export function parseEventType(text: string): string {
  const segments = text.split(".").every((segment) => /^[A-Za-z0-9_-]+$/.test(segment));
  if (segments && text.length <= EVENT_TYPE_LEN_MAX) return text;
  throw new BadText("an event type of 1 to 128 characters such as `order.paid`", text);
}

export function parseEventTime(text: string): Date {
  if (!isTime(text)) throw new BadText("a time by RFC 3339", text);
  return new Date(text);
}

function parseSchemaVersion(text: string): number {
  return Number(parseDigits("a schema version: a whole number of 32 bits", text, BigInt(U32_MAX)));
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A key of `X-Key`: visible ASCII for itself, `%XX` for each other byte of its UTF-8. */
export function parseKey(header: string): string {
  const expected = "a key of 1 to 256 bytes, percent-encoded";
  if (/[ "]/.test(header)) throw new BadText(expected, header);
  const key = decodePercent(header);
  if (key !== "" && Buffer.byteLength(key) <= KEY_LEN_MAX) return key;
  throw new BadText(expected, header);
}

/** Undoes the percent-encoding of keys and CloudEvents attributes in headers. */
export function decodePercent(text: string): string {
  const expected = "percent-encoded UTF-8 in visible ASCII";
  if (!/^(?:[ !-$&-~]|%[0-9A-Fa-f]{2})*$/.test(text)) throw new BadText(expected, text);
  if (!text.includes("%")) return text;
  const bytes = text.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  try {
    return UTF8.decode(Buffer.from(bytes, "latin1"));
  } catch {
    throw new BadText(expected, text);
  }
}

/** A text as it stands in a header: the inverse of `decodePercent`. */
export function encodePercent(text: string): string {
  const bytes = [...Buffer.from(text, "utf8")];
  const plain = (byte: number) => byte > 0x20 && byte < 0x7f && byte !== 0x25 && byte !== 0x22;
  const escaped = (byte: number) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  return bytes.map((byte) => (plain(byte) ? String.fromCharCode(byte) : escaped(byte))).join("");
}
