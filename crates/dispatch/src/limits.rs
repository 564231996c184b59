//! Every bound of the way out, with its reason.

use std::time::Duration;

use railpost_engine::Span;

/// Longest URL of an endpoint, in bytes: what proxies and servers commonly take in a request line.
pub const URL_LEN_MAX: usize = 2_048;

/// Longest host name, in bytes, and longest label of one: what DNS can carry.
pub const HOST_LEN_MAX: usize = 253;
/// See [`HOST_LEN_MAX`].
pub const HOST_LABEL_LEN_MAX: usize = 63;

/// Longest name of an excepted network, in bytes: it is shown in a table beside every attempt.
pub const NETWORK_NAME_LEN_MAX: usize = 64;

/// Most addresses of one host that an attempt tries: each takes a share of the connect timeout, and
/// shares of less than half a second find no receiver.
pub const ADDRESSES_TRIED_MAX: usize = 6;

/// Most name lookups under way at once: each takes one of the 512 threads that the runtime keeps for
/// whatever blocks, and others need some too.
pub const LOOKUPS_MAX: usize = 256;

/// Time for name lookup, TCP connect and TLS handshake together, unless the endpoint says otherwise.
/// Two retransmissions of a lost SYN fit.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);

/// Time for the whole exchange, to the last byte of the answer that is read, unless the endpoint
/// says otherwise. A receiver should queue the work and answer.
pub const TOTAL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Longest timeout an endpoint may ask for: each waiting attempt holds a slot and a socket.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(120);

/// Most probes that people asked for at once: each is a socket and a request to this server that waits for it.
pub const PROBES_MAX: usize = 16;

/// How much of an answer's body is kept for people: enough for a stack trace.
pub const BODY_KEPT_MAX: usize = 16 * 1024;

/// How much of an acknowledgement's body is read and thrown away so that its connection can serve
/// again. Past this a new connection is cheaper than the rest of the body.
pub const DRAIN_LEN_MAX: usize = 16 * 1024;

/// How long the acknowledged attempt waits for that remainder: about a round trip, since most
/// receivers send head and body together.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Largest head of an answer, in bytes.
pub const RESPONSE_HEAD_LEN_MAX: usize = 64 * 1024;

/// Most interim answers (1xx) before the answer itself: a proxy or two on the way send one each. Together
/// they may be as long as one head.
pub(crate) const INTERIM_ANSWERS_MAX: usize = 8;

/// Most header fields of an HTTP/1 answer: no receiver needs as many.
pub(crate) const RESPONSE_HEADERS_MAX: usize = 100;

/// Most trailers of an HTTP/1 answer. They are read and thrown away.
pub(crate) const TRAILERS_MAX: usize = 32;

/// Most bytes that frame a chunk, or end a body that comes in chunks.
pub(crate) const CHUNK_HEAD_LEN_MAX: usize = 8 * 1024;

/// Bytes that are read at once: most answers as a whole.
pub(crate) const READ_LEN: usize = 4 * 1024;

/// Longest body that is copied behind its head, so that both are written in one piece. Past this the copy
/// costs more than a second piece, and every idle connection would keep the room for it.
pub(crate) const BODY_JOINED_LEN_MAX: usize = 4 * 1024;

/// Most header fields of an answer that are kept for people, and most bytes of them: cookies and
/// security policies fit, and an attempt's row stays small.
pub const HEADERS_KEPT_MAX: usize = 64;
/// See [`HEADERS_KEPT_MAX`].
pub const HEADERS_KEPT_LEN_MAX: usize = 8 * 1024;

/// Most static headers that an endpoint may add, and most bytes of them: with Railpost's own they
/// stay within the 8 KiB that receivers commonly grant a request's head.
pub const CUSTOM_HEADERS_MAX: usize = 32;
/// See [`CUSTOM_HEADERS_MAX`].
pub const CUSTOM_HEADERS_LEN_MAX: usize = 4 * 1024;

