/**
 * How many deliveries a second are verified and judged on one core: 1 KiB bodies, SQLite in memory, one transaction for
 * each event. Every fifth delivery is a duplicate. Run `npm run build` first, then `npm run bench`.
 */

import { createRequire } from "node:module";
import { Receiver } from "../dist/esm/index.js";
import { SqliteInbox } from "../dist/esm/sqlite.js";
import { TestSender, TEST_SECRET } from "../dist/esm/testing.js";

const EVENTS = 40_000;
const LINES = 100;
const ROUNDS = 5;

async function openDatabase() {
  const library = process.argv[2] ?? "better-sqlite3";
  if (library === "node:sqlite") return new (await import("node:sqlite")).DatabaseSync(":memory:");
  return new (createRequire(import.meta.url)("better-sqlite3"))(":memory:");
}

/** The requests, as Node's `http` hands them over: lower-case names, bytes. */
function requests() {
  const sender = new TestSender();
  const body = { order: "x".repeat(1012) };
  const made = [];
  for (let at = 0; made.length < EVENTS; at += 1) {
    const { headers, body: bytes } = sender.request(sender.event(body, `key-${at % LINES}`));
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    made.push({ headers: lower, body: bytes });
    if (at % 4 === 3) made.push(made[made.length - 1]);
  }
  return made;
}

function round(all, db) {
  const receiver = new Receiver({ secrets: [TEST_SECRET] });
  const inbox = new SqliteInbox(db, { name: "bench" });
  inbox.createTables();
  const kinds = { fresh: 0, duplicate: 0 };
  const begun = process.hrtime.bigint();
  for (const { headers, body } of all) {
    kinds[inbox.apply(receiver.verify(headers, body), () => undefined).kind] += 1;
  }
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  return { perSecond: Math.round(all.length / seconds), kinds };
}

const all = requests();
const bytes = all[0].body.length;
const figures = [];
for (let at = 0; at < ROUNDS; at += 1) {
  const { perSecond, kinds } = round(all, await openDatabase());
  figures.push(perSecond);
  console.log(`${perSecond}/s: ${kinds.fresh} fresh, ${kinds.duplicate} duplicates, bodies of ${bytes} bytes`);
}
console.log(`median ${figures.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)]}/s on Node ${process.version}`);
