//! What people look at: events, deliveries, attempts, lanes and counts.

use async_trait::async_trait;
use railpost_engine::{
    AttemptResult, DeadReason, Delivery, DeliveryStage, DeliveryState, DiscardReason, Failure,
    LaneId, Timestamp,
};
use railpost_wire::{ContentType, DeliveryId, EndpointId, EventId, EventType, Key, Seq, TenantId};
use serde::de::value::StrDeserializer;
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::backend::codes;
use crate::{
    AcceptedBy, AttemptDetail, Event, Figures, FiguresScope, FindQuery, Found, LinePlace, Listing,
    PageRequest, Resolution, Result,
};

/// The read side. Lists are newest first unless they say otherwise.
#[async_trait]
pub trait Archive: Send + Sync {
    /// One event, payload and all.
    async fn event(&self, tenant: &TenantId, id: &EventId) -> Result<Option<StoredEvent>>;

    /// A tenant's events, the latest accepted first.
    async fn events(&self, query: EventQuery) -> Result<Listing<EventHead>>;

    /// One delivery.
    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryView>>;

    /// A tenant's deliveries, the latest first. Those of removed endpoints are listed like any other.
    async fn deliveries(&self, query: DeliveryQuery) -> Result<Listing<DeliveryView>>;

    /// All deliveries of one event, the earliest first.
    async fn deliveries_of(&self, tenant: &TenantId, event: &EventId) -> Result<Vec<DeliveryView>>;

    /// What a page shows of these events of a tenant beside their heads, in any order; unknown events are left
    /// out. At most [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) events: those of a page. It costs as much
    /// as they have deliveries.
    async fn event_details(
        &self,
        tenant: &TenantId,
        events: Vec<EventId>,
    ) -> Result<Vec<(EventId, EventDetails)>>;

    /// The attempts of one delivery, the first one first.
    async fn attempts(
        &self,
        delivery: DeliveryId,
        page: PageRequest,
    ) -> Result<Listing<AttemptView>>;

    /// The last attempt of each of these deliveries that had one, in any order, as far as a list tells of
    /// it. At most [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) deliveries: those of a page.
    async fn last_attempts(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, LastAttempt)>>;

    /// Things whose id, key, URL or description is, begins with or has a part like the words: at most
    /// [`FIND_RESULTS_MAX`](crate::limits::FIND_RESULTS_MAX) of each kind, those that are just the words first.
    /// Events are found by their keys and their CloudEvents' ids among the latest
    /// [`FIND_ROWS_SCANNED`](crate::limits::FIND_ROWS_SCANNED) at least, by their ids among all.
    async fn find(&self, query: FindQuery) -> Result<Vec<Found>>;

    /// A tenant's lanes that a dead letter holds, the longest held first.
    async fn held_lanes(&self, query: HeldLaneQuery) -> Result<Listing<HeldLane>>;

    /// One of them by its id. It costs no more than that lane has open.
    async fn held_lane(&self, tenant: &TenantId, lane: LaneId) -> Result<Option<HeldLane>>;

    /// How many deliveries of an endpoint are where, and how old its backlog is; of a removed one,
    /// none. It costs as much as there is open or dead, however many are closed: with a million of
    /// them some hundred milliseconds, so ask every few seconds and not for every request.
    async fn counts(&self, endpoint: EndpointId) -> Result<Counts>;

    /// The same over all endpoints of one tenant, or of all tenants; removed endpoints are left out.
    /// It costs as much as asking for each of them.
    async fn totals(&self, tenant: Option<&TenantId>) -> Result<Counts>;

    /// The minutes or hours that begin in the period and of which there are figures, the earliest
    /// first, each with when it begins. A period with more than
    /// [`FIGURES_BUCKETS_MAX`](crate::limits::FIGURES_BUCKETS_MAX) of them is refused. Of a scope
    /// that is unknown there are none.
    async fn figures(
        &self,
        scope: &FiguresScope,
        resolution: Resolution,
        period: Period,
    ) -> Result<Vec<(Timestamp, Figures)>>;
}

