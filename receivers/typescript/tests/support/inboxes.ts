/** Every inbox, each with its database library. */

import { join } from "node:path";
import { createClient } from "@libsql/client";
import { PrismaBetterSqlite3 } from "@prisma/adapter-better-sqlite3";
import { PrismaPg } from "@prisma/adapter-pg";
import { drizzle as drizzleSqlite } from "drizzle-orm/better-sqlite3";
import { drizzle as drizzleLibsql } from "drizzle-orm/libsql";
import { drizzle as drizzlePg } from "drizzle-orm/node-postgres";
import { Redis } from "ioredis";
import { CamelCasePlugin, Kysely, PostgresDialect, SqliteDialect } from "kysely";
import type pg from "pg";
import { afterAll } from "vitest";
import { DrizzleInbox } from "../../src/drizzle.js";
import type { InboxOptions } from "../../src/inbox.js";
import { KyselyInbox } from "../../src/kysely.js";
import { MemoryInbox } from "../../src/memory.js";
import { PgInbox } from "../../src/pg.js";
import { PrismaInbox, type PrismaClientLike, type PrismaTransaction } from "../../src/prisma.js";
import { RedisInbox } from "../../src/redis.js";
import { SqliteInbox } from "../../src/sqlite.js";
import type { SqlInbox } from "../../src/sql/inbox.js";
import { openSqlite, postgresUrl, redisUrl, schemaPool, temporaryFolder, unique } from "./services.js";
import { prismaClient } from "./setup.js";

/** What a test writes as its effect: rows of `effects`, through any transaction. */
export interface SqlSetup {
  readonly make: (options: InboxOptions) => SqlInbox<unknown, boolean>;
  /** Writes an effect through a transaction. */
  readonly write: (tx: unknown, text: string) => unknown;
  /** The effects that were committed. */
  readonly effects: () => Promise<string[]>;
  /** Runs work in a transaction of the library's own. */
  readonly transaction: (work: (tx: unknown) => unknown) => unknown;
  /** The database itself: no transaction. */
  readonly outside: unknown;
  /** Whether transactions are synchronous. */
  readonly sync: boolean;
}

const EFFECTS = {
  postgres: "create table effects (id serial primary key, text text not null)",
  sqlite: "create table effects (id integer primary key autoincrement, text text not null)",
};
const INSERT = "insert into effects (text) values";
const SELECT = "select text from effects order by id";

/** Closes at the end of a test file what was opened in it. */
function closing<T>(resource: T, close: (resource: T) => unknown): T {
  afterAll(async () => void (await close(resource)));
  return resource;
}

async function pool(): Promise<pg.Pool> {
  const made = closing(await schemaPool(), (pool) => pool.end());
  await made.query(EFFECTS.postgres);
  return made;
}

function texts(rows: unknown[]): string[] {
  return (rows as { text: string }[]).map(({ text }) => text);
}

async function pgSetup(): Promise<SqlSetup> {
  const db = await pool();
  await new PgInbox(db).createTables();
  return {
    make: (options) => new PgInbox(db, options) as never,
    write: (tx, text) => (tx as pg.PoolClient).query(`${INSERT} ($1)`, [text]),
    effects: async () => texts((await db.query(SELECT)).rows),
    transaction: async (work) => {
      const client = await db.connect();
      try {
        await client.query("begin");
        const result = await work(client);
        await client.query("commit");
        return result;
      } catch (error) {
        await client.query("rollback");
        throw error;
      } finally {
        client.release();
      }
    },
    outside: db,
    sync: false,
  };
}

function sqliteSetup(): SqlSetup {
  const db = closing(openSqlite(), (db) => db.close());
  db.exec(EFFECTS.sqlite);
  new SqliteInbox(db).createTables();
  return {
    make: (options) => new SqliteInbox(db, options) as never,
    write: (_tx, text) => db.prepare(`${INSERT} (?)`).run(text),
    effects: async () => texts(db.prepare(SELECT).all()),
    transaction: (work) => db.transaction(() => work(db)).immediate(),
    outside: db,
    sync: true,
  };
}

interface Database {
  effects: { id?: number; text: string };
}

async function kyselySetup(dialect: "postgres" | "sqlite"): Promise<SqlSetup> {
  const opened =
    dialect === "postgres"
      ? new PostgresDialect({ pool: await schemaPool() })
      : new SqliteDialect({ database: openSqlite() });
  // A plugin that renames columns must not touch the inbox's.
  const plugins = [new CamelCasePlugin()];
  const db = closing(new Kysely<Database>({ dialect: opened, plugins }), (db) => db.destroy());
  await db.executeQuery({ sql: EFFECTS[dialect], parameters: [], query: { kind: "RawNode" } } as never);
  await new KyselyInbox(db, { dialect }).createTables();
  return {
    make: (options) => new KyselyInbox(db, { ...options, dialect }) as never,
    write: (tx, text) => (tx as typeof db).insertInto("effects").values({ text }).execute(),
    effects: async () => texts(await db.selectFrom("effects").select("text").orderBy("id").execute()),
    transaction: (work) => db.transaction().execute(async (tx) => work(tx)),
    outside: db,
    sync: false,
  };
}

