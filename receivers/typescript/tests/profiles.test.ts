import { createHmac, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import { describe, expect, it } from "vitest";
import { Receiver, type ReceiverOptions } from "../src/receiver.js";
import { Rejection } from "../src/rejection.js";
import { TEST_SECRET, TestSender } from "../src/testing.js";

const NOW = 1_767_225_600;
const AT = new Date(NOW * 1000);
const BODY = '{"id":"evt_1","type":"invoice.paid","created":1767225000,"data":"é"}';
const OTHER = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;

/** The code of the rejection. */
function refused(
  options: ReceiverOptions,
  headers: Record<string, string>,
  body: string | Uint8Array,
  now = NOW,
): string {
  try {
    new Receiver(options).verify(headers, body, now);
  } catch (error) {
    expect(error).toBeInstanceOf(Rejection);
    return (error as Rejection).code;
  }
  return "accepted";
}

describe("standardwebhooks", () => {
  const headers = {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(NOW),
    "webhook-signature": new StandardWebhook(TEST_SECRET).sign("msg_1", AT, BODY),
  };

  it("signs what is verified", () => {
    const delivery = new Receiver({ secrets: [OTHER, TEST_SECRET] }).verify(headers, BODY, NOW);
    expect(delivery).toMatchObject({ eventId: "msg_1", timestamp: NOW, replay: false });
    expect(delivery.json()).toEqual(JSON.parse(BODY));
  });

  it("is refused with another secret, another body, too late and too early", () => {
    expect(refused({ secrets: [OTHER] }, headers, BODY)).toBe("no_match");
    expect(refused({ secrets: [TEST_SECRET] }, headers, `${BODY} `)).toBe("no_match");
    expect(refused({ secrets: [TEST_SECRET] }, headers, BODY, NOW + 301)).toBe("stale");
    expect(refused({ secrets: [TEST_SECRET] }, headers, BODY, NOW - 301)).toBe("future");
    expect(refused({ secrets: [TEST_SECRET], toleranceSeconds: 400 }, headers, BODY, NOW - 301)).toBe("accepted");
  });

  it("verifies what the test sender signs", () => {
    const sender = new TestSender();
    const { headers, body } = sender.request(sender.event({ a: "é" }, "A"), 1);
    const read = new StandardWebhook(TEST_SECRET).verify(Buffer.from(body).toString(), { ...headers });
    expect(read).toEqual({ a: "é" });
  });
});

describe("svix", () => {
  it("signs what is verified, under its own names and the standard ones", () => {
    const signature = new SvixWebhook(TEST_SECRET).sign("msg_2", AT, BODY);
    for (const brand of ["svix", "webhook"]) {
      const headers = {
        [`${brand}-id`]: "msg_2",
        [`${brand}-timestamp`]: String(NOW),
        [`${brand}-signature`]: signature,
      };
      const delivery = new Receiver({ secrets: [TEST_SECRET], profile: "svix" }).verify(headers, BODY, NOW);
      expect(delivery.eventId).toBe("msg_2");
      expect(refused({ secrets: [OTHER], profile: "svix" }, headers, BODY)).toBe("no_match");
    }
  });

  it("may send an Idempotency-Key that is not the event id", () => {
    const headers = {
      "svix-id": "msg_2",
      "svix-timestamp": String(NOW),
      "svix-signature": new SvixWebhook(TEST_SECRET).sign("msg_2", AT, BODY),
      "idempotency-key": "of somebody's own",
    };
    expect(refused({ secrets: [TEST_SECRET], profile: "svix" }, headers, BODY)).toBe("accepted");
  });

  it("is unsigned without a signature", () => {
    expect(refused({ secrets: [TEST_SECRET], profile: "svix" }, { "svix-id": "msg_2" }, BODY)).toBe("unsigned");
  });
});

describe("stripe", () => {
  const secret = "whsec_as_stripe_shows_it";
  const header = Stripe.webhooks.generateTestHeaderString({ payload: BODY, secret, timestamp: NOW });
  const options = { secrets: [secret], profile: "stripe" } as const;

  it("signs what is verified, and the id is the signed one of the body", () => {
    const delivery = new Receiver(options).verify({ "Stripe-Signature": header }, BODY, NOW);
    expect(delivery).toMatchObject({ eventId: "evt_1", eventType: "invoice.paid", timestamp: NOW });
    expect(delivery.eventTime).toEqual(new Date("2025-12-31T23:50:00Z"));
  });

  it("is refused with another secret, another body, out of time, unsigned, or without an id", () => {
    expect(refused({ ...options, secrets: ["other"] }, { "stripe-signature": header }, BODY)).toBe("no_match");
    expect(refused(options, { "stripe-signature": header }, `${BODY} `)).toBe("no_match");
    expect(refused(options, { "stripe-signature": header }, BODY, NOW + 301)).toBe("stale");
    expect(refused(options, {}, BODY)).toBe("unsigned");
    const payload = '{"no":"id"}';
    const signed = Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp: NOW });
    expect(refused(options, { "stripe-signature": signed }, payload)).toBe("unreadable");
  });
});

