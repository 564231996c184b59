/** Counters: what became of the requests, for metrics of the application's own. */

import type { Verdict } from "./inbox.js";

/** The counts since the start. */
export interface Counts {
  /** Events that were applied or queued. */
  fresh: number;
  /** Events that had been applied before. */
  duplicate: number;
  /** Events that came too late. */
  stale: number;
  /** Events that came too early, held off or accepted. */
  gap: number;
  /** Events that came while they, or others of their line, were being applied. */
  busy: number;
  /** Requests that were not believed. */
  rejected: number;
  /** Events that found the queue full. */
  full: number;
  /** Events that the store or the effect failed on. */
  trouble: number;
}

/** Counts what became of requests. Several webhooks may share one. */
export class Counters {
  readonly #counts: Counts = {
    fresh: 0,
    duplicate: 0,
    stale: 0,
    gap: 0,
    busy: 0,
    rejected: 0,
    full: 0,
    trouble: 0,
  };

  count(what: keyof Counts | Verdict): void {
    this.#counts[typeof what === "string" ? what : what.kind] += 1;
  }

  /** The counts so far. */
  counts(): Readonly<Counts> {
    return { ...this.#counts };
  }
}
