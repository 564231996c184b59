import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import { afterAll, describe, expect, it } from "vitest";
import type { Delivery } from "../src/delivery.js";
import { PgInbox } from "../src/pg.js";
import { Queue } from "../src/queue.js";
import { Receiver } from "../src/receiver.js";
import { SqliteInbox } from "../src/sqlite.js";
import { readChunks } from "../src/stream.js";
import { webhook, type Webhook } from "../src/webhook.js";
import { RailpostServer } from "./support/server.js";
import { closed, openSqlite, schemaPool, temporaryFolder } from "./support/services.js";

const SECRET = `whsec_${Buffer.alloc(32, 42).toString("base64")}`;
const KEYS = ["A", "B é", "C"];
const closers: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closers.toReversed()) await close();
});

interface Payload {
  key: string;
  n: number;
}

/** A receiver's application: what it has applied, by key, and a promise of when it has. */
interface Shop {
  readonly hook: Webhook;
  /** The numbers that were applied, by key, in the order in which they were. */
  readonly applied: () => Promise<Record<string, number[]>>;
  /** Waits until all work that was taken is done. */
  readonly settled: () => Promise<void>;
}

function byKey(rows: Payload[]): Record<string, number[]> {
  const numbers = (key: string) => rows.filter((row) => row.key === key).map(({ n }) => Number(n));
  return Object.fromEntries(KEYS.map((key) => [key, numbers(key)]));
}

const receiver = new Receiver({ secrets: [SECRET] });

function sqliteShop(): Shop {
  const db = openSqlite(join(temporaryFolder(), "shop.db"));
  db.exec("create table effects (id integer primary key autoincrement, key text, n integer)");
  const inbox = new SqliteInbox(db, { name: "orders" });
  inbox.createTables();
  const hook = webhook({ receiver, inbox }, (delivery, tx) => {
    const { key, n } = delivery.json<Payload>();
    tx.prepare("insert into effects (key, n) values (?, ?)").run(key, n);
  });
  closers.push(() => db.close());
  const applied = async () => byKey(db.prepare("select key, n from effects order by id").all() as Payload[]);
  return { hook, applied, settled: async () => undefined };
}

async function postgresShop(): Promise<Shop> {
  const pool = await schemaPool();
  await pool.query("create table effects (id serial primary key, key text, n integer)");
  const inbox = new PgInbox(pool, { name: "orders" });
  await inbox.createTables();
  const queue = new Queue(inbox, { delayBaseSeconds: 0 });
  const [ended, failed] = [new AbortController(), new Set<string>()];
  const effect = async (
    delivery: Delivery,
    client: { query: (sql: string, values: unknown[]) => Promise<unknown> },
  ) => {
    const { key, n } = delivery.json<Payload>();
    await client.query("insert into effects (key, n) values ($1, $2)", [key, n]);
    // Every job fails once, after its effect was written.
    if (failed.size !== failed.add(delivery.eventId).size) throw new Error("the first try fails");
  };
  const work = queue.work(effect, { signal: ended.signal, concurrency: 3, idleSeconds: 0.05 });
  closers.push(async () => {
    ended.abort();
    await work;
    await pool.end();
  });
  const settled = async () => {
    while ((await queue.stats()).waiting > 0);
  };
  const applied = async () => byKey((await pool.query<Payload>("select key, n from effects order by id")).rows);
  return { hook: webhook({ receiver, queue }), applied, settled };
}

interface Seen {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Serves a webhook over a network that loses requests and answers. It tells which events were acknowledged. */
class Unreliable {
  readonly seen: Seen[] = [];
  readonly #acknowledged = new Map<string, number>();
  readonly #waiting: (() => void)[] = [];
  /** While it is closed, everything is answered 503. */
  closed = false;
  #url = "";

  constructor(readonly hook: Webhook) {}

  get url(): string {
    return this.#url;
  }

