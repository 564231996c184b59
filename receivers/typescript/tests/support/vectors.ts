/** The vectors: what sender and receiver must agree on, as data. */

import { readFileSync } from "node:fs";

// biome-ignore lint/suspicious/noExplicitAny: a case has the fields of its file, and the tests say which.
export type Case = Record<string, any>;

export function vectors(file: string): Record<string, Case[]> {
  const path = new URL(`../../../../vectors/${file}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")) as Record<string, Case[]>;
}

/** The cases of a list. An empty one would test nothing. */
export function cases(file: string, list: string): Case[] {
  const found = vectors(file)[list];
  if (found === undefined || found.length === 0) throw new Error(`${file}.json has no ${list}`);
  return found;
}

/** The bytes of a field, written as text, or as base64 in `<field>_base64`. */
export function bytes(value: Case, field: string): Buffer {
  const encoded = value[`${field}_base64`] as string | undefined;
  return encoded === undefined ? Buffer.from(value[field] as string) : Buffer.from(encoded, "base64");
}

/** A header's value as HTTP libraries hand it out: one character for each byte. */
export function headerText(value: Case, field: string): string {
  return bytes(value, field).toString("latin1");
}
