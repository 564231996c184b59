//! One delivery in memory.

use railpost_wire::DeliveryId;

use super::{DeliveryKey, EndpointKey};
use crate::{DeadReason, DeliveryStage, Place, Progress, Timestamp};

/// A delivery in memory: a reference and its retries, never a payload.
#[derive(Clone, Debug)]
pub(super) struct TrackedDelivery {
    pub(super) id: DeliveryId,
    pub(super) endpoint: EndpointKey,
    pub(super) place: Option<Place>,
    /// What stands behind it in its lane's window.
    pub(super) next: Option<DeliveryKey>,
    pub(super) progress: Progress,
    pub(super) phase: Phase,
    /// Whether it stands in its endpoint's queue of what is ready to start.
    pub(super) queued: bool,
    /// What its endpoint counts it as.
    pub(super) counted_as: HeadStage,
}

impl TrackedDelivery {
    /// What it does at the head of its lane.
    pub(super) fn head_stage(&self) -> HeadStage {
        match self.phase {
            Phase::InFlight(_) => HeadStage::InFlight,
            Phase::Dead(_) => HeadStage::Held,
            Phase::Waiting { .. } if !self.queued => HeadStage::BackingOff,
            Phase::Waiting { .. } | Phase::Pending => HeadStage::Ready,
        }
    }
}

/// What the head of a lane does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HeadStage {
    /// It stands behind the head, or has no lane.
    #[default]
    NotHead,
    Ready,
    BackingOff,
    InFlight,
    Held,
}

/// A delivery's state as far as memory needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Waiting {
        until: Timestamp,
    },
    InFlight(Flight),
    /// A dead letter that holds its lane.
    Dead(DeadReason),
}

/// An attempt under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// Whether it has left. An at-most-once delivery waits for its record first.
    pub(super) started: bool,
    /// Whether the breaker waits for it.
    pub(super) probe: bool,
    /// Whether a person discarded the delivery meanwhile.
    pub(super) discarded: bool,
}

impl Phase {
    pub(super) fn stage(self) -> DeliveryStage {
        match self {
            Phase::Pending => DeliveryStage::Pending,
            Phase::Waiting { .. } => DeliveryStage::Waiting,
            Phase::InFlight(_) => DeliveryStage::InFlight,
            Phase::Dead(_) => DeliveryStage::Dead,
        }
    }
}
