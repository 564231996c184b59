//! Judging deliveries in memory.

use async_trait::async_trait;
use railpost_engine::DeliveryState;
use railpost_wire::{DeliveryId, EndpointId};

use super::MemoryStore;
use super::state::{DeliveryRow, State};
use crate::backend::check;
use crate::backend::judging::{AttemptsMade, LateRow, late_page};
use crate::limits::LATE_PAGE_MAX;
use crate::{JudgedStep, Judging, LatePage, LateQuery, Result};

#[async_trait]
impl Judging for MemoryStore {
    async fn judged_before(&self) -> Result<Option<DeliveryId>> {
        Ok(self.state().rows.judged_before)
    }

    async fn late_deliveries(&self, query: LateQuery) -> Result<LatePage> {
        let state = self.state();
        let end = query.end().max(query.from);
        let stretch = state.rows.deliveries.range(query.from..end);
        let rows = stretch.filter_map(|(id, row)| state.late_row(*id, row, &query));
        Ok(late_page(&query, rows.take(LATE_PAGE_MAX).collect()))
    }

    async fn add_judged(&self, step: JudgedStep) -> Result<bool> {
        check::figures(&step.figures)?;
        let mut state = self.state();
        if state.rows.judged_before != step.was {
            return Ok(false);
        }
        state.add_figures(step.figures)?;
        state.rows.judged_before = Some(step.judged_before);
        Ok(true)
    }
}

impl State {
    fn late_row(&self, id: DeliveryId, row: &DeliveryRow, query: &LateQuery) -> Option<LateRow> {
        let acknowledged_at = match row.state {
            DeliveryState::Discarded { .. } => return None,
            DeliveryState::Delivered => {
                Some(Some(row.changed_at).filter(|at| *at > query.earliest_deadline())?)
            }
            _ => None,
        };
        let endpoint = self.registry.endpoints.get(&row.endpoint)?;
        let is_there =
            endpoint.removed_at.is_none() && self.registry.tenants.contains_key(&endpoint.tenant);
        is_there.then(|| LateRow {
            id,
            endpoint: row.endpoint,
            tenant: endpoint.tenant.clone(),
            status: endpoint.status,
            failing_since: endpoint.failing_since,
            acknowledged_at,
            attempts: (&row.progress).into(),
            attempts_of_head: self.attempts_of_head(row.endpoint, row),
        })
    }

    fn attempts_of_head(&self, endpoint: EndpointId, row: &DeliveryRow) -> AttemptsMade {
        let lane = row.place.and_then(|place| self.open_lanes.get(&(endpoint, place.lane)));
        let head = lane.and_then(|open| open.values().next());
        head.map(|head| (&self.rows.deliveries[head].progress).into()).unwrap_or_default()
    }
}
