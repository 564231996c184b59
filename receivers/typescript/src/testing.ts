/**
 * For tests of a handler: a sender that does to it what networks and strangers do. It works with vitest, with Node's
 * test runner, and with any other: it imports none.
 */

import { Buffer } from "node:buffer";
import { createHash, randomUUID } from "node:crypto";
import { DEFAULT_NAMES, headerNames, type HeaderKey, type HeaderNames } from "./header-names.js";
import { encodePercent, parseEventId, parseKey } from "./received.js";
import { secretBytes, secretText, SigningKey, tag } from "./secrets.js";
import { unixNow } from "./text.js";

/** Rounds of an ordeal before a handler that never acknowledges is given up on. */
const ROUNDS_MAX = 100;

/** A secret for tests. */
export const TEST_SECRET = `whsec_${Buffer.from("a secret for tests and nothing else").toString("base64")}`;

/** An event to be sent. */
export interface TestEvent {
  readonly id: string;
  readonly key?: string | undefined;
  /** The line that it stands in, and its number there. */
  readonly line?: string | undefined;
  readonly seq?: bigint | undefined;
  /** The seq that must have been applied before, where that is not the one before. */
  readonly after?: bigint | undefined;
  readonly replay?: boolean;
  /** Whether its body says where to fetch it instead of holding it. */
  readonly isThin?: boolean;
  readonly type?: string | undefined;
  /** When it happened, by RFC 3339. */
  readonly time?: string | undefined;
  readonly schemaVersion?: number | undefined;
  readonly contentType?: string;
  readonly body: Uint8Array;
}

/** A request for the handler under test. */
export interface TestRequest {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** The handler under test: takes a request, answers with its status. */
export type Target = (request: TestRequest) => Promise<number>;

/** How a request is not what it says it is. */
export const FORGERIES = [
  "other_secret",
  "changed_body",
  "changed_id",
  "replayed",
  "unsigned",
  "timestamped_only",
  "garbage",
] as const;
export type Forgery = (typeof FORGERIES)[number];

/** What a handler did under an ordeal. */
export interface Report {
  /** Requests that were sent. */
  sent: number;
  /** Authentic ones that were held off, to be retried. */
  held: number;
  /** Forged ones that were refused. */
  refused: number;
  /** What it did wrong. Empty is what you want. */
  problems: string[];
}

export interface OrdealOptions {
  /** The time that the requests are signed for, in seconds since 1970. */
  readonly now?: number;
  /**
   * What the handler does with a gap: `held` by default, for inboxes that wait or hold. An inbox that accepts gaps, or
   * takes a line from anywhere as one in memory does, is `accepted`: then no gap is sent, and the events go in order.
   */
  readonly gaps?: "held" | "accepted";
}

export interface TestSenderOptions {
  /** Secrets `whsec_…` and signing keys `whsk_…`. `TEST_SECRET` by default. */
  readonly signers?: readonly string[];
  readonly names?: Partial<Record<HeaderKey, string>>;
}

/** A sender that signs as the real one does, and counts the seqs of its lines: one for each key. */
export class TestSender {
  readonly #signers: readonly string[];
  readonly #names: HeaderNames;
  readonly #places = new Map<string, { line: string; seq: bigint }>();

  constructor(options: TestSenderOptions = {}) {
    this.#signers = options.signers ?? [TEST_SECRET];
    this.#names = headerNames(options.names);
    for (const signer of this.#signers) signerOf(signer);
  }

  /** A new event: the next of its key, if it has one. A body that is no text and no bytes is sent as JSON. */
  event(body: unknown, key?: string): TestEvent {
    if (key !== undefined) parseKey(encodePercent(key));
    const place = key === undefined ? {} : this.#nextPlace(key);
    return { id: `test-${randomUUID()}`, key, ...place, body: bytesOf(body) };
  }

  #nextPlace(key: string): { line: string; seq: bigint } {
    const before = this.#places.get(key) ?? { line: `test-${randomUUID()}`, seq: 0n };
    const place = { line: before.line, seq: before.seq + 1n };
    this.#places.set(key, place);
    return place;
  }

  /** Begins new lines: the next event of each key has seq 1 again, as after the sender's store was restored. */
  beginNewLines(): void {
    this.#places.clear();
  }

