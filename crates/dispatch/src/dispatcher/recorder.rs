//! Writes what the engine decided, in batches and in order, and looks up what it asks for.
//!
//! Records and loads share one queue: a load starts when everything recorded before it is visible,
//! as the engine's contract wants it. When the store is in trouble, the queue fills up, the run loop
//! waits, and everything goes on when the store is back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{AttemptToken, EndpointRecord, Input, Load, LoadTicket, Stage, Transition};
use railpost_store::{AttemptDetail, Durability, Epoch, RecordBatch, Recorded, Store, StoreError};
use railpost_wire::DeliveryId;
use tokio::sync::mpsc;

use super::Watch;
use super::run::News;
use crate::limits::{RECORD_BATCH_MAX, STORE_RETRY_MAX, STORE_RETRY_MIN};

/// Something to write or to look up.
#[derive(Debug)]
pub(super) enum Item {
    Transition(Transition, Option<AttemptDetail>),
    Endpoint(EndpointRecord),
    /// Durable before the attempt may leave.
    First(Transition, AttemptToken),
    Load(LoadTicket, Load),
}

pub(super) struct Recorder {
    pub(super) store: Arc<dyn Store>,
    pub(super) watch: Arc<dyn Watch>,
    pub(super) epoch: Epoch,
    pub(super) items: mpsc::Receiver<Item>,
    pub(super) news: mpsc::UnboundedSender<News>,
}

impl Recorder {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let mut items = Vec::new();
        while self.items.recv_many(&mut items, RECORD_BATCH_MAX).await > 0 {
            let group = Group::of(items.drain(..), self.epoch);
            self.write(group.batch, &group.firsts).await;
            for (ticket, load) in group.loads {
                tokio::spawn(look_up(
                    self.store.clone(),
                    self.watch.clone(),
                    ticket,
                    load,
                    self.news.clone(),
                ));
            }
        }
    }

    async fn write(&self, batch: RecordBatch, firsts: &HashMap<DeliveryId, AttemptToken>) {
        if batch.transitions.is_empty() && batch.endpoints.is_empty() {
            return;
        }
        let mut again = false;
        let mut wait = STORE_RETRY_MIN;
        loop {
            match self.store.record(batch.clone()).await {
                Ok(recorded) => return self.confirm(&recorded, firsts, again),
                Err(trouble @ (StoreError::Fenced { .. } | StoreError::Invalid { .. })) => {
                    // No retry mends it: another node has the endpoints, and goes by the store.
                    self.watch.store_trouble(&trouble);
                    return firsts
                        .values()
                        .for_each(|token| self.tell(Input::RecordRefused(*token)));
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
        firsts: &HashMap<DeliveryId, AttemptToken>,
        again: bool,
    ) {
        let refused: HashMap<_, _> =
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
        let _ = self.news.send(News::Input(input));
    }
}

/// What was waiting, sorted by what is to be done with it.
struct Group {
    batch: RecordBatch,
    firsts: HashMap<DeliveryId, AttemptToken>,
    loads: Vec<(LoadTicket, Load)>,
}

impl Group {
    fn of(items: impl Iterator<Item = Item>, epoch: Epoch) -> Self {
        let batch = RecordBatch { epoch, ..RecordBatch::default() };
        let mut group = Self { batch, firsts: HashMap::new(), loads: Vec::new() };
        for item in items {
            match item {
                Item::Transition(transition, detail) => {
                    group.batch.transitions.push((transition, detail));
                }
                Item::Endpoint(record) => group.batch.endpoints.push(record),
                Item::First(transition, token) => {
                    group.batch.durability = Durability::Durable;
                    group.firsts.insert(transition.delivery, token);
                    group.batch.transitions.push((transition, None));
                }
                Item::Load(ticket, load) => group.loads.push((ticket, load)),
            }
        }
        group
    }
}

async fn look_up(
    store: Arc<dyn Store>,
    watch: Arc<dyn Watch>,
    ticket: LoadTicket,
    load: Load,
    news: mpsc::UnboundedSender<News>,
) {
    let input = match store.load(load).await {
        Ok(page) => Input::Loaded { ticket, page },
        Err(trouble) => {
            watch.store_trouble(&trouble);
            Input::LoadFailed(ticket)
        }
    };
    let _ = news.send(News::Input(input));
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
