/** The way of every request: from its bytes to its answer. The adapters are thin around this. */

import { answer, answerRejected, answerTo, FULL, TROUBLE, type Answer } from "./answer.js";
import { Counters } from "./counters.js";
import type { Delivery } from "./delivery.js";
import { answerConsent, answerWebSub, checkHandshakes, type Handshakes } from "./handshake.js";
import { readHeaders, type HeadersLike } from "./header-names.js";
import type { Awaitable, Inbox } from "./inbox.js";
import { BODY_LEN_MAX } from "./limits.js";
import type { Intake } from "./queue.js";
import type { Receiver } from "./receiver.js";
import { isRejection, Rejection } from "./rejection.js";
import { unixNow, wholeNumber } from "./text.js";

interface CommonOptions {
  readonly receiver: Receiver;
  /** Reads no more than so many bytes of a body. 1 MiB by default. */
  readonly bodyLenMax?: number;
  /**
   * Is told why a request was refused, or what failed: the sender is told less. Writes to `console.error` by
   * default.
   */
  readonly log?: (error: Error) => void;
  readonly counters?: Counters;
  readonly handshakes?: Handshakes;
  /** The clock, in seconds since 1970. */
  readonly now?: () => number;
}

export interface InboxWebhookOptions<Tx> extends CommonOptions {
  readonly inbox: Inbox<Tx>;
}

export interface QueueWebhookOptions extends CommonOptions {
  readonly queue: Intake;
}

/** A request, as an adapter hands it over. */
export interface WebhookRequest {
  readonly method: string;
  /** The request's target: a path with its query, or a whole URL. */
  readonly url: string;
  readonly headers: HeadersLike;
  /** Reads the body as it arrived, and rejects one that is longer than the limit. */
  readonly body: (limit: number) => Awaitable<Uint8Array>;
}

/** Verifies requests, applies or queues their events, and answers. */
export class Webhook {
  readonly counters: Counters;
  readonly #options: CommonOptions;
  readonly #accept: (delivery: Delivery, now: number) => Promise<Answer>;

  /** @internal Use `webhook`. */
  constructor(
    options: CommonOptions,
    accept: (delivery: Delivery, now: number) => Promise<Answer>,
    counters: Counters,
  ) {
    wholeNumber("bodyLenMax", options.bodyLenMax ?? BODY_LEN_MAX, 1, 2 ** 30);
    checkHandshakes(options.handshakes ?? {});
    this.#options = options;
    this.#accept = accept;
    this.counters = counters;
  }

  /** The methods that are answered. */
  get methods(): string[] {
    const { cloudEvents, webSub } = this.#options.handshakes ?? {};
    return ["POST", ...(cloudEvents ? ["OPTIONS"] : []), ...(webSub ? ["GET"] : [])];
  }

  /** Answers a request. It never throws: what fails is logged, counted, and answered with 503. */
  async handle(request: WebhookRequest): Promise<Answer> {
    try {
      return request.method === "POST" ? await this.#receive(request) : await this.#handshake(request);
    } catch (error) {
      return this.#failed(error);
    }
  }

  async #receive(request: WebhookRequest): Promise<Answer> {
    const limit = this.#options.bodyLenMax ?? BODY_LEN_MAX;
    const headers = readHeaders(request.headers);
    const body = await request.body(limit);
    if (body.length > limit) throw Rejection.tooLarge(limit);
    const now = Math.floor((this.#options.now ?? unixNow)());
    return this.#accept(this.#options.receiver.verify(headers, body, now), now);
  }

  async #handshake(request: WebhookRequest): Promise<Answer> {
    const { cloudEvents, webSub } = this.#options.handshakes ?? {};
    if (request.method === "OPTIONS" && cloudEvents !== undefined) {
      return answerConsent(cloudEvents, readHeaders(request.headers));
    }
    if (request.method === "GET" && webSub !== undefined) {
      const at = request.url.indexOf("?");
      return answerWebSub(webSub, new URLSearchParams(at < 0 ? "" : request.url.slice(at + 1)));
    }
    return answer(405, "method not allowed", { allow: this.methods.join(", ") });
  }

  #failed(failure: unknown): Answer {
    const error = failure instanceof Error ? failure : new Error(String(failure));
    this.counters.count(isRejection(error) ? "rejected" : "trouble");
    this.#log(error);
    return isRejection(error) ? answerRejected(error) : TROUBLE;
  }

  /** A log that fails must not leave the sender without an answer. */
  #log(error: Error): void {
    try {
      (this.#options.log ?? logToConsole)(error);
    } catch (failure) {
      logToConsole(failure instanceof Error ? failure : new Error(String(failure)));
    }
  }
}

/** The default log. */
function logToConsole(error: Error): void {
  console.error(`railpost: ${isRejection(error) ? error.message : (error.stack ?? error.message)}`);
}

/**
 * A webhook that applies events through an inbox: `effect` is called for those that are to be applied, with the
 * transaction that it writes through. If it throws, nothing is kept, and the sender tries again.
 */
export function webhook<Tx>(options: InboxWebhookOptions<Tx>, effect: (delivery: Delivery, tx: Tx) => unknown): Webhook;
/** A webhook that queues events: they are acknowledged once they are stored. */
export function webhook(options: QueueWebhookOptions): Webhook;
export function webhook<Tx>(
  options: InboxWebhookOptions<Tx> | QueueWebhookOptions,
  effect?: (delivery: Delivery, tx: Tx) => unknown,
): Webhook {
  const counters = options.counters ?? new Counters();
  if ("queue" in options) return new Webhook(options, queueing(options.queue, counters), counters);
  if (typeof effect !== "function") throw new TypeError("effect: expected a function beside the inbox");
  return new Webhook(options, applying(options.inbox, effect, counters), counters);
}

function applying<Tx>(inbox: Inbox<Tx>, effect: (delivery: Delivery, tx: Tx) => unknown, counters: Counters) {
  return async (delivery: Delivery, now: number): Promise<Answer> => {
    const verdict = await inbox.apply(delivery, (tx) => effect(delivery, tx), now);
    counters.count(verdict);
    return answerTo(verdict);
  };
}

function queueing(queue: Intake, counters: Counters) {
  return async (delivery: Delivery, now: number): Promise<Answer> => {
    const verdict = await queue.take(delivery, now);
    counters.count(verdict ?? "full");
    return verdict === undefined ? FULL : answerTo(verdict);
  };
}
