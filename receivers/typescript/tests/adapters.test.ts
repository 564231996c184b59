import { createServer, request as httpRequest, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { Readable } from "node:stream";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { afterAll, describe, expect, it, vi } from "vitest";
import { expressHandler, keepRawBody } from "../src/express.js";
import { fastifyWebhook } from "../src/fastify.js";
import { fetchHandler } from "../src/fetch.js";
import { MemoryInbox } from "../src/memory.js";
import { nodeHandler } from "../src/node.js";
import { Receiver } from "../src/receiver.js";
import { SqliteInbox } from "../src/sqlite.js";
import { fetchTarget, httpTarget, ordeal, TEST_SECRET, TestSender } from "../src/testing.js";
import { webhook, type Webhook } from "../src/webhook.js";
import { closed, openSqlite } from "./support/services.js";

const receiver = new Receiver({ secrets: [TEST_SECRET] });
const closers: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
});

/** A receiver with a SQLite inbox: what it applied, and what it logged. */
function shop(options = {}) {
  const db = openSqlite();
  db.exec("create table effects (id integer primary key autoincrement, text text)");
  const inbox = new SqliteInbox(db, { name: "orders" });
  inbox.createTables();
  const log: Error[] = [];
  let recovered = false;
  const hook = webhook({ receiver, inbox, log: (error) => log.push(error), ...options }, (delivery, tx) => {
    if (delivery.text() === '"fail"' && !recovered) throw new Error("the effect fails");
    tx.prepare("insert into effects (text) values (?)").run(delivery.text());
  });
  closers.push(() => db.close());
  const effects = () =>
    db
      .prepare("select text from effects order by id")
      .all()
      .map((row) => (row as { text: string }).text);
  const recover = () => {
    recovered = true;
  };
  return { hook, effects, log, recover };
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => closed(server));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?from=sender`;
}

const servers: Record<string, (hook: Webhook) => Promise<string>> = {
  "Node's http": (hook) => listen(createServer(nodeHandler(hook))),
  Express: (hook) => listen(createServer(express().all("/hook", expressHandler(hook)))),
  "Express after express.raw": (hook) => {
    const app = express()
      .use(express.raw({ type: "*/*", limit: "3mb" }))
      .all("/hook", expressHandler(hook));
    return listen(createServer(app));
  },
  "Express after a parser that keeps the bytes": (hook) => {
    const app = express().use(express.json({ verify: keepRawBody, type: "*/*", strict: false, limit: "3mb" }));
    return listen(createServer(app.all("/hook", expressHandler(hook))));
  },
  Fastify: async (hook) => {
    const app = Fastify();
    await app.register(fastifyWebhook, { webhook: hook, path: "/hook" });
    app.post("/parsed", async (request) => request.body);
    await app.listen({ port: 0, host: "127.0.0.1" });
    closers.push(() => app.close());
    return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/hook?from=sender`;
  },
  Hono: (hook) => {
    const app = new Hono();
    const handler = fetchHandler(hook);
    app.all("/hook", (context) => handler(context.req.raw));
    return listen(serverOf((request) => app.fetch(request)));
  },
};