/// An event as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Whose it is.
    pub tenant: TenantId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// What was published.
    pub event: Event,
}

/// An event in a list: all but its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHead {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// Its key.
    pub key: Option<Key>,
    /// The content type of its payload.
    pub content_type: ContentType,
    /// How many bytes it is.
    pub payload_len: usize,
    /// The version of its type's schema.
    pub schema_version: Option<u32>,
    /// When it happened.
    pub time: Timestamp,
    /// When it was accepted.
    pub accepted_at: Timestamp,
}

impl From<&StoredEvent> for EventHead {
    fn from(stored: &StoredEvent) -> Self {
        let event = &stored.event;
        Self {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            key: event.key.clone(),
            content_type: event.content_type.clone(),
            payload_len: event.payload.len(),
            schema_version: event.schema_version,
            time: event.time,
            accepted_at: stored.accepted_at,
        }
    }
}

/// Which events a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Of this type only.
    pub event_type: Option<EventType>,
    /// With this key only.
    pub key: Option<Key>,
    /// Accepted then only.
    pub accepted: Period,
    /// Which part.
    pub page: PageRequest,
}

impl EventQuery {
    /// The first of all events of a tenant.
    pub fn of(tenant: TenantId, page: PageRequest) -> Self {
        Self { tenant, event_type: None, key: None, accepted: Period::default(), page }
    }

    /// Whether the list shows everything of the tenant.
    pub fn wants_all(&self) -> bool {
        self.event_type.is_none() && self.key.is_none() && self.accepted == Period::default()
    }

    /// Whether the list shows `head`, if it is the tenant's.
    pub fn wants(&self, head: &EventHead) -> bool {
        self.event_type.as_ref().is_none_or(|wanted| head.event_type == *wanted)
            && self.key.as_ref().is_none_or(|wanted| head.key.as_ref() == Some(wanted))
            && self.accepted.contains(head.accepted_at)
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Its first instant; nothing for the beginning of time.
    pub from: Option<Timestamp>,
    /// The instant it ends before; nothing for its end.
    pub before: Option<Timestamp>,
}

impl Period {
    /// Whether `at` lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.before.is_none_or(|before| at < before)
    }

    /// Its bounds as columns hold instants: the first one in it, and the first one after it.
    pub fn millis(&self) -> (i64, i64) {
        let from = self.from.map_or(i64::MIN, codes::millis);
        (from, self.before.map_or(i64::MAX, codes::millis))
    }

    /// The first id of a delivery that was made in it, and the first one after it: ids begin with
    /// their time.
    pub fn delivery_ids(&self) -> ([u8; 16], [u8; 16]) {
        let from = self.from.map_or([0; 16], first_id);
        (from, self.before.map_or([u8::MAX; 16], first_id))
    }
}

/// The first id of a delivery that is made then, or later.
pub(crate) fn first_id(at: Timestamp) -> [u8; 16] {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&at.as_millis().min((1 << 48) - 1).to_be_bytes()[2..]);
    id
}

/// A delivery as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryView {
    /// What the engine knows of it.
    pub delivery: Delivery,
    /// Whose it is.
    pub tenant: TenantId,
    /// The event.
    pub event: EventId,
    /// The event's type.
    pub event_type: EventType,
    /// The event's key.
    pub key: Option<Key>,
    /// Where it stands in its line, even if it has left its lane.
    pub line: Option<LinePlace>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub changed_at: Timestamp,
}

/// A list of a tenant's deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Which of them.
    pub filter: DeliveryFilter,
    /// Which part of the list.
    pub page: PageRequest,
}

impl DeliveryQuery {
    /// The first of all deliveries of a tenant.
    pub fn of(tenant: TenantId, page: PageRequest) -> Self {
        Self { tenant, filter: DeliveryFilter::default(), page }
    }
}

