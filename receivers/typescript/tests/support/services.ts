/** The servers that the tests need: `cargo xtask` starts them, and says where they are. */

import { mkdtempSync } from "node:fs";
import type { Server } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { randomUUID } from "node:crypto";
import type BetterSqlite3 from "better-sqlite3";
import pg from "pg";

function required(variable: string): string {
  const value = process.env[variable];
  if (value === undefined) throw new Error(`${variable} is not set: run the tests with \`cargo xtask typescript\``);
  return value;
}

export const postgresUrl = () => required("RAILPOST_TEST_POSTGRES");
export const redisUrl = () => required("RAILPOST_TEST_REDIS");
export const serverBinary = () => required("RAILPOST_BIN");

export function unique(name: string): string {
  return `${name}_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
}

export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), "railpost-ts-"));
}

/** A pool whose tables are in a schema of their own. */
export async function schemaPool(schema: string = unique("ts")): Promise<pg.Pool> {
  const admin = new pg.Client({ connectionString: postgresUrl() });
  await admin.connect();
  await admin.query(`create schema if not exists ${schema}`);
  await admin.end();
  return new pg.Pool({ connectionString: postgresUrl(), options: `-c search_path=${schema}`, max: 8 });
}

/** Loaded when it is needed: it is built for one version of Node, and the tests run on two. */
export function openSqlite(path = ":memory:"): BetterSqlite3.Database {
  const Database = createRequire(import.meta.url)("better-sqlite3") as typeof BetterSqlite3;
  return new Database(path);
}

/** Closes a server with all its connections. */
export async function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** The folder of what is installed for the tests. */
export function installed(): string {
  return dirname(dirname(createRequire(import.meta.url).resolve("pg/package.json"))).replace(/\/node_modules$/, "");
}
