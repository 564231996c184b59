/** The inbox in the transactions of Kysely, on PostgreSQL or SQLite. */

import { CompiledQuery, type Kysely, type Transaction } from "kysely";
import type { Awaitable, InboxOptions } from "./inbox.js";
import { SqlInbox, type Driver } from "./sql/inbox.js";
import { PROBE, type Dialect, type Row, type Statement } from "./sql/statement.js";

export interface KyselyInboxOptions extends InboxOptions {
  readonly dialect: Dialect;
}

/** An inbox whose transactions are Kysely's. On PostgreSQL they must be `read committed`, the default. */
export class KyselyInbox<DB> extends SqlInbox<Transaction<DB>, false> {
  constructor(db: Kysely<DB>, options: KyselyInboxOptions) {
    super(new KyselyDriver(db, options.dialect), options);
  }
}

class KyselyDriver<DB> implements Driver<Transaction<DB>> {
  readonly sync = false;

  constructor(
    readonly db: Kysely<DB>,
    readonly dialect: Dialect,
  ) {}

  async run(tx: Transaction<DB>, statement: Statement): Promise<readonly Row[]> {
    const query = CompiledQuery.raw(statement.text, [...statement.values]);
    // Plugins of the application's would rename columns.
    return (await tx.withoutPlugins().executeQuery<Row>(query)).rows;
  }

  async transaction<T>(work: (tx: Transaction<DB>) => Awaitable<T>): Promise<T> {
    return this.db.transaction().execute(async (tx) => {
      const result = await work(tx);
      await this.run(tx, PROBE);
      return result;
    });
  }

  inTransaction(tx: Transaction<DB>): boolean {
    return tx.isTransaction;
  }
}
