/**
 * The inbox as a work queue: an event is acknowledged once it is durably queued.
 *
 * A worker takes the oldest job whose line and key have no older one, runs the effect and removes the job, all in one
 * transaction: a process that dies leaves the job where it was. A job that fails is tried again later; one that keeps
 * failing becomes a dead letter, and holds its line and key until a person retries or discards it.
 */

import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import type { Delivery } from "./delivery.js";
import { placeOf, type Awaitable, type Verdict } from "./inbox.js";
import { DEAD_LISTED_MAX, WORKER_IDLE_DEFAULT } from "./limits.js";
import type { Received } from "./received.js";
import type { Result, SqlInbox } from "./sql/inbox.js";
import { bigintOf, chain, isPromise, Template, type Dialect, type Plan, type Row } from "./sql/statement.js";
import { unixNow, wholeNumber } from "./text.js";
import {
  deliveryOf,
  errorText,
  headOf,
  nextTry,
  workPolicyOf,
  type DeadLetter,
  type Job,
  type QueueStats,
  type WorkOutcome,
  type WorkPolicy,
} from "./work.js";

/** Takes deliveries in to be processed later. Once it has, they are acknowledged. */
export interface Intake {
  /** Judges a delivery and queues it if it is to be applied. Nothing: the queue is full. */
  take(delivery: Delivery, now?: number): Awaitable<Verdict | undefined>;
}

export interface WorkerOptions {
  /** Ends the worker after the job that it is at. */
  readonly signal: AbortSignal;
  /** Jobs that are worked on at once. With a synchronous SQLite there is only ever one. */
  readonly concurrency?: number;
  /** How often an idle worker looks for jobs that another process queued. */
  readonly idleSeconds?: number;
  /** Is told what a worker did, but not that it was idle. */
  readonly onWorked?: (worked: Exclude<WorkOutcome, { kind: "idle" }>) => void;
  /** Is told that the store could not be used; the worker goes on. Writes to `console.error` by default. */
  readonly onError?: (error: unknown) => void;
}

/** A queue in the application's own database, filled through an inbox. */
export class Queue<Tx, Sync extends boolean> implements Intake {
  readonly #inbox: SqlInbox<Tx, Sync>;
  readonly #policy: WorkPolicy;
  readonly #sleepers = new Set<() => void>();
  /** How often workers were woken: one that was called while it looked does not fall asleep. */
  #calls = 0;

  constructor(inbox: SqlInbox<Tx, Sync>, policy?: Partial<WorkPolicy>) {
    this.#inbox = inbox;
    this.#policy = workPolicyOf(policy);
  }

