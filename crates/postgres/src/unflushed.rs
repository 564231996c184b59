//! Records that were answered before they were on disk.
//!
//! A crash of the database loses the last of them while this process lives on, and the caller that recorded them
//! has no reason to send them again: their deliveries would stay open for ever. So they are kept until the
//! disk has them, and written again on a new session. That is safe, because a record is checked against
//! the state on record.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::weight;
use super::link::Session;
use crate::limits::{UNFLUSHED_AGE_MAX, UNFLUSHED_BYTES_MAX, UNFLUSHED_CALLS_MAX};
use railpost_store::RecordBatch;

/// What the disk may not have yet, in the order in which it was written.
#[derive(Debug)]
pub(super) struct Unflushed<S = Session> {
    batches: VecDeque<UnflushedBatch>,
    bytes: usize,
    /// How many there ever were.
    count: u64,
    /// The session that they were written on.
    session: Weak<S>,
}

#[derive(Debug)]
struct UnflushedBatch {
    batch: Arc<RecordBatch>,
    bytes: usize,
    since: Instant,
}

/// A moment: all that was kept until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushMark(u64);

impl<S> Default for Unflushed<S> {
    fn default() -> Self {
        Self { batches: VecDeque::new(), bytes: 0, count: 0, session: Weak::new() }
    }
}

impl<S> Unflushed<S> {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// To be taken before a commit that waits for the disk is asked for.
    pub(super) fn mark(&self) -> FlushMark {
        FlushMark(self.count)
    }

    /// A commit that was asked for after the mark is on disk: the log is written in order, so all that was
    /// answered before it is on disk too.
    pub(super) fn flushed(&mut self, mark: FlushMark) {
        let first = self.count - self.batches.len() as u64;
        for _ in first..mark.0 {
            self.bytes -= self.batches.pop_front().map_or(0, |kept| kept.bytes);
        }
    }

    /// Keeps what was written on a session without waiting for the disk.
    pub(super) fn keep(&mut self, batch: Arc<RecordBatch>, session: &Arc<S>) {
        let bytes = weight(&batch).bytes;
        self.session = Arc::downgrade(session);
        self.batches.push_back(UnflushedBatch { batch, bytes, since: Instant::now() });
        self.bytes += bytes;
        self.count += 1;
    }

    /// Whether the next records should wait for the disk, so that these may go.
    pub(super) fn is_due(&self) -> bool {
        let old = |kept: &UnflushedBatch| kept.since.elapsed() >= Duration::from(UNFLUSHED_AGE_MAX);
        self.batches.len() >= UNFLUSHED_CALLS_MAX
            || self.bytes >= UNFLUSHED_BYTES_MAX
            || self.batches.front().is_some_and(old)
    }

    /// Those that another session than this one wrote: it may have been lost in a crash.
    pub(super) fn lost_before(&self, session: &Arc<S>) -> Vec<Arc<RecordBatch>> {
        if Weak::ptr_eq(&self.session, &Arc::downgrade(session)) {
            return vec![];
        }
        self.batches.iter().map(|kept| kept.batch.clone()).collect()
    }

    /// This session has written all of them again.
    pub(super) fn written_again(&mut self, session: &Arc<S>) {
        self.session = Arc::downgrade(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::UNFLUSHED_CALLS_MAX;
    use railpost_engine::{AttemptResult, DeliveryState, Progress, Timestamp, Transition};
    use railpost_store::limits::RESPONSE_BODY_LEN_MAX;
    use railpost_store::{AttemptDetail, Timing};
    use railpost_wire::{DeliveryId, EndpointId};

    /// A record of an attempt with a long answer.
    fn batch(number: u128) -> Arc<RecordBatch> {
        let transition = Transition {
            delivery: DeliveryId::from_u128(number),
            endpoint: EndpointId::from_u128(1),
            place: None,
            state: DeliveryState::Delivered,
            progress: Progress::default(),
            attempt: None,
            at: Timestamp::from_millis(1),
        };
        let detail = AttemptDetail {
            number: 1,
            started_at: Timestamp::from_millis(1),
            result: AttemptResult::Response { status: 200, retry_after: None },
            timing: Timing::default(),
            message: None,
            response_headers: vec![],
            response_body: vec![b'x'; RESPONSE_BODY_LEN_MAX].into(),
            node: None,
        };
        let transitions = vec![(transition, Some(Box::new(detail)))];
        Arc::new(RecordBatch { transitions, ..RecordBatch::default() })
    }

    fn kept(unflushed: &Unflushed<()>) -> Vec<DeliveryId> {
        let lost = unflushed.lost_before(&Arc::new(()));
        lost.iter().map(|batch| batch.transitions[0].0.delivery).collect()
    }

    #[test]
    fn what_was_kept_before_a_durable_commit_was_asked_for_goes_and_the_rest_stays_in_order() {
        let (mut unflushed, session) = (Unflushed::default(), Arc::new(()));
        unflushed.keep(batch(1), &session);
        let early = unflushed.mark();
        unflushed.keep(batch(2), &session);
        let late = unflushed.mark();
        unflushed.keep(batch(3), &session);
        unflushed.keep(batch(4), &session);
        unflushed.flushed(late);
        assert_eq!(kept(&unflushed), [3, 4].map(DeliveryId::from_u128));
        // One that was asked for earlier may be answered later.
        unflushed.flushed(early);
        assert_eq!(kept(&unflushed), [3, 4].map(DeliveryId::from_u128));
        unflushed.flushed(unflushed.mark());
        assert!(unflushed.is_empty() && unflushed.bytes == 0);
    }

    #[test]
    fn only_what_another_session_wrote_may_be_lost() {
        let (mut unflushed, old, new) = (Unflushed::default(), Arc::new(()), Arc::new(()));
        unflushed.keep(batch(1), &old);
        assert!(unflushed.lost_before(&old).is_empty());
        assert_eq!(unflushed.lost_before(&new).len(), 1);
        unflushed.written_again(&new);
        assert!(unflushed.lost_before(&new).is_empty());
    }

    #[test]
    fn many_large_or_old_ones_make_the_next_wait_for_the_disk() {
        let session = Arc::new(());
        let (mut many, mut large) = (Unflushed::default(), Unflushed::default());
        for _ in 0..UNFLUSHED_CALLS_MAX {
            assert!(!many.is_due());
            many.keep(Arc::default(), &session);
        }
        assert!(many.is_due());
        while large.bytes < UNFLUSHED_BYTES_MAX {
            assert!(!large.is_due());
            large.keep(batch(1), &session);
        }
        assert!(large.is_due() && large.batches.len() < UNFLUSHED_CALLS_MAX);
        let mut old = Unflushed::default();
        old.keep(batch(1), &session);
        old.batches[0].since -= Duration::from(UNFLUSHED_AGE_MAX);
        assert!(old.is_due());
    }
}
