//! Writes what the engine decided, in batches and in order, and has looked up what it asks for.
//!
//! Records and loads share one queue: a load starts when everything recorded before it that it could show
//! is visible, as the engine's contract wants it. When the store is in trouble, the queue fills up, the run
//! loop waits, and everything goes on when the store is back.

use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    AttemptToken, EndpointRecord, Input, LaneId, Load, LoadTicket, Stage, Transition,
};
use railpost_store::{
    AttemptDetail, AuditEntry, Durability, Epoch, RecordBatch, Recorded, Store, StoreError,
};
use railpost_wire::{DeliveryId, Seq};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use super::Watch;
use super::lookups::Lookups;
use super::repair::Doubts;
use super::run::News;
use crate::limits::{
    RECORD_BATCH_BYTES_MAX, RECORD_BATCH_MAX, RECORD_GROUP_ENOUGH, RECORD_PAUSE, RECORD_PAUSES_MAX,
    STORE_RETRY_MAX, STORE_RETRY_MIN,
};

/// Something to write or to look up.
#[derive(Debug)]
pub(super) enum Item {
    Transition(Transition, Option<Box<AttemptDetail>>),
    /// What a person decided, and who did: durable, because the person is told so.
    Decision(Transition, Option<Box<AuditEntry>>),
    /// Who decided something that changes no state yet: durable, too.
    Decided(Box<AuditEntry>),
    Endpoint(EndpointRecord),
    /// Durable before the attempt may leave.
    First(Transition, AttemptToken),
    Load(LoadTicket, Load),
    /// Tells when everything before it is written.
    Written(oneshot::Sender<()>),
}

impl Item {
    /// Whether the engine waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::First(..) | Self::Load(..) | Self::Written(_))
    }
}

pub(super) struct Recorder {
    pub(super) store: Arc<dyn Store>,
    pub(super) watch: Arc<dyn Watch>,
    pub(super) epoch: Epoch,
    pub(super) items: mpsc::Receiver<Item>,
    /// Told when an item that the engine waits for was put into the queue.
    pub(super) awaited: Arc<Notify>,
    pub(super) lookups: Lookups,
    /// Where it is noted that the engine's view was refused.
    pub(super) doubts: Arc<Doubts>,
    pub(super) news: mpsc::UnboundedSender<News>,
}

