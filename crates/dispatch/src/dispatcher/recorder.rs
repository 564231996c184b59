//! Writes what the engine decided, in batches and in order, and begins the loads that it asks for.
//!
//! Records and loads share one queue: a load starts when everything recorded before it that it could show
//! is visible, as the engine's contract wants it. When the store is in trouble, the queue fills up, the run
//! loop waits, and everything goes on when the store is back.

use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    AttemptToken, DeliveryStage, EndpointRecord, Input, LaneId, Load, LoadTicket, Transition,
};
use railpost_store::{
    AttemptDetail, AuditEntry, Durability, Epoch, RecordBatch, Recorded, Store, StoreError,
};
use railpost_wire::{DeliveryId, Seq};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use super::Observer;
use super::loader::Loader;
use super::messages::TaskReport;
use super::reconciler::InDoubtWrites;
use crate::limits::{
    RECORD_BATCH_BYTES_MAX, RECORD_BATCH_MAX, RECORD_GROUP_ENOUGH, RECORD_PAUSE, RECORD_PAUSES_MAX,
    STORE_RETRY_MAX, STORE_RETRY_MIN,
};

/// Something to write or to load.
#[derive(Debug)]
pub(super) enum LedgerWork {
    Transition(Transition, Option<Box<AttemptDetail>>),
    /// A person's decision, with its audit entry. Durable before the person is answered.
    Decision(Transition, Option<Box<AuditEntry>>),
    /// The audit entry of a decision that changes no state yet. Durable, too.
    Audit(Box<AuditEntry>),
    Endpoint(EndpointRecord),
    /// Durable before the attempt may leave.
    RecordFirst(Transition, AttemptToken),
    Load(LoadTicket, Load),
    /// Answers when everything before it is written.
    Written(oneshot::Sender<()>),
}

impl LedgerWork {
    /// Whether the engine waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::RecordFirst(..) | Self::Load(..) | Self::Written(_))
    }
}

pub(super) struct Recorder {
    pub(super) store: Arc<dyn Store>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) epoch: Epoch,
    pub(super) work: mpsc::Receiver<LedgerWork>,
    /// Notified when the queue gets work that the engine waits for.
    pub(super) awaited: Arc<Notify>,
    pub(super) loader: Loader,
    /// Notes the endpoints whose records the store refused.
    pub(super) in_doubt: Arc<InDoubtWrites>,
    pub(super) reports: mpsc::UnboundedSender<TaskReport>,
}

impl Recorder {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let mut size = 0;
        while let Some(work) = self.work.recv().await {
            // Most groups are about as large as the one before.
            let mut group = RecordGroup::new(self.epoch);
            group.batch.transitions.reserve(size);
            self.sort(work, &mut group);
            self.gather(&mut group).await;
            size = group.batch.transitions.len();
            if self.write(group.batch, &group.awaiting_record).await {
                for waiting in group.written {
                    let _ = waiting.send(());
                }
            }
            group.loads.into_iter().for_each(|(ticket, load)| self.loader.begin(ticket, load));
        }
    }

    /// Adds what is in the queue. A group that is not awaited may grow for a while.
    async fn gather(&mut self, group: &mut RecordGroup) {
        let pause = tokio::time::sleep(RECORD_PAUSE);
        tokio::pin!(pause);
        let mut pauses = 0;
        loop {
            while !group.is_full()
                && let Ok(work) = self.work.try_recv()
            {
                self.sort(work, group);
            }
            if !group.may_wait() || group.has_waited(pauses) {
                return;
            }
            tokio::select! {
                () = &mut pause => {
                    pauses += 1;
                    pause.as_mut().reset(tokio::time::Instant::now() + RECORD_PAUSE);
                }
                () = self.awaited.notified() => {}
            }
        }
    }

    /// Begins a load at once if the group cannot change its result. Adds all other work to the group.
    fn sort(&self, work: LedgerWork, group: &mut RecordGroup) {
        match work {
            LedgerWork::Load(ticket, load) if !group.concerns(&load) => {
                self.loader.begin(ticket, load);
            }
            work => group.add(work),
        }
    }

    /// Writes a batch; says whether the store took it.
    async fn write(
        &self,
        batch: RecordBatch,
        awaiting_record: &FxHashMap<DeliveryId, AttemptToken>,
    ) -> bool {
        if batch.is_empty() {
            return true;
        }
        let (batch, mut again, mut wait) = (Arc::new(batch), false, STORE_RETRY_MIN);
        loop {
            match self.store.record(batch.clone()).await {
                Ok(recorded) => {
                    self.confirm(&recorded, awaiting_record, again);
                    return true;
                }
                Err(trouble @ (StoreError::Fenced { .. } | StoreError::Invalid { .. })) => {
                    // No retry fixes it: another node has the endpoints, and goes by the store.
                    self.observer.store_trouble(&trouble);
                    if matches!(trouble, StoreError::Fenced { .. }) {
                        let of =
                            batch.transitions.iter().map(|(transition, _)| transition.endpoint);
                        self.in_doubt.note_backlogs(of);
                    }
                    awaiting_record
                        .values()
                        .for_each(|token| self.report(Input::RecordRefused(*token)));
                    return false;
                }
                Err(trouble) => self.observer.store_trouble(&trouble),
            }
            tokio::time::sleep(wait).await;
            (again, wait) = (true, (wait * 2).min(STORE_RETRY_MAX));
        }
    }

    /// Says which at-most-once attempts may leave. One that is on record as in flight after a retry
    /// of ours was written by the call before, whose answer was lost.
    fn confirm(
        &self,
        recorded: &Recorded,
        awaiting_record: &FxHashMap<DeliveryId, AttemptToken>,
        again: bool,
    ) {
        let refused: FxHashMap<_, _> =
            recorded.refused.iter().map(|refused| (refused.delivery, refused.on_record)).collect();
        for (delivery, token) in awaiting_record {
            let ours = again && refused.get(delivery) == Some(&Some(DeliveryStage::InFlight));
            let may_leave = ours || !refused.contains_key(delivery);
            self.report(if may_leave {
                Input::Recorded(*token)
            } else {
                Input::RecordRefused(*token)
            });
        }
    }

    fn report(&self, input: Input) {
        // If the run loop has ended, the answer is not needed.
        let _ = self.reports.send(TaskReport::Input(Box::new(input)));
    }
}

