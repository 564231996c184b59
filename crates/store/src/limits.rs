//! Every bound in the store, with its reason.

use railpost_engine::Span;

/// Largest payload, in bytes.
pub const PAYLOAD_LEN_MAX: usize = railpost_wire::limits::PAYLOAD_LEN_MAX;

/// Most events that one call may bring: what one group commit should hold.
pub const BATCH_EVENTS_MAX: usize = railpost_wire::limits::BATCH_EVENTS_MAX;

/// Most payload bytes that one call may bring: a batch of full payloads has to come in pieces, so
/// that a group stays in memory.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most records in one call: what one group commit should hold.
pub const BATCH_RECORDS_MAX: usize = 10_000;

/// Most deliveries asked for in one call for what has to be sent: with the largest payload a
/// thousand of them are a gigabyte, so callers ask for what they are about to send.
pub const PARCELS_MAX: usize = 1_000;

/// Most open deliveries of one tenant, unless the tenant's own limit is lower: past it, a producer
/// hears so instead of filling the disk.
pub const BACKLOG_MAX: u64 = 10_000_000;

/// Longest `id` of a CloudEvent, in bytes: a path of ordinary length.
pub const CLOUDEVENT_ID_LEN_MAX: usize = 256;

/// Longest `source` and `dataschema` of a CloudEvent, in bytes: a URL of ordinary length.
pub const CLOUDEVENT_URI_LEN_MAX: usize = 2_048;

/// Longest `subject` of a CloudEvent beside a partition key, in bytes: a URL of ordinary length.
pub const CLOUDEVENT_SUBJECT_LEN_MAX: usize = 2_048;

/// Most extensions of a CloudEvent: each is a header in binary mode, and receivers commonly take a hundred
/// headers in all.
pub const CLOUDEVENT_EXTENSIONS_MAX: usize = 32;

/// Most bytes of a CloudEvent's extensions, names and values together: half of the 8 KiB that receivers
/// commonly grant all headers.
pub const CLOUDEVENT_EXTENSION_BYTES_MAX: usize = 4_096;

/// Longest traceparent, in bytes.
pub const TRACEPARENT_LEN_MAX: usize = railpost_wire::limits::TRACEPARENT_LEN_MAX;

/// Longest URL of an endpoint, in bytes: what browsers, proxies and servers commonly accept.
pub const URL_LEN_MAX: usize = 2048;

/// Longest name or description that a person gives something, in bytes.
pub const TEXT_LEN_MAX: usize = 1024;

/// Most event-type filters of one endpoint: each is tried for each event.
pub const FILTERS_MAX: usize = 100;

/// Most custom headers of one endpoint; receivers commonly grant 100 headers in all.
pub const HEADERS_MAX: usize = 32;

/// Longest value of a custom header, in bytes: a token fits, and receivers commonly grant 8 KiB for
/// all headers together.
pub const HEADER_VALUE_LEN_MAX: usize = 4096;

/// Longest certificate chain or private key in PEM, in bytes.
pub const PEM_LEN_MAX: usize = 64 * 1024;

/// Most secrets of one endpoint: all that are active sign each attempt.
pub const SECRETS_MAX: usize = 16;

/// Shortest time after which the server rotates the secrets of an endpoint: receivers have to learn the new one.
pub const ROTATE_EVERY_MIN: Span = Span::from_hours(1);
/// Longest: a year, in leap years too.
pub const ROTATE_EVERY_MAX: Span = Span::from_days(366);
/// How long the old secrets still sign after the server has rotated them, unless the endpoint says otherwise: a
/// week has a working day. It is not known which secret a receiver verifies with.
pub const ROTATE_OVERLAP_DEFAULT: Span = Span::from_days(7);
/// Longest such time.
pub const ROTATE_OVERLAP_MAX: Span = Span::from_days(30);

/// Most sealed values that one step of a rotation of the master key may look at: each is read and written, and
/// accepts wait meanwhile.
pub const REENCRYPT_STEP_MAX: u32 = 200;

/// Largest JSON Schema, in bytes; all versions of one event type together may have ten of these.
pub const SCHEMA_LEN_MAX: usize = 256 * 1024;

