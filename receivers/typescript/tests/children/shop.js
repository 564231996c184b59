/** The same receiver for every runtime that has a SQLite of its own: `db` is that one. */

import process from "node:process";
import { fetchHandler } from "../../dist/esm/fetch.js";
import { Receiver, webhook } from "../../dist/esm/index.js";
import { SqliteInbox } from "../../dist/esm/sqlite.js";

/** A Fetch handler that applies what is posted, and tells what it applied. */
export function shop(db) {
  db.exec("create table effects (id integer primary key autoincrement, text text)");
  const inbox = new SqliteInbox(db, { name: "orders" });
  inbox.createTables();
  const receiver = new Receiver({ secrets: [process.env.SECRET], keys: [process.env.PUBLIC_KEY] });
  const hook = webhook({ receiver, inbox, log: () => undefined }, (delivery, tx) => {
    tx.prepare("insert into effects (text) values (?)").run(delivery.text());
  });
  const handler = fetchHandler(hook);
  const effects = () => db.prepare("select text from effects order by id").all();
  return (request) => (request.method === "GET" ? Response.json(effects()) : handler(request));
}
