import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { Delivery } from "../src/delivery.js";
import type { Verdict } from "../src/inbox.js";
import { MemoryInbox } from "../src/memory.js";
import { PgInbox } from "../src/pg.js";
import { Queue } from "../src/queue.js";
import { SqliteInbox } from "../src/sqlite.js";
import { redisInboxes, SQL_SETUPS } from "./support/inboxes.js";
import { openSqlite, schemaPool, temporaryFolder, unique } from "./support/services.js";
import { event, NOW, type Tested } from "./support/suite.js";

const ON_POSTGRES = Object.entries(SQL_SETUPS).filter(([name]) => name === "pg" || name.endsWith("PostgreSQL"));

/** Those whose transactions wait, and can come between each other. */
const ASYNCHRONOUS = Object.entries(SQL_SETUPS).filter(
  ([name]) => !["better-sqlite3", "Drizzle on SQLite"].includes(name),
);

describe.each(ASYNCHRONOUS)("with %s, at once", (_name, setUp) => {
  it("copies of an event take effect once", async () => {
    const setup = await setUp();
    const [inbox, marker] = [setup.make({ name: unique("inbox") }), unique("effect")];
    const copies = Array.from({ length: 6 }, async () =>
      inbox.apply(event("1", ["A", 1]), (tx) => setup.write(tx, marker)),
    );
    const kinds = (await Promise.all(copies)).map(({ kind }) => kind).sort();
    expect(kinds).toEqual(["duplicate", "duplicate", "duplicate", "duplicate", "duplicate", "fresh"]);
    expect((await setup.effects()).filter((text) => text === marker)).toEqual([marker]);
  });

  it("events of a line that come in any order are applied in theirs", async () => {
    const setup = await setUp();
    const [inbox, marker] = [setup.make({ name: unique("inbox") }), unique("effect")];
    let waiting = [5, 4, 3, 2, 1, 3, 5, 1];
    while (waiting.length > 0) {
      const verdicts = await Promise.all(
        waiting.map(async (seq) => {
          const write = (tx: unknown) => setup.write(tx, `${marker} ${seq}`);
          return { seq, verdict: (await inbox.apply(event(`${seq}`, ["A", seq]), write)) as Verdict };
        }),
      );
      waiting = verdicts.filter(({ verdict }) => verdict.kind === "gap").map(({ seq }) => seq);
    }
    const written = (await setup.effects()).filter((text) => text.startsWith(marker));
    expect(written).toEqual([1, 2, 3, 4, 5].map((seq) => `${marker} ${seq}`));
  });
});

