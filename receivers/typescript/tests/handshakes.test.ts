import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, it } from "vitest";
import type { Handshakes, WebSubIntent } from "../src/handshake.js";
import { MemoryInbox } from "../src/memory.js";
import { nodeHandler } from "../src/node.js";
import { Receiver } from "../src/receiver.js";
import { TEST_SECRET } from "../src/testing.js";
import { webhook } from "../src/webhook.js";
import { closed } from "./support/services.js";

const receiver = new Receiver({ secrets: [TEST_SECRET] });
const closers: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
});

async function serve(handshakes: Handshakes): Promise<string> {
  const server = createServer(
    nodeHandler(webhook({ receiver, inbox: new MemoryInbox(), handshakes }, () => undefined)),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => closed(server));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

describe("a CloudEvents sender that asks with OPTIONS", () => {
  const cloudEvents = { origins: ["eventemitter.example.com"], ratePerMinute: 100 };

  async function ask(
    handshake: Handshakes,
    headers: Record<string, string>,
  ): Promise<[number, string | null, string | null]> {
    const response = await fetch(await serve(handshake), { method: "OPTIONS", headers });
    const header = (name: string) => response.headers.get(name);
    return [response.status, header("webhook-allowed-origin"), header("webhook-allowed-rate")];
  }

  it.each([
    ["its origin", "eventemitter.example.com", "eventemitter.example.com"],
    ["its origin in other case", "EventEmitter.example.COM", "EventEmitter.example.COM"],
    ["one that only begins alike", "eventemitter.example.com.evil.example", null],
    ["one that only ends alike", "evil-eventemitter.example.com", null],
    ["another one", "other.example", null],
    ["two at once", "eventemitter.example.com, other.example", null],
  ])("is answered by %s", async (_name, origin, allowed) => {
    expect((await ask({ cloudEvents }, { "webhook-request-origin": origin }))[1]).toBe(allowed);
  });

  it.each([
    ["1000", "100"],
    ["7", "7"],
    ["0", "100"],
    ["-1", "100"],
    ["abc", "100"],
  ])("is allowed at a rate of %s, at most %s", async (asked, allowed) => {
    const headers = { "webhook-request-origin": "eventemitter.example.com", "webhook-request-rate": asked };
    expect(await ask({ cloudEvents }, headers)).toEqual([200, "eventemitter.example.com", allowed]);
  });

  it("is allowed what it asks for where all origins and rates are", async () => {
    const headers = { "webhook-request-origin": "any.example", "webhook-request-rate": "120" };
    expect(await ask({ cloudEvents: { origins: "*" } }, headers)).toEqual([200, "any.example", "120"]);
  });

  it("gets no consent where there is none, or without an origin", async () => {
    expect(await ask({}, { "webhook-request-origin": "eventemitter.example.com" })).toEqual([405, null, null]);
    expect(await ask({ cloudEvents }, {})).toEqual([403, null, null]);
  });
});

describe("a WebSub hub that asks with GET", () => {
  const topic = "https://example.com/feed?a=1&b=2";
  const webSub = { topics: [topic] };

  async function ask(handshakes: Handshakes, query: Record<string, string>, own = ""): Promise<[number, string]> {
    const response = await fetch(`${await serve(handshakes)}?${own}${new URLSearchParams(query)}`);
    return [response.status, await response.text()];
  }

  const intent = {
    "hub.mode": "subscribe",
    "hub.topic": topic,
    "hub.challenge": "c-1_A",
    "hub.lease_seconds": "86400",
  };

  it("is answered with its challenge, and nothing but it", async () => {
    expect(await ask({ webSub }, intent)).toEqual([200, "c-1_A"]);
    expect(await ask({ webSub }, intent, "token=mine&")).toEqual([200, "c-1_A"]);
  });

  it("is refused for a topic that is not wanted", async () => {
    expect(await ask({ webSub }, { ...intent, "hub.topic": "https://example.com/feed" })).toEqual([404, "not found"]);
  });

  it("is let end a subscription only if the topic is not wanted", async () => {
    const end = { ...intent, "hub.mode": "unsubscribe" };
    expect((await ask({ webSub }, end))[0]).toBe(404);
    expect(await ask({ webSub: { topics: [] } }, end)).toEqual([200, "c-1_A"]);
  });

  it("is judged by the application, which sees the lease", async () => {
    const seen: WebSubIntent[] = [];
    const topics = async (asked: WebSubIntent) => seen.push(asked) > 0;
    expect(await ask({ webSub: { topics } }, intent)).toEqual([200, "c-1_A"]);
    expect(seen).toEqual([{ mode: "subscribe", topic, leaseSeconds: 86_400 }]);
  });

  it.each([
    ["no challenge", { "hub.challenge": "" }],
    ["no topic", { "hub.topic": "" }],
    ["an unknown mode", { "hub.mode": "SUBSCRIBE" }],
    ["a challenge without end", { "hub.challenge": "x".repeat(1025) }],
  ])("is refused with %s", async (_name, changed) => {
    expect((await ask({ webSub }, { ...intent, ...changed }))[0]).toBe(400);
  });

  it("is refused with two topics", async () => {
    expect((await ask({ webSub }, intent, `hub.topic=${encodeURIComponent(topic)}&`))[0]).toBe(400);
  });

  it("tells of a denial", async () => {
    const denied: unknown[] = [];
    const onDenied = (...told: unknown[]) => void denied.push(told);
    const query = { "hub.mode": "denied", "hub.topic": topic, "hub.reason": "no more" };
    expect((await ask({ webSub: { topics: [], onDenied } }, query))[0]).toBe(200);
    expect(denied).toEqual([[topic, "no more"]]);
  });

  it("cannot make a browser run its challenge", async () => {
    const url = await serve({ webSub });
    const response = await fetch(`${url}?${new URLSearchParams({ ...intent, "hub.challenge": "<script>" })}`);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain/);
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
  });
});

describe("options of handshakes", () => {
  it.each([
    [{ cloudEvents: { origins: "example.com" } }, /^handshakes.cloudEvents.origins: /],
    [{ cloudEvents: { origins: "*", ratePerMinute: 0 } }, /^handshakes.cloudEvents.ratePerMinute: .* from 1/],
    [{ webSub: { topics: "https://example.com" } }, /^handshakes.webSub.topics: /],
  ])("%j are refused", (handshakes, message) => {
    const inbox = new MemoryInbox();
    expect(() => webhook({ receiver, inbox, handshakes: handshakes as never }, () => undefined)).toThrow(message);
  });
});
