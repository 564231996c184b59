/** The envelope `event`: id, type, time, schema version, key and payload in one JSON object. */

import type { EventData } from "./cloudevents.js";
import { jsonText, members } from "./json-members.js";
import { parseEventId, parseEventType, readAs } from "./received.js";
import { Rejection } from "./rejection.js";
import { decodeBase64 } from "./text.js";

/** What an `event` envelope holds. */
export interface EventBody {
  readonly id: string;
  readonly type: string;
  /** When it happened, by RFC 3339. */
  readonly createdAt: string | undefined;
  /** The version of its type's schema, if it has one. */
  readonly version: number | undefined;
  readonly key: string | undefined;
  /** Its payload: JSON as it was written, bytes, or none at all. */
  readonly data: EventData;
}

/** Reads an `event` envelope. */
export function readEvent(body: Uint8Array): EventBody {
  const text = jsonText(body);
  const found = text === undefined ? undefined : members(text);
  if (found === undefined) throw unreadable("expected a JSON object");
  const values = new Map(found);
  const id = member(values, "id", isText);
  const type = member(values, "type", isText);
  if (id === undefined || type === undefined) throw unreadable("expected `id` and `type`");
  return {
    id: readAs("id", id, parseEventId),
    type: readAs("type", type, parseEventType),
    createdAt: member(values, "created_at", isText),
    version: member(values, "version", isVersion),
    key: member(values, "key", isText),
    data: dataOf(values),
  };
}

/** A member that `is` of its kind; nothing if it is absent or null. */
function member<T>(values: Map<string, string>, name: string, is: (value: unknown) => value is T): T | undefined {
  const value: unknown = JSON.parse(values.get(name) ?? "null");
  if (value === null) return undefined;
  if (!is(value)) throw unreadable(`\`${name}\`: unexpected value`);
  return value;
}

const isText = (value: unknown): value is string => typeof value === "string";
const isVersion = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;

/** A payload of JSON may be `null`, which is not the same as none. */
function dataOf(values: Map<string, string>): EventData {
  const [json, encoded] = [values.get("data"), member(values, "data_base64", isText)];
  if (encoded === undefined) return json === undefined ? { kind: "none" } : { kind: "json", text: json };
  if (json !== undefined) throw unreadable("both `data` and `data_base64`");
  const bytes = decodeBase64(encoded);
  if (bytes === undefined) throw unreadable("`data_base64`: expected base64");
  return { kind: "binary", bytes };
}

function unreadable(problem: string): Rejection {
  return Rejection.unreadable(`no event envelope: ${problem}`);
}
