import { beforeEach, describe, expect, it } from "vitest";
import { Delivery } from "../src/delivery.js";
import type { Verdict } from "../src/inbox.js";
import { Queue } from "../src/queue.js";
import type { WorkPolicy, WorkOutcome } from "../src/work.js";
import { SQL_SETUPS, type SqlSetup } from "./support/inboxes.js";
import { unique } from "./support/services.js";
import { event, NOW } from "./support/suite.js";

type AnyQueue = Queue<unknown, boolean>;

function delivery(id: string, place?: [key: string, seq: number], more = {}): Delivery {
  const headers = { "content-type": "application/json", "ce-time": "é" };
  return new Delivery(event(id, place, more), headers, Buffer.from([0, 255, 10]));
}

describe.each(Object.entries(SQL_SETUPS))("the queue with %s", (_name, setUp) => {
  let setup: SqlSetup;

  beforeEach(async () => {
    setup ??= await setUp();
  });

  function makeQueue(policy?: Partial<WorkPolicy>): AnyQueue {
    return new Queue(setup.make({ name: unique("queue") }), policy);
  }

  const take = async (queue: AnyQueue, taken: Delivery, now = NOW): Promise<Verdict | undefined> =>
    queue.take(taken, now) as Promise<Verdict | undefined>;

  async function workAll(queue: AnyQueue, now = NOW): Promise<string[]> {
    const done: string[] = [];
    for (;;) {
      const worked = (await queue.workOne(() => undefined, now)) as WorkOutcome;
      if (worked.kind === "idle") return done;
      done.push(worked.kind === "done" ? worked.eventId : `${worked.kind} ${worked.eventId}`);
    }
  }

  it("keeps an event as it came, and gives it out once", async () => {
    const queue = makeQueue();
    const sent = delivery("1", ["A", 1], {
      seq: 9_223_372_036_854_775_807n,
      after: 0n,
      replay: true,
      key: 'k"\0é',
      eventType: "order.paid",
      eventTime: new Date(5),
      schemaVersion: 3,
    });
    expect(await take(queue, sent)).toMatchObject({ kind: "fresh" });
    expect(await take(queue, sent)).toMatchObject({ kind: "duplicate" });
    const seen: Delivery[] = [];
    expect(await queue.workOne((taken) => seen.push(taken), NOW)).toEqual({ kind: "done", eventId: "1" });
    expect(seen).toEqual([sent]);
    expect(await queue.workOne(() => undefined, NOW)).toEqual({ kind: "idle" });
    expect(await take(queue, sent)).toMatchObject({ kind: "duplicate" });
  });

  it("removes a job together with its effect, and undoes what a failed one wrote", async () => {
    const [queue, marker] = [makeQueue(), unique("effect")];
    await take(queue, delivery("1", ["A", 1]));
    const failing = (_: Delivery, tx: unknown) => {
      const written = setup.write(tx, `${marker} undone`);
      if (setup.sync) throw new Error("after the write");
      return Promise.resolve(written).then(() => Promise.reject(new Error("after the write")));
    };
    const failed = await queue.workOne(failing, NOW);
    expect(failed).toEqual({ kind: "failed", eventId: "1", error: "after the write", at: NOW + 1 });
    expect(await queue.workOne(failing, NOW)).toEqual({ kind: "idle" });
    expect(await queue.workOne((_, tx) => setup.write(tx, marker), NOW + 1)).toMatchObject({ kind: "done" });
    expect((await setup.effects()).filter((text) => text.startsWith(marker))).toEqual([marker]);
  });

  it("keeps the order of a line and of a key, and lets others pass a job that waits", async () => {
    const queue = makeQueue();
    await take(queue, delivery("A1", ["A", 1]));
    await take(queue, delivery("A2", ["A", 2]));
    await take(queue, delivery("new line of A", ["A", 1], { line: "A-2" }));
    await take(queue, delivery("B1", ["B", 1]));
    await take(queue, delivery("free"));
    const fail = () => {
      throw new Error("not yet");
    };
    expect(await queue.workOne(fail, NOW)).toMatchObject({ kind: "failed", eventId: "A1" });
    expect(await workAll(queue)).toEqual(["B1", "free"]);
    expect(await workAll(queue, NOW + 1)).toEqual(["A1", "A2", "new line of A"]);
  });

  it("makes what keeps failing a dead letter that holds its line until it is retried or discarded", async () => {
    const queue = makeQueue({ triesMax: 2, delayBaseSeconds: 5 });
    await take(queue, delivery("1", ["A", 1]));
    await take(queue, delivery("2", ["A", 2]));
    const fail = () => {
      throw new Error("bad\0 news");
    };
    expect(await queue.workOne(fail, NOW)).toMatchObject({ kind: "failed", at: NOW + 5 });
    expect(await queue.workOne(fail, NOW + 5)).toMatchObject({ kind: "dead", eventId: "1", error: "bad news" });
    expect(await workAll(queue, NOW + 1000)).toEqual([]);
    expect(await queue.stats(NOW + 20)).toEqual({ waiting: 2, dead: 1, lagSeconds: 20 });
    const [letter] = await queue.deadLetters();
    expect(letter).toMatchObject({ tries: 2, error: "bad news", delivery: { eventId: "1" } });
    const { position } = letter as { position: bigint };
    expect(await queue.retry(position, NOW + 1000)).toBe(true);
    expect(await queue.retry(position, NOW + 1000)).toBe(false);
    expect(await queue.workOne(fail, NOW + 1000)).toMatchObject({ kind: "failed" });
    expect(await queue.workOne(fail, NOW + 1005)).toMatchObject({ kind: "dead" });
    expect(await queue.discard(position)).toBe(true);
    expect(await queue.discard(position)).toBe(false);
    expect(await workAll(queue, NOW + 2000)).toEqual(["2"]);
    expect(await queue.stats()).toEqual({ waiting: 0, dead: 0, lagSeconds: 0 });
  });

  it("takes nothing when it is full, and the event is as new as before", async () => {
    const queue = makeQueue({ backlogMax: 2 });
    for (const seq of [1, 2])
      expect(await take(queue, delivery(`${seq}`, ["A", seq]))).toMatchObject({ kind: "fresh" });
    expect(await take(queue, delivery("3", ["A", 3]))).toBeUndefined();
    expect(await take(queue, delivery("1", ["A", 1]))).toMatchObject({ kind: "duplicate" });
    expect(await workAll(queue)).toEqual(["1", "2"]);
    expect(await take(queue, delivery("3", ["A", 3]))).toMatchObject({ kind: "fresh" });
  });

  it("queues in a transaction of the application's own", async () => {
    const queue = makeQueue();
    await setup.transaction((tx) => queue.enqueue(tx, delivery("1", ["A", 1]), NOW));
    const undone = async () =>
      setup.transaction((tx) => {
        const queued = queue.enqueue(tx, delivery("2", ["A", 2]), NOW);
        if (setup.sync) throw new Error("rolled back");
        return Promise.resolve(queued).then(() => Promise.reject(new Error("rolled back")));
      });
    await expect(undone()).rejects.toThrow("rolled back");
    expect(await workAll(queue)).toEqual(["1"]);
  });

  it("a worker goes on until it is told to end, and is woken by what is queued", async () => {
    const queue = makeQueue();
    const [seen, ended] = [[] as string[], new AbortController()];
    const working = queue.work((taken) => void seen.push(taken.eventId), {
      signal: ended.signal,
      idleSeconds: 3600,
      onWorked: () => {
        if (seen.length === 3) ended.abort();
      },
    });
    for (const seq of [1, 2, 3]) await queue.take(delivery(`${seq}`, ["A", seq]));
    await working;
    expect(seen).toEqual(["1", "2", "3"]);
  });
});

