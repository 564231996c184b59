/** Verification: which requests are believed, by the profile of their sender. */

import { Buffer } from "node:buffer";
import { Delivery, keptHeaders } from "./delivery.js";
import { headerNames, readHeaders, type HeaderKey, type HeaderNames, type HeadersLike } from "./header-names.js";
import { TOLERANCE_DEFAULT } from "./limits.js";
import {
  Incoming,
  parseEventId,
  parseEventType,
  parseReceived,
  parseTimestamp,
  readAs,
  type Received,
} from "./received.js";
import { Rejection } from "./rejection.js";
import { BadSecret, secretBytes, secretText, verifyingKey } from "./secrets.js";
import { verifyHubSignature, verifyStandard, verifyTimestamped, type Trust } from "./signatures.js";
import { BadText, unixNow, wholeNumber } from "./text.js";

/**
 * Who signs, and how:
 * - `standard`: Railpost and every sender of Standard Webhooks: `webhook-signature` over id, timestamp and body.
 * - `timestamped`: the same, and `X-Webhook-Signature: t=…,v1=…` where there is no `webhook-signature`. That form
 *   does not cover the event id: a captured request can be applied again under another id until it is too old.
 * - `svix`: `svix-id`, `svix-timestamp`, `svix-signature`, or the standard names.
 * - `stripe`: `Stripe-Signature`; the event id is the one in the body.
 * - `github`: `X-Hub-Signature-256`; the id is `X-GitHub-Delivery`, which is not signed, and there is no timestamp.
 */
export type Profile = (typeof PROFILES)[number];

const PROFILES = ["standard", "timestamped", "svix", "stripe", "github"] as const;

export interface ReceiverOptions {
  /** The secrets that are trusted, as they were shown to you. During a rotation there are two. */
  readonly secrets?: readonly string[];
  /** Ed25519 public keys that are trusted, `whpk_…`. */
  readonly keys?: readonly string[];
  readonly profile?: Profile;
  /** How far a timestamp may be off, to either side. Five minutes by default. */
  readonly toleranceSeconds?: number;
  /** The names that the endpoint gives its headers, such as `{ x_key: "X-Order" }`. */
  readonly names?: Partial<Record<HeaderKey, string>>;
}

/** Says whether requests are authentic, and what they tell of their events. */
export class Receiver {
  readonly #profile: Profile;
  readonly #names: HeaderNames;
  /** Of the standard form, keyed by the decoded secrets. */
  readonly #decoded: Trust;
  /** Of the forms that are keyed by the text of the secrets. */
  readonly #literal: Trust;

  constructor(options: ReceiverOptions) {
    const { secrets = [], keys = [], profile = "standard", toleranceSeconds = TOLERANCE_DEFAULT } = options;
    if (!PROFILES.includes(profile)) {
      throw new RangeError(`profile: expected one of ${PROFILES.join(", ")}; got ${String(profile)}`);
    }
    if (secrets.length + keys.length === 0) {
      throw new BadSecret("at least one of `secrets` and `keys`: nothing would be believed");
    }
    wholeNumber("toleranceSeconds", toleranceSeconds, 0, Number.MAX_SAFE_INTEGER);
    const decodes = profile === "standard" || profile === "timestamped" || profile === "svix";
    if (keys.length > 0 && !decodes) throw new BadSecret(`no \`keys\`: ${profile} signs with secrets alone`);
    const publicKeys = keys.map(verifyingKey);
    this.#profile = profile;
    this.#names = headerNames(options.names);
    this.#decoded = { keys: decodes ? secrets.map(secretBytes) : [], publicKeys, toleranceSeconds };
    this.#literal = { keys: secrets.map(secretText), publicKeys: [], toleranceSeconds };
  }

  /**
   * Verifies a request: its headers, and its body as the bytes that arrived. Throws a `Rejection` that says why
   * a request is not believed. `now` is in seconds since 1970.
   */
  verify(headers: HeadersLike, body: Uint8Array | string, now: number = unixNow()): Delivery {
    const read = readHeaders(headers);
    const bytes = asBuffer(body);
    const received = this.#received(read, bytes, now);
    return new Delivery(received, keptHeaders(read), bytes);
  }

