//! Every bound in the server, with its reason.

use railpost_engine::Span;

/// Bytes of a request's body that are taken, unless configured otherwise: what one batch of events may
/// hold, and its JSON around it.
pub const BODY_LEN_MAX_DEFAULT: usize = 20 * 1024 * 1024;

/// Bytes of a body that is not events: an endpoint with certificates, a JSON Schema in all versions.
pub const SMALL_BODY_LEN_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a body that is too large which are read and thrown away, so that the client sees the answer.
pub(crate) const DISCARDED_LEN_MAX: usize = 16 * 1024 * 1024;

/// Bytes of a body that nobody asked for which are read and thrown away, so that the connection stays: what a
/// client sends out of habit, such as `{}`.
pub(crate) const UNASKED_LEN_MAX: u64 = 16 * 1024;

/// Bytes of one line of an event stream: a payload and what is around it.
pub const STREAM_LINE_LEN_MAX: usize = railpost_store::limits::PAYLOAD_LEN_MAX + 16 * 1024;

/// Events of a stream that are accepted in one commit: past a few hundred, nothing is gained.
pub const STREAM_GROUP_MAX: usize = 500;

/// Bytes of a request's head, and header fields in it: what browsers and proxies send fits many
/// times over.
pub const REQUEST_HEAD_LEN_MAX: usize = 32 * 1024;
/// See [`REQUEST_HEAD_LEN_MAX`]. It is hyper's own bound: told to it, it would make room for as many with every
/// request.
pub const REQUEST_HEADERS_MAX: usize = 100;

/// How long a sender may take to send a request's head to `railpost listen`.
pub const LISTEN_HEAD_TIMEOUT: Span = Span::from_secs(10);

/// Bytes of a head of HTTP/2 that are read: a head that is larger than one may be, but fits, is told so in the words
/// of a problem; of a larger one the client hears the status alone.
pub(crate) const HTTP2_HEAD_LEN_MAX: u32 = 4 * REQUEST_HEAD_LEN_MAX as u32;

/// Bytes that are read at once to find out which HTTP a client speaks: most first requests.
pub(crate) const SNIFFED_LEN_MAX: usize = 1024;

/// Bytes of an answer that a client must take within `limits.answer_timeout` to be one that takes it. A byte now
/// and then would keep a connection for days.
pub(crate) const ANSWER_PROGRESS_MIN: usize = 4 * 1024;

/// Bytes of an answer that are handed to HTTP/2 at once: what was handed over counts as taken.
pub(crate) const ANSWER_FRAME_LEN_MAX: usize = 64 * 1024;

/// Bytes of an answer that hyper gives by itself: a status and three short headers.
pub(crate) const BARE_ANSWER_LEN_MAX: usize = 256;

/// How long an idle HTTP/2 connection may take to close once it is told to.
pub(crate) const CLOSE_TIMEOUT: Span = Span::from_secs(2);

/// How many bytes are read and thrown away when a connection is closed, and for how long: a client that is still
/// sending would otherwise not see the answer.
pub(crate) const LINGER_LEN_MAX: u64 = 1024 * 1024;
/// See [`LINGER_LEN_MAX`].
pub(crate) const LINGER_TIMEOUT: Span = Span::from_secs(2);

/// After how long of silence TCP asks whether a client is there, how often it asks, and how often in vain: a live
/// page whose browser is gone without a word is noticed within two minutes.
pub(crate) const PEER_PROBE_AFTER: Span = Span::from_secs(60);
/// See [`PEER_PROBE_AFTER`].
pub(crate) const PEER_PROBE_EVERY: Span = Span::from_secs(15);
/// See [`PEER_PROBE_AFTER`].
pub(crate) const PEER_PROBES_MAX: u32 = 4;

/// Longest idempotency key that a client may choose, in bytes.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = railpost_store::limits::IDEMPOTENCY_TEXT_LEN_MAX;

/// Longest cursor of a list that is looked at, in bytes: the longest that is given out names an event type.
pub const CURSOR_LEN_MAX: usize = 512;

/// Longest path of a backup within its folder, in bytes; file systems take names of 255.
pub const BACKUP_PATH_LEN_MAX: usize = 255;
/// Longest name of a backup or of a folder around it, in bytes: it fits wherever backups are copied to.
pub const BACKUP_NAME_LEN_MAX: usize = 100;
/// Folders around a backup: a year, a month and a day.
pub const BACKUP_FOLDERS_MAX: usize = 3;

/// Items of a page when the client names no number.
pub const PAGE_LIMIT_DEFAULT: u32 = 50;

/// How long an API key that was looked up is believed without asking the store again. Another node's
/// revocation counts after this at the latest; this node's own at once.
pub const KEY_BELIEVED_FOR: Span = Span::from_secs(5);

