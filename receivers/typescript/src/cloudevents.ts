/** CloudEvents 1.0: the event, its rules, and how HTTP carries it. */

import { Buffer } from "node:buffer";
import { elements, jsonText, members } from "./json-members.js";
import {
  ATTRIBUTE_LEN_MAX,
  ATTRIBUTE_NAME_LEN_MAX,
  BATCH_EVENTS_MAX,
  CONTENT_TYPE_LEN_MAX,
  EXTENSIONS_MAX,
} from "./limits.js";
import { essenceOf, isContentType, isJsonType } from "./media-type.js";
import { decodePercent } from "./received.js";
import { Rejection } from "./rejection.js";
import { BadText, decodeBase64, unexpected } from "./text.js";
import { isTime } from "./time.js";

/** The value of an attribute. Binary mode has text alone. */
export type AttributeValue = string | number | boolean;

/** The data of an event. JSON is kept as it was written. */
export type EventData =
  | { readonly kind: "none" }
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "binary"; readonly bytes: Buffer };

/** An event in the words of the standard. */
export interface CloudEvent {
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject?: string | undefined;
  readonly time?: string | undefined;
  readonly datacontenttype?: string | undefined;
  readonly dataschema?: string | undefined;
  readonly extensions: Readonly<Record<string, AttributeValue>>;
  readonly data: EventData;
}

/** How an HTTP message carries events. */
export type Mode = "structured" | "batched" | "binary";

/** The mode that a content type announces. Event formats other than JSON are refused. */
export function modeOf(contentType: string): Mode {
  const essence = essenceOf(contentType);
  if (essence === "application/cloudevents+json") return "structured";
  if (essence === "application/cloudevents-batch+json") return "batched";
  if (!essence.startsWith("application/cloudevents")) return "binary";
  const problem = unexpected("CloudEvents in JSON, alone or batched", contentType);
  throw Rejection.unreadable(`content-type: ${problem}`, { header: "content-type" });
}

/** Something is no CloudEvent because of `attribute`. */
function bad(attribute: string, expected: string, got: string): Rejection {
  const problem = unexpected(expected, got);
  return Rejection.unreadable(`no CloudEvent: ${attribute}: ${problem}`, { attribute });
}

/** Most members that an event can have: extensions, the standard's eight attributes, and its data. */
const MEMBERS_MAX = EXTENSIONS_MAX + 10;

/** Reads an event in structured mode. */
export function parseStructured(body: Uint8Array): CloudEvent {
  const text = jsonText(body);
  const found = text === undefined ? undefined : members(text);
  if (found === undefined || found.length > MEMBERS_MAX) {
    throw bad("body", `a JSON object of at most ${MEMBERS_MAX} members`, text ?? Buffer.from(body).toString("latin1"));
  }
  return fromMembers(found);
}

/** Reads a batch, which may be empty. An error says which event it is about. */
export function parseBatch(body: Uint8Array): CloudEvent[] {
  const text = jsonText(body);
  const found = text === undefined ? undefined : elements(text);
  if (found === undefined || found.length > BATCH_EVENTS_MAX) {
    throw bad("body", `a JSON array of at most ${BATCH_EVENTS_MAX} events`, text ?? "");
  }
  return found.map((event, index) => {
    try {
      return parseStructured(Buffer.from(event));
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      const details = { index, ...(error.attribute !== undefined && { attribute: error.attribute }) };
      throw Rejection.unreadable(`event ${index}: ${error.message}`, details);
    }
  });
}

/** Reads an event in binary mode: the attributes are `ce-` headers, by lower-case name, the data is the body. */
export function parseBinary(headers: Readonly<Record<string, string>>, body: Uint8Array): CloudEvent {
  const attributes = new Attributes();
  for (const [header, value] of Object.entries(headers)) {
    const name = attributeName(header.toLowerCase());
    if (name !== undefined) attributes.add(name, decodeHeader(name, value));
  }
  const declared = attributes.get("datacontenttype");
  const json = typeof declared === "string" && isJsonType(declared) ? jsonText(body) : undefined;
  if (json !== undefined) return attributes.event({ kind: "json", text: json.trim() });
  const bytes = Buffer.from(body);
  return attributes.event(bytes.length === 0 ? { kind: "none" } : { kind: "binary", bytes });
}

