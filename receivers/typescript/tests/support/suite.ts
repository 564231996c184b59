/** The rules of `vectors/inbox.json`, run against every inbox. */

import { expect } from "vitest";
import type { Inbox, InboxOptions, Policy, Verdict } from "../../src/inbox.js";
import type { Received } from "../../src/received.js";
import { cases, type Case } from "./vectors.js";

export const NOW = 1_767_225_600;

/** An inbox under test, and how to look into it. */
export interface Tested<Tx = unknown> extends Inbox<Tx> {
  applied(line: string): bigint | Promise<bigint>;
}

export type MakeInbox = (options: InboxOptions) => Promise<Tested> | Tested;

/** An authentic event; its line has the name of its key. */
export function event(id: string, place?: [key: string, seq: number | bigint], more: Partial<Received> = {}): Received {
  const [key, seq] = place ?? [];
  return {
    eventId: id,
    key,
    line: key,
    seq: seq === undefined ? undefined : BigInt(seq),
    attempt: 1,
    replay: false,
    timestamp: NOW,
    ...more,
  };
}

class EffectFailed extends Error {}

/** Offers an event: what the verdict was, also if the effect failed. */
export async function offer(inbox: Tested, received: Received, now = NOW, fails = false): Promise<Verdict> {
  let given: Verdict | undefined;
  try {
    return await inbox.apply(
      received,
      (_tx, verdict) => {
        given = verdict;
        if (fails) throw new EffectFailed("the effect fails");
      },
      now,
    );
  } catch (error) {
    if (!(error instanceof EffectFailed) || given === undefined) throw error;
    return given;
  }
}

function policyOf(policy: Case): Partial<Policy> {
  const { start, on_gap: onGap, gap_timeout: gapTimeoutSeconds, replays } = policy;
  const chosen = Object.entries({ start, onGap, gapTimeoutSeconds, replays });
  // Inboxes have defaults of their own; those of the vectors are these.
  const defaults = { start: "at_one", onGap: "wait", gapTimeoutSeconds: 60, replays: "keep_order" };
  return { ...defaults, ...Object.fromEntries(chosen.filter(([, value]) => value !== undefined)) } as Partial<Policy>;
}

const big = (value: number | string | null | undefined) => (value == null ? undefined : BigInt(value));

function received(step: Case): Received {
  const { id: eventId, key, line, replay = false } = step;
  return { eventId, key, line, seq: big(step["seq"]), after: big(step["after"]), replay, timestamp: NOW };
}

/** A verdict in the words of the vectors. */
function word(verdict: Verdict): string {
  if (verdict.kind !== "gap") return verdict.kind;
  return verdict.applies ? "gap_accepted" : "gap_held";
}

/** Runs all cases, each on an inbox that `make` makes. Returns how many cases and steps there were. */
export async function followsTheRules(make: MakeInbox): Promise<{ cases: number; steps: number }> {
  const ran = { cases: 0, steps: 0 };
  for (const { name, policy, steps } of cases("inbox", "cases")) {
    const inbox = await make({ policy: policyOf(policy) });
    for (const [at, step] of (steps as Case[]).entries()) {
      await followsStep(inbox, step, `${name}, step ${at}: ${JSON.stringify(step)}`);
      ran.steps += 1;
    }
    ran.cases += 1;
  }
  return ran;
}

async function followsStep(inbox: Tested, step: Case, shown: string): Promise<void> {
  const event = received(step);
  const placeOf = async () => (event.line === undefined ? 0n : inbox.applied(event.line));
  const before = await placeOf();
  const verdict = await offer(inbox, event, step["now"] ?? 0, step["fails"]);
  expect(word(verdict), shown).toBe(step["verdict"]);
  if ("applied" in verdict) expect(verdict.applied, shown).toBe(before);
  expect(await placeOf(), shown).toBe(big(step["applied"]) ?? 0n);
}

/** The wait for a gap needs no commit of a transaction that applied nothing. */
export async function remembersAGapWithoutACommit(inbox: Tested): Promise<void> {
  const second = event("2", ["A", 2]);
  expect(await offer(inbox, second, NOW)).toMatchObject({ kind: "gap", applies: false, applied: 0n });
  expect(await offer(inbox, second, NOW + 59)).toMatchObject({ kind: "gap", applies: false });
  expect(await offer(inbox, second, NOW + 60, true)).toMatchObject({ kind: "gap", applies: true });
  expect(await offer(inbox, second, NOW + 60)).toMatchObject({ kind: "gap", applies: true, applied: 0n });
  expect((await offer(inbox, second)).kind).toBe("duplicate");
}