  /**
   * Judges an event and queues it if it is to be applied, in a transaction of the application's: commit, and
   * acknowledge it. Nothing: the queue is full, roll back.
   */
  enqueue(tx: Tx, delivery: Delivery, now: number = unixNow()): Result<Verdict | undefined, Sync> {
    const admitted = this.#inbox.admit(tx, delivery, now) as Awaitable<Verdict>;
    const queued = chain(admitted, (verdict) => this.#inbox.run(tx, this.#push(verdict, delivery, now)));
    return queued as Result<Verdict | undefined, Sync>;
  }

  /** Does the same in a transaction of its own. Nothing: the queue is full. */
  take(delivery: Delivery, now: number = unixNow()): Result<Verdict | undefined, Sync> {
    const taken = attempt(() =>
      this.#inbox.within((tx) =>
        chain(this.#inbox.run(tx, this.#enqueue(delivery, now)), (verdict) => {
          if (verdict === undefined) throw FULL;
          return verdict;
        }),
      ),
    );
    const verdict = chain(taken, (tried) => {
      if (tried.ok) {
        this.#wake();
        return tried.value as Verdict;
      }
      if (tried.error === FULL) return undefined;
      throw tried.error;
    });
    return verdict as Result<Verdict | undefined, Sync>;
  }

  /**
   * Takes the oldest job that is due and that no other worker holds, and runs `effect` on it. What the effect writes
   * through its transaction, and the job's removal, commit together; if it fails, nothing it wrote is kept, and the job
   * is tried again later.
   */
  workOne(
    effect: (delivery: Delivery, tx: Tx, job: Job) => unknown,
    now: number = unixNow(),
  ): Result<WorkOutcome, Sync> {
    return this.#inbox.within((tx) =>
      chain(this.#inbox.run(tx, this.#due(now)), (found): Awaitable<WorkOutcome> => {
        if (found === undefined) return { kind: "idle" };
        if ("damaged" in found) return this.#inbox.run(tx, this.#bury(found.position, found.damaged));
        return this.#work(tx, found, () => effect(found.delivery, tx, found), now);
      }),
    );
  }

  /** Works until the signal ends it. Failures of effects are retried; those of the store are told and outlived. */
  async work(effect: (delivery: Delivery, tx: Tx, job: Job) => unknown, options: WorkerOptions): Promise<void> {
    const { concurrency = 1, idleSeconds = WORKER_IDLE_DEFAULT } = options;
    wholeNumber("concurrency", concurrency, 1, 1000);
    const workers = Array.from({ length: concurrency }, async () => {
      while (!options.signal.aborted) {
        const calls = this.#calls;
        const found = await this.#turn(effect, options);
        if (!found && calls === this.#calls) await this.#sleep(idleSeconds, options.signal);
      }
    });
    await Promise.all(workers);
  }

  /** The jobs that were given up on, oldest first. */
  deadLetters(): Result<DeadLetter[], Sync> {
    const { config, dialect } = this.#inbox;
    function* plan(): Plan<DeadLetter[]> {
      return (yield DEAD.with(dialect, config.name)).map(readDeadLetter);
    }
    return this.#inbox.transact(plan);
  }

  /** Gives a dead letter all its tries again. Says whether there was one at this position. */
  retry(position: bigint, now: number = unixNow()): Result<boolean, Sync> {
    return this.#change((dialect, name) => RETRY.with(dialect, name, position, now));
  }

  /** Drops a dead letter and lets its line and key go on. Says whether there was one at this position. */
  discard(position: bigint): Result<boolean, Sync> {
    return this.#change((dialect, name) => DISCARD.with(dialect, name, position));
  }

  /** How much waits, and for how long. */
  stats(now: number = unixNow()): Result<QueueStats, Sync> {
    const { config, dialect } = this.#inbox;
    function* plan(): Plan<QueueStats> {
      const [counts] = yield COUNTS.with(dialect, config.name);
      const [oldest] = yield OLDEST.with(dialect, config.name);
      return {
        waiting: Number(counts?.["waiting"] ?? 0),
        dead: Number(counts?.["dead"] ?? 0),
        lagSeconds: oldest === undefined ? 0 : lag(oldest, now),
      };
    }
    return this.#inbox.transact(plan);
  }

  #change(statement: (dialect: Dialect, name: string) => Parameters<typeof changed>[0]): Result<boolean, Sync> {
    const { config, dialect } = this.#inbox;
    const done = this.#inbox.transact(() => changed(statement(dialect, config.name))) as Awaitable<boolean>;
    return chain(done, (was) => {
      if (was) this.#wake();
      return was;
    }) as Result<boolean, Sync>;
  }

  *#enqueue(delivery: Delivery, now: number): Plan<Verdict | undefined> {
    const verdict = yield* this.#inbox.admission(delivery, now);
    return yield* this.#push(verdict, delivery, now);
  }

  /** Queues what is to be applied, if there is room. */
  *#push(verdict: Verdict, delivery: Delivery, now: number): Plan<Verdict | undefined> {
    if (!verdict.applies) return verdict;
    const { config, dialect } = this.#inbox;
    const { line, key } = orderOf(delivery, dialect);
    const { backlogMax } = this.#policy;
    const values = [config.name, line, key, now, headOf(delivery), delivery.body, backlogMax];
    const rows = yield PUSH[dialect].with(dialect, ...values);
    return rows.length === 1 ? verdict : undefined;
  }

  *#due(now: number): Plan<Job | { position: bigint; damaged: string } | undefined> {
    const { config, dialect } = this.#inbox;
    const [row] = yield DUE[dialect].with(dialect, config.name, now);
    if (row === undefined) return undefined;
    const [position, tries] = [bigintOf(row["position"]), Number(row["tries"])];
    try {
      return { position, tries, delivery: readDelivery(row) };
    } catch (error) {
      return { position, damaged: `the row is damaged: ${errorText(error)}` };
    }
  }

  #work(tx: Tx, job: Job, effect: () => unknown, now: number): Awaitable<WorkOutcome> {
    const inbox = this.#inbox;
    const tried = chain(inbox.run(tx, savepoint("savepoint railpost_effect")), () =>
      // A statement that failed and whose error was caught makes the release fail.
      attempt(() => chain(effect(), () => inbox.run(tx, savepoint("release savepoint railpost_effect")))),
    );
    return chain(tried, (outcome) =>
      inbox.run(tx, outcome.ok ? this.#remove(job) : this.#undo(job, outcome.error, now)),
    );
  }

  *#remove(job: Job): Plan<WorkOutcome> {
    yield REMOVE.with(this.#inbox.dialect, job.position);
    return { kind: "done", eventId: job.delivery.eventId };
  }

  *#undo(job: Job, failure: unknown, now: number): Plan<WorkOutcome> {
    yield* savepoint("rollback to savepoint railpost_effect");
    const tries = job.tries + 1;
    const at = nextTry(this.#policy, tries, now);
    const error = errorText(failure);
    yield FAIL.with(this.#inbox.dialect, job.position, tries, at ?? null, error);
    const { eventId } = job.delivery;
    return at === undefined ? { kind: "dead", eventId, error } : { kind: "failed", eventId, error, at };
  }

  /** A job that cannot be read can never succeed. */
  *#bury(position: bigint, error: string): Plan<WorkOutcome> {
    yield BURY.with(this.#inbox.dialect, position, error);
    return { kind: "dead", eventId: "", error };
  }

  /** Says whether there was something to do. */
  async #turn(effect: (delivery: Delivery, tx: Tx, job: Job) => unknown, options: WorkerOptions): Promise<boolean> {
    try {
      const worked = (await this.workOne(effect)) as WorkOutcome;
      if (worked.kind === "idle") return false;
      options.onWorked?.(worked);
      // A synchronous database would keep everything else waiting until the queue is empty.
      await new Promise((resolve) => setImmediate(resolve));
      return true;
    } catch (error) {
      (options.onError ?? logToConsole)(error);
      return false;
    }
  }

  /** Until something is queued in this process, the time is over, or the worker shall end. */
  async #sleep(seconds: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", wake);
        this.#sleepers.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, seconds * 1000);
      signal.addEventListener("abort", wake);
      this.#sleepers.add(wake);
    });
  }

  #wake(): void {
    this.#calls += 1;
    for (const wake of this.#sleepers) wake();
  }
}

