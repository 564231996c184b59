/** One of several processes that are sent the same events at once: each event four times, in order per line. */

import Database from "better-sqlite3";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

const [store, lines, seqs] = process.argv.slice(2);
const db = new Database(store, { timeout: 30_000 });
const inbox = new SqliteInbox(db, { name: "orders" });
const insert = db.prepare("insert into effects (line, seq) values (?, ?)");

for (let seq = 1; seq <= Number(seqs); seq += 1) {
  for (let line = 0; line < Number(lines); line += 1) {
    const received = { eventId: `${line}-${seq}`, line: `line-${line}`, seq: BigInt(seq), replay: false, timestamp: 0 };
    for (let copy = 0; copy < 2; copy += 1) inbox.apply(received, () => insert.run(line, seq));
  }
}
