//! Records that were answered before they were on disk.
//!
//! A crash of the database loses the last of them while this process lives on, and whoever recorded them
//! has no reason to say them again: their deliveries would stay open for ever. So they are kept until the
//! disk has them, and written again on a new session. That is safe, because a record is checked against
//! the state on record.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::ledger::weight;
use super::link::{Session, duration};
use crate::RecordBatch;
use crate::limits::{UNFLUSHED_AGE_MAX, UNFLUSHED_BYTES_MAX, UNFLUSHED_CALLS_MAX};

/// What the disk may not have yet, in the order in which it was written.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    batches: VecDeque<Kept>,
    bytes: usize,
    /// How many there ever were.
    count: u64,
    /// The session that they were written on.
    session: Weak<Session>,
}

#[derive(Debug)]
struct Kept {
    batch: Arc<RecordBatch>,
    bytes: usize,
    since: Instant,
}

/// A moment: all that was kept until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

impl Unflushed {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// To be taken before a commit that waits for the disk is asked for.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.count)
    }

    /// A commit that was asked for after the mark is on disk: the log is written in order, so all that was
    /// answered before it is on disk too.
    pub(super) fn flushed(&mut self, mark: Mark) {
        let first = self.count - self.batches.len() as u64;
        for _ in first..mark.0 {
            self.bytes -= self.batches.pop_front().map_or(0, |kept| kept.bytes);
        }
    }

    /// Keeps what was written on a session without waiting for the disk.
    pub(super) fn keep(&mut self, batch: Arc<RecordBatch>, session: &Arc<Session>) {
        let bytes = weight(&batch).bytes;
        self.session = Arc::downgrade(session);
        self.batches.push_back(Kept { batch, bytes, since: Instant::now() });
        self.bytes += bytes;
        self.count += 1;
    }

    /// Whether the next records should wait for the disk, so that these may go.
    pub(super) fn is_due(&self) -> bool {
        let old = |kept: &Kept| kept.since.elapsed() >= duration(UNFLUSHED_AGE_MAX);
        self.batches.len() >= UNFLUSHED_CALLS_MAX
            || self.bytes >= UNFLUSHED_BYTES_MAX
            || self.batches.front().is_some_and(old)
    }

    /// Those that another session than this one wrote: it may have been lost in a crash.
    pub(super) fn lost_before(&self, session: &Arc<Session>) -> Vec<Arc<RecordBatch>> {
        if Weak::ptr_eq(&self.session, &Arc::downgrade(session)) {
            return vec![];
        }
        self.batches.iter().map(|kept| kept.batch.clone()).collect()
    }

    /// This session has written all of them again.
    pub(super) fn written_again(&mut self, session: &Arc<Session>) {
        self.session = Arc::downgrade(session);
    }
}
