/** One of several processes that work on one queue until it is empty. */

import Database from "better-sqlite3";
import { Queue } from "../../dist/esm/index.js";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

const db = new Database(process.argv[2], { timeout: 30_000 });
const queue = new Queue(new SqliteInbox(db, { name: "orders" }));
const insert = db.prepare("insert into effects (line, seq) values (?, ?)");
const effect = ({ line, seq }) => insert.run(Number(line), Number(seq));
while (queue.workOne(effect).kind !== "idle");