/// API keys remembered at once: past it the oldest look-ups are forgotten.
pub const KEYS_REMEMBERED_MAX: usize = 10_000;

/// API keys that nobody has seen which are looked up at once: the store has other work.
pub const KEY_LOOK_UPS_AT_ONCE: usize = 4;

/// Unknown API keys that an address may show a second, and how many at once: a person mistypes a few, a new
/// deployment with an old key shows the same one again and again, which is looked up once.
pub const UNKNOWN_KEYS_PER_SECOND: u32 = 10;
/// See [`UNKNOWN_KEYS_PER_SECOND`].
pub const UNKNOWN_KEYS_BURST: u32 = 100;
/// Unknown API keys that are remembered at once, for [`KEY_BELIEVED_FOR`].
pub const UNKNOWN_KEYS_REMEMBERED_MAX: usize = 10_000;
/// Addresses whose unknown API keys are counted at once.
pub const UNKNOWN_KEY_ADDRESSES_MAX: usize = 10_000;

/// How long readiness is believed: each check is a durable write.
pub const READINESS_BELIEVED_FOR: Span = Span::from_secs(1);

/// How often at most the last use of an API key is written down: it is for people, to the hour.
pub const KEY_TOUCH_EVERY: Span = Span::from_mins(10);

/// Random bytes of an API key, and shortest text of one that an operator chooses, after its prefix.
pub const API_KEY_RANDOM_LEN: usize = 32;
/// See [`API_KEY_RANDOM_LEN`].
pub const API_KEY_CHOSEN_LEN_MIN: usize = 32;
/// Longest API key that is looked at, in bytes: what is longer is none.
pub const API_KEY_LEN_MAX: usize = 256;

/// When a client that must wait for something without a known end should come back.
pub const RETRY_AFTER_DEFAULT: Span = Span::from_secs(1);

/// How long a dashboard session lasts without a request: a working day's pause.
pub const SESSION_IDLE_MAX: Span = Span::from_hours(8);
/// How long a dashboard session lasts at all.
pub const SESSION_AGE_MAX: Span = Span::from_days(7);
/// Dashboard sessions at once: past it the one that was idle longest ends.
pub const SESSIONS_MAX: usize = 10_000;

/// How long a sign-in link opens the dashboard: long enough to click on it.
pub const SIGN_IN_LINK_TTL: Span = Span::from_mins(15);
/// Sign-in links that are open at once.
pub const SIGN_IN_LINKS_MAX: usize = 100;
/// Sign-ins that may fail from one address with keys that begin alike, within [`SIGN_IN_WINDOW`]: a person mistypes a
/// few times.
pub const SIGN_IN_FAILURES_MAX: u32 = 10;
/// See [`SIGN_IN_FAILURES_MAX`].
pub const SIGN_IN_WINDOW: Span = Span::from_mins(5);
/// Addresses whose failed sign-ins the audit trail tells of together.
pub const SIGN_IN_ADDRESSES_MAX: usize = 10_000;
/// Addresses and beginnings of keys whose failed sign-ins are remembered at once.
pub const SIGN_IN_FAILURES_REMEMBERED_MAX: usize = 10_000;
/// Characters by which keys that begin alike are told: `rp_` and 8 more. They are 48 of a key's 256 random bits.
pub const SIGN_IN_PREFIX_LEN: usize = 11;

/// Bytes of a dashboard form: an endpoint with its filters many times over.
pub const FORM_LEN_MAX: usize = 256 * 1024;

/// Characters of a value that an audit entry tells: what a person reads. Of what is longer it has the
/// beginning, the length and a hash.
pub const AUDIT_VALUE_CHARS_MAX: usize = 200;
/// Bytes of the changes that an audit entry tells; of the rest it has the number. The store takes a third
/// more than this.
pub const AUDIT_CHANGES_LEN_MAX: usize = 12 * 1024;

/// Audit entries of failed sign-ins within [`SIGN_IN_WINDOW`], from all addresses: guessing keys does
/// not fill the trail. Failures without an entry are counted in the next one.
pub const SIGN_IN_FAILURE_ENTRIES_MAX: u32 = 20;

