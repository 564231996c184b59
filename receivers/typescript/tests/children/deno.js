/** A receiver on Deno, with the SQLite of node:sqlite. */

import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { Receiver, webhook } from "../../dist/esm/index.js";
import { fetchHandler } from "../../dist/esm/fetch.js";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

const db = new DatabaseSync(":memory:");
db.exec("create table effects (id integer primary key autoincrement, text text)");
const inbox = new SqliteInbox(db, { name: "orders" });
inbox.createTables();
const receiver = new Receiver({ secrets: [process.env.SECRET], keys: [process.env.PUBLIC_KEY] });
const hook = webhook({ receiver, inbox, log: () => undefined }, (delivery, tx) => {
  tx.prepare("insert into effects (text) values (?)").run(delivery.text());
});
const handler = fetchHandler(hook);
const serve = (request) =>
  request.method === "GET" ? Response.json(db.prepare("select text from effects order by id").all()) : handler(request);
const onListen = ({ port }) => console.log(`listening on ${port}`);
Deno.serve({ hostname: "127.0.0.1", port: 0, onListen }, serve);
