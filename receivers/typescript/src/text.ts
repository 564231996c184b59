/** Texts with rules: how they are read, and how a refused one is shown. */

import { Buffer } from "node:buffer";
import { SHOWN_CHARS_MAX } from "./limits.js";

/** Says what was expected, and shows the beginning of what came, escaped so that it is safe to log. */
export function unexpected(expected: string, got: string): string {
  const chars = [...got.slice(0, 2 * (SHOWN_CHARS_MAX + 1))];
  const shown = chars.slice(0, SHOWN_CHARS_MAX).map(escaped).join("");
  const more = chars.length > SHOWN_CHARS_MAX ? "…" : "";
  return `expected ${expected}; got \`${shown}${more}\``;
}

function escaped(char: string): string {
  const visible = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u.test(char);
  return visible ? char : `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`;
}

/** A text cannot be read as what it should be. The reader of a header turns it into a rejection. */
export class BadText extends Error {
  override name = "BadText";

  constructor(
    readonly expected: string,
    got: string,
  ) {
    super(unexpected(expected, got));
  }
}

/** A number written in ASCII digits alone, not above `most`. */
export function parseDigits(expected: string, text: string, most: bigint): bigint {
  // Twenty digits hold every 64-bit number; leading zeros beyond that tell nothing.
  const digits = /^[0-9]{1,64}$/.test(text) ? BigInt(text) : undefined;
  if (digits === undefined || digits > most) throw new BadText(expected, text);
  return digits;
}

/** The bytes of strict base64: padded, of the standard alphabet, without stray bits; or nothing. */
export function decodeBase64(text: string): Buffer | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? bytes : undefined;
}

/** Checks an option of the caller's: a whole number within bounds. */
export function wholeNumber(field: string, value: number, least: number, most: number): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  throw new RangeError(`${field}: expected a whole number from ${least} to ${most}; got ${value}`);
}

/** Seconds since 1970. */
export function unixNow(): number {
  return Math.floor(Date.now() / 1000);
}