impl Recorder {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let mut size = 0;
        while let Some(item) = self.items.recv().await {
            // Most groups are about as large as the one before.
            let mut group = Group::new(self.epoch);
            group.batch.transitions.reserve(size);
            self.sort(item, &mut group);
            self.gather(&mut group).await;
            size = group.batch.transitions.len();
            if self.write(group.batch, &group.firsts).await {
                for waiting in group.written {
                    let _ = waiting.send(());
                }
            }
            group.loads.into_iter().for_each(|(ticket, load)| self.lookups.begin(ticket, load));
        }
    }

    /// Adds what is in the queue. A group that nobody waits for may grow for a while.
    async fn gather(&mut self, group: &mut Group) {
        let pause = tokio::time::sleep(RECORD_PAUSE);
        tokio::pin!(pause);
        let mut pauses = 0;
        loop {
            while !group.is_full()
                && let Ok(item) = self.items.try_recv()
            {
                self.sort(item, group);
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

    /// Looks up at once what the group cannot change, and adds the rest to it.
    fn sort(&self, item: Item, group: &mut Group) {
        match item {
            Item::Load(ticket, load) if !group.concerns(&load) => self.lookups.begin(ticket, load),
            item => group.add(item),
        }
    }

    /// Writes a batch; says whether the store took it.
    async fn write(
        &self,
        batch: RecordBatch,
        firsts: &FxHashMap<DeliveryId, AttemptToken>,
    ) -> bool {
        if batch.is_empty() {
            return true;
        }
        let (batch, mut again, mut wait) = (Arc::new(batch), false, STORE_RETRY_MIN);
        loop {
            match self.store.record(batch.clone()).await {
                Ok(recorded) => {
                    self.confirm(&recorded, firsts, again);
                    return true;
                }
                Err(trouble @ (StoreError::Fenced { .. } | StoreError::Invalid { .. })) => {
                    // No retry mends it: another node has the endpoints, and goes by the store.
                    self.watch.store_trouble(&trouble);
                    if matches!(trouble, StoreError::Fenced { .. }) {
                        let of =
                            batch.transitions.iter().map(|(transition, _)| transition.endpoint);
                        self.doubts.of_backlogs(of);
                    }
                    firsts.values().for_each(|token| self.tell(Input::RecordRefused(*token)));
                    return false;
                }
                Err(trouble) => self.watch.store_trouble(&trouble),
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
        firsts: &FxHashMap<DeliveryId, AttemptToken>,
        again: bool,
    ) {
        let refused: FxHashMap<_, _> =
            recorded.skipped.iter().map(|skipped| (skipped.delivery, skipped.on_record)).collect();
        for (delivery, token) in firsts {
            let ours = again && refused.get(delivery) == Some(&Some(Stage::InFlight));
            let may_leave = ours || !refused.contains_key(delivery);
            self.tell(if may_leave {
                Input::Recorded(*token)
            } else {
                Input::RecordRefused(*token)
            });
        }
    }

    fn tell(&self, input: Input) {
        // If the run loop is gone, nobody waits for this.
        let _ = self.news.send(News::Input(Box::new(input)));
    }
}

/// What is written together, and looked up after that.
struct Group {
    batch: RecordBatch,
    firsts: FxHashMap<DeliveryId, AttemptToken>,
    loads: Vec<(LoadTicket, Load)>,
    /// Those who wait until it is written.
    written: Vec<oneshot::Sender<()>>,
    /// The highest seq of each lane that the batch changes.
    lanes: FxHashMap<LaneId, Seq>,
    /// Bytes of the attempts' details.
    bytes: usize,
}

impl Group {
    fn new(epoch: Epoch) -> Self {
        let batch = RecordBatch { epoch, ..RecordBatch::default() };
        let (firsts, lanes) = (FxHashMap::default(), FxHashMap::default());
        Self { batch, firsts, loads: Vec::new(), written: Vec::new(), lanes, bytes: 0 }
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Transition(transition, detail) => self.add_transition(transition, detail),
            Item::Decision(transition, audit) => {
                self.batch.durability = Durability::Durable;
                self.batch.audit.extend(audit.map(|entry| *entry));
                self.add_transition(transition, None);
            }
            Item::Decided(audit) => {
                self.batch.durability = Durability::Durable;
                self.batch.audit.push(*audit);
            }
            Item::Written(waiting) => self.written.push(waiting),
            Item::Endpoint(record) => self.batch.endpoints.push(record),
            Item::First(transition, token) => {
                self.batch.durability = Durability::Durable;
                self.firsts.insert(transition.delivery, token);
                self.add_transition(transition, None);
            }
            Item::Load(ticket, load) => self.loads.push((ticket, load)),
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

    /// Whether it may be written later: it has something to write, and nobody waits for it.
    fn may_wait(&self) -> bool {
        let nobody_waits =
            self.firsts.is_empty() && self.loads.is_empty() && self.written.is_empty();
        !self.batch.is_empty() && !self.is_full() && nobody_waits
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

/// Asks the store until it answers.
pub(super) async fn insist<T, F: Future<Output = Result<T, StoreError>>>(
    watch: &dyn Watch,
    mut ask: impl FnMut() -> F,
) -> T {
    let mut wait: Duration = STORE_RETRY_MIN;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(trouble) => watch.store_trouble(&trouble),
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

    fn transition(place: Option<(u64, u64)>) -> Item {
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
        Item::Transition(transition, None)
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
            let mut group = Group::new(Epoch::default());
            records.iter().for_each(|place| group.add(transition(*place)));
            assert_eq!(group.concerns(&load), waits, "{records:?} {load:?}");
        }
    }

    #[test]
    fn a_group_is_written_later_only_while_nobody_waits_for_it() {
        let mut group = Group::new(Epoch::default());
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
            let mut group = Group::new(Epoch::default());
            (0..records).for_each(|_| group.add(transition(None)));
            assert_eq!(group.has_waited(pauses), has_waited, "{records} {pauses}");
        }
    }
}