  /** An attempt of an event, signed. `timestamp` is in seconds since 1970. */
  request(event: TestEvent, attempt = 1, timestamp: number = unixNow()): TestRequest {
    parseEventId(event.id);
    const values: Partial<Record<HeaderKey, string | undefined>> = {
      webhook_id: event.id,
      webhook_timestamp: String(timestamp),
      ...this.#signatures(event, timestamp),
      idempotency_key: event.id,
      x_event_type: event.type,
      x_event_time: event.time,
      x_schema_version: event.schemaVersion?.toString(),
      x_key: event.key === undefined ? undefined : encodePercent(event.key),
      x_lane: event.line,
      x_seq: event.seq?.toString(),
      x_after: event.after?.toString(),
      x_attempt: String(attempt),
      x_replay: event.replay === true ? "true" : undefined,
      x_thin: event.isThin === true ? "true" : undefined,
    };
    const headers: Record<string, string> = { "content-type": event.contentType ?? "application/json" };
    for (const header of Object.keys(DEFAULT_NAMES) as HeaderKey[]) {
      const value = values[header];
      if (value !== undefined) headers[this.#names[header]] = value;
    }
    return { headers, body: event.body };
  }

  #signatures(event: TestEvent, timestamp: number): Partial<Record<HeaderKey, string | undefined>> {
    const signed = Buffer.concat([Buffer.from(`${event.id}.${timestamp}.`), event.body]);
    const standard = this.#signers.map((signer) => signerOf(signer)(signed));
    const secrets = this.#signers.filter((signer) => !signer.startsWith("whsk_"));
    const tags = secrets.map((text) => tag(secretText(text), [`${timestamp}.`, event.body]).toString("hex"));
    return {
      webhook_signature: standard.length === 0 ? undefined : standard.join(" "),
      x_webhook_signature: tags.length === 0 ? undefined : `t=${timestamp},${tags.map((hex) => `v1=${hex}`).join(",")}`,
    };
  }

  /** A request that must be refused. */
  forge(event: TestEvent, forgery: Forgery, timestamp: number = unixNow()): TestRequest {
    const request = this.request(event, 1, timestamp);
    const headers: Record<string, string> = { ...request.headers };
    const names = this.#names;
    switch (forgery) {
      case "other_secret":
        return this.#stranger().request(event, 1, timestamp);
      case "replayed":
        return this.request(event, 1, timestamp - 24 * 60 * 60);
      case "changed_body":
        return { headers, body: Buffer.concat([event.body, Buffer.from(" ")]) };
      case "changed_id":
        headers[names.webhook_id] = headers[names.idempotency_key] = "another";
        break;
      case "unsigned":
        delete headers[names.webhook_signature];
        delete headers[names.x_webhook_signature];
        break;
      case "timestamped_only":
        delete headers[names.webhook_signature];
        break;
      case "garbage":
        headers[names.webhook_signature] = "v1,=,%%";
        break;
    }
    return { headers, body: event.body };
  }