/// What is written together, and loaded after that.
struct RecordGroup {
    batch: RecordBatch,
    awaiting_record: FxHashMap<DeliveryId, AttemptToken>,
    loads: Vec<(LoadTicket, Load)>,
    /// Those who wait until it is written.
    written: Vec<oneshot::Sender<()>>,
    /// The highest seq of each lane that the batch changes.
    lanes: FxHashMap<LaneId, Seq>,
    /// Bytes of the attempts' details.
    bytes: usize,
}

impl RecordGroup {
    fn new(epoch: Epoch) -> Self {
        let batch = RecordBatch { epoch, ..RecordBatch::default() };
        let (awaiting_record, lanes) = (FxHashMap::default(), FxHashMap::default());
        Self { batch, awaiting_record, loads: Vec::new(), written: Vec::new(), lanes, bytes: 0 }
    }

    fn add(&mut self, work: LedgerWork) {
        match work {
            LedgerWork::Transition(transition, detail) => self.add_transition(transition, detail),
            LedgerWork::Decision(transition, audit) => {
                self.batch.durability = Durability::Durable;
                self.batch.audit.extend(audit.map(|entry| *entry));
                self.add_transition(transition, None);
            }
            LedgerWork::Audit(audit) => {
                self.batch.durability = Durability::Durable;
                self.batch.audit.push(*audit);
            }
            LedgerWork::Written(waiting) => self.written.push(waiting),
            LedgerWork::Endpoint(record) => self.batch.endpoints.push(record),
            LedgerWork::RecordFirst(transition, token) => {
                self.batch.durability = Durability::Durable;
                self.awaiting_record.insert(transition.delivery, token);
                self.add_transition(transition, None);
            }
            LedgerWork::Load(ticket, load) => self.loads.push((ticket, load)),
        }
    }

    fn add_transition(&mut self, transition: Transition, detail: Option<Box<AttemptDetail>>) {
        if let Some(place) = transition.place {
            let last = self.lanes.entry(place.lane).or_insert(place.seq);
            *last = place.seq.max(*last);
        }
        self.bytes += detail.as_ref().map_or(0, |detail| detail.response_body.len());
        self.batch.transitions.push((transition, detail));
    }

    fn is_full(&self) -> bool {
        let RecordBatch { transitions, endpoints, audit, .. } = &self.batch;
        let count = transitions.len() + endpoints.len() + audit.len();
        count >= RECORD_BATCH_MAX || self.bytes >= RECORD_BATCH_BYTES_MAX
    }