function logToConsole(error: unknown): void {
  console.error("railpost: the queue could not be worked on:", error);
}

/** Rolls a transaction back because the queue is full. */
const FULL = new Error("the queue is full");

type Tried<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };

/** Runs something that may fail, at once or later. */
function attempt<T>(run: () => Awaitable<T>): Awaitable<Tried<T>> {
  const failed = (error: unknown): Tried<T> => ({ ok: false, error });
  const succeeded = (value: T): Tried<T> => ({ ok: true, value });
  try {
    const result = run();
    return isPromise<T>(result) ? result.then(succeeded, failed) : succeeded(result as T);
  } catch (error) {
    return failed(error);
  }
}

/**
 * The line and the key that a job waits in; neither without a line. The line, because an endpoint may have one line for
 * all keys; the key, because one that begins a new line may have jobs of the old one, which go first.
 */
function orderOf(received: Received, dialect: Dialect): { line: string | null; key: string | Buffer | null } {
  const line = placeOf(received)?.line;
  if (line === undefined || received.key === undefined) return { line: line ?? null, key: null };
  return { line, key: dialect === "postgres" ? Buffer.from(received.key, "utf8") : received.key };
}

function* savepoint(text: string): Plan<void> {
  yield { text, values: [], rows: false };
}

function* changed(statement: ReturnType<Template["with"]>): Plan<boolean> {
  return (yield statement).length === 1;
}

function readDelivery(row: Row): Delivery {
  return deliveryOf(String(row["head"]), row["body"] as Uint8Array);
}

function readDeadLetter(row: Row): DeadLetter {
  const [position, tries] = [bigintOf(row["position"]), Number(row["tries"])];
  let delivery: Delivery | undefined;
  try {
    delivery = readDelivery(row);
  } catch {
    delivery = undefined;
  }
  return { position, tries, error: String(row["error"]), delivery };
}

function lag(oldest: Row, now: number): number {
  try {
    const { timestamp } = JSON.parse(String(oldest["head"])) as { timestamp: number };
    return Math.max(0, now - timestamp);
  } catch {
    return 0;
  }
}

const PUSH = { postgres: push("bytea"), sqlite: push("text") };

function push(key: string): Template {
  return new Template(
    `insert into railpost_work (inbox, line, key, due_at, head, body)
     select $1::text, $2::text, $3::${key}, $4::bigint, $5::text, $6::bytea where $7::bigint > (select count(*) from
     (select 1 from railpost_work where inbox = $1::text limit $7::bigint) as waiting) returning 1 as queued`,
  );
}

/** In PostgreSQL the row's lock is the claim: it lasts as long as the transaction, and no longer than the process. */
const DUE = { postgres: due("for update skip locked"), sqlite: due("") };

function due(lock: string): Template {
  return new Template(
    `select cast(position as text) as position, tries, head, body from railpost_work as job
     where inbox = $1::text and due_at <= $2::bigint
     and not exists (select 1 from railpost_work as older where older.inbox = job.inbox
     and older.line = job.line and older.position < job.position)
     and not exists (select 1 from railpost_work as older where older.inbox = job.inbox
     and older.key = job.key and older.position < job.position)
     order by job.position limit 1 ${lock}`,
  );
}

const REMOVE = new Template(`delete from railpost_work where position = $1::bigint`);

const FAIL = new Template(
  `update railpost_work set tries = $2::integer, due_at = $3::bigint, error = $4::text where position = $1::bigint`,
);

const BURY = new Template(`update railpost_work set due_at = null, error = $2::text where position = $1::bigint`);

const DEAD = new Template(
  `select cast(position as text) as position, tries, head, body, error from railpost_work
   where inbox = $1::text and due_at is null order by railpost_work.position limit ${DEAD_LISTED_MAX}`,
);

const RETRY = new Template(
  `update railpost_work set tries = 0, due_at = $3::bigint
   where inbox = $1::text and position = $2::bigint and due_at is null returning 1 as retried`,
);

const DISCARD = new Template(
  `delete from railpost_work where inbox = $1::text and position = $2::bigint and due_at is null returning 1 as gone`,
);

const COUNTS = new Template(
  `select cast(count(*) as text) as waiting, cast(count(*) - count(due_at) as text) as dead
   from railpost_work where inbox = $1::text`,
);

const OLDEST = new Template(
  `select head from railpost_work where inbox = $1::text and due_at is not null order by position limit 1`,
);
