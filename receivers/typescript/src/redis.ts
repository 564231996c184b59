/**
 * The inbox in Redis, through `ioredis`: shared by several processes, with a time to live.
 *
 * Redis cannot commit with the application's database. An event is claimed, applied, then noted; a crash between the
 * last two lets it be applied again once the claim's lease has run out. Effects must bear that. With a SQL database at
 * hand, keep the inbox there.
 */

import { randomUUID } from "node:crypto";
import {
  BUSY,
  inboxConfig,
  judge,
  movesLine,
  placeOf,
  type Effect,
  type Inbox,
  type InboxConfig,
  type InboxOptions,
  type Known,
  type NotedGap,
  type Place,
  type Verdict,
} from "./inbox.js";
import { CLAIM_LEASE, GAP_SIGHT_RETENTION, GAPS_LISTED_MAX, LINE_RETENTION_FACTOR } from "./limits.js";
import type { Received } from "./received.js";
import { unixNow } from "./text.js";

/** What a Redis client must have: `ioredis` does. */
export interface RedisClient {
  eval(script: string, keys: number, ...keysAndValues: string[]): Promise<unknown>;
  get(key: string): Promise<string | null>;
  lrange(key: string, from: number, to: number): Promise<string[]>;
}

/** The Redis keys of an event. One without a line has its own claim for the line's. */
interface Names {
  readonly id: string;
  readonly line: string;
  readonly gap: string;
  readonly claims: readonly [string, string];
}

interface Claim {
  readonly names: Names;
  /** Tells this claim from all others, so that a late owner gives back no claim but its own. */
  readonly token: string;
}

/**
 * An inbox in Redis. Names of inboxes that share a Redis must not begin alike up to a colon.
 *
 * | key | value | lives |
 * |---|---|---|
 * | `NAME:id:ID` | `1`: the event was applied | as long as the retention |
 * | `NAME:line:LINE` | the last seq of the line that was applied | twelve times as long |
 * | `NAME:gap:LINE` | `applied since`: an open gap of the line, and when it was first seen | three days |
 * | `NAME:noted_gaps` | a list of gaps that were accepted: `applied seq noted_at line key` | as long as the retention |
 * | `NAME:claim:…` | a token: being applied | until it is done with, or a minute |
 */
export class RedisInbox implements Inbox<undefined> {
  readonly #redis: RedisClient;
  readonly #config: InboxConfig;

  constructor(redis: RedisClient, options?: InboxOptions) {
    this.#redis = redis;
    this.#config = inboxConfig(options);
  }