    /// Whether it may be written later: it has something to write, and is not awaited.
    fn may_wait(&self) -> bool {
        let is_unawaited =
            self.awaiting_record.is_empty() && self.loads.is_empty() && self.written.is_empty();
        !self.batch.is_empty() && !self.is_full() && is_unawaited
    }

    /// Whether it is written after so many pauses.
    fn has_waited(&self, pauses: u32) -> bool {
        let is_enough = self.batch.transitions.len() >= RECORD_GROUP_ENOUGH;
        pauses >= RECORD_PAUSES_MAX || pauses > 0 && is_enough
    }

    /// Whether a load could show what the batch changes.
    fn concerns(&self, load: &Load) -> bool {
        match load {
            Load::Lane { lane, from, .. } => self.lanes.get(lane).is_some_and(|last| last >= from),
            Load::Lanes { .. } | Load::Unkeyed { .. } => !self.batch.transitions.is_empty(),
        }
    }
}

/// Calls the store until it succeeds.
pub(super) async fn retry_until_ok<T, F: Future<Output = Result<T, StoreError>>>(
    observer: &dyn Observer,
    mut call: impl FnMut() -> F,
) -> T {
    let mut wait: Duration = STORE_RETRY_MIN;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(trouble) => observer.store_trouble(&trouble),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(STORE_RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use railpost_engine::{DeliveryState, Place, Progress, Timestamp};
    use railpost_wire::EndpointId;

    use super::*;

    const ENDPOINT: EndpointId = EndpointId::from_u128(1);

    fn transition(place: Option<(u64, u64)>) -> LedgerWork {
        let place =
            place.map(|(lane, seq)| Place { lane: LaneId(lane), seq: Seq::new(seq).unwrap() });
        let transition = Transition {
            delivery: DeliveryId::from_u128(1),
            endpoint: ENDPOINT,
            place,
            state: DeliveryState::Delivered,
            progress: Progress::default(),
            attempt: None,
            at: Timestamp::default(),
        };
        LedgerWork::Transition(transition, None)
    }

    fn lane(lane: u64, from: u64) -> Load {
        Load::Lane {
            endpoint: ENDPOINT,
            lane: LaneId(lane),
            from: Seq::new(from).unwrap(),
            limit: 1,
        }
    }

    #[test]
    fn a_load_waits_for_the_records_it_could_show() {
        let lanes = Load::Lanes { endpoint: ENDPOINT, after: None, limit: 1, window: 1 };
        let due_by = Timestamp::default();
        let (endpoint, due_beyond) = (ENDPOINT, due_by);
        let unkeyed = Load::Unkeyed { endpoint, after: None, due_by, due_beyond, limit: 1 };
        let in_lane = [Some((7, 3)), Some((7, 5)), Some((7, 4))];
        for (records, load, waits) in [
            (&[][..], lane(7, 1), false),
            (&[][..], lanes, false),
            (&[][..], unkeyed, false),
            (&in_lane[..], lane(7, 6), false),
            (&in_lane[..], lane(7, 5), true),
            (&in_lane[..], lane(7, 1), true),
            (&in_lane[..], lane(8, 1), false),
            (&in_lane[..], lanes, true),
            (&in_lane[..], unkeyed, true),
            (&[None][..], lane(7, 1), false),
            (&[None][..], unkeyed, true),
        ] {
            let mut group = RecordGroup::new(Epoch::default());
            records.iter().for_each(|place| group.add(transition(*place)));
            assert_eq!(group.concerns(&load), waits, "{records:?} {load:?}");
        }
    }

    #[test]
    fn a_group_is_written_later_only_while_it_is_not_awaited() {
        let mut group = RecordGroup::new(Epoch::default());
        assert!(!group.may_wait(), "there is nothing to write");
        group.add(transition(None));
        assert!(group.may_wait());
        (1..RECORD_BATCH_MAX).for_each(|_| group.add(transition(None)));
        assert!(!group.may_wait(), "it is full");
    }

    #[test]
    fn a_small_group_takes_more_pauses_than_a_large_one() {
        for (records, pauses, has_waited) in [
            (1, 0, false),
            (1, RECORD_PAUSES_MAX - 1, false),
            (1, RECORD_PAUSES_MAX, true),
            (RECORD_GROUP_ENOUGH, 0, false),
            (RECORD_GROUP_ENOUGH, 1, true),
        ] {
            let mut group = RecordGroup::new(Epoch::default());
            (0..records).for_each(|_| group.add(transition(None)));
            assert_eq!(group.has_waited(pauses), has_waited, "{records} {pauses}");
        }
    }
}
