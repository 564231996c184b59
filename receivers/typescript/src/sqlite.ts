/**
 * The inbox in SQLite, through `better-sqlite3`, `node:sqlite` or `bun:sqlite`. Neither is imported: the database
 * object is the application's.
 */

import type { Awaitable, InboxOptions } from "./inbox.js";
import { STATEMENTS_KEPT_MAX } from "./limits.js";
import { SqlInbox, type Driver } from "./sql/inbox.js";
import { schemaSql } from "./sql/schema.js";
import { isPromise, type Row, type Statement } from "./sql/statement.js";

interface SqliteStatement {
  all(...values: never[]): unknown[];
  run(...values: never[]): unknown;
}

/** What a SQLite library must have: `better-sqlite3`'s `Database` and `node:sqlite`'s `DatabaseSync` do. */
export interface SqliteDatabase {
  prepare(sql: string): SqliteStatement;
  exec(sql: string): unknown;
  /** Of better-sqlite3 and bun:sqlite. */
  readonly inTransaction?: boolean;
  /** Of node:sqlite. */
  readonly isTransaction?: boolean;
}

/**
 * An inbox in the application's own SQLite database. SQLite has one writer at a time, so events are serialised from
 * the verdict to the commit. Everything here is synchronous, and so must be the effects of `apply`.
 */
export class SqliteInbox<Db extends SqliteDatabase = SqliteDatabase> extends SqlInbox<Db, true> {
  constructor(db: Db, options?: InboxOptions) {
    super(new SqliteDriver(db), options);
  }
}

/** The tables as plain SQL, for migrations of your own. */
export const sqliteSchema: string = schemaSql("sqlite");

class SqliteDriver<Db extends SqliteDatabase> implements Driver<Db> {
  readonly dialect = "sqlite";
  readonly sync = true;
  readonly #db: Db;
  readonly #prepared = new WeakMap<Db, Map<string, SqliteStatement>>();

  constructor(db: Db) {
    this.#db = db;
  }

  run(db: Db, statement: Statement): readonly Row[] {
    const prepared = this.#prepare(db, statement.text);
    const values = statement.values as never[];
    if (statement.rows) return prepared.all(...values) as Row[];
    prepared.run(...values);
    return [];
  }

  transaction<T>(work: (db: Db) => Awaitable<T>): T {
    const db = this.#db;
    db.exec("begin immediate");
    try {
      const result = work(db);
      if (isPromise<T>(result)) throw asyncEffect(result);
      db.exec("commit");
      return result as T;
    } catch (error) {
      rollBack(db);
      throw error;
    }
  }

  inTransaction(db: Db): boolean {
    return db.inTransaction ?? db.isTransaction ?? true;
  }

  #prepare(db: Db, text: string): SqliteStatement {
    let statements = this.#prepared.get(db);
    if (statements === undefined) {
      statements = new Map();
      this.#prepared.set(db, statements);
    }
    let prepared = statements.get(text);
    if (prepared === undefined) {
      prepared = db.prepare(text);
      if (statements.size < STATEMENTS_KEPT_MAX) statements.set(text, prepared);
    }
    return prepared;
  }
}

/** SQLite rolls back by itself on some errors; then there is nothing left to undo. */
function rollBack(db: SqliteDatabase): void {
  try {
    db.exec("rollback");
  } catch {
    // The error that led here is the one to report.
  }
}

function asyncEffect(effect: Promise<unknown>): TypeError {
  // Its failure is of no interest any more, but must not end the process.
  effect.then(undefined, () => undefined);
  return new TypeError(
    "the effect returned a promise: a transaction of this database is synchronous, and other requests would write " +
      "into it meanwhile. Make the effect synchronous, or queue the event and do the rest outside",
  );
}