  /** What comes while its event or its line is being applied, in any process, is `busy`. */
  async apply(received: Received, effect: Effect<undefined>, now: number = unixNow()): Promise<Verdict> {
    const claim = { names: this.#names(received), token: randomUUID() };
    const known = await this.#claim(claim);
    if (known === undefined) return BUSY;
    const verdict = judge(this.#config.policy, received, known, now);
    const place = placeOf(received);
    if (!verdict.applies) {
      await this.#refuse(claim, verdict, known, place, now);
      return verdict;
    }
    try {
      await effect(undefined, verdict);
    } catch (error) {
      await this.#release(claim);
      throw error;
    }
    await this.#done(claim, received, verdict, known, place, now);
    return verdict;
  }

  /** The last seq of a line that was applied; 0 if the line is unknown. */
  async applied(line: string): Promise<bigint> {
    return BigInt((await this.#redis.get(`${this.#config.name}:line:${line}`)) ?? 0);
  }

  /** The latest gaps that were accepted, latest first. */
  async gaps(): Promise<NotedGap[]> {
    const texts = await this.#redis.lrange(`${this.#config.name}:noted_gaps`, 0, -1);
    return texts.map(readGap).filter((gap) => gap !== undefined);
  }

  /** What is known of the event and its line, or nothing if another has a claim. */
  async #claim({ names, token }: Claim): Promise<Known | undefined> {
    const { claims, id, line, gap } = names;
    const lease = String(CLAIM_LEASE * 1000);
    const found = await this.#redis.eval(BEGIN, 5, ...claims, id, line, gap, token, lease);
    if (found === null) return undefined;
    const [known, place, sight] = found as [number, string | null, string | null];
    const applied = BigInt(place ?? 0);
    return { id: known === 1, applied, gapSince: readSight(sight, applied) };
  }

  /** The line of a duplicate moves on; a gap that waits is remembered. */
  async #refuse(claim: Claim, verdict: Verdict, known: Known, place: Place | undefined, now: number): Promise<void> {
    const newGap = verdict.kind === "gap" && known.gapSince === undefined;
    const moved = movesLine(verdict) ? thenApplied(known, place) : 0n;
    await this.#release(claim, moved, newGap ? `${known.applied} ${now}` : "");
  }

  /** Gives a claim back. While it holds, the line moves on to `moved`, and its gap is seen by `sight`. */
  async #release({ names, token }: Claim, moved = 0n, sight = ""): Promise<void> {
    const { claims, line, gap } = names;
    const lives = [String(this.#lineSeconds()), sight, String(GAP_SIGHT_RETENTION)];
    await this.#redis.eval(RELEASE, 4, ...claims, line, gap, token, String(moved), ...lives);
  }

  /** The effect has happened: the event is remembered. */
  async #done(
    { names, token }: Claim,
    received: Received,
    verdict: Verdict,
    known: Known,
    place: Place | undefined,
    now: number,
  ): Promise<void> {
    const { claims, id, line } = names;
    const isGap = verdict.kind === "gap" && place !== undefined;
    const gap = isGap ? `${known.applied} ${place.seq} ${now} ${place.line} ${received.key ?? ""}` : "";
    const keys = [...claims, id, line, `${this.#config.name}:noted_gaps`];
    const values = [token, this.#config.retentionSeconds, thenApplied(known, place), this.#lineSeconds(), gap];
    await this.#redis.eval(DONE, 5, ...keys, ...values.map(String), String(GAPS_LISTED_MAX));
  }

  #lineSeconds(): number {
    return this.#config.retentionSeconds * LINE_RETENTION_FACTOR;
  }

  #names(received: Received): Names {
    const { name } = this.#config;
    const [id, idClaim] = [`${name}:id:${received.eventId}`, `${name}:claim:id:${received.eventId}`];
    const place = placeOf(received);
    if (place === undefined) return { id, line: `${name}:line`, gap: `${name}:gap`, claims: [idClaim, idClaim] };
    const { line } = place;
    const claims = [idClaim, `${name}:claim:line:${line}`] as const;
    return { id, line: `${name}:line:${line}`, gap: `${name}:gap:${line}`, claims };
  }
}

/** What the line's last seq is afterwards. A replay or a duplicate may be older than what was applied. */
function thenApplied(known: Known, place: Place | undefined): bigint {
  if (place === undefined) return 0n;
  return place.seq > known.applied ? place.seq : known.applied;
}

/** When a gap after this seq was first seen; nothing if the line had another place then. */
function readSight(text: string | null, applied: bigint): number | undefined {
  const [seenAfter, since] = text?.split(" ") ?? [];
  return since !== undefined && seenAfter === String(applied) ? Number(since) : undefined;
}

function readGap(text: string): NotedGap | undefined {
  const parts = /^(\d+) (\d+) (\d+) ([!-~]+) ([\s\S]*)$/.exec(text);
  if (parts === null) return undefined;
  const [, applied = "0", seq = "0", notedAt, line = "", key] = parts;
  return { line, key: key || undefined, applied: BigInt(applied), seq: BigInt(seq), notedAt: Number(notedAt) };
}

/** Claims, unless another has, and says whether the id is known, how far the line is, and whether it has a gap. */
const BEGIN = `
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return nil end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return {redis.call('exists', KEYS[3]), redis.call('get', KEYS[4]), redis.call('get', KEYS[5])}`;

/** The id is noted in any case, for the effect has happened. The line moves only if the claim held. */
const DONE = `
redis.call('set', KEYS[3], 1, 'ex', ARGV[2])
if ARGV[5] ~= '' then
    redis.call('lpush', KEYS[5], ARGV[5])
    redis.call('ltrim', KEYS[5], 0, ARGV[6] - 1)
    redis.call('expire', KEYS[5], ARGV[2])
end
if redis.call('get', KEYS[2]) ~= ARGV[1] then return end
if ARGV[3] ~= '0' then redis.call('set', KEYS[4], ARGV[3], 'ex', ARGV[4]) end
redis.call('del', KEYS[1], KEYS[2])`;

const RELEASE = `
if redis.call('get', KEYS[2]) == ARGV[1] then
    if ARGV[2] ~= '0' then redis.call('set', KEYS[3], ARGV[2], 'ex', ARGV[3]) end
    if ARGV[4] ~= '' then redis.call('set', KEYS[4], ARGV[4], 'ex', ARGV[5]) end
end
for at = 1, 2 do
    if redis.call('get', KEYS[at]) == ARGV[1] then redis.call('del', KEYS[at]) end
end`;