  async listen(): Promise<void> {
    const server: Server = createServer(async (request, response) => {
      const body = await readChunks(request, 1024 * 1024);
      response.statusCode = await this.#answer({ headers: request.headers, body });
      response.end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closers.push(() => closed(server));
    this.#url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  }

  async #answer(request: Seen): Promise<number> {
    this.seen.push(request);
    const at = this.seen.length;
    if (this.closed || at % 4 === 0) return 503;
    const { headers, body } = request;
    const { status } = await this.hook.handle({ method: "POST", url: "/hook", headers, body: () => body });
    // The event was taken, and the sender never hears of it.
    if (at % 5 === 0) return 500;
    if (status === 200) this.#acknowledge(String(headers["webhook-id"]));
    return status;
  }

  #acknowledge(id: string): void {
    this.#acknowledged.set(id, (this.#acknowledged.get(id) ?? 0) + 1);
    for (const look of this.#waiting.splice(0)) look();
  }

  /** Waits until each of these was acknowledged so many times in all. */
  async acknowledged(ids: readonly string[], times = 1): Promise<void> {
    while (ids.some((id) => (this.#acknowledged.get(id) ?? 0) < times)) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

/** Events n to m of every key. */
function events(from: number, to: number): { id: string; type: string; key: string; payload: Payload }[] {
  const numbers = Array.from({ length: to - from + 1 }, (_, at) => from + at);
  return numbers.flatMap((n) =>
    KEYS.map((key, at) => ({ id: `event-${at}-${n}`, type: "order.changed", key, payload: { key, n } })),
  );
}

const idsOf = (published: readonly { id: string }[]) => published.map(({ id }) => id);

describe.each([
  ["an inbox in SQLite", sqliteShop],
  ["a queue in PostgreSQL", postgresShop],
])("the real server and %s", (name, open) => {
  it("every effect happens once and in order, through failures, redelivery, restore and a re-created endpoint", async () => {
    const [shop, server] = [await open(), new RailpostServer()];
    const network = new Unreliable(shop.hook);
    await network.listen();
    closers.push(() => server.stop());
    await server.start();
    let endpoint = await server.createEndpoint(network.url, SECRET);
    async function publish(from: number, to: number): Promise<void> {
      const published = events(from, to);
      await server.publish(published);
      await network.acknowledged(idsOf(published));
    }

    // Failures: requests and answers are lost.
    await publish(1, 10);

    // Redelivery: old events come again under new seqs, and newer ones after them.
    const again = idsOf(events(3, 4));
    for (const id of again) await server.redeliver(id, endpoint.id);
    await network.acknowledged(again, 2);
    await publish(11, 15);

    // Restore: the backup has events that are open, and none of those that come after it.
    network.closed = true;
    await server.publish(events(16, 18));
    await server.backup("before");
    network.closed = false;
    await network.acknowledged(idsOf(events(16, 18)));
    await publish(19, 20);
    await server.restore("before");
    await network.acknowledged(idsOf(events(16, 18)), 2);
    await publish(21, 25);

    // A re-created endpoint: the same keys in new lines.
    await server.deleteEndpoint(endpoint.id);
    endpoint = await server.createEndpoint(network.url, SECRET);
    await publish(26, 30);

    await shop.settled();
    const inOrder = Array.from({ length: 30 }, (_, at) => at + 1);
    expect(await shop.applied()).toEqual(Object.fromEntries(KEYS.map((key) => [key, inOrder])));
    const counts = shop.hook.counters.counts();
    expect(counts).toMatchObject({ fresh: 90, stale: 0, gap: 0, rejected: 0, trouble: 0 });
    expect(counts.duplicate).toBeGreaterThanOrEqual(6 + 9);
    const lines = new Set(network.seen.map(({ headers }) => headers["x-lane"])).size;
    console.log(`whole run, ${name}: ${network.seen.length} requests in ${lines} lines, ${JSON.stringify(counts)}`);
    await server.stop();
  });
});

describe("what the server sends", () => {
  it("is verified by standardwebhooks, svix and stripe, and by its public key here", async () => {
    const [shop, server] = [sqliteShop(), new RailpostServer()];
    const network = new Unreliable(shop.hook);
    await network.listen();
    closers.push(() => server.stop());
    await server.start();
    const { id } = await server.createEndpoint(network.url, SECRET);
    const key = await server.addSigningKey(id);
    await server.publish(events(1, 1));
    await network.acknowledged(idsOf(events(1, 1)));
    for (const { headers, body } of network.seen) {
      const text = body.toString();
      const flat = headers as Record<string, string>;
      expect(new StandardWebhook(SECRET).verify(text, flat)).toEqual(JSON.parse(text));
      expect(new SvixWebhook(SECRET).verify(text, flat)).toEqual(JSON.parse(text));
      const timestamped = flat["x-webhook-signature"] ?? "";
      expect(Stripe.webhooks.constructEvent(text, timestamped, SECRET)).toEqual(JSON.parse(text));
      expect(new Receiver({ keys: [key] }).verify(headers, body).eventId).toBe(flat["webhook-id"]);
      const onlyTimestamped = { ...flat, "webhook-signature": undefined };
      const taking = new Receiver({ secrets: [SECRET], profile: "timestamped" });
      expect(taking.verify(onlyTimestamped, body).eventId).toBe(flat["webhook-id"]);
    }
    expect(network.seen.length).toBeGreaterThanOrEqual(3);
    await server.stop();
  });
});
