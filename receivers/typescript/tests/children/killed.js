/** A receiver that is killed: says where it is, and stays there if it shall die there. */

import { readSync, writeSync } from "node:fs";
import Database from "better-sqlite3";
import pg from "pg";
import { Delivery, Queue } from "../../dist/esm/index.js";
import { PgInbox } from "../../dist/esm/pg.js";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

const [task, store, killAt] = process.argv.slice(2);
const received = { eventId: "1", key: "A", line: "A", seq: 1n, attempt: 1, replay: false, timestamp: 1_767_225_600 };
const delivery = new Delivery(received, {}, Buffer.from("{}"));

function reached(point) {
  writeSync(1, `reached ${point}\n`);
  // Nobody writes here: it waits for its end.
  if (point === killAt) readSync(0, Buffer.alloc(1));
}

const tasks = {
  "sqlite apply": () => {
    const db = new Database(store);
    const inbox = new SqliteInbox(db, { name: "orders" });
    const verdict = db.transaction(() => {
      const verdict = inbox.admit(db, received);
      reached("row");
      if (verdict.applies) db.exec("update orders set paid = paid + 1");
      reached("effect");
      return verdict;
    })();
    reached("committed");
    return verdict.kind;
  },
  "sqlite work": () => {
    const db = new Database(store);
    const queue = new Queue(new SqliteInbox(db, { name: "orders" }));
    const worked = queue.workOne(() => {
      db.exec("update orders set paid = paid + 1");
      reached("effect");
    });
    return worked.kind;
  },
  "sqlite queue": () => new Queue(new SqliteInbox(new Database(store), { name: "orders" })).take(delivery).kind,
  "postgres apply": () =>
    onPostgres(async (inbox) => {
      const verdict = await inbox.apply(received, async (client) => {
        reached("row");
        await client.query("update orders set paid = paid + 1");
        reached("effect");
      });
      reached("committed");
      return verdict.kind;
    }),
  "postgres work": () =>
    onPostgres(async (inbox) => {
      const worked = await new Queue(inbox).workOne(async (_, client) => {
        await client.query("update orders set paid = paid + 1");
        reached("effect");
      });
      return worked.kind;
    }),
  "postgres queue": () => onPostgres(async (inbox) => (await new Queue(inbox).take(delivery)).kind),
};

async function onPostgres(run) {
  const pool = new pg.Pool({
    connectionString: process.env.RAILPOST_TEST_POSTGRES,
    options: `-c search_path=${store}`,
  });
  const result = await run(new PgInbox(pool, { name: "orders" }));
  await pool.end();
  return result;
}

writeSync(1, `answered ${await tasks[task]()}\n`);