/// Which deliveries of a tenant a list shows or a [`Replay`](crate::Replay) is for; the default is all of them.
/// Dead letters are those of stage [`DeliveryStage::Dead`]. Replays store it, so its form is stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryFilter {
    /// In this stage only.
    pub stage: Option<DeliveryStage>,
    /// Only those to this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of events of this type only.
    pub event_type: Option<EventType>,
    /// Of events with this key only.
    pub key: Option<Key>,
    /// Dead or discarded for this reason only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ClosedReason>,
    /// Whose last attempt was answered with this status only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Whose last attempt had no answer for this cause only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Made then only.
    pub created: Period,
}

impl DeliveryFilter {
    /// Whether the list shows everything of its endpoints and its period; dead letters are found
    /// without looking at others.
    pub fn wants_all(&self) -> bool {
        let any_stage = matches!(self.stage, None | Some(DeliveryStage::Dead));
        let any_event = self.key.is_none() && self.event_type.is_none();
        any_stage && any_event && self.reason.is_none() && !self.needs_last_attempt()
    }

    /// Whether the last attempt of a delivery says if the list shows it.
    pub fn needs_last_attempt(&self) -> bool {
        self.status.is_some() || self.failure.is_some()
    }

    /// Whether the list shows deliveries whose last attempt came to this, or that had none.
    pub fn wants_last_attempt(&self, result: Option<AttemptResult>) -> bool {
        let (status, failure) = match result {
            Some(AttemptResult::Response { status, .. }) => (Some(status), None),
            Some(AttemptResult::Failed(failure)) => (None, Some(failure)),
            None => (None, None),
        };
        self.status.is_none_or(|wanted| status == Some(wanted))
            && self.failure.is_none_or(|wanted| failure == Some(wanted))
    }

    /// Whether the list shows `view`, if it is the tenant's, its endpoint is wanted, and its last attempt is
    /// ([`wants_last_attempt`](Self::wants_last_attempt)).
    pub fn wants(&self, view: &DeliveryView) -> bool {
        let state = view.delivery.state;
        self.stage.is_none_or(|wanted| state.stage() == wanted)
            && self.reason.is_none_or(|wanted| ClosedReason::of(state) == Some(wanted))
            && self.event_type.as_ref().is_none_or(|wanted| view.event_type == *wanted)
            && self.key.as_ref().is_none_or(|wanted| view.key.as_ref() == Some(wanted))
            && self.created.contains(view.created_at)
    }
}

/// Why a delivery is dead or discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ClosedReason {
    /// Why it is dead.
    Dead(DeadReason),
    /// Why it was discarded.
    Discarded(DiscardReason),
}

/// By its name alone.
impl<'de> Deserialize<'de> for ClosedReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let value: StrDeserializer<'_, de::value::Error> = name.as_str().into_deserializer();
        let dead = DeadReason::deserialize(value).map(Self::Dead);
        let found = dead.or_else(|_| DiscardReason::deserialize(value).map(Self::Discarded));
        found.map_err(|_| {
            let expected = "expected one of `permanent`, `attempts_exhausted`, `expired`, \
                            `single_attempt_failed`, `outcome_unknown`, `person`, `endpoint_removed`";
            de::Error::custom(format!("{expected}; got `{name}`"))
        })
    }
}

impl ClosedReason {
    /// The reason for which a delivery is in this state; nothing unless it is dead or discarded.
    pub fn of(state: DeliveryState) -> Option<Self> {
        match state {
            DeliveryState::Dead { reason, .. } => Some(Self::Dead(reason)),
            DeliveryState::Discarded { reason } => Some(Self::Discarded(reason)),
            _ => None,
        }
    }
}

/// An attempt as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// What happened.
    pub detail: AttemptDetail,
    /// Where it left the delivery.
    pub led_to: DeliveryStage,
    /// When the next one was planned for.
    pub next_at: Option<Timestamp>,
}

/// What a list tells of a delivery's last attempt: all but the response's body and the timing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// Which attempt of its delivery, from 1.
    pub number: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// What came of it.
    pub result: AttemptResult,
    /// Why no answer came, in words.
    pub message: Option<String>,
    /// The response's headers, as far as they are kept.
    pub response_headers: Vec<(String, String)>,
}

