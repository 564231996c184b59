//! Which deliveries passed the objective, and how far deliveries were judged by it.

use async_trait::async_trait;
use railpost_engine::{EndpointStatus, Span, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use crate::archive::first_id;
use crate::{Figures, FiguresScope, Result};

/// Judging deliveries by the objective, each once.
///
/// What was acknowledged in time is counted at its acknowledgement; what was not, here. A delivery is of the time
/// at which it was made, as its id says.
#[async_trait]
pub trait Judging: Send + Sync {
    /// Deliveries with a lower id were judged; nothing if none ever was.
    async fn judged_before(&self) -> Result<Option<DeliveryId>>;

    /// The late ones of the deliveries that were made in a stretch of time, by endpoint: those that were neither
    /// acknowledged within the objective nor discarded. Those of removed endpoints are left out. It reads each
    /// delivery of the stretch, whatever lies before it, up to
    /// [`LATE_PAGE_MAX`](crate::limits::LATE_PAGE_MAX) late ones.
    async fn late_deliveries(&self, query: LateQuery) -> Result<LatePage>;

    /// Adds figures as [`add_figures`](crate::Upkeep::add_figures) does and says how far deliveries were judged,
    /// in one commit. Answers false, and writes nothing, if they were not judged as far as the caller says. A
    /// crash may lose all of it.
    async fn add_judged(&self, step: JudgedStep) -> Result<bool>;
}

/// Which deliveries to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateQuery {
    /// From this one on.
    pub from: DeliveryId,
    /// Those made before this, at least the objective's time ago.
    pub before: Timestamp,
    /// The time within which a delivery is to be acknowledged.
    pub within: Span,
}

impl LateQuery {
    /// The first id after the stretch.
    pub fn end(&self) -> DeliveryId {
        first_delivery_id(self.before)
    }

    /// An acknowledgement after this may be a late one; up to it, none is.
    pub fn earliest_deadline(&self) -> Timestamp {
        Timestamp::from_millis(self.from.unix_ms()) + self.within
    }
}

/// The first id that a delivery can have that is made then, or later.
pub fn first_delivery_id(at: Timestamp) -> DeliveryId {
    DeliveryId::from_bytes(first_id(at))
}

/// Late deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatePage {
    /// By endpoint, in the order of their ids.
    pub endpoints: Vec<LateAtEndpoint>,
    /// Deliveries with a lower id were looked at.
    pub judged_before: DeliveryId,
}

/// The late deliveries of one endpoint, by what had been sent when they passed the objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateAtEndpoint {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Whose.
    pub tenant: TenantId,
    /// Its status at present.
    pub status: EndpointStatus,
    /// Since when all its attempts fail, if they do.
    pub failing_since: Option<Timestamp>,
    /// Deliveries that were attempted.
    pub attempted: u64,
    /// Deliveries that were not, but the head of their lane was.
    pub behind_attempted: u64,
    /// Deliveries of which neither is known.
    pub unattempted: u64,
}

/// How far deliveries were judged, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedStep {
    /// How far they were judged so far.
    pub was: Option<DeliveryId>,
    /// How far they are from here on.
    pub judged_before: DeliveryId,
    /// What it adds, as for [`add_figures`](crate::Upkeep::add_figures).
    pub figures: Vec<(FiguresScope, Timestamp, Figures)>,
}
