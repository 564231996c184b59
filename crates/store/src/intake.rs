//! How events come in.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::{Accepted, LaneId, Timestamp};
use railpost_wire::cloudevents::Origin;
use railpost_wire::{
    ApiKeyId, ContentType, EndpointId, EventId, EventType, Key, LineId, Seq, TenantId,
};
use serde::{Deserialize, Serialize};

use crate::{AuditEntry, IdempotencyRecord, Result, SourceName};

/// Accepts events.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Accepts a batch whole or not at all: its events, one delivery for each endpoint of the tenant
    /// that wants the event, and the idempotency record. When it answers, all of that is durable.
    ///
    /// - A delivery's place in line is decided by its endpoint's ordering. Seqs of one lane follow
    ///   each other without a gap, in the order in which batches commit, and within a batch in the
    ///   order given. The first one of an era begins a new line of its lane.
    /// - Endpoints that are switched off get deliveries too: the backlog is kept.
    /// - An event id that the tenant has used for the same content (type, key, payload and its
    ///   kind) is no error and changes nothing: [`Receipt::Duplicate`]. With other content the batch is a
    ///   [`Conflict`](crate::StoreError::Conflict) that names what differs.
    /// - A tenant whose open deliveries would pass its limit hears
    ///   [`BacklogFull`](crate::StoreError::BacklogFull). A backend that several processes share
    ///   may notice a little late.
    /// - An idempotency key that is on record already makes the batch
    ///   [`Repeated`](crate::StoreError::Repeated).
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>>;

    /// Adds a delivery of an event that was accepted before, for an endpoint that may have had it
    /// or not, at the end of its lane. It is a replay from its first attempt on. All or none, the audit
    /// entry and the idempotency record included; durable when it answers.
    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>>;
}

/// What a producer published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its id, unique in its tenant: the producer's choice or a generated one.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// What orders it, if anything does.
    pub key: Option<Key>,
    /// The producer's bytes.
    pub payload: Bytes,
    /// What kind of bytes they are.
    pub content_type: ContentType,
    /// The version of its type's schema.
    pub schema_version: Option<u32>,
    /// When it happened, by the producer's clock.
    pub time: Timestamp,
    /// The trace it belongs to, as W3C Trace Context writes it.
    pub traceparent: Option<String>,
    /// What it was as a CloudEvent, if it came as one. Other events pay nothing for it.
    pub cloudevent: Option<Box<Origin>>,
}

impl Event {
    /// How many bytes it brings: its payload, and what it was as a CloudEvent.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.cloudevent.as_ref().map_or(0, |origin| origin.bytes())
    }
}

/// Events of one tenant that are accepted together.
#[derive(Clone, Debug)]
pub struct AcceptBatch {
    /// Whose they are.
    pub tenant: TenantId,
    /// The events.
    pub events: Vec<Event>,
    /// Who brings them.
    pub accepted_by: Option<AcceptedBy>,
    /// What to answer when the request comes again.
    pub idempotency: Option<Box<AcceptRecord>>,
}

/// Who brought an event. Its forms in stores and in the accept log are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptedBy {
    /// A request with this API key.
    Key(ApiKeyId),
    /// The relay, from this source.
    Source(SourceName),
    /// The server itself: a notice.
    Server,
}

/// What to answer when a request that brought events comes again. The answer tells what became of each event:
/// that is known in the commit alone, and so the body is made there.
#[derive(Clone)]
pub struct AcceptRecord {
    /// All but the body.
    pub record: IdempotencyRecord,
    /// The most bytes that the body may have.
    pub body_len_max: usize,
    /// Makes the body of what became of each event.
    pub body: AcceptBody,
}

/// See [`AcceptRecord`]. It is called while others wait to be written: it only puts a body together.
pub type AcceptBody = Arc<dyn Fn(&[EventOutcome]) -> Bytes + Send + Sync>;

impl fmt::Debug for AcceptRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptRecord").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A record whose body is the same whatever becomes of the events.
impl From<IdempotencyRecord> for AcceptRecord {
    fn from(record: IdempotencyRecord) -> Self {
        let body = record.response.body.clone();
        let body_len_max = body.len();
        Self { record, body_len_max, body: Arc::new(move |_| body.clone()) }
    }
}

impl AcceptRecord {
    /// The record with its body.
    pub fn complete(&self, outcomes: &[EventOutcome]) -> IdempotencyRecord {
        let mut record = self.record.clone();
        record.response.body = (self.body)(outcomes);
        record
    }
}

/// What became of one event, as far as an answer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOutcome {
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// How many deliveries were made of it; nothing if it had been accepted before.
    pub deliveries: Option<usize>,
}

impl From<&Receipt> for EventOutcome {
    fn from(receipt: &Receipt) -> Self {
        match receipt {
            Receipt::Accepted { accepted_at, deliveries } => {
                Self { accepted_at: *accepted_at, deliveries: Some(deliveries.len()) }
            }
            Receipt::Duplicate { accepted_at } => {
                Self { accepted_at: *accepted_at, deliveries: None }
            }
        }
    }
}

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It is stored, and these are its deliveries. There may be none.
    Accepted {
        /// When.
        accepted_at: Timestamp,
        /// One for each endpoint that wants it.
        deliveries: Vec<NewDelivery>,
    },
    /// It was stored before.
    Duplicate {
        /// When.
        accepted_at: Timestamp,
    },
}

/// A delivery that was just made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// What the engine needs to know of it.
    pub accepted: Accepted,
    /// Where it stands in its line, if it has a lane.
    pub line: Option<LinePlace>,
}

/// Where a delivery stands in its line: its place as the wire tells it.
///
/// A lane's numbers go on for ever; its lines are stretches of them. A new line begins when the store
/// may have lost numbers that it had given out ([`Upkeep::begin_era`](crate::Upkeep::begin_era)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlace {
    /// Which line.
    pub line: LineId,
    /// The number in it, from 1.
    pub seq: Seq,
    /// How many numbers the lane had given out before the line began.
    pub before: u64,
}

impl LinePlace {
    /// The place of number `seq` of a lane in the line that began after `before`.
    pub fn new(era: u64, lane: LaneId, seq: Seq, before: u64) -> Self {
        let number = seq.get().saturating_sub(before);
        let seq = Seq::new(number).unwrap_or(Seq::FIRST);
        Self { line: LineId::of(era, lane.0), seq, before }
    }

    /// A number of the lane as the line counts; 0 for what lies before it.
    pub fn number(&self, in_lane: u64) -> u64 {
        in_lane.saturating_sub(self.before)
    }
}

/// Deliveries to add for events that were accepted before.
#[derive(Clone, Debug)]
pub struct RedeliverBatch {
    /// Whose they are.
    pub tenant: TenantId,
    /// Which event goes where.
    pub orders: Vec<(EventId, EndpointId)>,
    /// Who asked for it. An entry that is on record already stays as it is.
    pub audit: Option<AuditEntry>,
    /// What to answer when the request comes again.
    pub idempotency: Option<Box<IdempotencyRecord>>,
}
