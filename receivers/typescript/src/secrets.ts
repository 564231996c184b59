/** Secrets and keys: how they are written, and what is made with them. */

import { Buffer } from "node:buffer";
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  sign,
  timingSafeEqual,
  verify,
  type KeyObject,
} from "node:crypto";
import { SECRET_LEN_MAX, SECRET_LEN_MIN } from "./limits.js";
import { decodeBase64 } from "./text.js";

/** A text is not the secret or key that it should be. It is not shown: it may be one, mistyped. */
export class BadSecret extends Error {
  override name = "BadSecret";

  constructor(expected: string) {
    super(`expected ${expected}`);
  }
}

/** The bytes of a secret `whsec_…`: the key of the HMAC in `webhook-signature`. */
export function secretBytes(text: string): Buffer {
  const bytes = decodeAfter("whsec_", text);
  if (bytes === undefined || bytes.length < SECRET_LEN_MIN || bytes.length > SECRET_LEN_MAX) {
    throw new BadSecret("a secret: `whsec_` and the base64 of 24 to 64 bytes");
  }
  return bytes;
}

/** A secret that is used as it is written: those of the timestamped form, Stripe and GitHub. */
export function secretText(text: string): Buffer {
  if (text.length === 0) throw new BadSecret("a secret that is not empty");
  return Buffer.from(text, "utf8");
}

/** An Ed25519 public key `whpk_…`. */
export function verifyingKey(text: string): KeyObject {
  const bytes = decodeAfter("whpk_", text);
  if (bytes?.length !== 32) {
    throw new BadSecret("a verifying key: `whpk_` and the base64 of a 32-byte Ed25519 public key");
  }
  return publicKey(bytes);
}

function publicKey(bytes: Buffer): KeyObject {
  const jwk = { kty: "OKP", crv: "Ed25519", x: bytes.toString("base64url") };
  return createPublicKey({ key: jwk, format: "jwk" });
}

/** An Ed25519 private key `whsk_…`: a 32-byte seed, or seed and public key. */
export class SigningKey {
  readonly #seed: Buffer;
  readonly #key: KeyObject;
  /** The public key that goes with it, `whpk_…`. */
  readonly verifyingKey: string;

  constructor(text: string) {
    const bytes = decodeAfter("whsk_", text);
    const seed = bytes?.subarray(0, 32);
    const expected = "a signing key: `whsk_` and the base64 of a 32-byte Ed25519 seed, or of seed and public key";
    if (bytes === undefined || seed?.length !== 32) throw new BadSecret(expected);
    this.#seed = seed;
    this.#key = createPrivateKey({ key: pkcs8(seed), format: "der", type: "pkcs8" });
    const x = createPublicKey(this.#key).export({ format: "jwk" }).x ?? "";
    const halves = Buffer.from(x, "base64url");
    if (bytes.length > 32 && !bytes.subarray(32).equals(halves)) throw new BadSecret(expected);
    this.verifyingKey = `whpk_${halves.toString("base64")}`;
  }

  /** Its text, with the seed alone. */
  reveal(): string {
    return `whsk_${this.#seed.toString("base64")}`;
  }

  sign(message: Uint8Array): Buffer {
    return sign(null, message, this.#key);
  }
}

/** The fixed beginning of an Ed25519 key in PKCS #8 (RFC 8410), before its seed. */
const PKCS8_BEGINNING = Buffer.from("302e020100300506032b657004220420", "hex");

function pkcs8(seed: Buffer): Buffer {
  return Buffer.concat([PKCS8_BEGINNING, seed]);
}

/** The HMAC-SHA256 of parts, one after the other. */
export function tag(key: Uint8Array, parts: readonly (string | Uint8Array)[]): Buffer {
  const hmac = createHmac("sha256", key);
  for (const part of parts) hmac.update(part);
  return hmac.digest();
}

/** Whether one of the tags that came was made with one of the keys. Compared in constant time. */
export function anyKeyMade(
  keys: readonly Uint8Array[],
  tags: readonly Uint8Array[],
  parts: readonly (string | Uint8Array)[],
): boolean {
  if (tags.length === 0) return false;
  return keys.some((key) => {
    const made = tag(key, parts);
    return tags.some((given) => given.length === made.length && timingSafeEqual(given, made));
  });
}

/** Whether one of the Ed25519 signatures that came was made with one of the keys. */
export function anySignerMade(
  keys: readonly KeyObject[],
  signatures: readonly Uint8Array[],
  parts: readonly (string | Uint8Array)[],
): boolean {
  if (keys.length === 0 || signatures.length === 0) return false;
  const message = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  return keys.some((key) => signatures.some((signature) => verify(null, message, key, signature)));
}

function decodeAfter(prefix: string, text: string): Buffer | undefined {
  return text.startsWith(prefix) ? decodeBase64(text.slice(prefix.length)) : undefined;
}
