/**
 * The inbox's rule: what an authentic event is to a receiver that has seen others.
 *
 * Every store asks the same question here, so that all of them answer alike. An inbox keeps its place by line
 * (`X-Lane`): the last seq that was applied of each. The cases are in `vectors/inbox.json`.
 */

import { GAP_TIMEOUT_DEFAULT, LINE_RETENTION_FACTOR, RETENTION_DEFAULT } from "./limits.js";
import { follows, type Received } from "./received.js";
import { wholeNumber } from "./text.js";

/** What an event is to this receiver. `applies` says whether its effect is to happen. */
export type Verdict =
  /** It was never applied, and it is its turn. */
  | { readonly kind: "fresh"; readonly applies: true }
  /** Its id was applied before: acknowledge it, do nothing. Its line moves on to its seq. */
  | { readonly kind: "duplicate"; readonly applies: false }
  /** Its id is unknown, but its seq is at or below `applied`: acknowledge it, do nothing. */
  | { readonly kind: "stale"; readonly applies: false; readonly applied: bigint }
  /**
   * What must be applied before it is not known here. `applied` is the last seq of its line, 0 if there is none.
   * The policy takes it all the same (`applies`), or the sender shall retry.
   */
  | { readonly kind: "gap"; readonly applies: boolean; readonly applied: bigint }
  /** It, or another event of its line, is being applied right now: the sender shall retry. */
  | { readonly kind: "busy"; readonly applies: false };

const FRESH: Verdict = { kind: "fresh", applies: true };
export const DUPLICATE: Verdict = { kind: "duplicate", applies: false };
export const BUSY: Verdict = { kind: "busy", applies: false };

/** Whether the place of its line moves on to its seq, unless it is further already. */
export function movesLine(verdict: Verdict): boolean {
  return verdict.applies || verdict.kind === "duplicate";
}

/** What a receiver does about order. */
export interface Policy {
  /**
   * Where an unknown line begins. `at_one`: with seq 1, and anything else is a gap; that keeps an update from
   * being applied before its creation. `anywhere`: with the first that comes, for inboxes that forget.
   */
  readonly start: "at_one" | "anywhere";
  /**
   * What happens to a gap. `wait`: 425, until the gap was seen for `gapTimeoutSeconds`; then it is accepted and
   * noted. `hold`: 425 for ever. `accept`: accepted at once, and noted.
   */
  readonly onGap: "wait" | "hold" | "accept";
  readonly gapTimeoutSeconds: number;
  /**
   * What happens to a replay (`X-Replay: true`) below the place of its line. `keep_order`: it is stale.
   * `apply`: it is fresh, out of order, because a person asked for it; for effects that add up.
   */
  readonly replays: "keep_order" | "apply";
}

const POLICY_DEFAULT: Policy = {
  start: "at_one",
  onGap: "wait",
  gapTimeoutSeconds: GAP_TIMEOUT_DEFAULT,
  replays: "keep_order",
};

const CHOICES = {
  start: ["at_one", "anywhere"],
  onGap: ["wait", "hold", "accept"],
  replays: ["keep_order", "apply"],
} as const;

/** The policy with these choices, and the defaults for the rest. */
export function policyOf(choices: Partial<Policy> = {}): Policy {
  const policy = { ...POLICY_DEFAULT, ...choices };
  for (const field of ["start", "onGap", "replays"] as const) {
    const allowed: readonly string[] = CHOICES[field];
    if (!allowed.includes(policy[field])) {
      throw new RangeError(`policy.${field}: expected one of ${allowed.join(", ")}; got ${policy[field]}`);
    }
  }
  wholeNumber("policy.gapTimeoutSeconds", policy.gapTimeoutSeconds, 0, Number.MAX_SAFE_INTEGER);
  return policy;
}

/** Where an event stands in its line. */
export interface Place {
  readonly line: string;
  readonly seq: bigint;
  /** The seq that must have been applied before; 0 for none. */
  readonly follows: bigint;
}

