//! Deliveries that may be late, as rows, and the page made of them.

use std::collections::BTreeMap;

use railpost_engine::{EndpointStatus, Progress, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use crate::backend::codes;
use crate::backend::rows::Columns;
use crate::limits::LATE_PAGE_MAX;
use crate::{LateAtEndpoint, LatePage, LateQuery, Result, StoreError};

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

/// For [`late_row`], over deliveries `d` of endpoints `p` of tenants `t`, and the head `h` of their lane.
#[doc(hidden)]
#[macro_export]
macro_rules! late_columns {
    () => {
        "d.id, p.id, t.id, p.status, p.failing_since, \
         CASE WHEN d.standing = 5 THEN d.changed_at END, d.attempts - d.round_attempts, \
         d.round_started_at, h.attempts - h.round_attempts, h.round_started_at"
    };
}
#[doc(inline)]
pub use late_columns;

/// Reads `late_columns!`.
pub fn late_row(columns: &mut impl Columns) -> Result<LateRow> {
    Ok(LateRow {
        id: DeliveryId::from_bytes(columns.array("a delivery's id")?),
        endpoint: EndpointId::from_bytes(columns.array("an endpoint's id")?),
        tenant: columns.parsed("a tenant's id")?,
        status: status(columns)?,
        failing_since: columns.maybe_instant()?,
        acknowledged_at: columns.maybe_instant()?,
        attempts: attempts_made(columns)?,
        attempts_of_head: attempts_made(columns)?,
    })
}

fn status(columns: &mut impl Columns) -> Result<EndpointStatus> {
    let code = columns.number("an endpoint's status")?;
    let unknown = || StoreError::Corrupt(format!("{code} is no code of an endpoint's status"));
    codes::endpoint_status(code).ok_or_else(unknown)
}

fn attempts_made(columns: &mut impl Columns) -> Result<AttemptsMade> {
    let in_earlier_rounds: Option<i64> = columns.maybe_number("a count of attempts")?;
    let in_earlier_round = in_earlier_rounds.is_some_and(|count| count > 0);
    Ok(AttemptsMade { in_earlier_round, round_started_at: columns.maybe_instant()? })
}
