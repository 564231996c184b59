/** The inbox in a SQL database: its row and the application's effect commit together. */

import { Buffer } from "node:buffer";
import { GapTimers } from "../gap-timers.js";
import {
  forgottenBefore,
  inboxConfig,
  type Awaitable,
  type Effect,
  type Inbox,
  type InboxConfig,
  type InboxOptions,
  type NotedGap,
  type Verdict,
} from "../inbox.js";
import { GAPS_LISTED_MAX, PRUNE_STEP } from "../limits.js";
import type { Received } from "../received.js";
import { unixNow } from "../text.js";
import { admitPostgres, admitSqlite, APPLIED } from "./admission.js";
import { schemaStatements } from "./schema.js";
import { bigintOf, chain, drive, Template, type Dialect, type Plan, type Row, type Statement } from "./statement.js";

/** What a database library has to do for an inbox. */
export interface Driver<Tx> {
  readonly dialect: Dialect;
  /** Whether it answers at once. Then effects must, too: a transaction cannot wait for a promise. */
  readonly sync: boolean;
  run(tx: Tx, statement: Statement): Awaitable<readonly Row[]>;
  /** Runs `work` in a transaction of its own. If it fails, nothing that it wrote is kept. */
  transaction<T>(work: (tx: Tx) => Awaitable<T>): Awaitable<T>;
  /** Says whether this is a transaction, as far as the library can tell. */
  inTransaction(tx: Tx): boolean;
}

/** A result, at once or as a promise, by what the database library does. */
export type Result<T, Sync extends boolean> = Sync extends true ? T : Promise<T>;

/**
 * An inbox in the application's own database. `admit` judges in a transaction of the application's; `apply` runs
 * one of its own. How long a gap was seen is remembered per inbox object and process.
 */
export class SqlInbox<Tx, Sync extends boolean> implements Inbox<Tx> {
  readonly config: InboxConfig;
  /** Whether it answers at once. */
  readonly sync: Sync;
  readonly #driver: Driver<Tx>;
  readonly #timers = new GapTimers();

  constructor(driver: Driver<Tx>, options?: InboxOptions) {
    this.config = inboxConfig(options);
    this.sync = driver.sync as Sync;
    this.#driver = driver;
  }

  /** Creates the tables and, in PostgreSQL, one function, where they are missing. */
  createTables(): Result<void, Sync> {
    const { dialect } = this.#driver;
    function* plan(): Plan<void> {
      for (const text of schemaStatements(dialect)) {
        yield { text, values: [], rows: false };
      }
    }
    return this.transact(() => plan());
  }