impl From<AttemptView> for LastAttempt {
    fn from(view: AttemptView) -> Self {
        let AttemptDetail { number, started_at, result, message, response_headers, .. } =
            view.detail;
        Self { number, started_at, result, message, response_headers }
    }
}

/// Which held lanes a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLaneQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Of this endpoint only.
    pub endpoint: Option<EndpointId>,
    /// Which part.
    pub page: PageRequest,
}

/// A lane that a dead letter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLane {
    /// Which lane.
    pub lane: LaneId,
    /// Of which endpoint.
    pub endpoint: EndpointId,
    /// The key it is for; nothing when it is the endpoint's one lane for everything.
    pub key: Option<Key>,
    /// What holds it.
    pub held_by: DeliveryId,
    /// Its seq.
    pub held_at: Seq,
    /// The last seq given out in the lane: what lies between waits, but for what was discarded.
    pub last: Seq,
    /// When the dead letter was given up on.
    pub since: Timestamp,
    /// Why it was given up on.
    pub reason: DeadReason,
    /// Where it stands in its line.
    pub line: Option<LinePlace>,
}

/// How many deliveries are where, and since when. What is delivered or discarded is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for their turn.
    pub pending: u64,
    /// Recorded as sent, without an outcome yet.
    pub in_flight: u64,
    /// Waiting for a retry.
    pub waiting: u64,
    /// Dead letters that hold a lane.
    pub held: u64,
    /// Dead letters that hold none.
    pub dead: u64,
    /// When the oldest open one was made; nothing when none is open.
    pub oldest_open_at: Option<Timestamp>,
    /// When the oldest dead letter was made; nothing when there is none.
    pub oldest_dead_at: Option<Timestamp>,
}

/// What a page shows of an event beside its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventDetails {
    /// Who brought it; nothing if it was accepted before that was written down.
    pub accepted_by: Option<AcceptedBy>,
    /// How many of its deliveries are in which state.
    pub states: StateCounts,
}

/// How many deliveries of an event are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Waiting for their turn.
    pub pending: u64,
    /// Recorded as sent, without an outcome yet.
    pub in_flight: u64,
    /// Waiting for a retry.
    pub waiting: u64,
    /// Acknowledged.
    pub delivered: u64,
    /// Dead letters that hold a lane.
    pub held: u64,
    /// Dead letters that hold none.
    pub dead: u64,
    /// Discarded.
    pub discarded: u64,
}

impl StateCounts {
    /// The counts out of those by state code.
    pub fn by_state_code(counts: &[u64; codes::STATE_CODES]) -> Self {
        let of = |code: i64| counts[code as usize];
        Self {
            pending: of(codes::PENDING),
            in_flight: of(codes::IN_FLIGHT),
            waiting: of(codes::WAITING),
            delivered: of(codes::DELIVERED),
            held: of(codes::HELD),
            dead: of(codes::DEAD),
            discarded: of(codes::DISCARDED),
        }
    }
}

impl Counts {
    /// The counts out of those by state code, and the oldest that is open.
    pub(crate) fn by_state_code(
        counts: &[u64; codes::STATE_CODES],
        oldest_open_at: Option<Timestamp>,
        oldest_dead_at: Option<Timestamp>,
    ) -> Self {
        let of = |code: i64| counts[code as usize];
        Self {
            pending: of(codes::PENDING),
            in_flight: of(codes::IN_FLIGHT),
            waiting: of(codes::WAITING),
            held: of(codes::HELD),
            dead: of(codes::DEAD),
            oldest_open_at,
            oldest_dead_at,
        }
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        let older = |one: Option<Timestamp>, other| [one, other].into_iter().flatten().min();
        Self {
            pending: self.pending + other.pending,
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
            held: self.held + other.held,
            dead: self.dead + other.dead,
            oldest_open_at: older(self.oldest_open_at, other.oldest_open_at),
            oldest_dead_at: older(self.oldest_dead_at, other.oldest_dead_at),
        }
    }

    /// All that is open.
    pub fn open(&self) -> u64 {
        self.pending + self.in_flight + self.waiting + self.held
    }
}
