//! The inbox as a work queue: what both SQL queues agree on.
//!
//! An event is acknowledged once it is durably queued. A worker takes the oldest job whose line and key
//! have no older one, runs the effect and removes the job, all in one transaction: a process that dies
//! leaves the job where it was. A job that fails is tried again later; one that keeps failing becomes a
//! dead letter, and holds its line and key until a person retries or discards it.

use crate::delivery::Delivery;
use crate::inbox::LinePosition;
use crate::limits::{BACKLOG_MAX, ERROR_CHARS_MAX, TRIES_MAX, TRY_DELAY_BASE, TRY_DELAY_MAX};
use railpost_wire::{EventId, EventType, Key, LineId, Received, Seq};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// What a queue does about failures and about too much work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkPolicy {
    /// Tries before a job becomes a dead letter.
    pub tries_max: u32,
    /// The delay after the first failed try; it doubles with each further one.
    pub delay_base: Duration,
    /// The longest delay between tries.
    pub delay_max: Duration,
    /// Most jobs that wait, dead letters among them.
    pub backlog_max: u32,
}

impl Default for WorkPolicy {
    fn default() -> Self {
        Self {
            tries_max: TRIES_MAX,
            delay_base: TRY_DELAY_BASE,
            delay_max: TRY_DELAY_MAX,
            backlog_max: BACKLOG_MAX,
        }
    }
}

impl WorkPolicy {
    /// When a job that has failed `tries` times is tried again, or never.
    pub(crate) fn next_try(&self, tries: u32, now: i64) -> Option<i64> {
        let doublings = 1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.delay_base.saturating_mul(doublings).min(self.delay_max);
        (tries < self.tries_max).then(|| now.saturating_add_unsigned(delay.as_secs()))
    }
}

/// An event in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its place in the queue.
    pub position: i64,
    /// How often it has failed.
    pub tries: u32,
    /// The event.
    pub delivery: Delivery,
}

/// What a worker did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkOutcome {
    /// Nothing: no job is due.
    Idle,
    /// It applied this event.
    Done(EventId),
    /// The effect failed; it will be tried again at `at`, in seconds since 1970.
    Failed {
        /// Which event.
        event_id: EventId,
        /// When it is tried again.
        at: i64,
    },
    /// The effect failed for the last time: the event is a dead letter, and holds its line and key.
    Dead(EventId),
}

/// A job that was given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The job.
    pub job: Job,
    /// What the last try said.
    pub error: String,
}

/// Why a worker could do nothing.
#[derive(Debug)]
pub enum WorkError<E> {
    /// The store could not be used.
    Store(E),
    /// A row does not hold what was written: it was changed from outside.
    Damaged {
        /// Its place in the queue.
        position: i64,
        /// What cannot be read.
        problem: String,
    },
}

impl<E> From<E> for WorkError<E> {
    fn from(error: E) -> Self {
        Self::Store(error)
    }
}

impl<E: fmt::Display> fmt::Display for WorkError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::Damaged { position, problem } => {
                write!(f, "the job at {position} is damaged, discard it: {problem}")
            }
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for WorkError<E> {}

/// What is queued beside the body, as JSON. Stable: rows outlive versions of this crate.
#[derive(Serialize, Deserialize)]
struct Head {
    id: EventId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_type: Option<EventType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_unix_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema_version: Option<u32>,
    key: Option<Key>,
    #[serde(default)]
    line: Option<LineId>,
    seq: Option<Seq>,
    #[serde(default)]
    after: Option<u64>,
    attempt: Option<u32>,
    replay: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    thin: bool,
    timestamp: i64,
    headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    fn into_received(self) -> (Received, Vec<(String, Vec<u8>)>) {
        let received = Received {
            event_id: self.id,
            event_type: self.event_type,
            event_unix_ms: self.event_unix_ms,
            schema_version: self.schema_version,
            key: self.key,
            line: self.line,
            seq: self.seq,
            after: self.after,
            attempt: self.attempt,
            replay: self.replay,
            thin: self.thin,
            timestamp: self.timestamp,
        };
        (received, self.headers)
    }
}

/// A job's head, as it is stored.
pub(crate) fn head(delivery: &Delivery) -> String {
    let received = delivery.received.clone();
    let head = Head {
        id: received.event_id,
        event_type: received.event_type,
        event_unix_ms: received.event_unix_ms,
        schema_version: received.schema_version,
        key: received.key,
        line: received.line,
        seq: received.seq,
        after: received.after,
        attempt: received.attempt,
        replay: received.replay,
        thin: received.thin,
        timestamp: received.timestamp,
        headers: delivery.headers.clone(),
    };
    serde_json::to_string(&head).expect("a head is a JSON object")
}

/// The line and the key that a job waits in; neither without a line. The line, because an endpoint may have
/// one line for all keys; the key, because a key that begins a new line may have jobs of the old one, which
/// go first.
pub(crate) fn order(received: &Received) -> (Option<&str>, Option<&str>) {
    let line = LinePosition::of(received).map(|place| place.line.as_str());
    (line, received.key.as_ref().filter(|_| line.is_some()).map(Key::as_str))
}

/// A job as it is stored.
pub(crate) struct Row {
    pub(crate) position: i64,
    pub(crate) tries: i64,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Row {
    pub(crate) fn read<E>(self) -> Result<Job, WorkError<E>> {
        let Self { position, tries, head, body } = self;
        let damaged =
            |error: serde_json::Error| WorkError::Damaged { position, problem: error.to_string() };
        let head: Head = serde_json::from_str(&head).map_err(damaged)?;
        let (received, headers) = head.into_received();
        let delivery = Delivery { received, headers, body };
        Ok(Job { position, tries: u32::try_from(tries).unwrap_or(u32::MAX), delivery })
    }
}

/// An effect's error, cut to what is kept. Databases refuse a NUL in a text.
pub(crate) fn error_text(error: &dyn fmt::Display) -> String {
    error.to_string().chars().filter(|&c| c != '\0').take(ERROR_CHARS_MAX).collect()
}