  /** @internal Checks the signature alone, of the standard or the timestamped form, and says which it was. */
  authenticate(incoming: Incoming, body: Buffer, now: number): "standard" | "timestamped" {
    const timestamped = this.#profile === "timestamped" ? incoming.get("x_webhook_signature") : undefined;
    if (timestamped === undefined || incoming.get("webhook_signature") !== undefined) {
      this.#verifyStandard(incoming, body, now);
      return "standard";
    }
    verifyTimestamped(this.#literal, incoming.names.x_webhook_signature, timestamped, body, now);
    return "timestamped";
  }

  #received(headers: ReadonlyMap<string, string>, body: Buffer, now: number): Received {
    switch (this.#profile) {
      case "standard":
      case "timestamped":
        return this.#railpost(new Incoming(this.#names, headers), body, now);
      case "svix":
        return this.#svix(headers, body, now);
      case "stripe":
        return this.#stripe(headers, body, now);
      case "github":
        return this.#github(headers, body, now);
    }
  }

  #railpost(incoming: Incoming, body: Buffer, now: number): Received {
    this.authenticate(incoming, body, now);
    return parseReceived(incoming);
  }

  #verifyStandard(incoming: Incoming, body: Buffer, now: number): void {
    const { names } = incoming;
    const signatures = required(incoming.headers, names.webhook_signature);
    const id = incoming.require("webhook_id", parseEventId);
    const timestamp = incoming.require("webhook_timestamp", digits);
    const claim = { header: names.webhook_signature, signatures, id, timestamp };
    verifyStandard(this.#decoded, claim, body, now);
  }

  #svix(headers: ReadonlyMap<string, string>, body: Buffer, now: number): Received {
    const names = headers.has("svix-signature") ? { ...this.#names, ...SVIX_NAMES } : this.#names;
    return this.#railpost(new Incoming(names, headers), body, now);
  }

  #stripe(headers: ReadonlyMap<string, string>, body: Buffer, now: number): Received {
    const header = "Stripe-Signature";
    const timestamp = verifyTimestamped(this.#literal, header, required(headers, header), body, now);
    const event = stripeEvent(body);
    const eventTime = typeof event.created === "number" ? new Date(event.created * 1000) : undefined;
    const eventType = typeof event.type === "string" ? event.type : undefined;
    return { eventId: event.id, eventType, eventTime, replay: false, timestamp };
  }

  #github(headers: ReadonlyMap<string, string>, body: Buffer, now: number): Received {
    const header = "X-Hub-Signature-256";
    verifyHubSignature(this.#literal, header, required(headers, header), body);
    const id = headers.get("x-github-delivery");
    if (id === undefined) throw Rejection.missing("X-GitHub-Delivery");
    const type = headers.get("x-github-event");
    return {
      eventId: readAs("X-GitHub-Delivery", id, parseEventId),
      eventType: type === undefined ? undefined : readAs("X-GitHub-Event", type, parseEventType),
      replay: false,
      timestamp: Math.floor(now),
    };
  }
}

/** An `Idempotency-Key` of another sender need not be the event id, so the id stands in for it. */
const SVIX_NAMES = {
  webhook_id: "svix-id",
  webhook_timestamp: "svix-timestamp",
  webhook_signature: "svix-signature",
  idempotency_key: "svix-id",
};

function required(headers: ReadonlyMap<string, string>, name: string): string {
  const value = headers.get(name.toLowerCase());
  if (value === undefined) throw Rejection.unsigned(name);
  return value;
}

/** Checks a timestamp and keeps its text, which is what was signed. */
function digits(text: string): string {
  parseTimestamp(text);
  return text;
}

function stripeEvent(body: Buffer): { id: string; type?: unknown; created?: unknown } {
  let event: unknown;
  try {
    event = JSON.parse(body.toString("utf8"));
  } catch {
    throw Rejection.unreadable("the body is not JSON: a Stripe event was expected");
  }
  const id = (event as { id?: unknown } | null)?.id;
  try {
    return { ...(event as object), id: parseEventId(typeof id === "string" ? id : "") };
  } catch (error) {
    if (error instanceof BadText) throw Rejection.unreadable(`the body's \`id\`: ${error.message}`);
    throw error;
  }
}

/** A view of the bytes, without a copy. */
function asBuffer(body: Uint8Array | string): Buffer {
  if (typeof body === "string") return Buffer.from(body, "utf8");
  if (!(body instanceof Uint8Array)) {
    throw new TypeError(
      `body: expected the bytes as they arrived; got ${body === null ? "null" : typeof body}: a body parser came first`,
    );
  }
  return Buffer.isBuffer(body) ? body : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
}