/// Most versions of one event type's schema.
pub const SCHEMA_VERSIONS_MAX: usize = 100;

/// Longest idempotency key, owner or route, in bytes.
pub const IDEMPOTENCY_TEXT_LEN_MAX: usize = 256;

/// Largest stored response, in bytes. The largest that is given answers a full batch of events: of each its ids
/// and as many warnings as are told, at their longest and with every character escaped, some 20 MB in all.
pub const IDEMPOTENCY_BODY_LEN_MAX: usize = 32 * 1024 * 1024;

/// Largest detail of an audit entry, in bytes of JSON.
pub const AUDIT_DETAIL_LEN_MAX: usize = 16 * 1024;

/// Most writes in one change: an endpoint with its secrets, not a migration.
pub const CHANGE_WRITES_MAX: usize = 100;

/// Most replays of one tenant that run or wait for their turn: they run one after the other, so more would
/// only wait longer.
pub const REPLAYS_RUNNING_PER_TENANT_MAX: usize = 10;

/// The same for all tenants together: each tenant's first one competes with what is delivered anyway. It is
/// many times what one tenant may have, so that no single tenant can fill it.
pub const REPLAYS_RUNNING_MAX: usize = 20 * REPLAYS_RUNNING_PER_TENANT_MAX;

/// Deliveries that the preview of a dry run names: what a person looks through.
pub const REPLAY_PREVIEW_MAX: usize = 20;

/// Most entries of figures in one call: each is two rows to read and write, and all of them hold up
/// a group of accepts by some ten milliseconds.
pub const FIGURES_BATCH_MAX: usize = 1_000;

/// Most late deliveries in one page: each may be of an endpoint and a tenant of its own, and the figures of
/// all of them are one batch.
pub const LATE_PAGE_MAX: usize = 450;

/// Largest HTTP status that figures are kept by: more have no meaning.
pub const FIGURES_STATUS_MAX: u16 = 999;

/// Most kinds of failure in one entry of figures: there are a dozen.
pub const FIGURES_FAILURES_MAX: usize = 64;

/// Longest name of a kind of failure, in bytes.
pub const FIGURES_FAILURE_LEN_MAX: usize = 64;

/// Most minutes or hours of figures in one answer: all that is kept, and room for what is not pruned
/// yet.
pub const FIGURES_BUCKETS_MAX: usize = 2_000;

/// How long figures by the minute are kept: a chart of a whole day, and an hour until it is pruned.
pub const FIGURES_MINUTES_KEPT: Span = Span::from_hours(25);

/// How long figures by the hour are kept: a month and what came before it, to compare with.
pub const FIGURES_HOURS_KEPT: Span = Span::from_days(40);

/// Largest excerpt of a response's body that is kept with its attempt, in bytes. A longer one is cut.
pub const RESPONSE_BODY_LEN_MAX: usize = 4096;

/// Most bytes of response headers, names and values together, that are kept with their attempt. What
/// passes it is left out.
pub const RESPONSE_HEADERS_LEN_MAX: usize = 4096;

/// Longest words for why an attempt got no answer, in bytes. Longer ones are cut.
pub const ATTEMPT_MESSAGE_LEN_MAX: usize = 1024;

/// Most items of one page of a list.
pub const LIST_LIMIT_MAX: u32 = 500;

/// Most rows that one page of a filtered list may look at. A page that reaches it comes short, with
/// a cursor to go on from: a rare filter costs several calls, never a long one.
pub const LIST_SCAN_MAX: u32 = 20_000;

/// Longest words of a search, in bytes: the longest key.
pub const FIND_WORDS_LEN_MAX: usize = railpost_wire::limits::KEY_LEN_MAX;

/// Characters from which on an id is found by its beginning: fewer are the beginning of most.
pub const FIND_ID_LEN_MIN: usize = 6;

/// Bytes from which on a key is found by its beginning, and a URL or description by a part: fewer are in most.
pub const FIND_PART_LEN_MIN: usize = 3;

/// Most things of one kind that a search finds: a person looks through no more.
pub const FIND_RESULTS_MAX: usize = 20;