/** Nothing for an event that stands in no line: that one is only deduplicated. */
export function placeOf(received: Received): Place | undefined {
  const before = follows(received);
  const { line, seq } = received;
  if (before === undefined || line === undefined || seq === undefined) return undefined;
  return { line, seq, follows: before };
}

/** What an inbox knows of an event and its line before it is judged. */
export interface Known {
  /** Whether the event's id was applied before. */
  readonly id: boolean;
  /** The last seq of the line that was applied; 0 for an unknown line. */
  readonly applied: bigint;
  /** When a gap after that seq was first seen, in seconds since 1970. */
  readonly gapSince?: number | undefined;
}

/** The rule. */
export function judge(policy: Policy, received: Received, known: Known, now: number): Verdict {
  if (known.id) return DUPLICATE;
  const place = placeOf(received);
  if (place === undefined) return FRESH;
  const { applied } = known;
  if (applied > 0n && place.seq <= applied) {
    const wanted = policy.replays === "apply" && received.replay;
    return wanted ? FRESH : { kind: "stale", applies: false, applied };
  }
  if (applied === 0n && policy.start === "anywhere") return FRESH;
  if (applied >= place.follows) return FRESH;
  return { kind: "gap", applies: acceptsGap(policy, known.gapSince, now), applied };
}

function acceptsGap(policy: Policy, since: number | undefined, now: number): boolean {
  if (policy.onGap !== "wait") return policy.onGap === "accept";
  return now - (since ?? now) >= policy.gapTimeoutSeconds;
}

/** A gap that was accepted: what lies between was not applied. */
export interface NotedGap {
  readonly line: string;
  /** The key of the event that was accepted, if it has one. */
  readonly key: string | undefined;
  /** The last seq of the line that had been applied; 0 if none had. */
  readonly applied: bigint;
  /** The seq that was accepted. */
  readonly seq: bigint;
  /** When, in seconds since 1970. */
  readonly notedAt: number;
}

/** What every inbox is told. */
export interface InboxOptions {
  /**
   * Tells the inboxes apart that share a database. Two senders, or two endpoints with secrets of their own, need
   * two names: otherwise one could use up the other's ids.
   */
  readonly name?: string;
  readonly policy?: Partial<Policy>;
  /** How long event ids are remembered: longer than the sender can still send or replay. 30 days by default. */
  readonly retentionSeconds?: number;
}

export interface InboxConfig {
  readonly name: string;
  readonly policy: Policy;
  readonly retentionSeconds: number;
}

/** The options, checked, with the defaults. */
export function inboxConfig(options: InboxOptions = {}): InboxConfig {
  const { name = "webhooks", retentionSeconds = RETENTION_DEFAULT } = options;
  if (typeof name !== "string" || name === "" || name.includes("\0")) {
    throw new RangeError("name: expected a text that is not empty and has no NUL");
  }
  wholeNumber("retentionSeconds", retentionSeconds, 1, Number.MAX_SAFE_INTEGER);
  return { name, policy: policyOf(options.policy), retentionSeconds };
}

/** The instants before which ids and places are forgotten, in seconds since 1970. */
export function forgottenBefore(config: InboxConfig, now: number): { ids: number; lines: number } {
  const { retentionSeconds } = config;
  return { ids: now - retentionSeconds, lines: now - retentionSeconds * LINE_RETENTION_FACTOR };
}

/** A value, or a promise of it: inboxes on synchronous databases answer at once. */
export type Awaitable<T> = T | Promise<T>;

/** What an event does to the application. It writes through the transaction that it is given. */
export type Effect<Tx> = (tx: Tx, verdict: Verdict) => unknown;

/**
 * Applies each event once and in order. `Tx` is the transaction that the effect writes through; inboxes without
 * one hand out nothing.
 */
export interface Inbox<Tx> {
  /**
   * Judges an event, and runs `effect` if it is to be applied. If the effect fails, the event was never seen, and
   * its error is thrown. `now` is in seconds since 1970.
   */
  apply(received: Received, effect: Effect<Tx>, now?: number): Awaitable<Verdict>;
}
