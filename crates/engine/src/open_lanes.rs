//! Lanes with anything open, as the engine tells of them.

use railpost_wire::{DeliveryId, EndpointId};
use serde::{Deserialize, Serialize};

use crate::{LaneId, Timestamp};

/// What a lane with anything open does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// An attempt of its head is in flight.
    InFlight,
    /// Its head waits for its retry.
    BackingOff,
    /// Its head could go, and the endpoint's breaker is open or waits for its probe.
    WaitingForBreaker,
    /// Its head could go, and the receiver asked to wait with `Retry-After`.
    WaitingForRetryAfter,
    /// Its head could go, and a limit is reached: of attempts in flight, or of a rate.
    WaitingForLimit,
    /// Its endpoint is paused, blocked or switched off.
    EndpointOff,
    /// Its head is a dead letter: it waits for a person.
    Held,
    /// Its head is being read from the store.
    Loading,
}

/// A lane with anything open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLane {
    /// Which lane.
    pub lane: LaneId,
    /// Of which endpoint.
    pub endpoint: EndpointId,
    /// What it does.
    pub state: LaneState,
    /// Until when it does that, if that is known.
    pub until: Option<Timestamp>,
    /// The delivery at its head; nothing while that is being read.
    pub head: Option<DeliveryId>,
    /// How many deliveries it has from its head on, including some that may have been discarded.
    pub open: u64,
    /// Whether it is for one key. If not, it is the endpoint's one lane for everything.
    pub by_key: bool,
}

/// How many lanes have anything open, by what their heads do, whatever their endpoint waits for. A lane whose head is
/// being read is in `lanes` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// All of them.
    pub lanes: u64,
    /// Those that a dead letter holds.
    pub held: u64,
    /// Those with an attempt in flight.
    pub in_flight: u64,
    /// Those whose head waits for its retry.
    pub backing_off: u64,
    /// Those whose head may go as soon as its endpoint lets it.
    pub ready: u64,
}

/// Lanes with anything open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenLanes {
    /// How many there are.
    pub counts: LaneCounts,
    /// The first of them: the held ones, then those whose head waits longest.
    pub first: Vec<OpenLane>,
}
