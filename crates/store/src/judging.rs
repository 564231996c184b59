//! Which deliveries passed the objective, and how far deliveries were judged by it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use railpost_engine::{EndpointStatus, Progress, Span, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use crate::archive::first_id;
use crate::limits::LATE_PAGE_MAX;
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
        DeliveryId::from_bytes(first_id(self.before))
    }

    /// An acknowledgement after this may be a late one; up to it, none is.
    pub fn earliest_deadline(&self) -> Timestamp {
        Timestamp::from_millis(self.from.unix_ms()) + self.within
    }
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

/// A delivery that may be late, as a backend finds it: open, dead, or acknowledged after
/// [`LateQuery::earliest_deadline`].
#[derive(Clone, Debug)]
pub struct LateRow {
    /// Which delivery.
    pub id: DeliveryId,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Whose.
    pub tenant: TenantId,
    /// The endpoint's status.
    pub status: EndpointStatus,
    /// Since when all attempts at the endpoint fail.
    pub failing_since: Option<Timestamp>,
    /// When it was acknowledged, if it was.
    pub acknowledged_at: Option<Timestamp>,
    /// Its attempts.
    pub attempts: AttemptsMade,
    /// Those of the head of its lane, if it has one.
    pub attempts_of_head: AttemptsMade,
}

/// What tells whether a delivery was attempted before an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttemptsMade {
    /// When the first attempt of the current round started.
    pub round_started_at: Option<Timestamp>,
    /// Whether there was a round before.
    pub in_earlier_round: bool,
}

impl From<&Progress> for AttemptsMade {
    fn from(progress: &Progress) -> Self {
        Self {
            round_started_at: progress.round_started_at,
            in_earlier_round: progress.attempts > progress.round_attempts,
        }
    }
}

impl AttemptsMade {
    fn began_by(&self, at: Timestamp) -> bool {
        self.in_earlier_round || self.round_started_at.is_some_and(|started| started <= at)
    }
}

/// The page made of up to [`LATE_PAGE_MAX`] rows, in the order of their ids.
pub fn late_page(query: &LateQuery, rows: Vec<LateRow>) -> LatePage {
    let last = rows.last().filter(|_| rows.len() == LATE_PAGE_MAX);
    let judged_before = last.map_or_else(|| query.end(), |row| id_after(row.id));
    let mut endpoints: BTreeMap<EndpointId, LateAtEndpoint> = BTreeMap::new();
    for row in rows {
        let deadline = Timestamp::from_millis(row.id.unix_ms()) + query.within;
        if row.acknowledged_at.is_some_and(|at| at <= deadline) {
            continue;
        }
        let LateRow { endpoint, tenant, status, failing_since, .. } = row;
        let late = endpoints.entry(endpoint).or_insert(LateAtEndpoint {
            endpoint,
            tenant,
            status,
            failing_since,
            attempted: 0,
            behind_attempted: 0,
            unattempted: 0,
        });
        if row.attempts.began_by(deadline) {
            late.attempted += 1;
        } else if row.attempts_of_head.began_by(deadline) {
            late.behind_attempted += 1;
        } else {
            late.unattempted += 1;
        }
    }
    LatePage { endpoints: endpoints.into_values().collect(), judged_before }
}

fn id_after(id: DeliveryId) -> DeliveryId {
    DeliveryId::from_u128(u128::from_be_bytes(id.to_bytes()).saturating_add(1))
}
