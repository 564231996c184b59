/** The inbox in PostgreSQL, through `pg`. It is not imported: the pool is the application's. */

import type { InboxOptions } from "./inbox.js";
import { SqlInbox, type Driver } from "./sql/inbox.js";
import { schemaSql } from "./sql/schema.js";
import type { Row, Statement } from "./sql/statement.js";

/** What a client of `pg` must have: `Client` and `PoolClient` do. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[]; command?: string }>;
  /** `T` in a transaction; not in all versions. */
  getTransactionStatus?(): string | null;
}

/** A client that a pool has handed out. */
export interface PgPoolClient extends PgClient {
  release(broken?: boolean | Error): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/** What a pool must have: `pg.Pool` does. */
export interface PgPool<Client extends PgPoolClient> {
  connect(): Promise<Client>;
}

/**
 * An inbox in the application's own PostgreSQL database. Events of one line are serialised from the verdict to the end
 * of the transaction, and so are deliveries of one event; all others run side by side. A transaction of your own must
 * be `read committed`, the default.
 */
export class PgInbox<Client extends PgPoolClient = PgPoolClient> extends SqlInbox<Client, false> {
  constructor(pool: PgPool<Client>, options?: InboxOptions) {
    super(new PgDriver(pool), options);
  }
}

/** The tables as plain SQL, for migrations of your own: run it in one transaction. */
export const postgresSchema: string = schemaSql("postgres");

class PgDriver<Client extends PgPoolClient> implements Driver<Client> {
  readonly dialect = "postgres";
  readonly sync = false;
  readonly #pool: PgPool<Client>;

  constructor(pool: PgPool<Client>) {
    this.#pool = pool;
  }

  async run(client: Client, statement: Statement): Promise<readonly Row[]> {
    const { rows } = await client.query(statement.text, [...statement.values]);
    return rows as Row[];
  }

  async transaction<T>(work: (client: Client) => T | Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // A connection that breaks between two statements tells it by an event, which would end the process if nobody
    // listened. The next statement fails anyway.
    const ignore = () => undefined;
    client.on("error", ignore);
    let broken = false;
    try {
      await client.query("begin isolation level read committed");
      const result = await work(client);
      await commit(client);
      return result;
    } catch (error) {
      broken = !(await rolledBack(client));
      throw error;
    } finally {
      client.off("error", ignore);
      client.release(broken);
    }
  }

  inTransaction(client: Client): boolean {
    if ("totalCount" in client) return false;
    const status = client.getTransactionStatus?.();
    return status === undefined || status === null || status !== "I";
  }
}

/** PostgreSQL answers the commit of a transaction that failed with a rollback, and without an error. */
async function commit(client: PgClient): Promise<void> {
  const { command } = await client.query("commit");
  if (command !== "COMMIT") {
    throw new Error("the transaction was rolled back: a statement of the effect failed, and its error was caught");
  }
}

async function rolledBack(client: PgClient): Promise<boolean> {
  try {
    await client.query("rollback");
    return true;
  } catch {
    return false;
  }
}
