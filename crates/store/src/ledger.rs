//! What the engine has written down, and what it reads back.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use railpost_engine::{
    Accepted, AttemptResult, EndpointRecord, Load, Page, Stage, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, NodeId, TenantId};
use serde::{Deserialize, Serialize};

use crate::{AuditEntry, Epoch, Event, LinePlace, Partition, Result};

/// The record of what happened to deliveries.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Writes down a batch. Loads and lists that begin after the answer show it. It is shared, because
    /// the caller keeps it to try again.
    ///
    /// A transition that the record does not allow ([`Stage::may_be_recorded_as`]) is skipped with
    /// its attempt, and the rest is written: late news must not undo what is known. A batch that
    /// touches a partition with a later owner is refused whole, as
    /// [`Fenced`](crate::StoreError::Fenced).
    ///
    /// The count of attempts is never lowered: a command may have been given on an old view.
    ///
    /// A dead letter that does not hold its lane leaves it for good: it has no
    /// [`Place`](railpost_engine::Place) from then on, but keeps its seq for people to see.
    ///
    /// Whatever is closed without being delivered is passed over by the next one of its lane: pages say
    /// which one that follows ([`LanePage::follows`](railpost_engine::LanePage::follows)).
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded>;

    /// Looks up what is open, as the engine asks for it. Deliveries of a removed endpoint are not.
    async fn load(&self, load: Load) -> Result<Page>;

    /// Looks up several things in one call. The answers come in the order of the loads, each as
    /// [`load`](Self::load) would give it; if one cannot be had, there is none.
    async fn load_all(&self, loads: Vec<Load>) -> Result<Vec<Page>> {
        try_join_all(loads.into_iter().map(|load| self.load(load))).await
    }

    /// All that a sender needs for these deliveries, in any order. One whose event is gone is left
    /// out; one that cannot be read does not keep the others back.
    async fn parcels(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, Result<Parcel>)>>;

    /// Deliveries made in a stretch of ids that are open, by ascending id, whatever their endpoints. Those
    /// of removed endpoints are not. What was committed without anybody hearing of it is found so.
    async fn sweep(&self, sweep: Sweep) -> Result<SweepPage>;

    /// Makes `epoch` the owner's epoch of a partition: records with a lower one are refused from
    /// then on. Refused itself, as [`Fenced`](crate::StoreError::Fenced), if a higher one is on
    /// record.
    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()>;
}

/// Things to write down together.
#[derive(Clone, Debug, Default)]
pub struct RecordBatch {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// How long to wait.
    pub durability: Durability,
    /// What became of deliveries, in order.
    pub transitions: Vec<(Transition, Option<Box<AttemptDetail>>)>,
    /// What became of endpoints, in order. Unknown endpoints are skipped. One that is switched off is
    /// in the audit trail with the record ([`AUDIT_SWITCH_OFF`](crate::AUDIT_SWITCH_OFF)).
    pub endpoints: Vec<EndpointRecord>,
    /// Who decided what of this is. An entry that is on record already stays as it is: a batch may come
    /// again.
    pub audit: Vec<AuditEntry>,
}

impl RecordBatch {
    /// Transitions without attempts, at leisure, by an owner of epoch 0.
    pub fn of(transitions: impl IntoIterator<Item = Transition>) -> Self {
        let transitions = transitions.into_iter().map(|transition| (transition, None)).collect();
        Self { transitions, ..Self::default() }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.transitions.is_empty() && self.endpoints.is_empty() && self.audit.is_empty()
    }

    /// The partitions that it touches.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> {
        let deliveries = self.transitions.iter().map(|(transition, _)| transition.endpoint);
        let endpoints = self.endpoints.iter().map(|record| record.endpoint);
        deliveries.chain(endpoints).map(Partition::of)
    }
}

/// Which stretch of deliveries to look through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Those with a higher id than this,
    pub after: DeliveryId,
    /// up to this one.
    pub through: DeliveryId,
    /// Most deliveries to list: 1 to [`SWEEP_MAX`](crate::limits::SWEEP_MAX).
    pub limit: u32,
}

/// What a sweep found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepPage {
    /// The open ones.
    pub deliveries: Vec<Accepted>,
    /// Where to go on from; nothing when the stretch is done.
    pub next: Option<DeliveryId>,
    /// The store's era. Another one than before means that the store may have lost commits: then what is
    /// in memory must be read again.
    pub era: u64,
}

/// How safe a record must be when its call answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Visible; a crash of the machine may lose it, which costs a duplicate.
    #[default]
    Visible,
    /// It survives a crash: what an at-most-once delivery waits for before it leaves.
    Durable,
}

/// One attempt, in detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptDetail {
    /// Which attempt of its delivery, from 1.
    pub number: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// What came of it.
    pub result: AttemptResult,
    /// How long it took.
    pub timing: Timing,
    /// Why no answer came, in words.
    pub message: Option<String>,
    /// The response's headers, as far as they are worth keeping.
    pub response_headers: Vec<(String, String)>,
    /// The beginning of the response's body.
    pub response_body: Bytes,
    /// Which node made it.
    pub node: Option<NodeId>,
}

impl AttemptDetail {
    /// About how many bytes it takes.
    pub fn stored_len(&self) -> usize {
        let headers = self.response_headers.iter().map(|(name, value)| name.len() + value.len());
        let message = self.message.as_ref().map_or(0, String::len);
        headers.sum::<usize>() + message + self.response_body.len()
    }
}

/// How long the parts of an attempt took, in microseconds. A part that did not happen has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Finding the address.
    pub dns_us: Option<u32>,
    /// Connecting.
    pub connect_us: Option<u32>,
    /// The TLS handshake.
    pub tls_us: Option<u32>,
    /// From the request's start to the first byte of the answer.
    pub first_byte_us: Option<u32>,
    /// All of it.
    pub total_us: u32,
}

/// What became of a batch of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// How many transitions were written.
    pub applied: usize,
    /// The transitions that the record does not allow.
    pub refused: Vec<RefusedTransition>,
}

/// A transition that was not written, because the delivery is in another state or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedTransition {
    /// Whose.
    pub delivery: DeliveryId,
    /// What is on record instead; nothing when the delivery is unknown.
    pub on_record: Option<Stage>,
}

/// All that a sender needs for one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it stands or stood in its line, if it has or had a lane.
    pub line: Option<LinePlace>,
    /// What to send.
    pub event: Event,
    /// When the event was accepted.
    pub accepted_at: Timestamp,
}