describe("github", () => {
  const secret = "It's a Secret to Everybody";
  const options = { secrets: [secret], profile: "github" } as const;
  const delivery = randomUUID();
  const headers = {
    "X-Hub-Signature-256": `sha256=${createHmac("sha256", secret).update(BODY).digest("hex")}`,
    "X-GitHub-Delivery": delivery,
    "X-GitHub-Event": "pull_request",
  };

  it("is verified as its documentation has it", () => {
    const published = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const read = new Receiver(options).verify({ ...headers, "X-Hub-Signature-256": published }, "Hello, World!", NOW);
    expect(read).toMatchObject({ eventId: delivery, eventType: "pull_request", timestamp: NOW });
  });

  it("is refused with another body, another secret, an older hash, unsigned, or without an id", () => {
    expect(refused(options, headers, BODY)).toBe("accepted");
    expect(refused(options, headers, `${BODY} `)).toBe("no_match");
    expect(refused({ ...options, secrets: ["other"] }, headers, BODY)).toBe("no_match");
    expect(refused(options, { ...headers, "X-Hub-Signature-256": "sha1=00" }, BODY)).toBe("malformed");
    expect(refused(options, { "X-GitHub-Delivery": delivery }, BODY)).toBe("unsigned");
    expect(refused(options, { "X-Hub-Signature-256": headers["X-Hub-Signature-256"] }, BODY)).toBe("missing_header");
  });
});

describe("Ed25519", () => {
  it("of any maker is verified with the public key", () => {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const raw = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url");
    const signature = sign(null, Buffer.from(`msg_3.${NOW}.${BODY}`), privateKey).toString("base64");
    const headers = {
      "webhook-id": "msg_3",
      "webhook-timestamp": String(NOW),
      "webhook-signature": `v1a,${signature}`,
    };
    const options = { keys: [`whpk_${raw.toString("base64")}`] };
    expect(refused(options, headers, BODY)).toBe("accepted");
    expect(refused(options, headers, `${BODY} `)).toBe("no_match");
  });
});

describe("what the sender says of the event", () => {
  const sender = new TestSender();
  const event = { ...sender.event("{}", "café 1"), type: "order.paid" };
  const request = sender.request(event, 2, NOW);
  const verify = (headers: Record<string, string>) =>
    new Receiver({ secrets: [TEST_SECRET] }).verify(headers, "{}", NOW);

  it("is read: its place, its type, its time and its schema version", () => {
    const more = { "X-Event-Time": "2026-01-01T00:00:00.5Z", "X-Schema-Version": "3", "x-replay": "true" };
    expect(verify({ ...request.headers, ...more })).toMatchObject({
      key: "café 1",
      line: event.line,
      seq: 1n,
      attempt: 2,
      replay: true,
      eventType: "order.paid",
      eventTime: new Date(1_767_225_600_500),
      schemaVersion: 3,
    });
    const { eventTime, schemaVersion } = verify({ ...request.headers });
    expect([eventTime, schemaVersion]).toEqual([undefined, undefined]);
  });

  it.each([
    ["X-Event-Type", "order paid"],
    ["X-Event-Time", "2026-02-30T00:00:00Z"],
    ["X-Event-Time", "yesterday"],
    ["X-Schema-Version", "4294967296"],
    ["X-Schema-Version", "-1"],
  ])("is refused if %s is %s", (header, value) => {
    expect(() => verify({ ...request.headers, [header]: value })).toThrow(
      expect.objectContaining({ code: "malformed", header }),
    );
  });

  it("may stand under other names", () => {
    const names = { x_event_type: "X-Kind", x_key: "X-Order" } as const;
    const renamed = new TestSender({ names });
    const { headers } = renamed.request({ ...renamed.event("{}", "k"), type: "order.paid" }, 1, NOW);
    const read = new Receiver({ secrets: [TEST_SECRET], names }).verify(headers, "{}", NOW);
    expect(read).toMatchObject({ key: "k", eventType: "order.paid" });
    expect(headers["X-Kind"]).toBe("order.paid");
  });
});

describe("headers", () => {
  it("are read from every form that HTTP libraries have", () => {
    const sender = new TestSender();
    const { headers, body } = sender.request(sender.event("{}", "A"), 1, NOW);
    const receiver = new Receiver({ secrets: [TEST_SECRET] });
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    const lists = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]));
    for (const form of [
      headers,
      lower,
      lists,
      new Headers(headers),
      new Map(Object.entries(headers)),
      Object.entries(headers),
    ]) {
      expect(receiver.verify(form, body, NOW).key).toBe("A");
    }
  });

  it("that came twice do not make a request authentic", () => {
    const sender = new TestSender();
    const { headers, body } = sender.request(sender.event("{}"), 1, NOW);
    const twice = { ...headers, "webhook-id": ["another", headers["webhook-id"] ?? ""] } as never;
    expect(refused({ secrets: [TEST_SECRET] }, twice, body)).toBe("malformed");
  });
});

describe("a receiver", () => {
  it("that trusts nothing, or keys where only secrets are used, is refused", () => {
    expect(() => new Receiver({})).toThrow(/at least one of `secrets` and `keys`/);
    expect(() => new Receiver({ secrets: ["plain"] })).toThrow(/`whsec_` and the base64 of 24 to 64 bytes/);
    expect(() => new Receiver({ secrets: ["s"], keys: ["whpk_"], profile: "github" })).toThrow(
      /github signs with secrets/,
    );
    expect(() => new Receiver({ secrets: [""], profile: "github" })).toThrow(/not empty/);
    expect(() => new Receiver({ secrets: [TEST_SECRET], toleranceSeconds: -1 })).toThrow(/^toleranceSeconds: /);
    expect(() => new Receiver({ secrets: [TEST_SECRET], profile: "sendgrid" as never })).toThrow(/^profile: /);
  });

  it("says that a parsed body is not what was signed", () => {
    const verify = () => new Receiver({ secrets: [TEST_SECRET] }).verify({}, { parsed: true } as never);
    expect(verify).toThrow(/body: expected the bytes as they arrived; got object/);
  });
});
