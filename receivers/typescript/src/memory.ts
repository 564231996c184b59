/**
 * The inbox in memory: fast, bounded, and gone with the process.
 *
 * After a restart every event and every line is unknown. What the sender sends again then is applied again, so this
 * inbox suits effects that are harmless twice, and tests.
 */

import { GapTimers } from "./gap-timers.js";
import {
  BUSY,
  forgottenBefore,
  inboxConfig,
  movesLine,
  placeOf,
  type Effect,
  type Inbox,
  type InboxConfig,
  type InboxOptions,
  type NotedGap,
  type Place,
  type Verdict,
} from "./inbox.js";
import { GAPS_LISTED_MAX, MEMORY_IDS_MAX } from "./limits.js";
import type { Received } from "./received.js";
import { unixNow } from "./text.js";

interface Line {
  applied: bigint;
  open: boolean;
  changedAt: number;
}

/** An inbox in memory. By default it takes an unknown line from wherever it comes first. */
export class MemoryInbox implements Inbox<undefined> {
  readonly #config: InboxConfig;
  readonly #timers = new GapTimers();
  readonly #open = new Set<string>();
  /** Applied ids and when, oldest first: a map keeps the order in which its entries came. */
  readonly #applied = new Map<string, number>();
  readonly #lines = new Map<string, Line>();
  readonly #gaps: NotedGap[] = [];

  constructor(options: InboxOptions = {}) {
    this.#config = inboxConfig({ ...options, policy: { start: "anywhere", ...options.policy } });
  }

  /** What comes while its event or its line is being applied is `busy`: its turn is not known yet. */
  async apply(received: Received, effect: Effect<undefined>, now: number = unixNow()): Promise<Verdict> {
    this.#forget(now);
    const verdict = this.#judge(received, now);
    const place = placeOf(received);
    if (!verdict.applies) {
      if (place !== undefined && movesLine(verdict)) this.#moveOn(place, now);
      return verdict;
    }
    this.#claim(received, place, now);
    try {
      await effect(undefined, verdict);
      this.#finish(received, place, verdict, now);
    } finally {
      this.#release(received, place);
    }
    return verdict;
  }

  /** The last seq of a line that was applied; 0 if the line is unknown. */
  applied(line: string): bigint {
    return this.#lines.get(line)?.applied ?? 0n;
  }

  /** The latest gaps that were accepted, latest first. */
  gaps(): NotedGap[] {
    return [...this.#gaps].reverse();
  }

  #judge(received: Received, now: number): Verdict {
    const line = received.line === undefined ? undefined : this.#lines.get(received.line);
    if (this.#open.has(received.eventId) || (placeOf(received) !== undefined && line?.open)) return BUSY;
    const known = { id: this.#applied.has(received.eventId), applied: line?.applied ?? 0n };
    return this.#timers.judge(this.#config.policy, received, known, now);
  }

  #claim(received: Received, place: Place | undefined, now: number): void {
    this.#open.add(received.eventId);
    if (place !== undefined) this.#line(place, now).open = true;
  }

  #finish(received: Received, place: Place | undefined, verdict: Verdict, now: number): void {
    this.#applied.set(received.eventId, now);
    if (place === undefined) return;
    this.#moveOn(place, now);
    if (verdict.kind !== "gap") return;
    const { line, seq } = place;
    this.#gaps.push({ line, key: received.key, applied: verdict.applied, seq, notedAt: now });
    if (this.#gaps.length > GAPS_LISTED_MAX) this.#gaps.shift();
  }

  #release(received: Received, place: Place | undefined): void {
    this.#open.delete(received.eventId);
    const line = place === undefined ? undefined : this.#lines.get(place.line);
    if (line !== undefined) line.open = false;
    // A line that nothing was applied of is as unknown as before.
    if (place !== undefined && line?.applied === 0n) this.#lines.delete(place.line);
  }

  /** A replay or a duplicate may be older than what was applied. The line goes to the end of the map. */
  #moveOn(place: Place, now: number): void {
    const line = this.#line(place, now);
    if (place.seq > line.applied) line.applied = place.seq;
    line.changedAt = now;
    this.#lines.delete(place.line);
    this.#lines.set(place.line, line);
  }

  #line(place: Place, now: number): Line {
    const line = this.#lines.get(place.line) ?? { applied: 0n, open: false, changedAt: now };
    this.#lines.set(place.line, line);
    return line;
  }

  /** Forgets what is old or too much: at most two of each kind, so that no call pays for many. */
  #forget(now: number): void {
    const before = forgottenBefore(this.#config, now);
    for (let step = 0; step < 2; step += 1) {
      const [id, at] = this.#applied.entries().next().value ?? [];
      const full = this.#applied.size >= MEMORY_IDS_MAX;
      if (id !== undefined && at !== undefined && (full || at < before.ids)) this.#applied.delete(id);
      const [name, line] = this.#lines.entries().next().value ?? [];
      if (name !== undefined && line !== undefined && !line.open && line.changedAt < before.lines) {
        this.#lines.delete(name);
      }
    }
  }
}
