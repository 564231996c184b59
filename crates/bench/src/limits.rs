//! Every bound of a run, with its reason.

use std::time::Duration;

/// Connections of a load generator that publishes single events. Each waits for its answer, and a server
/// that groups its commits answers many at once: with 64 of them a tenth to a fifth of both cores had
/// nothing to do while all waited for the same commit.
pub(crate) const CONNECTIONS: u32 = 128;

/// Connections that publish batches or streams: each has a hundred events and more under way.
pub(crate) const BULK_CONNECTIONS: u32 = 8;

/// Connections of a stream of events beside the one that is judged.
pub(crate) const SIDE_CONNECTIONS: u32 = 16;

/// Lines of one NDJSON request: long enough to be a stream, short enough to fit one measured run
/// many times.
pub(crate) const STREAM_LINES: u32 = 1_000;

/// Load before the measured run: connections are open and tables are warm after it.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// The same by schedule. A store's write-ahead log grows at first, which costs more than writing over it.
pub(crate) const SCHEDULED_WARM_UP: Duration = Duration::from_secs(5);

/// How long a device is watched before a run, to see what others write to it, and the share of the bytes
/// counted that is worth a word.
pub(crate) const DEVICE_WATCH: Duration = Duration::from_secs(1);
/// See [`DEVICE_WATCH`].
pub(crate) const DEVICE_OTHERS_MAX: f64 = 0.1;

/// Bytes of a file system of our own: a backlog of a million events beside PostgreSQL's files.
pub(crate) const OWN_DISK_LEN: u64 = 16 << 30;

/// Endpoints of a server that starts again, and how many a tenant has.
pub(crate) const ENDPOINTS: u64 = 30_000;
/// See [`ENDPOINTS`].
pub(crate) const ENDPOINTS_PER_TENANT: u64 = 1_000;

/// The measured run: the whole run should take a few minutes.
pub(crate) const STRETCH: Duration = Duration::from_secs(3);

/// Fewest events of a run by schedule: twenty of them make a p99, not a single pause of the machine.
pub(crate) const STRETCH_EVENTS_MIN: u64 = 2_000;

/// Most events of one measured run: what a fast store accepts must still be delivered in time.
pub(crate) const STRETCH_EVENTS: u64 = 150_000;

/// Most events for one hot key. They leave one after the other, so they take longer than the rest.
pub(crate) const HOT_KEY_EVENTS: u64 = 30_000;

/// Longest wait for the last delivery of a run.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Events that pile up behind an endpoint that is down, and the lanes they lie in.
pub(crate) const BACKLOG_EVENTS: u64 = 1_000_000;
pub(crate) const BACKLOG_LANES: u32 = 100_000;

/// Longest time for the backlog to pile up, and for it to drain: ten times what it should take.
pub(crate) const BACKLOG_MAX: Duration = Duration::from_secs(900);

/// Parts into which the growth of the backlog is cut: one point of the curve each.
pub(crate) const BACKLOG_PARTS: u64 = 20;

/// Parts of the last tenth of the backlog, each set against as much at an empty server.
pub(crate) const BACKLOG_PAIRS: u64 = 5;

/// Rows that wait in an outbox until they are drained, the keys that they have, and the longest time for it.
pub(crate) const OUTBOX_ROWS: u64 = 200_000;
pub(crate) const OUTBOX_KEYS: u64 = 10_000;
/// See [`OUTBOX_ROWS`].
pub(crate) const OUTBOX_DRAIN_MAX: Duration = Duration::from_secs(120);

/// Events of an outbox before the measured ones: a replication slot exists and connections are open after it.
pub(crate) const OUTBOX_WARM_UP: u64 = 400;

/// Events from whose delays a quantile is taken: twenty of them make a p99.
pub(crate) const OUTBOX_EVENTS: u64 = 2_000;

/// Commits a second that one session of the application makes: each waits for its sync to disk.
pub(crate) const COMMITS_PER_SESSION: u64 = 100;

/// How long the CPU of a server is watched: a hundredth of a second is the unit, and 2 % are the bar.
pub(crate) const CPU_WATCH: Duration = Duration::from_secs(10);

/// Deleted rows of an outbox that an old snapshot keeps from being vacuumed.
pub(crate) const OUTBOX_DEAD_ROWS: u64 = 300_000;

/// Sessions that commit with and without an event, how long at a time, and how many times in turns.
pub(crate) const EMIT_SESSIONS: u64 = 8;
/// See [`EMIT_SESSIONS`].
pub(crate) const EMIT_TIME: Duration = Duration::from_secs(2);
/// See [`EMIT_SESSIONS`].
pub(crate) const EMIT_PAIRS: u32 = 4;

/// How long an endpoint hangs before it answers.
pub(crate) const HANG: Duration = Duration::from_secs(10);

/// Times that the cases which bars set against each other are measured in a whole run: a machine with
/// other tenants changes within minutes, and one round may be wrong, but the median seldom is. Fewer for those
/// at 200/s, which take three times as long.
pub(crate) const ROUNDS: usize = 5;
pub(crate) const SLOW_ROUNDS: usize = 3;

/// A quick run is a tenth of a full one.
pub(crate) const QUICK_DIVISOR: u32 = 10;

/// Largest event number the sink keeps a bit for: 4 MiB an endpoint.
pub(crate) const NUMBER_MAX: u64 = 1 << 25;

/// One delivery in so many has its signature verified: proof that all are signed, for little CPU.
pub(crate) const VERIFY_EVERY: u64 = 128;

/// Pause of a connection whose request failed, so that a server that refuses is not hammered.
pub(crate) const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Longest wait for a server to be ready, or for a child process to answer a question.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often the parent looks whether something has happened.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Appends that are synced to disk one by one to learn what that costs.
pub(crate) const SYNCS: usize = 400;

/// Share of a core from which a process with one busy thread counts as used up.
pub(crate) const CORE_FULL: f64 = 0.95;

/// Cores that a host may give to others before it is worth a word: a twentieth of two.
pub(crate) const TAKEN_MAX: f64 = 0.1;

/// A pacer that is later than this for one event in a hundred no longer keeps its schedule.
pub(crate) const PACER_LATE_MAX: Duration = Duration::from_millis(2);

/// A good producer beside a hostile client: events a second, and connections. What people run.
pub(crate) const HOSTILE_PER_S: u64 = 200;
/// See [`HOSTILE_PER_S`].
pub(crate) const HOSTILE_CONNECTIONS: u64 = 4;

/// How long the producer is measured each time, alone and under attack: two thousand events make a p99. And longer
/// than the 10 s after which a server cuts a slow head, so that connections are cut and opened again.
pub(crate) const HOSTILE_RUN: Duration = Duration::from_secs(15);
/// How often, for a median.
pub(crate) const HOSTILE_ROUNDS: u32 = 3;

/// Connections that are held in each way: slow heads, idle ones, bodies that do not end. Three times as many have to
/// fit among the 1024 files that a process may open by default.
pub(crate) const HOSTILE_HOLDERS: usize = 200;
/// How long a slow client waits before its next byte.
pub(crate) const HOSTILE_DRIP: Duration = Duration::from_secs(1);

/// Unknown keys that are shown in one attack, and how many at once.
pub(crate) const HOSTILE_KEYS: u32 = 10_000;
/// See [`HOSTILE_KEYS`].
pub(crate) const HOSTILE_KEY_CONNECTIONS: u32 = 8;

/// How many times its quiet p99 a good producer may feel under attack.
pub(crate) const HOSTILE_RATIO_MAX: f64 = 2.0;