/// Rows of a dashboard table's page.
pub const TABLE_ROWS_MAX: u32 = 50;
/// Lanes that the live page shows: what fits on a screen or two.
pub const LANES_SHOWN_MAX: usize = 24;
/// Deliveries of one lane that the live page draws; of the rest it says how many there are.
pub const LANE_DELIVERIES_SHOWN_MAX: usize = 8;
/// Held lanes, and newest deliveries, that the live page looks at: what one page of the API holds.
pub const LIVE_DELIVERIES_MAX: u32 = 500;
/// How often a live page is drawn anew: people see it as at once.
pub const LIVE_EVERY: Span = Span::from_millis(400);
/// Live pages at once: each costs a few look-ups per [`LIVE_EVERY`].
pub const LIVE_PAGES_MAX: usize = 64;
/// Tenants among which an admin may choose.
pub const TENANTS_SHOWN_MAX: u32 = 500;
/// How often the command line sends a request while no connection comes about, and how long it waits
/// before the second time; each further wait is twice as long.
pub const CLI_TRIES: u32 = 3;
/// See [`CLI_TRIES`].
pub const CLI_TRY_AGAIN_AFTER: Span = Span::from_millis(100);
/// How long the command line waits for an answer: a backup of a large store takes its time.
pub const CLI_REQUEST_TIMEOUT: Span = Span::from_mins(10);
/// Bytes of an answer that the command line takes: a page of the largest items.
pub const CLI_ANSWER_LEN_MAX: u64 = 256 * 1024 * 1024;
/// Bytes that the command line reads from a file or stdin at once: what a request may hold.
pub const CLI_INPUT_LEN_MAX: u64 = BODY_LEN_MAX_DEFAULT as u64;
/// Events that `railpost send` puts into one request.
pub const CLI_SEND_GROUP: usize = 500;
/// Bytes of a delivery's body that `railpost listen` takes: more than any event has.
pub const LISTEN_BODY_LEN_MAX: usize = 2 * railpost_store::limits::PAYLOAD_LEN_MAX;
/// Events, and lanes, that `railpost listen` remembers: past it the oldest are forgotten.
pub const LISTEN_REMEMBERED_MAX: usize = 100_000;

/// How often a command is given again to a delivery whose lane is being loaded, and the first pause in
/// between; each pause is twice as long as the one before, half a second in all. A load takes
/// milliseconds: what takes longer is in trouble, and the client hears so.
pub const COMMAND_RETRIES_MAX: u32 = 8;
/// See [`COMMAND_RETRIES_MAX`].
pub const COMMAND_RETRY_DELAY: Span = Span::from_millis(2);

/// Endpoints in need of attention that an overview names: what a person can look at.
pub const ATTENTION_MAX: usize = 100;

/// Endpoints whose breaker an overview asks for: each is a question to the dispatcher's one task.
pub const OVERVIEW_HEALTH_MAX: usize = 1_000;

/// Deliveries that a replay does between two saves of its progress: what it may do twice after a crash.
pub const REPLAY_SAVE_EVERY: u32 = 100;

/// Longest that a replay goes on without saving, and so without noticing that it was cancelled.
pub const REPLAY_SAVE_WITHIN: Span = Span::from_secs(1);

/// How long a replay leaves a store, a backlog or a dispatcher alone that stands in its way.
pub const REPLAY_PAUSE: Span = Span::from_millis(500);

/// Fastest rate of a replay, in deliveries a second: past it, no rate is a rate.
pub const REPLAY_RATE_MAX: u32 = 1_000_000;

/// Attempts of a planned schedule that are shown, and most that are: a policy may have this many.
pub const PLANNED_ATTEMPTS_DEFAULT: usize = 20;
/// See [`PLANNED_ATTEMPTS_DEFAULT`].
pub const PLANNED_ATTEMPTS_MAX: usize = 1_000;

/// How long old secrets still sign after a rotation, unless the client says: long enough for a
/// deployment on the receiver's side.
pub const SECRET_OVERLAP_DEFAULT: Span = Span::from_hours(24);
/// Longest overlap: what signs for longer was not exchanged.
pub const SECRET_OVERLAP_MAX: Span = Span::from_days(30);

/// Event types that a tenant may describe: all of those of a tenant that publishes are in memory.
pub const EVENT_TYPES_PER_TENANT_MAX: usize = 1_000;

/// How long a tenant's event types are believed without asking the store again. Another node's change
/// counts after this at the latest; this node's own at once.
pub const EVENT_TYPES_BELIEVED_FOR: Span = Span::from_secs(5);

/// Tenants whose event types are in memory at once: past it those not asked for lately are forgotten.
pub const EVENT_TYPES_TENANTS_MAX: usize = 10_000;

/// Bytes of all schemas of a tenant: those that are used are in memory, compiled, which takes a few times as
/// much.
pub const SCHEMAS_PER_TENANT_LEN_MAX: usize = 16 * 1024 * 1024;

/// Misfits of one event that are told: the first few say enough.
pub const SCHEMA_PROBLEMS_MAX: usize = 10;

/// Bytes of one warning in a receipt. Names out of the payload stand in it, and they may be long.
pub const WARNING_LEN_MAX: usize = 256;

/// Steps that one payload may take to be held against its schema. A step takes 2 to 10 ns, so it is less than
/// half a second; what is ordinary takes some hundred.
pub const SCHEMA_COST_MAX: u64 = 40_000_000;

/// Steps that a schema may take for one value of a payload: of more, not even a small payload could be held
/// against it.
pub const SCHEMA_STEPS_PER_VALUE_MAX: u64 = 400_000;