/** The attributes of a message, before it is known whether they make an event. */
class Attributes {
  readonly #values = new Map<string, AttributeValue>();

  get(name: string): AttributeValue | undefined {
    return this.#values.get(name);
  }

  /** A name that came before is refused, because readers would differ on which counts. */
  add(name: string, value: AttributeValue): void {
    if (this.#values.has(name)) throw bad("attribute name", "a name that came only once", name);
    this.#values.set(name, value);
  }

  event(data: EventData): CloudEvent {
    this.#required("specversion");
    const event: CloudEvent = {
      id: this.#required("id"),
      source: this.#required("source"),
      type: this.#required("type"),
      subject: this.#optional("subject"),
      time: this.#optional("time"),
      datacontenttype: this.#optional("datacontenttype"),
      dataschema: this.#optional("dataschema"),
      extensions: Object.fromEntries(this.#values),
      data,
    };
    checkExtensions(event.extensions);
    checkData(event);
    return event;
  }

  #required(name: string): string {
    const value = this.#optional(name);
    if (value === undefined) throw bad(name, "a value, because it is required", "");
    return value;
  }

  #optional(name: string): string | undefined {
    const value = this.#values.get(name);
    this.#values.delete(name);
    if (value === undefined) return undefined;
    if (typeof value !== "string") throw bad(name, "a string", String(value));
    const rule = RULES[name];
    const fits = Buffer.byteLength(value) <= ATTRIBUTE_LEN_MAX && rule?.holds(value) === true;
    if (!fits) throw bad(name, rule?.expected ?? "another value", value);
    return value;
  }
}

interface Rule {
  readonly expected: string;
  readonly holds: (text: string) => boolean;
}

const TEXT: Rule = {
  expected: "1 to 2048 bytes of text without control characters",
  holds: (text) => text !== "" && isString(text),
};

/** The rules for the attributes that the standard names. */
const RULES: Readonly<Record<string, Rule>> = {
  specversion: { expected: "`1.0`", holds: (text) => text === "1.0" },
  id: TEXT,
  type: TEXT,
  subject: TEXT,
  source: {
    expected: "a URI reference of 1 to 2048 bytes",
    holds: (text) => text !== "" && isUriReference(text),
  },
  time: { expected: "a time of RFC 3339 such as `2026-01-31T12:00:00Z`", holds: isTime },
  datacontenttype: {
    expected: `a media type of at most ${CONTENT_TYPE_LEN_MAX} visible ASCII characters such as \`application/json\``,
    holds: isContentType,
  },
  dataschema: {
    expected: "an absolute URI of at most 2048 bytes",
    holds: (text) => isUriReference(text) && schemeOf(text) !== undefined,
  },
};

function checkName(name: string): void {
  if (/^[a-z0-9]+$/.test(name) && name.length <= ATTRIBUTE_NAME_LEN_MAX) return;
  throw bad("attribute name", "an attribute name of 1 to 64 lowercase letters and digits", name);
}

function checkExtensions(extensions: Readonly<Record<string, AttributeValue>>): void {
  const all = Object.entries(extensions);
  if (all.length > EXTENSIONS_MAX) throw bad("extensions", `at most ${EXTENSIONS_MAX} of them`, String(all.length));
  for (const [name, value] of all) {
    checkName(name);
    if (name === "data") throw bad("attribute name", "an extension name that the standard does not use", name);
    if (typeof value !== "string") continue;
    if (!isString(value) || Buffer.byteLength(value) > ATTRIBUTE_LEN_MAX) {
      throw bad(name, "at most 2048 bytes of text without control characters", value);
    }
  }
}

function checkData({ data, datacontenttype = "application/json" }: CloudEvent): void {
  const json = isJsonType(datacontenttype);
  if (data.kind === "json" && !json) throw bad("datacontenttype", "a JSON media type", datacontenttype);
  if (data.kind === "text" && json) throw bad("datacontenttype", "a media type other than JSON", datacontenttype);
}

