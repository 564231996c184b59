import { describe, expect, it } from "vitest";
import { GapTimers } from "../src/gap-timers.js";
import { policyOf } from "../src/inbox.js";
import { GAP_SIGHTS_MAX } from "../src/limits.js";
import { event } from "./support/suite.js";

const TIMEOUT = 60;
const POLICY = policyOf({ gapTimeoutSeconds: TIMEOUT });

/** Whether the gap of a line is accepted at this time. */
function accepted(timers: GapTimers, line: string, now: number, applied = 0n): boolean {
  return timers.judge(POLICY, event("1", [line, 5]), { id: false, applied }, now).applies;
}

describe("the wait for a gap", () => {
  it("ends after the timeout, also if the effect failed then", () => {
    const timers = new GapTimers();
    expect([0, TIMEOUT - 1, TIMEOUT, TIMEOUT + 1].map((now) => accepted(timers, "L", now))).toEqual([
      false,
      false,
      true,
      true,
    ]);
  });

  it("starts again for a line that moved on elsewhere", () => {
    const timers = new GapTimers();
    expect(accepted(timers, "L", 0)).toBe(false);
    const times = [TIMEOUT, 2 * TIMEOUT - 1, 2 * TIMEOUT];
    expect(times.map((now) => accepted(timers, "L", now, 2n))).toEqual([false, false, true]);
  });

  it("is shared by more gaps than there is room for", () => {
    const timers = new GapTimers();
    for (let line = 0; line < GAP_SIGHTS_MAX; line += 1) accepted(timers, `line-${line}`, 0);
    expect(accepted(timers, "more", 10)).toBe(false);
    expect(accepted(timers, "even-more", 10 + TIMEOUT - 1)).toBe(false);
    expect(accepted(timers, "even-more", 10 + TIMEOUT)).toBe(true);
    expect(timers.size).toBe(GAP_SIGHTS_MAX);
  });

  it("makes room for others once it was accepted", () => {
    const timers = new GapTimers();
    for (const now of [0, TIMEOUT]) {
      for (let line = 0; line < GAP_SIGHTS_MAX; line += 1) accepted(timers, `line-${line}`, now);
    }
    expect(accepted(timers, "another", TIMEOUT)).toBe(false);
    expect(accepted(timers, "another", 2 * TIMEOUT)).toBe(true);
    expect(timers.size).toBe(1);
  });

  it("is forgotten when the gap closes, and never begun by one that is held for ever", () => {
    const timers = new GapTimers();
    accepted(timers, "L", 0);
    timers.judge(POLICY, event("1", ["L", 1]), { id: false, applied: 0n }, 0);
    timers.judge(policyOf({ onGap: "hold" }), event("5", ["M", 5]), { id: false, applied: 0n }, 0);
    expect(timers.size).toBe(0);
  });
});
