/** The inbox in the transactions of Drizzle, on PostgreSQL or SQLite. */

import { sql, type SQL } from "drizzle-orm";
import type { Awaitable, InboxOptions } from "./inbox.js";
import { SqlInbox, type Driver } from "./sql/inbox.js";
import { chain, PROBE, type Row, type Statement } from "./sql/statement.js";

/**
 * Which of Drizzle's databases it is: `sqlite-sync` for those that answer at once (better-sqlite3), `sqlite` for the
 * others (libsql).
 */
export type DrizzleDialect = "postgres" | "sqlite" | "sqlite-sync";

/** What Drizzle's database must have. */
export interface DrizzleDatabase<Tx> {
  transaction(work: (tx: Tx) => never): unknown;
}

export interface DrizzleInboxOptions<D extends DrizzleDialect> extends InboxOptions {
  readonly dialect: D;
}

/**
 * An inbox whose transactions are Drizzle's. On PostgreSQL they must be `read committed`, the default. With
 * `sqlite-sync`, effects must be synchronous, as Drizzle demands it.
 */
export class DrizzleInbox<Tx, D extends DrizzleDialect> extends SqlInbox<Tx, D extends "sqlite-sync" ? true : false> {
  constructor(db: DrizzleDatabase<Tx>, options: DrizzleInboxOptions<D>) {
    super(new DrizzleDriver<Tx>(db as never, options.dialect), options);
  }
}

interface AnyTransaction {
  /** Of PostgreSQL: rows, or a result that has them. */
  execute?(query: SQL): PromiseLike<readonly Row[] | { rows: readonly Row[] }>;
  /** Of SQLite. */
  all?(query: SQL): Awaitable<readonly Row[]>;
  run?(query: SQL): Awaitable<unknown>;
  rollback?(): never;
}

class DrizzleDriver<Tx> implements Driver<Tx> {
  readonly dialect: "postgres" | "sqlite";
  readonly sync: boolean;
  /** The transaction that is under way, of an asynchronous SQLite. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly db: { transaction<T>(work: (tx: Tx) => Awaitable<T>, config?: object): Awaitable<T> },
    dialect: DrizzleDialect,
  ) {
    this.dialect = dialect === "postgres" ? "postgres" : "sqlite";
    this.sync = dialect === "sqlite-sync";
  }

  run(tx: Tx, statement: Statement): Awaitable<readonly Row[]> {
    const { execute, all, run } = tx as AnyTransaction;
    const query = queryOf(statement);
    if (execute !== undefined) {
      return Promise.resolve(execute.call(tx, query)).then((done) => ("rows" in done ? done.rows : done));
    }
    if (statement.rows && all !== undefined) return chain(all.call(tx, query), (rows) => rows);
    return chain(run?.call(tx, query), () => []);
  }

  transaction<T>(work: (tx: Tx) => Awaitable<T>): Awaitable<T> {
    const probed = (tx: Tx) => chain(work(tx), (result) => chain(this.run(tx, PROBE), () => result));
    if (this.dialect === "postgres") return this.db.transaction(async (tx) => probed(tx));
    // SQLite takes the writer's lock at once: a transaction that reads first may find that it cannot write.
    const run = () => this.db.transaction(probed, { behavior: "immediate" });
    return this.sync ? run() : this.#inTurn(run);
  }

  /** SQLite has one writer at a time. A second one of this process would not wait for the first, but fail. */
  #inTurn<T>(run: () => Awaitable<T>): Promise<T> {
    const turn = this.#last.then(run);
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  inTransaction(tx: Tx): boolean {
    return typeof (tx as AnyTransaction).rollback === "function";
  }
}

/** The statement in Drizzle's words: texts, and parameters between them. */
function queryOf(statement: Statement): SQL {
  const pieces = statement.text.split(/(\$\d+|\?)/);
  let next = 0;
  const chunks = pieces.map((piece) => {
    if (piece === "?") return sql`${statement.values[next++]}`;
    if (/^\$\d+$/.test(piece)) return sql`${statement.values[Number(piece.slice(1)) - 1]}`;
    return sql.raw(piece);
  });
  return sql.join(chunks);
}
