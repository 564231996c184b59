/**
 * For consumers of webhooks: verify, deduplicate, keep in order.
 *
 * A sender that delivers at least once sends some events twice. `Receiver` says whether a request is authentic, an inbox
 * says whether its event is to be applied: it knows events by their id, and their order by the line (`X-Lane`) and the
 * seq that the sender gives them. With a SQL inbox, the inbox's row and the application's effect commit in one
 * transaction, so that the event is applied once, whatever crashes when.
 *
 * Start with `Receiver` and `webhook`; then the inbox of your choice, `railpost/sqlite`, `railpost/pg`,
 * `railpost/prisma`, `railpost/drizzle`, `railpost/kysely`, `railpost/redis` or `MemoryInbox`; then the adapter,
 * `railpost/fetch`, `railpost/express`, `railpost/fastify` or `railpost/node`.
 */

export { Receiver, type Profile, type ReceiverOptions } from "./receiver.js";
export { Delivery, Thin, type KeptHeaders } from "./delivery.js";
export type { EventBody } from "./event-body.js";
export type { Received } from "./received.js";
export { isRejection, Rejection, type RejectionCode } from "./rejection.js";
export { BadHeaderName, type HeaderKey, type HeadersLike } from "./header-names.js";
export { BadSecret } from "./secrets.js";
export { modeOf, parseBatch, type AttributeValue, type CloudEvent, type EventData, type Mode } from "./cloudevents.js";

export type { Effect, Inbox, InboxOptions, NotedGap, Policy, Verdict } from "./inbox.js";
export { MemoryInbox } from "./memory.js";
export { SqlInbox, type Result } from "./sql/inbox.js";
export { Queue, type Intake, type WorkerOptions } from "./queue.js";
export type { DeadLetter, Job, QueueStats, WorkOutcome, WorkPolicy } from "./work.js";

export { answerRejected, answerTo, type Answer } from "./answer.js";
export { Counters, type Counts } from "./counters.js";
export type { CloudEventsConsent, Handshakes, WebSubIntent, WebSubVerification } from "./handshake.js";
export {
  Webhook,
  webhook,
  type InboxWebhookOptions,
  type QueueWebhookOptions,
  type WebhookRequest,
} from "./webhook.js";
