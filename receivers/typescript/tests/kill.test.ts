import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { PgInbox } from "../src/pg.js";
import { SqliteInbox } from "../src/sqlite.js";
import { openSqlite, schemaPool, temporaryFolder, unique } from "./support/services.js";

const CHILD = fileURLToPath(new URL("./children/killed.js", import.meta.url));
const SHOP = "create table orders (paid integer); insert into orders values (0);";

/** Runs a child until it dies where it should, or ends: what it answered, if it lived to. */
async function live(task: string, store: string, killAt: string): Promise<string | undefined> {
  const child = spawn(process.execPath, [CHILD, task, store, killAt], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("close", resolve));
  let answer: string | undefined;
  for await (const line of createInterface(child.stdout)) {
    if (line === `reached ${killAt}`) child.kill("SIGKILL");
    if (line.startsWith("answered ")) answer = line.slice("answered ".length);
  }
  await ended;
  return answer;
}

interface Shop {
  readonly kind: "sqlite" | "postgres";
  readonly store: string;
  /** How often the order was paid. */
  readonly paid: () => Promise<number>;
}

function sqliteShop(): Shop {
  const store = join(temporaryFolder(), "orders.db");
  const db = openSqlite(store);
  db.pragma("journal_mode = wal");
  db.exec(SHOP);
  new SqliteInbox(db).createTables();
  afterAll(() => void db.close());
  const paid = async () => (db.prepare("select paid from orders").get() as { paid: number }).paid;
  return { kind: "sqlite", store, paid };
}

async function postgresShop(): Promise<Shop> {
  const store = unique("kill");
  const pool = await schemaPool(store);
  await new PgInbox(pool).createTables();
  await pool.query(SHOP);
  afterAll(() => pool.end());
  const paid = async () => {
    // A killed process's transaction ends when the server notices; its locks tell when.
    await pool.query("begin; lock table orders, railpost_inbox, railpost_work; commit");
    return (await pool.query<{ paid: number }>("select paid from orders")).rows[0]?.paid ?? NaN;
  };
  return { kind: "postgres", store, paid };
}

describe.each([
  ["SQLite", sqliteShop],
  ["PostgreSQL", postgresShop],
])("on %s", (_name, open) => {
  it("a kill between row and effect leaves neither, and the sender's next attempt applies the event once", async () => {
    const { kind, store, paid } = await open();
    for (const killAt of ["row", "effect"]) {
      expect(await live(`${kind} apply`, store, killAt), killAt).toBeUndefined();
      expect(await paid(), `killed at ${killAt}`).toBe(0);
    }
    expect(await live(`${kind} apply`, store, "committed")).toBeUndefined();
    expect(await paid(), "killed before the answer").toBe(1);
    expect(await live(`${kind} apply`, store, "nowhere")).toBe("duplicate");
    expect(await paid()).toBe(1);
  });

  it("a killed worker loses no job and applies none twice", async () => {
    const { kind, store, paid } = await open();
    expect(await live(`${kind} queue`, store, "nowhere")).toBe("fresh");
    for (let time = 0; time < 2; time += 1) {
      expect(await live(`${kind} work`, store, "effect")).toBeUndefined();
      expect(await paid()).toBe(0);
    }
    expect(await live(`${kind} work`, store, "nowhere")).toBe("done");
    expect(await live(`${kind} work`, store, "nowhere")).toBe("idle");
    expect(await paid()).toBe(1);
  });
});