  /** Somebody else, whose secret nobody here trusts. */
  #stranger(): TestSender {
    const seed = createHash("sha256").update(this.#signers.join(" ")).digest("base64");
    return new TestSender({ signers: [`whsec_${seed}`], names: this.#names });
  }

  /**
   * Sends forged copies of every event; then the events in reversed order, each one twice once it is acknowledged, and
   * again until all are; then an unknown event with an old seq of each line, and one from beyond a gap. Afterwards look
   * at the handler's database: each effect must be there once, in order, and those of the stale and the gapped events not
   * at all.
   */
  async ordeal(events: readonly TestEvent[], target: Target, options: OrdealOptions = {}): Promise<Report> {
    const { now = unixNow(), gaps = "held" } = options;
    const ordeal = new Ordeal(this, target, now);
    for (const event of events) await ordeal.forged(event);
    await ordeal.untilAcknowledged(gaps === "held" ? [...events].reverse() : [...events]);
    for (const event of lastOfLines(events)) {
      await ordeal.stale(event);
      if (gaps === "held") await ordeal.gapped(event);
    }
    return ordeal.report;
  }
}

/** Runs the ordeal in one call: `expect((await ordeal([…], target)).problems).toEqual([])`. */
export async function ordeal(
  events: readonly { key?: string; body: unknown }[],
  target: Target,
  options: OrdealOptions & TestSenderOptions = {},
): Promise<Report> {
  const sender = new TestSender(options);
  return sender.ordeal(
    events.map(({ body, key }) => sender.event(body, key)),
    target,
    options,
  );
}

/** The body of events that must never be applied. */
export const MUST_NOT_APPLY: Uint8Array = Buffer.from('{"must_not":"apply"}');

/** One run of it: sends, and notes what the handler did. */
class Ordeal {
  readonly report: Report = { sent: 0, held: 0, refused: 0, problems: [] };

  constructor(
    readonly sender: TestSender,
    readonly target: Target,
    readonly now: number,
  ) {}

  async #send(request: TestRequest): Promise<number> {
    this.report.sent += 1;
    return this.target(request);
  }

  async forged(event: TestEvent): Promise<void> {
    for (const forgery of FORGERIES) {
      const status = await this.#send(this.sender.forge(event, forgery, this.now));
      if (status === 400 || status === 401) this.report.refused += 1;
      else this.report.problems.push(`${forgery} of ${event.id} was answered ${status}`);
    }
  }

  async untilAcknowledged(events: TestEvent[]): Promise<void> {
    let waiting = events;
    for (let attempt = 1; attempt <= ROUNDS_MAX && waiting.length > 0; attempt += 1) {
      const held: TestEvent[] = [];
      for (const event of waiting) if (!(await this.#deliver(event, attempt))) held.push(event);
      waiting = held;
    }
    for (const event of waiting) this.report.problems.push(`${event.id} was never acknowledged`);
  }

  /** Sends an event, and once more if it is acknowledged. Says whether it is. */
  async #deliver(event: TestEvent, attempt: number): Promise<boolean> {
    const request = this.sender.request(event, attempt, this.now);
    const status = await this.#send(request);
    if (!isSuccess(status)) {
      if (isRetried(status)) this.report.held += 1;
      else this.report.problems.push(`${event.id} was answered ${status}`);
      return false;
    }
    const again = await this.#send(request);
    if (!isSuccess(again)) this.report.problems.push(`${event.id} sent twice was answered ${again}`);
    return true;
  }

  async stale(event: TestEvent): Promise<void> {
    const stale = { ...event, id: `test-stale-${randomUUID()}`, body: MUST_NOT_APPLY };
    const status = await this.#send(this.sender.request(stale, 1, this.now));
    if (!isSuccess(status)) this.report.problems.push(`an old seq of ${event.line} was answered ${status}`);
  }

  async gapped(event: TestEvent): Promise<void> {
    const seq = (event.seq ?? 0n) + 2n;
    const gapped = { ...event, id: `test-gap-${randomUUID()}`, seq, body: MUST_NOT_APPLY };
    const status = await this.#send(this.sender.request(gapped, 1, this.now));
    if (isRetried(status)) this.report.held += 1;
    else this.report.problems.push(`seq ${seq} of ${event.line} after ${event.seq} was answered ${status}`);
  }
}

function lastOfLines(events: readonly TestEvent[]): TestEvent[] {
  const last = new Map<string, TestEvent>();
  for (const event of events) {
    if (event.line === undefined || event.seq === undefined) continue;
    const before = last.get(event.line);
    if ((before?.seq ?? 0n) < event.seq) last.set(event.line, event);
  }
  return [...last.values()];
}

function isSuccess(status: number): boolean {
  return status >= 200 && status <= 299;
}

/** What the sender tries again. */
function isRetried(status: number): boolean {
  return [408, 409, 425, 429].includes(status) || (status >= 500 && status !== 501);
}

/** The entry that a signer adds to `webhook-signature`. */
function signerOf(text: string): (message: Uint8Array) => string {
  if (text.startsWith("whsk_")) {
    const key = new SigningKey(text);
    return (message) => `v1a,${key.sign(message).toString("base64")}`;
  }
  const key = secretBytes(text);
  return (message) => `v1,${tag(key, [message]).toString("base64")}`;
}

function bytesOf(body: unknown): Uint8Array {
  if (body instanceof Uint8Array) return body;
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}

/** A target that is a server: posts to this URL. */
export function httpTarget(url: string): Target {
  return async ({ headers, body }) => {
    const response = await fetch(url, { method: "POST", headers, body: Buffer.from(body), redirect: "manual" });
    await response.arrayBuffer();
    return response.status;
  };
}

/** A target that is a Fetch handler, without a server. */
export function fetchTarget(handler: (request: Request) => Promise<Response> | Response): Target {
  return async ({ headers, body }) => {
    const request = new Request("http://localhost/hook", { method: "POST", headers, body: Buffer.from(body) });
    return (await handler(request)).status;
  };
}