describe("a queue", () => {
  it("misses nothing that is queued after a worker looked and before it sleeps", async () => {
    const setup = SQL_SETUPS["better-sqlite3"]?.() as SqlSetup;
    const queue = new Queue(setup.make({ name: "missed" }));
    const [seen, ended] = [[] as string[], new AbortController()];
    const onWorked = () => ended.abort();
    const options = { signal: ended.signal, idleSeconds: 3600, onWorked };
    const working = queue.work((taken) => seen.push(taken.eventId), options);
    // The worker has found nothing, and waits for its turn to fall asleep.
    queue.take(delivery("1", ["A", 1]), NOW);
    await working;
    expect(seen).toEqual(["1"]);
  });

  it("is worked on again after its store failed, and tells of the failure", async () => {
    const setup = SQL_SETUPS["better-sqlite3"]?.() as SqlSetup;
    const db = setup.outside as { exec(sql: string): void };
    const queue = new Queue(setup.make({ name: "failing" }));
    queue.take(delivery("1", ["A", 1]), NOW);
    db.exec("alter table railpost_work rename to away");
    const [told, ended] = [[] as string[], new AbortController()];
    await queue.work(() => undefined, {
      signal: ended.signal,
      idleSeconds: 0,
      onError: (error) => {
        told.push(String(error));
        db.exec("alter table away rename to railpost_work");
      },
      onWorked: () => ended.abort(),
    });
    expect(told).toEqual([expect.stringContaining("no such table")]);
    expect((await queue.stats()).waiting).toBe(0);
  });

  it("gives up on a row that was damaged, and shows it among the dead letters", async () => {
    const setup = SQL_SETUPS["better-sqlite3"]?.() as SqlSetup;
    const queue = new Queue(setup.make({ name: "damaged" }));
    queue.take(delivery("1", ["A", 1]), NOW);
    const db = setup.outside as { exec(sql: string): void };
    db.exec("update railpost_work set head = '{'");
    expect(queue.workOne(() => undefined, NOW)).toMatchObject({
      kind: "dead",
      error: expect.stringMatching(/damaged/) as string,
    });
    expect(queue.deadLetters()).toMatchObject([{ delivery: undefined }]);
    expect(queue.stats(NOW)).toMatchObject({ dead: 1, lagSeconds: 0 });
  });

  it("refuses a policy outside its bounds by the field", () => {
    const setup = SQL_SETUPS["better-sqlite3"]?.() as SqlSetup;
    expect(() => new Queue(setup.make({}), { triesMax: 0 })).toThrow(/^triesMax: .* from 1 to/);
    expect(() => new Queue(setup.make({}), { backlogMax: -1 })).toThrow(/^backlogMax: /);
  });

  it("refuses an effect that is asynchronous where transactions are not, and keeps the job", async () => {
    const setup = SQL_SETUPS["better-sqlite3"]?.() as SqlSetup;
    const queue = new Queue(setup.make({ name: "sync" }));
    queue.take(delivery("1", ["A", 1]), NOW);
    expect(() => queue.workOne(async () => undefined, NOW)).toThrow(/the effect returned a promise/);
    expect(queue.workOne(() => undefined, NOW)).toEqual({ kind: "done", eventId: "1" });
  });
});
