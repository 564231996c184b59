/** The handshakes: a sender asks before it delivers. CloudEvents asks with OPTIONS, WebSub with GET. */

import { answer, type Answer } from "./answer.js";
import type { Awaitable } from "./inbox.js";
import { CHALLENGE_LEN_MAX } from "./limits.js";
import { wholeNumber } from "./text.js";

/** Consent to CloudEvents deliveries ("HTTP 1.1 Web Hooks for Event Delivery", abuse protection). */
export interface CloudEventsConsent {
  /** The senders that may deliver, by the DNS name in `WebHook-Request-Origin`; `*` for all. */
  readonly origins: readonly string[] | "*";
  /** Most requests a minute; without it, as many as the sender asks for. */
  readonly ratePerMinute?: number;
}

/** What a WebSub hub asks before it begins or ends a subscription. */
export interface WebSubIntent {
  readonly mode: "subscribe" | "unsubscribe";
  readonly topic: string;
  /** How long the subscription will last, if the hub says so. */
  readonly leaseSeconds: number | undefined;
}

export interface WebSubVerification {
  /**
   * The topics that are wanted: for these, subscribing is confirmed, and unsubscribing is not. Or a function that says
   * whether an intent is the application's own.
   */
  readonly topics: readonly string[] | ((intent: WebSubIntent) => Awaitable<boolean>);
  /** Is told that a hub has denied or ended a subscription. */
  readonly onDenied?: (topic: string, reason: string | undefined) => void;
}

export interface Handshakes {
  readonly cloudEvents?: CloudEventsConsent;
  readonly webSub?: WebSubVerification;
}

/** Checks the options, so that a mistake shows at the start and not at the first handshake. */
export function checkHandshakes({ cloudEvents, webSub }: Handshakes): void {
  if (cloudEvents?.ratePerMinute !== undefined) {
    wholeNumber("handshakes.cloudEvents.ratePerMinute", cloudEvents.ratePerMinute, 1, Number.MAX_SAFE_INTEGER);
  }
  if (cloudEvents !== undefined && cloudEvents.origins !== "*" && !Array.isArray(cloudEvents.origins)) {
    throw new TypeError('handshakes.cloudEvents.origins: expected a list of DNS names, or "*"');
  }
  if (webSub !== undefined && typeof webSub.topics !== "function" && !Array.isArray(webSub.topics)) {
    throw new TypeError("handshakes.webSub.topics: expected a list of URLs, or a function");
  }
}

/**
 * Answers a CloudEvents OPTIONS request. Consent is the header `WebHook-Allowed-Origin` alone: a sender must not go by
 * the status.
 */
export function answerConsent(consent: CloudEventsConsent, headers: ReadonlyMap<string, string>): Answer {
  const origin = headers.get("webhook-request-origin")?.trim();
  if (origin === undefined || !isAllowed(consent, origin)) return answer(403, "not allowed");
  const rate = allowedRate(consent, headers.get("webhook-request-rate"));
  return answer(200, "", {
    allow: "POST, OPTIONS",
    "webhook-allowed-origin": origin,
    ...(rate !== undefined && { "webhook-allowed-rate": rate }),
  });
}

/** Whole names, without regard to case: one that only begins alike is another sender. */
function isAllowed(consent: CloudEventsConsent, origin: string): boolean {
  if (!/^[!-+\--~]+$/.test(origin)) return false;
  if (consent.origins === "*") return true;
  return consent.origins.some((allowed) => allowed.toLowerCase() === origin.toLowerCase());
}

/** The smaller of what is asked for and what is allowed. A rate that was asked for is always answered. */
function allowedRate(consent: CloudEventsConsent, asked: string | undefined): string | undefined {
  const requested = asked !== undefined && /^[1-9][0-9]{0,14}$/.test(asked) ? Number(asked) : undefined;
  const { ratePerMinute } = consent;
  if (requested === undefined) return ratePerMinute === undefined ? undefined : String(ratePerMinute);
  return String(Math.min(requested, ratePerMinute ?? requested));
}

/** Answers a WebSub hub's GET: the challenge for an intent of the application's own, 404 for any other. */
export async function answerWebSub(verification: WebSubVerification, query: URLSearchParams): Promise<Answer> {
  const [mode, topic, challenge] = ["hub.mode", "hub.topic", "hub.challenge"].map((name) => only(query, name));
  if (topic === undefined) return answer(400, "not readable");
  if (mode === "denied") {
    verification.onDenied?.(topic, query.get("hub.reason") ?? undefined);
    return answer(200, "");
  }
  const isIntent = mode === "subscribe" || mode === "unsubscribe";
  if (!isIntent || challenge === undefined || challenge.length > CHALLENGE_LEN_MAX) {
    return answer(400, "not readable");
  }
  const own = await isOwn(verification, { mode, topic, leaseSeconds: leaseOf(query) });
  // As plain text that browsers must not guess about: the challenge is a stranger's.
  return own ? answer(200, challenge, { "x-content-type-options": "nosniff" }) : answer(404, "not found");
}

async function isOwn({ topics }: WebSubVerification, intent: WebSubIntent): Promise<boolean> {
  if (typeof topics === "function") return topics(intent);
  return topics.includes(intent.topic) === (intent.mode === "subscribe");
}

/** A parameter that came once. Twice, it is not clear which one counts. */
function only(query: URLSearchParams, name: string): string | undefined {
  const [value, ...more] = query.getAll(name);
  return more.length === 0 && value !== "" ? value : undefined;
}

function leaseOf(query: URLSearchParams): number | undefined {
  const lease = query.get("hub.lease_seconds");
  return lease !== null && /^[0-9]{1,12}$/.test(lease) ? Number(lease) : undefined;
}
