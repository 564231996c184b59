/** A delivery as it arrived, and what can be read out of it: JSON, a CloudEvent, an event, or a thin one. */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { modeOf, parseBinary, parseStructured, type CloudEvent } from "./cloudevents.js";
import { type EventBody, readEvent } from "./event-body.js";
import { HEADERS_KEPT_MAX } from "./limits.js";
import { parseEventId, parseEventType, readAs, type Received } from "./received.js";
import { Rejection } from "./rejection.js";

/** The headers that belong to the body, by lower-case name: `content-type`, and `ce-…` in binary mode. */
export type KeptHeaders = Readonly<Record<string, string>>;

/** An authentic delivery: what its headers say, and its bytes. */
export class Delivery implements Received {
  readonly eventId: string;
  readonly key: string | undefined;
  readonly line: string | undefined;
  readonly seq: bigint | undefined;
  readonly after: bigint | undefined;
  readonly attempt: number | undefined;
  readonly replay: boolean;
  readonly isThin: boolean;
  readonly timestamp: number;
  readonly eventType: string | undefined;
  readonly eventTime: Date | undefined;
  readonly schemaVersion: number | undefined;

  constructor(
    received: Received,
    /** The headers that belong to the body. */
    readonly headers: KeptHeaders,
    /** The bytes as they arrived. */
    readonly body: Buffer,
  ) {
    this.eventId = received.eventId;
    this.key = received.key;
    this.line = received.line;
    this.seq = received.seq;
    this.after = received.after;
    this.attempt = received.attempt;
    this.replay = received.replay;
    this.isThin = received.isThin ?? false;
    this.timestamp = received.timestamp;
    this.eventType = received.eventType;
    this.eventTime = received.eventTime;
    this.schemaVersion = received.schemaVersion;
  }

  /** The body as text. */
  text(): string {
    return this.body.toString("utf8");
  }

  /** The body as JSON of the application's own. A body that is no JSON is rejected. */
  json<T = unknown>(): T {
    this.#checkWhole();
    return this.#parse() as T;
  }

  #parse(): unknown {
    try {
      return JSON.parse(this.text());
    } catch (error) {
      throw Rejection.unreadable(`the body is not JSON: ${String((error as Error).message)}`);
    }
  }

  /**
   * The CloudEvent that it is, in structured or binary mode. Its id must be the one that was signed, or be hashed with
   * its source in that one, as Railpost does with events that were published as CloudEvents: an id is unique within its
   * source only.
   */
  cloudEvent(): CloudEvent {
    this.#checkWhole();
    const mode = modeOf(this.headers["content-type"] ?? "");
    if (mode === "batched") throw Rejection.unreadable("a batch, where one event was expected");
    const event = mode === "structured" ? parseStructured(this.body) : parseBinary(this.headers, this.body);
    if (this.eventId !== hashedId(event.source, event.id)) this.#checkId(event.id);
    return event;
  }

  /** The event of an `event` envelope. Its id must be the one that was signed. */
  event(): EventBody {
    this.#checkWhole();
    const event = readEvent(this.body);
    this.#checkId(event.id);
    return event;
  }

  /** The delivery with the payload that was fetched for it, as a raw delivery has it. */
  withPayload(payload: Uint8Array, contentType: string): Delivery {
    return new Delivery({ ...this, isThin: false }, { "content-type": contentType }, Buffer.from(payload));
  }

  /** The thin event that it is. Its id must be the one that was signed. */
  thin(): Thin {
    const thin = Thin.read(this.#parse());
    this.#checkId(thin.id);
    return thin;
  }

  /** A reference is JSON too: nobody should take it for the payload. */
  #checkWhole(): void {
    if (this.isThin) {
      throw Rejection.unreadable("the body is a reference to the event, not the event: fetch it first");
    }
  }

  #checkId(id: string): void {
    if (id !== this.eventId) {
      throw Rejection.unreadable("the body has another event id than the headers");
    }
  }
}

/** The event id of a CloudEvent that was published to Railpost as one. */
export function hashedId(source: string, id: string): string {
  const first = Buffer.from(source, "utf8");
  // With its length, so that no other source and id make the same bytes.
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(first.length));
  const digest = createHash("sha256").update(length).update(first).update(id, "utf8").digest();
  return `ce_${digest.subarray(0, 24).toString("hex")}`;
}

/** Keeps the headers that belong to the body. */
export function keptHeaders(headers: ReadonlyMap<string, string>): KeptHeaders {
  const kept: [string, string][] = [];
  for (const [name, value] of headers) {
    if (name === "content-type" || name.startsWith("ce-")) kept.push([name, value]);
  }
  if (kept.length > HEADERS_KEPT_MAX) {
    throw Rejection.unreadable(`more than ${HEADERS_KEPT_MAX} \`ce-\` headers`);
  }
  return Object.fromEntries(kept);
}

/** A thin event: what happened to what, and where the rest is. */
export class Thin {
  private constructor(
    readonly id: string,
    readonly type: string,
    readonly key: string | undefined,
    /** Where to fetch the rest, with the receiver's own credentials. */
    readonly url: string,
  ) {}

  static read(body: unknown): Thin {
    const field = <T>(name: string, parse: (text: string) => T): T => {
      const value = (body as Record<string, unknown> | null)?.[name];
      if (typeof value !== "string") throw Rejection.unreadable(`the body's \`${name}\`: expected a text`);
      return readAs(name, value, parse);
    };
    const same = (text: string) => text;
    const keyed = typeof body === "object" && body !== null && "key" in body && body.key !== null;
    const key = keyed ? field("key", same) : undefined;
    return new Thin(field("id", parseEventId), field("type", parseEventType), key, field("url", same));
  }

  /**
   * Fetches the rest with `get`, an HTTP client of the application's own, if the URL is one of `origin`'s, such
   * as `https://railpost.example`. The credentials that `get` sends must go to no other host.
   */
  async fetch<T>(origin: string, get: (url: string) => Promise<T>): Promise<T> {
    const base = origin.replace(/\/+$/, "");
    if (!this.url.startsWith(`${base}/`)) {
      throw Rejection.unreadable(`the event's URL is not one of ${origin}`);
    }
    return get(this.url);
  }
}