function fromMembers(found: readonly [string, string][]): CloudEvent {
  const attributes = new Attributes();
  const data = new Map<string, string>();
  for (const [name, value] of found) {
    if (name !== "data" && name !== "data_base64") addJson(attributes, name, value);
    else if (data.has(name)) throw bad("attribute name", "a name that came only once", name);
    else data.set(name, value);
  }
  return attributes.event(readData(attributes, data.get("data"), data.get("data_base64")));
}

/** Adds an attribute, unless its value is `null`, which means that it is not set. */
function addJson(attributes: Attributes, name: string, text: string): void {
  checkName(name);
  const value: unknown = JSON.parse(text);
  if (value === null) return;
  const isInteger = typeof value === "number" && /^-?\d+$/.test(text) && value === (value | 0);
  const isText = typeof value === "string" && value.isWellFormed();
  if (!isText && !isInteger && typeof value !== "boolean") {
    throw bad(name, "a string, a whole number of 32 bits, or true or false", text);
  }
  attributes.add(name, value as AttributeValue);
}

/** The data, from the one of its two members that is there, by the content type declared for it. */
function readData(attributes: Attributes, data: string | undefined, base64: string | undefined): EventData {
  const encoded = base64 === "null" ? undefined : base64;
  if (data === undefined) return encoded === undefined ? { kind: "none" } : readBase64(encoded);
  if (encoded !== undefined) throw bad("data_base64", "either `data` or `data_base64`, not both", encoded);
  const declared = attributes.get("datacontenttype");
  if (typeof declared !== "string" || isJsonType(declared)) return { kind: "json", text: data };
  const text: unknown = JSON.parse(data);
  if (typeof text !== "string") throw bad("data", "a string, because its content type is not JSON", data);
  return { kind: "text", text };
}

function readBase64(encoded: string): EventData {
  const text: unknown = JSON.parse(encoded);
  const bytes = typeof text === "string" ? decodeBase64(text) : undefined;
  if (bytes === undefined) throw bad("data_base64", "a string of base64", encoded);
  return { kind: "binary", bytes };
}

/** The attribute that a header carries, if it carries one. */
function attributeName(header: string): string | undefined {
  if (header === "content-type") return "datacontenttype";
  if (!header.startsWith("ce-")) return undefined;
  const name = header.slice("ce-".length);
  if (name === "datacontenttype") {
    throw bad("datacontenttype", "`Content-Type` to say it, in binary mode", header);
  }
  checkName(name);
  return name;
}

/** Quotes of older senders are taken off, then escapes are undone. A content type is neither quoted nor escaped. */
function decodeHeader(name: string, value: string): string {
  if (name === "datacontenttype") return value;
  try {
    return decodePercent(unquote(value));
  } catch (error) {
    if (error instanceof BadText) throw bad(name, error.expected, value);
    throw error;
  }
}

/** The inside of a quoted string of RFC 9110; a value that does not begin with a quote as it is. */
function unquote(value: string): string {
  if (!value.startsWith('"')) return value;
  const inside = /^"((?:[^"\\]|\\[\s\S])*)"$/.exec(value)?.[1];
  if (inside === undefined) throw new BadText("a quoted string with its end", value);
  return inside.replace(/\\([\s\S])/g, "$1");
}

/** Whether the standard lets a text be a String: no control characters, noncharacters or lone surrogates. */
function isString(text: string): boolean {
  return text.isWellFormed() && !/[\p{Cc}\p{Noncharacter_Code_Point}]/u.test(text);
}

/** RFC 3986 as far as characters and delimiters go. */
function isUriReference(text: string): boolean {
  const [hierarchy = "", ...fragments] = text.split("#");
  const firstSegment = (hierarchy.split("?")[0] ?? "").split("/")[0] ?? "";
  return (
    /^(?:[A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*$/.test(text) &&
    fragments.length <= 1 &&
    (!firstSegment.includes(":") || schemeOf(text) !== undefined) &&
    !/[[\]]/.test(outsideAuthority(text))
  );
}

function schemeOf(text: string): string | undefined {
  return /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(text)?.[1];
}

/** All of a reference but its scheme and authority. */
function outsideAuthority(text: string): string {
  const scheme = schemeOf(text);
  const afterScheme = scheme === undefined ? text : text.slice(scheme.length + 1);
  return afterScheme.startsWith("//") ? afterScheme.replace(/^\/\/[^/?#]*/, "") : afterScheme;
}