/** Serves a Fetch handler from Node: what the frameworks' own servers do. */
function serverOf(handler: (request: Request) => Response | Promise<Response>): Server {
  return createServer(async (incoming, outgoing) => {
    const hasBody = incoming.method !== "GET" && incoming.method !== "HEAD" && incoming.method !== "OPTIONS";
    const body = hasBody ? Readable.toWeb(incoming) : null;
    const headers = incoming.headers as Record<string, string>;
    const url = `http://localhost${incoming.url}`;
    const request = new Request(url, { method: incoming.method ?? "", headers, body, duplex: "half" } as RequestInit);
    const response = await handler(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.end(Buffer.from(await response.arrayBuffer()));
  });
}

const EVENTS = [
  { key: "A", body: '{"order": "A",  "n": 1}' },
  { key: "A", body: '{ "order":"A", "n": 2.0 }' },
  { key: "B", body: '{"order": "é"}' },
  { body: '{"no":"key"}' },
];

describe.each(Object.entries(servers))("behind %s", (name, serve) => {
  it("each effect happens once and in order, whatever is forged, repeated, reordered, stale or gapped", async () => {
    const { hook, effects } = shop();
    const report = await ordeal(EVENTS, httpTarget(await serve(hook)));
    expect(report).toMatchObject({ refused: 28, problems: [] });
    expect(effects().toSorted()).toEqual(EVENTS.map(({ body }) => body).toSorted());
    const ofA = effects().filter((text) => text.includes('"A"'));
    expect(ofA).toEqual(EVENTS.slice(0, 2).map(({ body }) => body));
    expect(hook.counters.counts()).toMatchObject({
      fresh: 4,
      duplicate: 4,
      stale: 2,
      gap: 3,
      rejected: 28,
      trouble: 0,
    });
  });

  it("an effect that fails is answered 503 and happens at the next attempt", async () => {
    const { hook, log, effects, recover } = shop();
    const target = httpTarget(await serve(hook));
    const sender = new TestSender();
    const failing = sender.event('"fail"', "A");
    expect(await target(sender.request(failing))).toBe(503);
    expect(log.map(({ message }) => message)).toEqual(["the effect fails"]);
    expect(hook.counters.counts()).toMatchObject({ trouble: 1, fresh: 0 });
    recover();
    expect(await target(sender.request(failing, 2))).toBe(200);
    expect(effects()).toEqual(['"fail"']);
  });

  it("a body beyond the limit is refused without being read to its end", async () => {
    const { hook, effects } = shop({ bodyLenMax: 1000 });
    const url = await serve(hook);
    const sender = new TestSender();
    const large = sender.event({ text: "x".repeat(2_000_000) }, "A");
    expect(await httpTarget(url)(sender.request(large))).toBe(413);
    // A parser before the webhook reads to its own limit.
    if (!name.includes("after")) expect(await postChunked(url, sender.request(large).headers, large.body)).toBe(413);
    expect(effects()).toEqual([]);
  });

  it("other methods are refused", async () => {
    const url = await serve(shop().hook);
    const { status } = await fetch(url, { method: "PUT", body: "{}" });
    expect([404, 405]).toContain(status);
  });
});

/** Posts without saying how long the body is. */
function postChunked(url: string, headers: Readonly<Record<string, string>>, body: Uint8Array): Promise<number> {
  return new Promise((resolve, reject) => {
    let status: number | undefined;
    const request = httpRequest(url, { method: "POST", headers: { ...headers } }, (response) => {
      status = response.statusCode ?? 0;
      response.resume();
      resolve(status);
    });
    // The server closes the connection while the rest is still being sent.
    request.on("error", (error) => (status === undefined ? reject(error) : undefined));
    request.write(body.subarray(0, 500));
    request.write(body.subarray(500, 100_000));
  });
}

describe("behind Express, after a parser that keeps nothing", () => {
  it("says what is wrong, and asks the sender to come again", async () => {
    const { hook, log, effects } = shop();
    const url = await listen(createServer(express().use(express.json()).post("/hook", expressHandler(hook))));
    const sender = new TestSender();
    expect(await httpTarget(url)(sender.request(sender.event({ a: 1 }, "A")))).toBe(503);
    expect(log.map(({ message }) => message)).toEqual([
      expect.stringContaining("express.json({ verify: keepRawBody })"),
    ]);
    expect(effects()).toEqual([]);
  });
});

describe("behind a Fetch handler", () => {
  it("a body that was read before is told from a forged one", async () => {
    const { hook, log } = shop();
    const sender = new TestSender();
    const { headers, body } = sender.request(sender.event({ a: 1 }));
    const request = new Request("http://localhost/hook", { method: "POST", headers, body: Buffer.from(body) });
    await request.text();
    expect((await fetchHandler(hook)(request)).status).toBe(503);
    expect(log[0]?.message).toContain("the bytes that were signed are gone");
  });

  it("needs no server to be tested", async () => {
    const { hook } = shop();
    expect((await ordeal(EVENTS, fetchTarget(fetchHandler(hook)))).problems).toEqual([]);
  });
});

describe("a connection that ends within the body", () => {
  it("is not applied, and nothing fails", async () => {
    const { hook, log, effects } = shop();
    const handled = nodeHandler(hook);
    const ended = new Promise<void>((resolve) => {
      void listen(createServer((request, response) => void handled(request, response).then(resolve))).then((url) => {
        const { port } = new URL(url);
        const socket = connect(Number(port), "127.0.0.1", () => {
          socket.write("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nonly this", () =>
            socket.destroy(),
          );
        });
      });
    });
    await ended;
    expect(log).toMatchObject([{ code: "interrupted" }]);
    expect(effects()).toEqual([]);
  });
});

describe("a webhook", () => {
  it("that reads JSON where there is none refuses the event for good", async () => {
    const hook = webhook({ receiver, inbox: new MemoryInbox(), log: () => undefined }, (delivery) => delivery.json());
    const sender = new TestSender();
    expect(await fetchTarget(fetchHandler(hook))(sender.request(sender.event("no json", "A")))).toBe(400);
    expect(hook.counters.counts()).toMatchObject({ rejected: 1, trouble: 0 });
  });

  it("answers 429 with Retry-After when its queue is full", async () => {
    const hook = webhook({ receiver, queue: { take: () => undefined } });
    const sender = new TestSender();
    const { headers, body } = sender.request(sender.event("{}", "A"));
    const answer = await hook.handle({ method: "POST", url: "/", headers, body: () => body });
    expect(answer).toMatchObject({ status: 429, headers: { "retry-after": "5" } });
    expect(hook.counters.counts().full).toBe(1);
  });

  it("answers also if the log fails, and by a clock that is no whole number", async () => {
    const failing = () => {
      throw new Error("the log fails");
    };
    const consoleLog = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const hook = webhook({ receiver, inbox: new MemoryInbox(), log: failing, now: () => Date.now() / 1000 }, failing);
    const sender = new TestSender();
    const target = fetchTarget(fetchHandler(hook));
    expect(await target(sender.request(sender.event("{}", "A")))).toBe(503);
    expect(await target({ headers: {}, body: Buffer.from("{}") })).toBe(401);
    expect(consoleLog).toHaveBeenCalledTimes(2);
    consoleLog.mockRestore();
  });

  it("needs an effect beside an inbox, and bounds that make sense", () => {
    const inbox = new MemoryInbox();
    expect(() => webhook({ receiver, inbox } as never)).toThrow(/^effect: /);
    expect(() => webhook({ receiver, inbox, bodyLenMax: 0 }, () => undefined)).toThrow(/^bodyLenMax: .* from 1 to/);
  });
});
