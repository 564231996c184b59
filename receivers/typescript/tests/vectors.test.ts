import { Buffer } from "node:buffer";
import { describe, expect, it } from "vitest";
import { modeOf, parseBatch, parseBinary, parseStructured, type CloudEvent } from "../src/cloudevents.js";
import { Delivery, hashedId } from "../src/delivery.js";
import { headerNames, readHeaders } from "../src/header-names.js";
import { isContentType, isJsonType } from "../src/media-type.js";
import {
  encodePercent,
  Incoming,
  parseEventId,
  parseEventTime,
  parseEventType,
  parseKey,
  parseLine,
  parseReceived,
  parseSeq,
} from "../src/received.js";
import { Receiver } from "../src/receiver.js";
import { Rejection } from "../src/rejection.js";
import { BadSecret, secretBytes, SigningKey, verifyingKey } from "../src/secrets.js";
import { TestSender } from "../src/testing.js";
import { bytes, cases, headerText, type Case } from "./support/vectors.js";

/** The rejection that something throws. */
function rejection(run: () => unknown): Rejection {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(Rejection);
    return error as Rejection;
  }
  throw new Error("nothing was rejected");
}

describe("ids.json", () => {
  const readers: Record<string, (text: string) => unknown> = { event: parseEventId, line: parseLine };

  it("ids of events and lines are read, and others refused", () => {
    let judged = 0;
    for (const { kind, text } of cases("ids", "chosen").filter(({ kind }) => kind in readers)) {
      expect(readers[kind]?.(text), text).toBe(text);
      judged += 1;
    }
    for (const { kind, text, why } of cases("ids", "refused").filter(({ kind }) => kind in readers)) {
      expect(() => readers[kind]?.(text), why).toThrow();
      judged += 1;
    }
    for (const { text } of cases("ids", "generated").filter(({ kind }) => kind === "event")) {
      expect(parseEventId(text)).toBe(text);
    }
    expect(judged).toBeGreaterThan(20);
  });

  it("seqs are whole numbers from 1 that a signed column holds", () => {
    for (const { number, accepted } of cases("ids", "seqs")) {
      if (accepted) expect(parseSeq(number)).toBe(BigInt(number));
      else expect(() => parseSeq(number), number).toThrow();
    }
  });
});

describe("names.json", () => {
  it("event types and content types are told from other texts", () => {
    for (const { text, accepted, why } of cases("names", "event_types")) {
      if (accepted) expect(parseEventType(text)).toBe(text);
      else expect(() => parseEventType(text), why).toThrow();
    }
    for (const { text, accepted, json, why } of cases("names", "content_types")) {
      expect(isContentType(text), why ?? text).toBe(accepted);
      if (accepted) expect(isJsonType(text), text).toBe(json);
    }
  });
});

describe("keys.json", () => {
  it("a key is written and read back", () => {
    for (const { key, header } of cases("keys", "encoded")) {
      expect(encodePercent(key)).toBe(header);
      expect(parseKey(header)).toBe(key);
    }
    for (const { key, header } of cases("keys", "decoded")) expect(parseKey(header)).toBe(key);
  });

  it("headers that mean no key are refused", () => {
    for (const refused of cases("keys", "refused")) {
      expect(() => parseKey(headerText(refused, "header")), refused["why"]).toThrow();
    }
  });
});

describe("secrets.json", () => {
  it("secrets and keys are read", () => {
    for (const { text, bytes: hex } of cases("secrets", "secrets")) {
      expect(secretBytes(text).toString("hex")).toBe(hex);
    }
    for (const { text, canonical, public: publicKey } of cases("secrets", "signing_keys")) {
      const key = new SigningKey(text);
      expect([key.reveal(), key.verifyingKey]).toEqual([canonical, publicKey]);
    }
  });

  it("others are refused without being shown", () => {
    const readers: Record<string, (text: string) => unknown> = {
      secret: secretBytes,
      signing_key: (text) => new SigningKey(text),
      verifying_key: verifyingKey,
    };
    for (const { kind, text, why } of cases("secrets", "refused")) {
      expect(() => readers[kind]?.(text), why).toThrow(BadSecret);
    }
    expect(() => secretBytes("whsec_mistyped")).not.toThrow(/mistyped/);
  });
});

