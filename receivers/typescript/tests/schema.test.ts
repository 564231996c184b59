import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { postgresSchema } from "../src/pg.js";
import { sqliteSchema } from "../src/sqlite.js";
import { openSqlite, schemaPool } from "./support/services.js";

/** The statements of a schema that create something, without comments and white space. */
function creations(sql: string): string[] {
  const plain = sql.replace(/^\s*--.*$/gm, "").replace(/\s+/g, " ");
  return [...plain.matchAll(/create (?:or replace function|table|index)(?:[^;$]|\$\$.*?\$\$)*/g)].map(([text]) =>
    text.trim(),
  );
}

describe.each([
  ["SQLite", sqliteSchema, "sqlite/schema.sql"],
  ["PostgreSQL", postgresSchema, "postgres/schema.sql"],
])("the schema for %s", (_name, schema, file) => {
  it("is that of the Rust crate: both can use one database", () => {
    const path = new URL(`../../../crates/receiver/src/${file}`, import.meta.url);
    expect(creations(schema).toSorted()).toEqual(creations(readFileSync(path, "utf8")).toSorted());
    expect(creations(schema).length).toBeGreaterThanOrEqual(7);
  });
});

describe("the schema as plain SQL", () => {
  it("can be run by a migration, and again", async () => {
    const db = openSqlite();
    db.exec(sqliteSchema + sqliteSchema);
    db.close();
    const pool = await schemaPool();
    await pool.query(postgresSchema);
    await pool.query(postgresSchema);
    await pool.end();
  });
});