  /**
   * Judges an event within the transaction of its effect. If the verdict applies, run the effect; then commit,
   * whatever the verdict. If anything fails, roll back, and the event was never seen.
   */
  admit(tx: Tx, received: Received, now: number = unixNow()): Result<Verdict, Sync> {
    return this.#result(() => {
      if (!this.#driver.inTransaction(tx)) {
        throw new TypeError("tx: expected an open transaction: outside one, a crash would lose the event");
      }
      return this.run(tx, this.admission(received, now));
    });
  }

  /** Judges an event in a transaction of its own, and runs `effect` in it if it is to be applied. */
  apply(received: Received, effect: Effect<Tx>, now: number = unixNow()): Result<Verdict, Sync> {
    return this.#result(() =>
      this.#driver.transaction((tx) =>
        chain(this.run(tx, this.admission(received, now)), (verdict) =>
          verdict.applies ? chain(effect(tx, verdict), () => verdict) : verdict,
        ),
      ),
    );
  }

  /** The last seq of a line that was applied; 0 if the line is unknown. */
  applied(line: string): Result<bigint, Sync> {
    const { config } = this;
    const { dialect } = this.#driver;
    function* plan(): Plan<bigint> {
      const [row] = yield APPLIED.with(dialect, config.name, line);
      return row === undefined ? 0n : bigintOf(row["applied"]);
    }
    return this.transact(() => plan());
  }

  /** The latest gaps that were accepted, latest first. */
  gaps(): Result<NotedGap[], Sync> {
    const { config } = this;
    const { dialect } = this.#driver;
    function* plan(): Plan<NotedGap[]> {
      return (yield GAPS[dialect].with(dialect, config.name)).map(readGap);
    }
    return this.transact(() => plan());
  }

  /**
   * Forgets what is older than the retention, at most a step of it. Returns how many rows went: call it again
   * while there are some. It looks through all lines, so once a day is often enough.
   */
  prune(now: number = unixNow()): Result<number, Sync> {
    const { config } = this;
    const { dialect } = this.#driver;
    const before = forgottenBefore(config, now);
    function* plan(): Plan<number> {
      const { ids, lines, gaps } = PRUNE[dialect];
      const steps = [ids.with(dialect, config.name, before.ids), lines.with(dialect, config.name, before.lines)];
      steps.push(gaps.with(dialect, config.name, before.ids));
      let gone = 0;
      for (const step of steps) gone += (yield step).length;
      return gone;
    }
    return this.transact(() => plan());
  }

  /** @internal */
  get dialect(): Dialect {
    return this.#driver.dialect;
  }

  /** @internal The plan that judges an event. */
  admission(received: Received, now: number): Plan<Verdict> {
    const memory = { config: this.config, timers: this.#timers };
    const admit = this.#driver.dialect === "postgres" ? admitPostgres : admitSqlite;
    return admit(memory, received, now);
  }

  /** @internal */
  run<T>(tx: Tx, plan: Plan<T>): Awaitable<T> {
    return drive(plan, (statement) => this.#driver.run(tx, statement));
  }

  /** @internal */
  transact<T>(work: (tx: Tx) => Plan<T>): Result<T, Sync> {
    return this.within((tx) => this.run(tx, work(tx)));
  }

  /** @internal */
  within<T>(work: (tx: Tx) => Awaitable<T>): Result<T, Sync> {
    return this.#result(() => this.#driver.transaction(work));
  }

  #result<T>(run: () => Awaitable<T>): Result<T, Sync> {
    const result = this.sync ? run() : (async () => run())();
    return result as Result<T, Sync>;
  }
}

/** A key may hold a NUL, beyond which not every library reads a text: so it comes in hex. */
const GAPS = { postgres: gapsWith("encode(key, 'hex')"), sqlite: gapsWith("hex(key)") };

function gapsWith(key: string): Template {
  return new Template(
    `select line, ${key} as key, cast(applied as text) as applied, cast(seq as text) as seq, cast(noted_at as text) as noted_at
   from railpost_gaps where inbox = $1::text order by noted_at desc, seq desc limit ${GAPS_LISTED_MAX}`,
  );
}

function readGap(row: Row): NotedGap {
  const key = Buffer.from(String(row["key"]), "hex").toString("utf8");
  return {
    line: String(row["line"]),
    key: key === "" ? undefined : key,
    applied: bigintOf(row["applied"]),
    seq: bigintOf(row["seq"]),
    notedAt: Number(row["noted_at"]),
  };
}

const PRUNE = {
  postgres: {
    ids: pruneByPlace("railpost_inbox", "applied_at", "ctid"),
    lines: pruneByPlace("railpost_lines", "changed_at", "ctid"),
    gaps: pruneByPlace("railpost_gaps", "noted_at", "ctid"),
  },
  sqlite: {
    ids: pruneByKey("railpost_inbox", "applied_at", "inbox, event_id"),
    lines: pruneByKey("railpost_lines", "changed_at", "inbox, line"),
    gaps: pruneByKey("railpost_gaps", "noted_at", "rowid"),
  },
};

function pruneByPlace(table: string, age: string, place: string): Template {
  return new Template(
    `delete from ${table} where ${place} = any (array(select ${place} from ${table}
     where inbox = $1::text and ${age} < $2::bigint limit ${PRUNE_STEP} for update skip locked)) returning 1 as gone`,
  );
}

function pruneByKey(table: string, age: string, key: string): Template {
  return new Template(
    `delete from ${table} where (${key}) in (select ${key} from ${table}
     where inbox = $1::text and ${age} < $2::bigint limit ${PRUNE_STEP}) returning 1 as gone`,
  );
}