/// Most events, and most endpoints of a tenant, that a search looks through where no index helps: some ten
/// milliseconds.
pub const FIND_ROWS_SCANNED: usize = 20_000;

/// Most tenants in which a search of all tenants looks, by id: each is a few look-ups.
pub const FIND_TENANTS_MAX: usize = 1_000;

/// Largest payload of an event that is found by its CloudEvent's id where that is stored behind the payload, in
/// bytes: a larger one would have to be walked through.
pub const FIND_CLOUDEVENT_PAYLOAD_MAX: usize = 64 * 1024;

/// Most lanes or deliveries of one load.
pub const LOAD_LIMIT_MAX: u32 = 10_000;

/// Most deliveries that one sweep lists.
pub const SWEEP_MAX: u32 = 10_000;

/// Most events that one step of pruning or erasing may look at: it holds up a group of accepts by
/// milliseconds.
pub const UPKEEP_STEP_MAX: u32 = 1_000;

/// Most figures of one resolution that one step of pruning deletes. They lie together, so it is
/// quick; a thousand endpoints bring a thousand rows a minute, so it has to be more than a step's.
pub const FIGURES_PRUNE_MAX: u32 = 5_000;

/// How long a caller waits for its turn with a backend that has stopped answering.
pub const CALL_TIMEOUT: Span = Span::from_secs(5);

/// Jobs that may wait for the writer. Past it callers wait to be let in.
pub const QUEUE_MAX: usize = 4096;

/// Most events and records in one group: past it latency grows and nothing is gained.
pub const GROUP_ITEMS_MAX: usize = 4096;

/// Bytes of payloads and responses from which on a group takes no more jobs: a group is kept in memory,
/// and its last job may bring a whole batch.
pub const GROUP_BYTES_MAX: usize = BATCH_BYTES_MAX;

/// Random bytes that a thread fetches at once: enough for a few dozen ids, few enough to be near.
pub(crate) const RANDOM_BUFFER_LEN: usize = 512;

// Of sources.

/// Longest name of a source, in characters: it is part of event ids, of a slot's name and of every metric.
pub const SOURCE_NAME_LEN_MAX: usize = 32;

/// Longest name of who reads a source, in bytes.
pub const SOURCE_HOLDER_LEN_MAX: usize = 256;

/// Longest name of the database that a position belongs to, in bytes.
pub const SOURCE_SYSTEM_LEN_MAX: usize = 256;

/// Most rows that one call parks: what one group commit should hold.
pub const PARK_ROWS_MAX: usize = BATCH_EVENTS_MAX;

/// Largest row that can be parked, in bytes: what one call may bring.
pub const PARKED_ROW_LEN_MAX: usize = BATCH_BYTES_MAX;

/// Most rows of one source that are parked: past it the source is broken as a whole, and reading on would
/// only move it from one table to another.
pub const PARKED_ROWS_MAX: u64 = 100_000;

/// Most bytes of one source that are parked, for the same reason.
pub const PARKED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Longest reason for which a row was refused, in bytes.
pub const REFUSAL_REASON_LEN_MAX: usize = 2_048;

/// Most heads that one command is about: it holds up a group of accepts by milliseconds.
pub const PARKED_COMMAND_HEADS_MAX: u32 = 1_000;

// Of alerts.

/// Longest name of a rule, in bytes.
pub const ALERT_RULE_LEN_MAX: usize = 64;

/// Longest subject of an alert, in bytes.
pub const ALERT_SUBJECT_LEN_MAX: usize = 256;

/// Longest summary of an alert, in bytes: what PagerDuty takes.
pub const ALERT_SUMMARY_LEN_MAX: usize = 1_024;

/// Longest details of an alert, as JSON, in bytes.
pub const ALERT_DETAILS_LEN_MAX: usize = 16 * 1024;

/// Most alerts that one call writes: what one group commit should hold.
pub const ALERTS_BATCH_MAX: usize = 1_000;

/// Most silences at a time: each alert is compared with all of them.
pub const SILENCES_MAX: usize = 1_000;

/// Longest reason of a silence, in bytes.
pub const SILENCE_REASON_LEN_MAX: usize = 1_024;
