/** The signature headers: what they hold, and whether a trusted secret or key made it. */

import { Buffer } from "node:buffer";
import type { KeyObject } from "node:crypto";
import { SIGNATURES_MAX } from "./limits.js";
import { Rejection } from "./rejection.js";
import { anyKeyMade, anySignerMade } from "./secrets.js";
import { parseTimestamp, readAs } from "./received.js";
import { BadText, decodeBase64 } from "./text.js";

/** What is trusted, and how far off a timestamp may be. */
export interface Trust {
  readonly keys: readonly Uint8Array[];
  readonly publicKeys: readonly KeyObject[];
  readonly toleranceSeconds: number;
}

/** What `webhook-signature` covers beside the body. Its texts are as they came, because they were signed. */
export interface StandardClaim {
  readonly header: string;
  readonly signatures: string;
  readonly id: string;
  readonly timestamp: string;
}

/** `webhook-signature`: HMAC or Ed25519 over `id.timestamp.body`. */
export function verifyStandard(trust: Trust, claim: StandardClaim, body: Uint8Array, now: number): void {
  const entries = readAs(claim.header, claim.signatures, parseStandard);
  checkFresh(trust, parseTimestamp(claim.timestamp), now);
  const parts = [`${claim.id}.${claim.timestamp}.`, body];
  if (anyKeyMade(trust.keys, entries.v1, parts)) return;
  if (anySignerMade(trust.publicKeys, entries.v1a, parts)) return;
  throw Rejection.noMatch();
}

/** `t=…,v1=…`: HMAC over `timestamp.body`. Returns the timestamp. */
export function verifyTimestamped(trust: Trust, header: string, text: string, body: Uint8Array, now: number): number {
  const { timestamp, v1 } = readAs(header, text, parseTimestamped);
  const seconds = readAs(header, timestamp, parseTimestamp);
  checkFresh(trust, seconds, now);
  if (!anyKeyMade(trust.keys, v1, [`${timestamp}.`, body])) throw Rejection.noMatch();
  return Number(seconds);
}

/** `sha256=…`: HMAC over the body alone. */
export function verifyHubSignature(trust: Trust, header: string, text: string, body: Uint8Array): void {
  const signature = readAs(header, text, (value) => {
    if (!value.startsWith("sha256=")) throw new BadText("`sha256=` and 64 hex digits", value);
    return parseHex(value.slice("sha256=".length));
  });
  if (!anyKeyMade(trust.keys, [signature], [body])) throw Rejection.noMatch();
}

function checkFresh(trust: Trust, timestamp: bigint, now: number): void {
  const difference = BigInt(Math.floor(now)) - timestamp;
  const by = (difference < 0n ? -difference : difference) - BigInt(trust.toleranceSeconds);
  if (by > 0n) throw Rejection.outOfTime(difference > 0n ? "stale" : "future", Number(by));
}

/** Entries of unknown versions are skipped; one of a known version that cannot be a signature is malformed. */
function parseStandard(text: string): { v1: Buffer[]; v1a: Buffer[] } {
  const entries = { v1: [] as Buffer[], v1a: [] as Buffer[] };
  for (const entry of boundedEntries(text, " ")) {
    const at = entry.indexOf(",");
    if (at < 0) throw new BadText("entries `version,signature` with spaces between them", entry);
    const [version, signature] = [entry.slice(0, at), entry.slice(at + 1)];
    if (version === "v1") entries.v1.push(parseBase64(signature, 32));
    if (version === "v1a") entries.v1a.push(parseBase64(signature, 64));
  }
  return entries;
}

function parseTimestamped(text: string): { timestamp: string; v1: Buffer[] } {
  const refused = new BadText("`t=timestamp,v1=signature`, with one `t`", text);
  const v1: Buffer[] = [];
  let timestamp: string | undefined;
  for (const entry of boundedEntries(text, ",")) {
    const at = entry.indexOf("=");
    if (at < 0) throw refused;
    const [name, value] = [entry.slice(0, at), entry.slice(at + 1)];
    if (name === "v1") v1.push(parseHex(value));
    if (name !== "t") continue;
    if (timestamp !== undefined) throw refused;
    timestamp = value;
  }
  if (timestamp === undefined) throw refused;
  return { timestamp, v1 };
}

/** The entries of a list, trimmed, without empty ones: at least one, and not too many. */
function boundedEntries(text: string, separator: string): string[] {
  const trimmed = text.split(separator).map((entry) => entry.replace(/^[ \t\n\r\f]+|[ \t\n\r\f]+$/g, ""));
  const entries = trimmed.filter((entry) => entry !== "");
  if (entries.length >= 1 && entries.length <= SIGNATURES_MAX) return entries;
  throw new BadText("1 to 32 entries", text);
}

function parseBase64(text: string, length: number): Buffer {
  const bytes = decodeBase64(text);
  if (bytes?.length === length) return bytes;
  throw new BadText(`the base64 of ${length} bytes`, text);
}

function parseHex(text: string): Buffer {
  if (/^[0-9A-Fa-f]{64}$/.test(text)) return Buffer.from(text, "hex");
  throw new BadText("64 hex digits", text);
}
