/** What a queue keeps of an event, and what it does about failures. */

import { Buffer } from "node:buffer";
import { Delivery } from "./delivery.js";
import { BACKLOG_MAX, ERROR_CHARS_MAX, TRIES_MAX, TRY_DELAY_BASE, TRY_DELAY_MAX } from "./limits.js";
import type { Received } from "./received.js";
import { wholeNumber } from "./text.js";

/** What a queue does about failures and about too much work. */
export interface WorkPolicy {
  /** Tries before a job becomes a dead letter. */
  readonly triesMax: number;
  /** The delay after the first failed try; it doubles with each further one. */
  readonly delayBaseSeconds: number;
  /** The longest delay between tries. */
  readonly delayMaxSeconds: number;
  /** Most jobs that wait, dead letters among them. */
  readonly backlogMax: number;
}

const MOST = 2 ** 31 - 1;

/** The policy with these choices, and the defaults for the rest. */
export function workPolicyOf(choices: Partial<WorkPolicy> = {}): WorkPolicy {
  const policy = {
    triesMax: TRIES_MAX,
    delayBaseSeconds: TRY_DELAY_BASE,
    delayMaxSeconds: TRY_DELAY_MAX,
    backlogMax: BACKLOG_MAX,
    ...choices,
  };
  wholeNumber("triesMax", policy.triesMax, 1, MOST);
  wholeNumber("delayBaseSeconds", policy.delayBaseSeconds, 0, MOST);
  wholeNumber("delayMaxSeconds", policy.delayMaxSeconds, 0, MOST);
  wholeNumber("backlogMax", policy.backlogMax, 1, MOST);
  return policy;
}

/** When a job that has failed `tries` times is tried again, in seconds since 1970; nothing for never. */
export function nextTry(policy: WorkPolicy, tries: number, now: number): number | undefined {
  if (tries >= policy.triesMax) return undefined;
  return now + Math.min(policy.delayBaseSeconds * 2 ** (tries - 1), policy.delayMaxSeconds);
}

/** An event in the queue. */
export interface Job {
  /** Its place in the queue. */
  readonly position: bigint;
  /** How often it has failed. */
  readonly tries: number;
  readonly delivery: Delivery;
}

/** What a worker did. */
export type WorkOutcome =
  /** Nothing: no job is due. */
  | { readonly kind: "idle" }
  /** It applied this event. */
  | { readonly kind: "done"; readonly eventId: string }
  /** The effect failed; it will be tried again at `at`, in seconds since 1970. */
  | { readonly kind: "failed"; readonly eventId: string; readonly error: string; readonly at: number }
  /** It failed for the last time: the event is a dead letter, and holds its line and key. */
  | { readonly kind: "dead"; readonly eventId: string; readonly error: string };

/** A job that was given up on. */
export interface DeadLetter {
  readonly position: bigint;
  readonly tries: number;
  /** What the last try said. */
  readonly error: string;
  /** The event; nothing if its row does not hold what was written. */
  readonly delivery: Delivery | undefined;
}

/** How much waits. */
export interface QueueStats {
  /** Jobs, dead letters among them. */
  readonly waiting: number;
  readonly dead: number;
  /** How long ago the oldest job that is not dead was sent. 0 if there is none. */
  readonly lagSeconds: number;
}

/** What is queued beside the body, as JSON. Stable: rows outlive versions, and other languages read them. */
interface Head {
  id: string;
  key: string | null;
  line: string | null;
  seq: string | number | null;
  after: string | number | null;
  attempt: number | null;
  replay: boolean;
  timestamp: number;
  /** Names and the bytes of values. */
  headers: [string, number[]][];
  event_type?: string | null;
  event_unix_ms?: number | null;
  schema_version?: number | null;
  thin?: boolean;
}

/** A job's head, as it is stored. Seqs are written as digits: a double would round the largest. */
export function headOf(delivery: Delivery): string {
  const headers = Object.entries(delivery.headers);
  const head: Head = {
    id: delivery.eventId,
    key: delivery.key ?? null,
    line: delivery.line ?? null,
    seq: delivery.seq === undefined ? null : String(delivery.seq),
    after: delivery.after === undefined ? null : String(delivery.after),
    attempt: delivery.attempt ?? null,
    replay: delivery.replay,
    timestamp: delivery.timestamp,
    headers: headers.map(([name, value]) => [name, [...Buffer.from(value, "latin1")]]),
    event_type: delivery.eventType ?? null,
    event_unix_ms: delivery.eventTime?.getTime() ?? null,
    schema_version: delivery.schemaVersion ?? null,
    thin: delivery.isThin,
  };
  return JSON.stringify(head).replace(/"(seq|after)":"(\d+)"/g, '"$1":$2');
}

/** The delivery of a job. Throws if the head is damaged. */
export function deliveryOf(text: string, body: Uint8Array): Delivery {
  const head = JSON.parse(text.replace(/"(seq|after)":(\d+)/g, '"$1":"$2"')) as Head;
  const received: Received = {
    eventId: head.id,
    key: head.key ?? undefined,
    line: head.line ?? undefined,
    seq: head.seq === null ? undefined : BigInt(head.seq),
    after: head.after == null ? undefined : BigInt(head.after),
    attempt: head.attempt ?? undefined,
    replay: head.replay,
    isThin: head.thin ?? false,
    timestamp: head.timestamp,
    eventType: head.event_type ?? undefined,
    eventTime: head.event_unix_ms == null ? undefined : new Date(head.event_unix_ms),
    schemaVersion: head.schema_version ?? undefined,
  };
  const headers = head.headers.map(([name, value]) => [name, Buffer.from(value).toString("latin1")]);
  return new Delivery(received, Object.fromEntries(headers) as Record<string, string>, Buffer.from(body));
}

/** An effect's error, cut to what is kept. Databases refuse a NUL in a text. */
export function errorText(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const kept = [...text.slice(0, 2 * ERROR_CHARS_MAX)].slice(0, ERROR_CHARS_MAX);
  return kept.join("").replaceAll("\0", "").toWellFormed();
}