/// Idle connections kept to one target: what a burst of parallel deliveries leaves behind, which by an
/// endpoint's default is 64. Fewer, and a busy endpoint's connections are closed and opened all the time.
pub const IDLE_PER_TARGET_DEFAULT: usize = 64;

/// Idle connections kept for one tenant: two busy endpoints' worth, and a quarter of all, so that no tenant
/// takes the room of the others.
pub const IDLE_PER_TENANT_DEFAULT: usize = 128;

/// Idle connections kept in all: a file descriptor each, of the 1,024 that a process may have open
/// by default.
pub const IDLE_DEFAULT: usize = 512;

/// How long an idle connection is kept. A common server closes its own after 5 s, and a request
/// that crosses such a close is a needless failure.
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(4);

/// However short connections are kept, closing the stale ones must not become a busy loop.
pub const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(100);

/// When TCP first asks whether a silent peer is there, and how long it waits between asking again:
/// short enough that a middlebox does not forget the connection, rare enough to cost nothing.
pub const TCP_KEEPALIVE_TIME: Duration = Duration::from_secs(15);
/// See [`TCP_KEEPALIVE_TIME`].
pub const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which a peer is gone.
pub const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// How much of one answer an HTTP/2 receiver may send ahead of our reading: hardly more than is
/// kept, so that an endless body costs a receiver's credit and not our memory.
pub const H2_STREAM_WINDOW: u32 = 64 * 1024;

/// The same for all answers on one HTTP/2 connection together.
pub const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;

/// TLS sessions that are remembered, to shorten the next handshake, for all endpoints that share
/// their settings: a few KiB each.
pub const SHARED_TLS_SESSIONS_MAX: usize = 1_024;

/// The same for an endpoint with a certificate or authorities of its own: it has one host.
pub const PRIVATE_TLS_SESSIONS_MAX: usize = 2;

/// How many names of a wrong certificate an error lists. Some hold hundreds.
pub const CERTIFICATE_NAMES_SHOWN: usize = 3;

/// Longest chain of certificates in a client identity, and most in a set of roots: a PEM bundle of
/// all public roots holds about 150.
pub const IDENTITY_CERTIFICATES_MAX: usize = 10;
/// See [`IDENTITY_CERTIFICATES_MAX`].
pub const ROOT_CERTIFICATES_MAX: usize = 1_000;

/// Commands that may wait for the run loop: beyond that, accepting waits, too.
pub const COMMANDS_WAITING_MAX: usize = 4_096;

/// Inputs that the run loop takes in one turn, before it looks at the clock and the other queue.
pub const INPUTS_PER_TURN: usize = 256;

/// Records and loads that may wait for the store: beyond that the run loop waits, and with it
/// everything that would make more of them.
pub const RECORDS_WAITING_MAX: usize = 16_384;

/// How long a person waits for a decision to be recorded before the store counts as unavailable.
pub const DECISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Records written in one call: a group commit of a millisecond or so.
pub const RECORD_BATCH_MAX: usize = 1_024;

/// How long records that nobody waits for are gathered before they are written, and how many such pauses a group
/// takes at most while it is small. Ten times as many in a group touch far fewer than ten times the pages; a
/// crash meanwhile costs duplicates of these.
pub const RECORD_PAUSE: Duration = Duration::from_millis(10);
/// See [`RECORD_PAUSE`].
pub const RECORD_PAUSES_MAX: u32 = 10;

/// Records in a group from which on another pause gains little.
pub const RECORD_GROUP_ENOUGH: usize = 256;

/// Loads of lanes in one call.
pub const LOADS_PER_CALL: usize = 256;

/// Loads of what endpoints have open in one call, and how many such calls are under way: a server that starts has two
/// loads for each endpoint, and most of them find nothing.
pub const ENDPOINT_LOADS_PER_CALL: usize = 64;
/// See [`ENDPOINT_LOADS_PER_CALL`].
pub const ENDPOINT_LOADS_AT_ONCE: usize = 4;

/// Loads of lanes in one call from which on many lanes run low side by side, and the next loads are worth
/// waiting for. A few lanes that run low ask more seldom than this, and are not kept waiting.
pub const LOADS_CROWD: usize = 8;

