/** The inbox in the interactive transactions of Prisma, on PostgreSQL or SQLite. */

import type { Awaitable, InboxOptions } from "./inbox.js";
import { SqlInbox, type Driver } from "./sql/inbox.js";
import { PROBE, type Dialect, type Row, type Statement } from "./sql/statement.js";

/** What Prisma's client in a transaction must have. */
export interface PrismaTransaction {
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): PromiseLike<T>;
  $executeRawUnsafe(query: string, ...values: unknown[]): PromiseLike<number>;
}

/** What Prisma's client must have. */
export interface PrismaClientLike<Tx extends PrismaTransaction> {
  $transaction<T>(work: (tx: Tx) => Promise<T>, options?: PrismaTransactionOptions): Promise<T>;
}

/** Prisma's own limits, in milliseconds. */
export interface PrismaTransactionOptions {
  readonly maxWait?: number;
  readonly timeout?: number;
}

export interface PrismaInboxOptions extends InboxOptions {
  readonly dialect: Dialect;
  /** Prisma ends a transaction after 5 seconds by default: give slow effects more. */
  readonly transaction?: PrismaTransactionOptions;
}

/** An inbox whose transactions are Prisma's. On PostgreSQL they must be `read committed`, the default. */
export class PrismaInbox<Tx extends PrismaTransaction> extends SqlInbox<Tx, false> {
  constructor(prisma: PrismaClientLike<Tx>, options: PrismaInboxOptions) {
    super(new PrismaDriver(prisma, options), options);
  }
}

/** By which Prisma marks its clients in a transaction: up to version 6, and since 7. */
const MARKS = ["prisma.client.transaction.id", "prisma.client.transaction.scope_context"].map((name) =>
  Symbol.for(name),
);

class PrismaDriver<Tx extends PrismaTransaction> implements Driver<Tx> {
  readonly sync = false;
  readonly dialect: Dialect;

  constructor(
    readonly prisma: PrismaClientLike<Tx>,
    readonly options: PrismaInboxOptions,
  ) {
    this.dialect = options.dialect;
  }

  async run(tx: Tx, statement: Statement): Promise<readonly Row[]> {
    if (statement.rows) return tx.$queryRawUnsafe<Row[]>(statement.text, ...statement.values);
    await tx.$executeRawUnsafe(statement.text, ...statement.values);
    return [];
  }

  async transaction<T>(work: (tx: Tx) => Awaitable<T>): Promise<T> {
    return this.prisma.$transaction(async (tx) => {
      const result = await work(tx);
      await this.run(tx, PROBE);
      return result;
    }, this.options.transaction);
  }

  inTransaction(tx: Tx): boolean {
    const marked = MARKS.some((mark) => (tx as Record<symbol, unknown>)[mark] !== undefined);
    return marked || !("$transaction" in tx);
  }
}