describe("signatures.json", () => {
  it.each(cases("signatures", "cases"))("$name", (signed) => {
    const event = { id: signed["id"] as string, body: bytes(signed, "body") };
    const sender = new TestSender({ signers: signed["signers"] as string[] });
    const { headers } = sender.request(event, 1, signed["timestamp"] as number);
    expect(headers["webhook-signature"] ?? null).toBe(signed["webhook_signature"]);
    expect(headers["X-Webhook-Signature"] ?? null).toBe(signed["x_webhook_signature"]);
  });
});

describe("verification.json", () => {
  it.each(cases("verification", "cases"))("$name", (request) => {
    const make = () =>
      new Receiver({
        secrets: request["secrets"] as string[],
        keys: request["keys"] as string[],
        profile: request["standard_only"] ? "standard" : "timestamped",
        toleranceSeconds: request["tolerance"] as number,
        names: (request["names"] ?? {}) as object,
      });
    if (request["secrets"].length + request["keys"].length === 0) {
      expect(make, "nothing would be believed").toThrow(BadSecret);
      return;
    }
    const incoming = new Incoming(headerNames(request["names"]), readHeaders(request["headers"]));
    const authenticate = () => make().authenticate(incoming, bytes(request, "body"), request["now"] as number);
    if (request["outcome"] === "standard" || request["outcome"] === "timestamped") {
      expect(authenticate()).toBe(request["outcome"]);
      return;
    }
    expectRejection(rejection(authenticate), request);
  });
});

function expectRejection(rejected: Rejection, expected: Case): void {
  const outcome = rejected.code === "unsigned" ? "missing_header" : rejected.code;
  expect(outcome).toBe(expected["outcome"]);
  if ("header" in expected) expect(rejected.header).toBe(expected["header"]);
  if ("by" in expected) expect(rejected.by).toBe(Number(expected["by"]));
}

describe("headers.json", () => {
  it.each(cases("headers", "names"))("renamed $renamed", ({ renamed, accepted, header }) => {
    if (accepted) expect(headerNames(renamed)).toMatchObject(renamed);
    else expect(() => headerNames(renamed)).toThrow(expect.objectContaining({ header }));
  });

  it.each(cases("headers", "attempts"))("an attempt $name is written and read", (attempt) => {
    const big = (field: string) => (attempt[field] === null ? undefined : BigInt(attempt[field]));
    const fields = {
      key: (attempt["key"] ?? undefined) as string | undefined,
      line: (attempt["line"] ?? undefined) as string | undefined,
      seq: big("seq"),
      after: big("after"),
      replay: attempt["replay"] as boolean,
      isThin: attempt["thin"] as boolean,
    };
    const names = headerNames(attempt["names"]);
    const sender = new TestSender({ signers: attempt["signers"], names: attempt["names"] });
    const about = {
      type: attempt["event_type"] ?? undefined,
      time: Object.fromEntries(attempt["headers"])[names.x_event_time] as string | undefined,
      schemaVersion: attempt["schema_version"] ?? undefined,
    };
    const event = { id: attempt["event_id"], ...fields, ...about, body: bytes(attempt, "body") };
    const { headers } = sender.request(event, attempt["attempt"], attempt["timestamp"]);
    const { "content-type": _, ...sent } = headers;
    expect(sent).toEqual(Object.fromEntries(attempt["headers"]));
    const read = parseReceived(new Incoming(names, readHeaders(attempt["headers"])));
    const { event_id: eventId, attempt: number, timestamp } = attempt;
    expect(read).toMatchObject({ eventId, ...fields, attempt: number, timestamp });
    expect(read).toMatchObject({ eventType: about.type, schemaVersion: about.schemaVersion });
    // Beyond the year 9999 a time has no form.
    const time = about.time === undefined ? undefined : attempt["event_unix_ms"];
    expect(read.eventTime?.getTime()).toBe(time);
  });

  it.each(cases("headers", "event_times"))("the time $value", ({ value, unix_ms: unixMs }) => {
    expect(parseEventTime(value).getTime()).toBe(unixMs);
  });

  it.each(cases("headers", "refused"))("refused: $name", (refused) => {
    const incoming = new Incoming(headerNames(), readHeaders(refused["headers"]));
    expectRejection(
      rejection(() => parseReceived(incoming)),
      refused,
    );
  });
});