/// How long to wait for them: a lane asks when half of its window is left, which lasts longer.
pub const LOADS_PAUSE: Duration = Duration::from_millis(2);

/// Payloads read in one call.
pub const PAYLOADS_PER_READ: usize = 256;

/// Most payloads of one endpoint that are read ahead of their turn: what the fastest receiver takes in some
/// ten milliseconds, which is how long a busy store needs for them.
pub const READ_AHEAD_MAX: usize = 1_024;

/// What reading ahead may fill, beside the memory for payloads just accepted: one in so many bytes of that.
pub const READ_AHEAD_SHARE: usize = 4;

/// What a payload is taken to need, in bytes, before one of its endpoint was read: more than most, so that the
/// first look ahead stays short.
pub const PAYLOAD_LEN_ASSUMED: usize = 64 * 1024;

/// For how long a payload that is kept counts as waiting for its turn. A receiver that keeps up takes all that
/// is kept in less.
pub const PAYLOAD_FRESH: Span = Span::from_secs(5);

/// Bytes of payloads just accepted that are kept in memory, unless configured otherwise.
pub const PAYLOAD_CACHE_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// Endpoints or tenants read in one page when a dispatcher starts: the longest page that a store gives, because
/// each page waits for the store once or twice.
pub const REGISTRY_PAGE: u32 = railpost_store::limits::LIST_LIMIT_MAX;

/// How soon, and how seldom at the most, a store in trouble is asked again.
pub const STORE_RETRY_MIN: Duration = Duration::from_millis(50);
/// See [`STORE_RETRY_MIN`].
pub const STORE_RETRY_MAX: Duration = Duration::from_secs(2);

/// How often deliveries are swept for what no hint told of. Each is looked at once.
pub const SWEEP_EVERY_DEFAULT: Duration = Duration::from_secs(10);

/// How old deliveries are when they are swept, unless configured otherwise: by then their commit is known to have succeeded or failed,
/// on any store.
pub const SWEEP_LAG_DEFAULT: Span = Span::from_secs(30);

/// Which slow sweep in a row goes through to the latest delivery: one a minute.
pub const WHOLE_SWEEP_EVERY: u32 = 6;

/// Deliveries of one page of a sweep.
pub const SWEEP_LIMIT: u32 = 1_000;

/// How soon, and how seldom at the most, what is in doubt is read again.
pub const RECONCILE_PAUSE_MIN: Duration = Duration::from_millis(100);
/// See [`RECONCILE_PAUSE_MIN`].
pub const RECONCILE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long a write without an answer may still be committed: a store's timeout, twice over.
pub const IN_DOUBT_MAX: Duration = Duration::from_secs(15);

/// The engine's clock runs faster or slower by one part in so many, to follow the time of day: an hour is
/// made up for within a day, and no delay is off by more than that share.
pub const CLOCK_SLEW_SHARE: u32 = 16;

/// How far ahead the time of day may be without counting as a step: it is read in milliseconds, and is
/// disciplined in fractions of a second.
pub const CLOCK_JITTER: Duration = Duration::from_secs(1);

/// Bytes of attempts' details in one call, beyond the first.
pub const RECORD_BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of payloads that one call should read, by the size of those that were read of late.
pub const PAYLOAD_READ_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of payloads under way beyond which no more are read: attempts that need them wait.
pub const UNDER_WAY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Attempts under way and payloads in memory from which on sending is behind: half of what one endpoint may have in
/// flight, and more than producers of single events have out at a time.
pub(crate) const BEHIND_UNDER_WAY_MIN: usize = 32;
/// See [`BEHIND_UNDER_WAY_MIN`].
pub(crate) const BEHIND_PAYLOADS_MIN: usize = 1_024;

/// Events that are accepted at a time while sending is behind: one batch, or as many single events as make a good
/// commit.
pub(crate) const ACCEPTED_AT_ONCE_MAX: u32 = 128;