describe("with pg", () => {
  it("an event waits for the one before it in its line, and is judged by what that leaves", async () => {
    const pool = await schemaPool();
    const inbox = new PgInbox(pool, { name: "orders" });
    await inbox.createTables();
    await inbox.apply(event("1", ["A", 1]), () => undefined);
    const order: string[] = [];
    let second: Promise<Verdict> | undefined;
    const first = inbox.apply(event("2", ["A", 2]), async () => {
      second = inbox.apply(event("3", ["A", 3]), () => void order.push("3"));
      await untilOneWaits();
      order.push("2");
    });
    expect((await first).kind).toBe("fresh");
    expect((await second)?.kind).toBe("fresh");
    expect(order).toEqual(["2", "3"]);
    await pool.end();

    async function untilOneWaits(): Promise<void> {
      const sql =
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like 'select cast(railpost_admit%'";
      while ((await pool.query(sql)).rowCount === 0);
    }
  });

  it("two lines that are made at the same time by events beyond a gap are each made once", async () => {
    const pool = await schemaPool();
    const inbox = new PgInbox(pool, { name: "orders", policy: { onGap: "accept" } });
    await inbox.createTables();
    const offers = [5, 5, 7, 7, 6, 6].map(async (seq) => inbox.apply(event(`${seq}`, ["A", seq]), () => undefined));
    const kinds = (await Promise.all(offers)).map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "duplicate").length).toBeGreaterThanOrEqual(1);
    expect(await inbox.applied("A")).toBe(7n);
    await pool.end();
  });

  it("several processes may create the tables at once", async () => {
    const pool = await schemaPool();
    await Promise.all([1, 2, 3, 4].map(() => new PgInbox(pool).createTables()));
    expect(await new PgInbox(pool).applied("A")).toBe(0n);
    await pool.end();
  });

  it("an effect that caught the error of a statement is not acknowledged, and the event comes again", async () => {
    const pool = await schemaPool();
    const inbox = new PgInbox(pool);
    await inbox.createTables();
    const swallowing = inbox.apply(event("1", ["A", 1]), (client) =>
      client.query("select 1 / 0").catch(() => undefined),
    );
    await expect(swallowing).rejects.toThrow(/the transaction was rolled back/);
    expect((await inbox.apply(event("1", ["A", 1]), () => undefined)).kind).toBe("fresh");
    await pool.end();
  });

  it("a connection that breaks under an effect fails the request, not the process", async () => {
    const pool = await schemaPool();
    const inbox = new PgInbox(pool);
    await inbox.createTables();
    const broken = inbox.apply(event("1", ["A", 1]), async (client) => {
      const { rows } = await client.query("select pg_backend_pid() as pid");
      const { pid } = rows[0] as { pid: number };
      const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
      const gone = new Promise((resolve) => stream.once("close", resolve));
      await pool.query("select pg_terminate_backend($1)", [pid]);
      await gone;
    });
    await expect(broken).rejects.toThrow();
    expect((await inbox.apply(event("1", ["A", 1]), () => undefined)).kind).toBe("fresh");
    await pool.end();
  });
});

describe.each(ON_POSTGRES.filter(([name]) => name !== "pg"))("with %s", (_name, setUp) => {
  it("an effect that caught the error of a statement is not acknowledged", async () => {
    const setup = await setUp();
    const inbox = setup.make({ name: unique("inbox") });
    const swallowing = async () =>
      inbox.apply(event("1", ["A", 1]), async (tx) => {
        await Promise.resolve(setup.write(tx, null as never)).catch(() => undefined);
        await failing(tx).catch(() => undefined);
      });
    await expect(swallowing()).rejects.toThrow();
    expect((await inbox.apply(event("1", ["A", 1]), () => undefined)).kind).toBe("fresh");

    /** A statement that fails, by the driver of the inbox itself. */
    async function failing(tx: unknown): Promise<unknown> {
      return inbox.run(
        tx,
        (function* () {
          yield { text: "select 1 / 0 as never", values: [], rows: true };
        })(),
      );
    }
  });
});

describe("with SQLite", () => {
  function openShop() {
    const store = join(temporaryFolder(), "orders.db");
    const db = openSqlite(store);
    db.pragma("journal_mode = wal");
    db.exec("create table effects (id integer primary key autoincrement, line integer, seq integer)");
    const inbox = new SqliteInbox(db, { name: "orders" });
    inbox.createTables();
    const effects = () => db.prepare("select line, seq from effects order by line, id").all();
    return { store, inbox, effects };
  }

  /** Seqs 1 to 40 of each of five lines. */
  const EXPECTED = Array.from({ length: 200 }, (_, at) => ({ line: Math.floor(at / 40), seq: (at % 40) + 1 }));

  function run(child: string, ...args: string[]): Promise<number | null> {
    const path = fileURLToPath(new URL(`./children/${child}`, import.meta.url));
    return new Promise((resolve) => {
      spawn(process.execPath, [path, ...args], { stdio: "inherit" }).on("close", resolve);
    });
  }

  it("two processes that are sent the same events apply each once and in order", async () => {
    const { store, effects } = openShop();
    const hammer = () => run("hammer.js", store, "5", "40");
    expect(await Promise.all([hammer(), hammer()])).toEqual([0, 0]);
    expect(effects()).toEqual(EXPECTED);
  });

  it("two processes that work on one queue do each job once and in order", async () => {
    const { store, inbox, effects } = openShop();
    const queue = new Queue(inbox);
    for (const { line, seq } of EXPECTED) {
      queue.take(new Delivery(event(`${line}-${seq}`, [`${line}`, seq]), {}, Buffer.alloc(0)));
    }
    const work = () => run("worker-process.js", store);
    expect(await Promise.all([work(), work()])).toEqual([0, 0]);
    expect(effects()).toEqual(EXPECTED);
    expect(queue.stats().waiting).toBe(0);
  });

  it("an effect that is asynchronous is refused, and nothing of it is kept", async () => {
    const db = openSqlite();
    const inbox = new SqliteInbox(db);
    inbox.createTables();
    expect(() => inbox.apply(event("1", ["A", 1]), async () => undefined)).toThrow(/the effect returned a promise/);
    expect(db.inTransaction).toBe(false);
    expect(inbox.apply(event("1", ["A", 1]), () => undefined).kind).toBe("fresh");
    db.close();
  });
});