describe("cloudevents.json", () => {
  function attributes({ data: _, extensions, ...named }: CloudEvent): Case {
    const set = Object.entries(named).filter(([, value]) => value !== undefined);
    return { specversion: "1.0", ...Object.fromEntries(set), ...extensions };
  }

  function data({ data }: CloudEvent): Case {
    return data.kind === "binary" ? { kind: "binary", base64: data.bytes.toString("base64") } : data;
  }

  it("modes", () => {
    for (const { content_type: type, mode } of cases("cloudevents", "modes")) {
      if (mode === null) expect(() => modeOf(type), type).toThrow(Rejection);
      else expect(modeOf(type), type).toBe(mode);
    }
  });

  it.each(cases("cloudevents", "structured"))("structured: $name", (event) => {
    const read = parseStructured(bytes(event, "body"));
    expect(attributes(read)).toEqual(event["attributes"]);
    expect(data(read)).toEqual(event["data"]);
    const { headers, ...body } = event["binary"] as Case;
    const binary = parseBinary(Object.fromEntries(headers as [string, string][]), bytes(body, "body"));
    const texts = Object.entries(attributes(read)).map(([name, value]) => [name, String(value)]);
    expect(attributes(binary)).toMatchObject(Object.fromEntries(texts));
  });

  it.each(cases("cloudevents", "structured_refused"))("structured refused: $name", (event) => {
    const refused = rejection(() => parseStructured(bytes(event, "body")));
    expect(refused.attribute).toBe(event["attribute"]);
  });

  it.each(cases("cloudevents", "binary"))("binary: $name", (event) => {
    const headers = Object.fromEntries(readHeaders(event["headers"]));
    const read = parseBinary(headers, bytes(event, "body"));
    expect(attributes(read)).toEqual(event["attributes"]);
    expect(data(read)).toEqual(event["data"]);
  });

  it.each(cases("cloudevents", "binary_refused"))("binary refused: $name", (event) => {
    const refused = rejection(() => parseBinary(event["headers"], Buffer.from("")));
    expect(refused.attribute).toBe(event["attribute"]);
  });

  it.each(cases("cloudevents", "batches"))("batch: $name", (batch) => {
    const read = () => parseBatch(bytes(batch, "body"));
    if ("ids" in batch) {
      expect(read().map(({ id }) => id)).toEqual(batch["ids"]);
      return;
    }
    const { attribute, index } = rejection(read);
    expect([attribute, index ?? null]).toEqual([batch["attribute"], batch["index"] ?? null]);
  });
});

describe("event_ids of cloudevents.json", () => {
  it.each(cases("cloudevents", "event_ids"))("$event_id", ({ source, id, event_id: eventId }) => {
    expect(hashedId(source, id)).toBe(eventId);
  });
});

describe("a reference", () => {
  it("is not read as the payload, and is whole once it is fetched", () => {
    const body = Buffer.from('{"id": "1", "type": "t", "url": "https://a.example/x"}');
    const delivery = new Delivery({ eventId: "1", replay: false, timestamp: 0, isThin: true }, {}, body);
    expect(delivery.thin().url).toBe("https://a.example/x");
    for (const read of [() => delivery.json(), () => delivery.cloudEvent(), () => delivery.event()]) {
      expect(read).toThrow("a reference to the event");
    }
    expect(delivery.withPayload(Buffer.from("[1]"), "application/json").json()).toEqual([1]);
  });
});

describe("envelopes.json", () => {
  it.each(cases("envelopes", "cases"))("$name", ({ event, envelopes }) => {
    const { id, type, key, url } = event as Case;
    const delivery = (envelope: string) => {
      const { headers, ...body } = envelopes[envelope] as Case;
      const received = { eventId: id as string, replay: false, timestamp: 0 };
      return new Delivery(received, Object.fromEntries(headers as [string, string][]), bytes(body, "body"));
    };
    expect(delivery("raw").body).toEqual(bytes(event, "payload"));
    // A key with control characters is no subject.
    const { subject } = delivery("cloudevents-structured").json<{ subject?: string }>();
    for (const mode of ["cloudevents-structured", "cloudevents-binary"]) {
      const identity = (event["cloudevent"] as Case | undefined)?.["id"] ?? id;
      expect(delivery(mode).cloudEvent()).toMatchObject({ id: identity, type, subject });
    }
    const wrapped = delivery("event").event();
    expect(wrapped).toMatchObject({ id, type, key: key ?? undefined, version: event["schema_version"] ?? undefined });
    const payload = bytes(event, "payload");
    if (wrapped.data.kind === "binary") expect(wrapped.data.bytes).toEqual(payload);
    else if (wrapped.data.kind === "json") expect(wrapped.data.text).toBe(payload.toString("utf8").trim());
    else expect((event["cloudevent"] as Case)["no_data"]).toBe(true);
    expect({ ...delivery("thin").thin() }).toEqual({ id, type, key: key ?? undefined, url });
  });
});