/// Depth of payloads that a schema is judged by when it is registered. A recursive schema costs more the
/// deeper a payload is; what goes deeper is judged with the payload.
pub const SCHEMA_JUDGED_DEPTH: usize = 8;

/// Schemas that may be open at once, one inside the other: each takes a few hundred bytes of the stack, and
/// is looked at for each that is opened inside it.
pub const SCHEMA_CHAIN_MAX: u64 = 1_000;

/// Steps that finding out where a payload does not fit may take. Each may find a misfit of some 300 bytes, and
/// all are gathered before the first is told: 60 MB.
pub const SCHEMA_ERRORS_COST_MAX: u64 = 200_000;

/// Schemas inside one schema: to compile it takes a few frames of the stack for each, at worst.
pub const SCHEMA_NODES_MAX: usize = 10_000;

/// Patterns in one schema, and bytes that each may take compiled, and once more while it is used: 100 MB at
/// the very most.
pub const SCHEMA_PATTERNS_MAX: usize = 200;
/// See [`SCHEMA_PATTERNS_MAX`].
pub const SCHEMA_PATTERN_LEN_MAX: usize = 256 * 1024;

/// Places of one pattern, with its repetitions written out: each may be looked at for every byte of a text.
pub const SCHEMA_PATTERN_PLACES_MAX: u64 = 2_000;

/// Steps that a request may take on the server's own threads, for all its events: 0.1 ms. And bytes of a
/// payload that is parsed there: some 50 µs.
pub const SCHEMA_INLINE_COST_MAX: u64 = 10_000;
/// See [`SCHEMA_INLINE_COST_MAX`].
pub const SCHEMA_INLINE_LEN_MAX: usize = 16 * 1024;
/// Schemas that may be open at once there: the stack of those threads is small.
pub const SCHEMA_INLINE_CHAIN_MAX: u64 = 100;

/// Fewest threads for validation at once: with two, one is left whatever one tenant does.
pub const VALIDATION_THREADS_MIN: usize = 2;

/// Bytes of the stack of such a thread: to compile the longest chain of schemas takes a part of it. Only what
/// is used is taken.
pub const VALIDATION_STACK_LEN: usize = 128 * 1024 * 1024;

/// Longest that a request waits for such a thread, and then for the thread. The budget of steps ends the work
/// long before; if it does not, the client hears so and the thread ends by itself.
pub const VALIDATION_WAIT_MAX: Span = Span::from_secs(5);
/// See [`VALIDATION_WAIT_MAX`].
pub const VALIDATION_TIME_MAX: Span = Span::from_secs(5);

/// Tenants whose share of the threads is remembered: past it, those that have nothing under way are forgotten.
pub const VALIDATION_TENANTS_MAX: usize = 1_000;

/// Bytes of log lines that wait to be written: a second's worth at full speed. Past it lines are counted and
/// left out, for a slow log must not slow deliveries down.
pub const LOG_WAITING_LEN_MAX: usize = 4 * 1024 * 1024;
/// Bytes of log lines from which on they are written without a rest.
pub const LOG_LINES_TOGETHER_MAX: usize = 64 * 1024;
/// How long the log's writer rests after it wrote all there was: when lines come fast it is not woken for
/// each of them, and writes them together.
pub const LOG_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// How long the end of the process waits for its last log lines.
pub const LOG_FLUSH_TIMEOUT: Span = Span::from_secs(2);

/// How often trouble that goes on is told of.
pub const TROUBLE_TOLD_EVERY: Span = Span::from_secs(10);

/// How often figures over time are written: a crash loses this much of them.
pub const FIGURES_EVERY: Span = Span::from_secs(10);

/// How long a drain may go on after its attempts were aborted: for the records of those that had ended.
pub const DRAIN_RECORD_GRACE: Span = Span::from_secs(1);

/// How long the process lives on when its store has stopped for good: for answers on their way.
pub const STORE_STOPPED_GRACE: Span = Span::from_millis(200);

/// How soon the closing of what removed endpoints had open, or the erasing of a tenant, is tried again after
/// it failed.
pub const UPKEEP_RETRY: Span = Span::from_secs(5);

/// How long what metrics say of the store is believed: counting it again for every reader costs.
pub const METRICS_SAMPLE_BELIEVED_FOR: Span = Span::from_secs(5);

/// Spans that wait for the collector; past it they are counted and left out.
pub const SPANS_WAITING_MAX: usize = 4_096;
/// Spans of one request to the collector: about half a megabyte of JSON.
pub const SPANS_BATCH_MAX: usize = 512;
/// How long spans are gathered before they go.
pub const SPANS_EVERY: Span = Span::from_millis(500);
/// How long the end of the server waits for the collector.
pub const SPANS_LAST_TIMEOUT: Span = Span::from_secs(2);