const HOLDING: [string, () => Tested][] = [
  ["memory", () => new MemoryInbox()],
  ["Redis", () => redisInboxes().make({})],
];

describe.each(HOLDING)("in %s", (_name, make) => {
  it("while an event is applied, its copies and its line are held off, and others are not", async () => {
    const inbox = make();
    const kind = async (received: ReturnType<typeof event>) => (await inbox.apply(received, () => undefined)).kind;
    const first = event("1", ["A", 1]);
    const applied = await inbox.apply(first, async () => {
      expect(await kind(first)).toBe("busy");
      expect(await kind(event("2", ["A", 2]))).toBe("busy");
      expect(await kind(event("3", ["A", 1], { line: "A-2" }))).toBe("fresh");
      expect(await kind(event("4"))).toBe("fresh");
    });
    expect(applied.kind).toBe("fresh");
    expect(await kind(event("2", ["A", 2]))).toBe("fresh");
    expect(await kind(first)).toBe("duplicate");
  });

  it("an effect that fails leaves the event to the next attempt", async () => {
    const inbox = make();
    const failing = async () => inbox.apply(event("1", ["A", 1]), () => Promise.reject(new Error("no")));
    await expect(failing()).rejects.toThrow("no");
    expect((await inbox.apply(event("1", ["A", 1]), () => undefined)).kind).toBe("fresh");
  });
});

describe("in Redis", () => {
  it("everything that is written has a time to live", async () => {
    const { redis, make } = redisInboxes();
    const name = unique("ttl");
    const inbox = make({ name });
    await inbox.apply(event("1", ["A", 1]), () => undefined, NOW);
    await inbox.apply(event("3", ["B", 3]), () => undefined, NOW);
    await inbox.apply(event("2", ["A", 2]), async () => {
      for (const key of await redis.keys(`${name}:*`)) {
        const most = key.includes(":claim:") ? 60 : 360 * 86_400;
        const ttl = await redis.ttl(key);
        expect(ttl > 0 && ttl <= most, `${key} lives ${ttl} s`).toBe(true);
      }
      expect((await redis.keys(`${name}:claim:*`)).length).toBe(2);
    });
    expect(await redis.keys(`${name}:claim:*`)).toEqual([]);
  });

  it("an accepted gap is noted, latest first", async () => {
    const inbox = redisInboxes().make({ policy: { onGap: "accept" } });
    for (const seq of [3, 4, 6]) {
      await inbox.apply(event(`${seq}`, ["L", seq], { key: "A b" }), () => undefined, NOW);
    }
    expect(await inbox.gaps()).toEqual([
      { line: "L", key: "A b", applied: 4n, seq: 6n, notedAt: NOW },
      { line: "L", key: "A b", applied: 0n, seq: 3n, notedAt: NOW },
    ]);
  });
});
