/** A receiver on Bun, with its own SQLite. */

import { Database } from "bun:sqlite";
import { Receiver, webhook } from "../../dist/esm/index.js";
import { fetchHandler } from "../../dist/esm/fetch.js";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

const db = new Database(":memory:");
db.exec("create table effects (id integer primary key autoincrement, text text)");
const inbox = new SqliteInbox(db, { name: "orders" });
inbox.createTables();
const receiver = new Receiver({ secrets: [process.env.SECRET], keys: [process.env.PUBLIC_KEY] });
const hook = webhook({ receiver, inbox, log: () => undefined }, (delivery, tx) => {
  tx.prepare("insert into effects (text) values (?)").run(delivery.text());
});
const handler = fetchHandler(hook);
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: (request) =>
    request.method === "GET"
      ? Response.json(db.prepare("select text from effects order by id").all())
      : handler(request),
});
console.log(`listening on ${server.port}`);
