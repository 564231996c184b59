/** For versions of Node that have `node:sqlite`: run with `vitest --config vitest.newer.config.ts`. */

import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { Delivery } from "../../src/delivery.js";
import { fetchHandler } from "../../src/fetch.js";
import type { InboxOptions } from "../../src/inbox.js";
import { Queue } from "../../src/queue.js";
import { Receiver } from "../../src/receiver.js";
import { SqliteInbox } from "../../src/sqlite.js";
import { fetchTarget, ordeal, TEST_SECRET } from "../../src/testing.js";
import { webhook } from "../../src/webhook.js";
import { event, followsTheRules, NOW, remembersAGapWithoutACommit } from "../support/suite.js";
import { cases } from "../support/vectors.js";

function open(options: InboxOptions = {}) {
  const db = new DatabaseSync(":memory:");
  db.exec("create table effects (id integer primary key autoincrement, text text not null)");
  const inbox = new SqliteInbox(db, options);
  inbox.createTables();
  const write = (text: string) => db.prepare("insert into effects (text) values (?)").run(text);
  const effects = () =>
    db
      .prepare("select text from effects order by id")
      .all()
      .map((row) => row["text"]);
  return { db, inbox, write, effects };
}

describe("the inbox with node:sqlite", () => {
  it("follows the rules of the shared table", async () => {
    const ran = await followsTheRules((options) => open(options).inbox);
    expect(ran.cases).toBe(cases("inbox", "cases").length);
    await remembersAGapWithoutACommit(open().inbox);
  });

  it("commits effect and row together, or neither", () => {
    const { inbox, write, effects } = open();
    const failing = () =>
      inbox.apply(event("1", ["A", 1]), () => {
        write("undone");
        throw new Error("after the write");
      });
    expect(failing).toThrow("after the write");
    const kinds = [1, 2].map(() => inbox.apply(event("1", ["A", 1]), () => write("once")).kind);
    expect(kinds).toEqual(["fresh", "duplicate"]);
    expect(effects()).toEqual(["once"]);
  });

  it("judges in a transaction of the application's own, and refuses to outside one", () => {
    const { db, inbox, write, effects } = open();
    db.exec("begin");
    expect(inbox.admit(db, event("1", ["A", 1])).kind).toBe("fresh");
    write("once");
    db.exec("commit");
    expect(effects()).toEqual(["once"]);
    expect(() => inbox.admit(db, event("2", ["A", 2]))).toThrow(/expected an open transaction/);
  });

  it("keeps a queue: the largest seq, bytes and order", () => {
    const { inbox } = open({ policy: { start: "anywhere" } });
    const queue = new Queue(inbox, { backlogMax: 1 });
    const taken = new Delivery(event("1", ["A", 9_223_372_036_854_775_807n]), {}, Buffer.from([0, 255]));
    expect(queue.take(taken, NOW)?.kind).toBe("fresh");
    expect(queue.take(new Delivery(event("2"), {}, Buffer.alloc(0)), NOW)).toBeUndefined();
    const seen: Delivery[] = [];
    expect(queue.workOne((delivery) => seen.push(delivery), NOW)).toEqual({ kind: "done", eventId: "1" });
    expect(seen).toEqual([taken]);
  });

  it("notes gaps and prunes", () => {
    const { inbox } = open({ policy: { onGap: "accept" }, retentionSeconds: 100 });
    inbox.apply(event("3", ["A", 3]), () => undefined, NOW);
    expect(inbox.gaps()).toMatchObject([{ line: "A", seq: 3n, notedAt: NOW }]);
    expect([inbox.prune(NOW + 100), inbox.prune(NOW + 101), inbox.prune(NOW + 1201)]).toEqual([0, 2, 1]);
  });

  it("stands behind a handler", async () => {
    const { inbox, write, effects } = open();
    const receiver = new Receiver({ secrets: [TEST_SECRET] });
    const hook = webhook({ receiver, inbox, log: () => undefined }, (delivery) => write(delivery.text()));
    const events = ["one", "two"].map((body) => ({ key: "A", body }));
    expect((await ordeal(events, fetchTarget(fetchHandler(hook)))).problems).toEqual([]);
    expect(effects()).toEqual(["one", "two"]);
  });
});
