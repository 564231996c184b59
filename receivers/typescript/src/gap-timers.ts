/**
 * When each line's gap was first seen, in this process.
 *
 * A SQL inbox judges in the application's transaction, and an application may well roll back one in which nothing
 * was applied. So the first sight of a gap is not a row but an entry of a bounded map, and the wait starts again
 * with the process.
 */

import { judge, placeOf, type Known, type Policy, type Verdict } from "./inbox.js";
import { GAP_SIGHT_RETENTION, GAP_SIGHTS_MAX } from "./limits.js";
import type { Received } from "./received.js";

interface Sight {
  /** The place that the line had. If it has another one, this gap is closed. */
  readonly applied: bigint;
  readonly since: number;
  /** Kept after it was accepted, while there is room: the effect may fail, and the event come again. */
  accepted: boolean;
}

export class GapTimers {
  readonly #lines = new Map<string, Sight>();
  /** Since when there has been no room. Lines without a sight of their own wait from here. */
  #fullSince: number | undefined;

  /** How many lines have a sight. */
  get size(): number {
    return this.#lines.size;
  }

  /** Judges by the policy, and remembers or forgets the sight of the line's gap. */
  judge(policy: Policy, received: Received, known: Known, now: number): Verdict {
    const verdict = judge(policy, received, known, now);
    const place = placeOf(received);
    if (place === undefined) return verdict;
    if (verdict.kind === "fresh" && known.applied < place.seq) this.clear(place.line);
    const waits = verdict.kind === "gap" && !verdict.applies && policy.onGap === "wait";
    if (!waits) return verdict;
    const gapSince = this.#first(place.line, known.applied, now);
    const after = judge(policy, received, { ...known, gapSince }, now);
    const sight = this.#lines.get(place.line);
    if (sight !== undefined) sight.accepted = after.applies;
    return after;
  }

  /** The line moves on, and leaves its gap behind. */
  clear(line: string): void {
    this.#lines.delete(line);
  }

  /** When the gap after this place was first seen. */
  #first(line: string, applied: bigint, now: number): number {
    const sight = this.#lines.get(line);
    if (sight !== undefined && sight.applied === applied) return sight.since;
    if (sight !== undefined) {
      this.#lines.set(line, { applied, since: now, accepted: false });
      return now;
    }
    this.#makeRoom(now);
    const since = this.#fullSince ?? now;
    if (this.#lines.size < GAP_SIGHTS_MAX) this.#lines.set(line, { applied, since, accepted: false });
    return since;
  }

  /**
   * There is room again when half of it is free: lines that wait together are not made to start over by each one
   * that leaves.
   */
  #makeRoom(now: number): void {
    if (this.#fullSince === undefined && this.#lines.size < GAP_SIGHTS_MAX) return;
    for (const [line, sight] of this.#lines) {
      if (sight.accepted || sight.since < now - GAP_SIGHT_RETENTION) this.#lines.delete(line);
    }
    if (this.#lines.size <= GAP_SIGHTS_MAX / 2) this.#fullSince = undefined;
    else this.#fullSince ??= now;
  }
}