async function drizzlePgSetup(): Promise<SqlSetup> {
  const client = await pool();
  const db = drizzlePg(client);
  await new DrizzleInbox(db, { dialect: "postgres" }).createTables();
  return {
    make: (options) => new DrizzleInbox(db, { ...options, dialect: "postgres" }) as never,
    write: (tx, text) => (tx as typeof db).execute(`${INSERT} ('${text}')`),
    effects: async () => texts((await client.query(SELECT)).rows),
    transaction: (work) => db.transaction(async (tx) => work(tx)),
    outside: db,
    sync: false,
  };
}

function drizzleSqliteSetup(): SqlSetup {
  const client = closing(openSqlite(), (db) => db.close());
  client.exec(EFFECTS.sqlite);
  const db = drizzleSqlite({ client });
  new DrizzleInbox(db, { dialect: "sqlite-sync" }).createTables();
  return {
    make: (options) => new DrizzleInbox(db, { ...options, dialect: "sqlite-sync" }) as never,
    write: (tx, text) => (tx as typeof db).run(`${INSERT} ('${text}')`),
    effects: async () => texts(client.prepare(SELECT).all()),
    transaction: (work) => db.transaction((tx) => work(tx)),
    outside: db,
    sync: true,
  };
}

async function drizzleLibsqlSetup(): Promise<SqlSetup> {
  const client = closing(createClient({ url: `file:${join(temporaryFolder(), "libsql.db")}` }), (client) =>
    client.close(),
  );
  await client.execute(EFFECTS.sqlite);
  const db = drizzleLibsql({ client });
  await new DrizzleInbox(db, { dialect: "sqlite" }).createTables();
  return {
    make: (options) => new DrizzleInbox(db, { ...options, dialect: "sqlite" }) as never,
    write: (tx, text) => (tx as typeof db).run(`${INSERT} ('${text}')`),
    effects: async () => texts((await client.execute(SELECT)).rows),
    transaction: (work) => db.transaction(async (tx) => work(tx)),
    outside: db,
    sync: false,
  };
}

interface Prisma extends PrismaTransaction, PrismaClientLike<Prisma> {
  effect: {
    create(row: { data: { text: string } }): Promise<unknown>;
    findMany(query: { orderBy: { id: "asc" } }): Promise<{ text: string }[]>;
  };
  $disconnect(): Promise<void>;
}

async function prismaSetup(dialect: "postgres" | "sqlite"): Promise<SqlSetup> {
  const provider = dialect === "postgres" ? "postgresql" : "sqlite";
  const { PrismaClient } = (await import(prismaClient(provider))) as {
    PrismaClient: new (options: object) => Prisma;
  };
  const db = closing(new PrismaClient({ adapter: await prismaAdapter(dialect) }), (db) => db.$disconnect());
  await db.$executeRawUnsafe(EFFECTS[dialect]);
  await new PrismaInbox(db, { dialect }).createTables();
  return {
    make: (options) => new PrismaInbox(db, { ...options, dialect }) as never,
    write: (tx, text) => (tx as Prisma).effect.create({ data: { text } }),
    effects: async () => texts(await db.effect.findMany({ orderBy: { id: "asc" } })),
    transaction: (work) => db.$transaction(async (tx) => work(tx)),
    outside: db,
    sync: false,
  };
}

async function prismaAdapter(dialect: "postgres" | "sqlite"): Promise<unknown> {
  if (dialect === "sqlite") return new PrismaBetterSqlite3({ url: ":memory:" });
  const schema = unique("ts");
  await (await schemaPool(schema)).end();
  return new PrismaPg({ connectionString: postgresUrl(), options: `-c search_path=${schema}` }, { schema });
}

/** The SQL inboxes, by library and database. */
export const SQL_SETUPS: Record<string, () => Promise<SqlSetup> | SqlSetup> = {
  "better-sqlite3": sqliteSetup,
  pg: pgSetup,
  "Kysely on PostgreSQL": () => kyselySetup("postgres"),
  "Kysely on SQLite": () => kyselySetup("sqlite"),
  "Drizzle on PostgreSQL": drizzlePgSetup,
  "Drizzle on SQLite": drizzleSqliteSetup,
  "Drizzle on libSQL": drizzleLibsqlSetup,
  "Prisma on PostgreSQL": () => prismaSetup("postgres"),
  "Prisma on SQLite": () => prismaSetup("sqlite"),
};

export function memoryInbox(options: InboxOptions): MemoryInbox {
  return new MemoryInbox(options);
}

/** Makes inboxes in Redis, each with a name of its own. */
export function redisInboxes(): { redis: Redis; make: (options: InboxOptions) => RedisInbox } {
  const redis = closing(new Redis(redisUrl()), (redis) => redis.quit());
  return { redis, make: (options) => new RedisInbox(redis, { name: unique("inbox"), ...options }) };
}
