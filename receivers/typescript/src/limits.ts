/** Every bound of the package, with its reason. Durations are in seconds unless the name says otherwise. */

const DAY = 24 * 60 * 60;

/** Largest body that is read, in bytes, unless the service says otherwise: what senders commonly allow an event. */
export const BODY_LEN_MAX = 1024 * 1024;

/** How far a timestamp may be off, to either side: room for skewed clocks, and a captured request is soon worthless. */
export const TOLERANCE_DEFAULT = 5 * 60;

/** Most entries of a signature header: each costs time before it is known who is asking. */
export const SIGNATURES_MAX = 32;

/** Fewest and most bytes of a shared secret, as Standard Webhooks has it. */
export const SECRET_LEN_MIN = 24;
export const SECRET_LEN_MAX = 64;

/** Longest event id, in bytes: room for a UUID with a prefix, and short enough for an index key. */
export const ID_LEN_MAX = 64;

/** Longest id of a line, in bytes. */
export const LINE_ID_LEN_MAX = 64;

/** Longest ordering key, in bytes of UTF-8. */
export const KEY_LEN_MAX = 256;

/** Longest event type, in bytes. */
export const EVENT_TYPE_LEN_MAX = 128;

/** Longest name that an endpoint may give a header, in bytes: longer ones are mistakes. */
export const HEADER_NAME_LEN_MAX = 64;

/** Longest content type, in bytes: a type, a subtype and a few parameters. */
export const CONTENT_TYPE_LEN_MAX = 256;

/** Largest seq: what a signed 64-bit column holds. */
export const SEQ_MAX = 2n ** 63n - 1n;

/** Largest number of an attempt and of a schema version: 32 bits. */
export const U32_MAX = 2 ** 32 - 1;

/** Longest RFC 3339 time that is read: more digits than nanoseconds tell nobody anything. */
export const TIME_LEN_MAX = 64;

/** Characters of a refused value that an error shows: enough to recognise it, too few to flood a log. */
export const SHOWN_CHARS_MAX = 48;

/** Most headers that a delivery keeps beside its body: the content type, and those of a CloudEvent. */
export const HEADERS_KEPT_MAX = 80;

/** Longest name and value of a CloudEvents attribute, and most extensions: what a header can carry. */
export const ATTRIBUTE_NAME_LEN_MAX = 64;
export const ATTRIBUTE_LEN_MAX = 2048;
export const EXTENSIONS_MAX = 64;

/** Most events of a CloudEvents batch: what one group commit should hold. */
export const BATCH_EVENTS_MAX = 1000;

/** How long event ids are remembered by default: a sender retries for three days, people replay after a holiday. */
export const RETENTION_DEFAULT = 30 * DAY;

/** Times longer than ids that the place of a line is remembered: it tells old from new after the id is forgotten. */
export const LINE_RETENTION_FACTOR = 12;

/** Most rows that one step of pruning removes: a few milliseconds' work, so that no lock is held long. */
export const PRUNE_STEP = 1_000;

/** Most event ids that a memory inbox holds. Beyond that the oldest are forgotten first. */
export const MEMORY_IDS_MAX = 1_000_000;

/** How long a gap holds its line off by default: a few attempts of the sender. */
export const GAP_TIMEOUT_DEFAULT = 60;

/** How long the first sight of a gap is remembered: as long as a sender tries one delivery. */
export const GAP_SIGHT_RETENTION = 3 * DAY;

/** Most gaps whose first sight a process remembers. A receiver with more of them waits for them together. */
export const GAP_SIGHTS_MAX = 10_000;

/** How long a claim in Redis outlives a process that died with it: longer than a sender waits for an answer. */
export const CLAIM_LEASE = 60;

/** Most jobs that a queue holds before it answers 429: minutes of work, not days of it. */
export const BACKLOG_MAX = 10_000;

/** What a full queue asks the sender to wait: long enough to work off a good part of the backlog. */
export const FULL_RETRY_AFTER = 5;

/** Tries of one job before it becomes a dead letter: with the delays below, about twenty minutes. */
export const TRIES_MAX = 10;

/** The delay after a job's first failed try; it doubles with each further one, up to the second. */
export const TRY_DELAY_BASE = 1;
export const TRY_DELAY_MAX = 5 * 60;

/** How often an idle worker looks for jobs that another process queued. */
export const WORKER_IDLE_DEFAULT = 1;

/** Characters of a failed job's error that are kept: enough to see the cause. */
export const ERROR_CHARS_MAX = 500;

/** Most dead letters and most noted gaps of a listing: what a person looks at. */
export const DEAD_LISTED_MAX = 100;
export const GAPS_LISTED_MAX = 100;

/** Longest challenge of a WebSub hub that is echoed: hubs send some tens of characters. */
export const CHALLENGE_LEN_MAX = 1024;

/** Prepared statements that are kept for a connection: the package has fewer than this many. */
export const STATEMENTS_KEPT_MAX = 64;
