/** How a SQL inbox admits an event: by the one rule, with the statements of each database. */

import { Buffer } from "node:buffer";
import type { GapTimers } from "../gap-timers.js";
import { DUPLICATE, movesLine, placeOf, type InboxConfig, type Place, type Verdict } from "../inbox.js";
import type { Received } from "../received.js";
import { bigintOf, Template, type Plan } from "./statement.js";

/** What an admission needs beside the event. */
export interface Memory {
  readonly config: InboxConfig;
  readonly timers: GapTimers;
}

export const APPLIED = new Template(
  `select cast(applied as text) as applied from railpost_lines where inbox = $1::text and line = $2::text`,
);

const INSERT_ID = new Template(
  `insert into railpost_inbox (inbox, event_id, applied_at) values ($1::text, $2::text, $3::bigint)
   on conflict do nothing returning 1 as inserted`,
);

const DELETE_ID = new Template(`delete from railpost_inbox where inbox = $1::text and event_id = $2::text`);

/** A replay or a duplicate may be older than what was applied. */
const MOVE_LINE = new Template(
  `insert into railpost_lines (inbox, line, applied, changed_at)
   values ($1::text, $2::text, $3::bigint, $4::bigint) on conflict (inbox, line) do update
   set applied = excluded.applied, changed_at = excluded.changed_at where applied < excluded.applied`,
);

const NOTE_GAP = new Template(
  `insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
   values ($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint)`,
);

/** On SQLite. Writing first takes the writer's lock before anything is read, in every kind of transaction. */
export function* admitSqlite(memory: Memory, received: Received, now: number): Plan<Verdict> {
  const { name, policy } = memory.config;
  const place = placeOf(received);
  const isNew = (yield INSERT_ID.with("sqlite", name, received.eventId, now)).length === 1;
  const applied = place === undefined ? 0n : yield* appliedOf(name, place);
  const verdict = memory.timers.judge(policy, received, { id: !isNew, applied }, now);
  if (isNew && !verdict.applies) yield DELETE_ID.with("sqlite", name, received.eventId);
  if (place === undefined) return verdict;
  if (movesLine(verdict)) yield MOVE_LINE.with("sqlite", name, place.line, place.seq, now);
  if (verdict.kind === "gap" && verdict.applies) {
    yield NOTE_GAP.with("sqlite", name, place.line, received.key ?? "", applied, place.seq, now);
  }
  return verdict;
}

function* appliedOf(name: string, place: Place): Plan<bigint> {
  const [row] = yield APPLIED.with("sqlite", name, place.line);
  return row === undefined ? 0n : bigintOf(row["applied"]);
}

/** Says -1: written; -2: its id is known, and its line was moved on; otherwise the last seq of its line, locked. */
const ADMIT = new Template(
  `select cast(railpost_admit($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint) as text) as before`,
);

/** For events that a policy lets in out of their turn. The line is there and locked. */
const MOVE_ON = new Template(
  `with new as (
    insert into railpost_inbox (inbox, event_id, applied_at) values ($1::text, $5::text, $4::bigint)
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
    select $1::text, $2::text, $7::bytea, $6::bigint, $3::bigint, $4::bigint from new where $6::bigint is not null
), line as (
    update railpost_lines set applied = greatest(applied, $3::bigint), changed_at = $4::bigint
    where inbox = $1::text and line = $2::text
)
select true as moved, exists (select from new) as noted`,
);

/** The line is not there. A conflict waits for the transaction that makes it. */
const BEGIN_LINE = new Template(
  `with line as (
    insert into railpost_lines (inbox, line, applied, changed_at)
    values ($1::text, $2::text, $3::bigint, $4::bigint) on conflict do nothing returning 1
), new as (
    insert into railpost_inbox (inbox, event_id, applied_at) select $1::text, $5::text, $4::bigint from line
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
    select $1::text, $2::text, $7::bytea, $6::bigint, $3::bigint, $4::bigint from new where $6::bigint is not null
)
select exists (select from line) as moved, exists (select from new) as noted`,
);

/** On PostgreSQL. Events of one line, and deliveries of one event, are serialised until the transaction ends. */
export function* admitPostgres(memory: Memory, received: Received, now: number): Plan<Verdict> {
  const { policy } = memory.config;
  const place = placeOf(received);
  for (;;) {
    const before = yield* askBefore(memory, received, place, now);
    if (before === -2n) return DUPLICATE;
    if (before === -1n) {
      if (place !== undefined) memory.timers.clear(place.line);
      return { kind: "fresh", applies: true };
    }
    const verdict = memory.timers.judge(policy, received, { id: false, applied: before }, now);
    if (!verdict.applies || place === undefined) return verdict;
    const written = yield* writeOutOfTurn(memory, received, place, verdict, before, now);
    // Another transaction made the line meanwhile: look again.
    if (written === "line_made_elsewhere") continue;
    return written === "noted" ? verdict : DUPLICATE;
  }
}

function* askBefore(memory: Memory, received: Received, place: Place | undefined, now: number): Plan<bigint> {
  const { line = null, seq = 0n, follows = 0n } = place ?? {};
  const [row] = yield ADMIT.with("postgres", memory.config.name, received.eventId, line, seq, follows, now);
  return bigintOf(row?.["before"]);
}

function* writeOutOfTurn(
  memory: Memory,
  received: Received,
  place: Place,
  verdict: Verdict,
  applied: bigint,
  now: number,
): Plan<"noted" | "known" | "line_made_elsewhere"> {
  const template = applied > 0n ? MOVE_ON : BEGIN_LINE;
  const gapAfter = verdict.kind === "gap" ? applied : null;
  const key = Buffer.from(received.key ?? "", "utf8");
  const { name } = memory.config;
  const { line, seq } = place;
  const [row] = yield template.with("postgres", name, line, seq, now, received.eventId, gapAfter, key);
  if (row?.["moved"] !== true) return "line_made_elsewhere";
  return row["noted"] === true ? "noted" : "known";
}
