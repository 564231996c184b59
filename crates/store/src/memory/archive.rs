//! The read side in memory.

use async_trait::async_trait;
use railpost_engine::{AttemptResult, DeliveryState, LaneId, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, EventId, TenantId};

use super::MemoryStore;
use super::state::{EventRow, State};
use crate::backend::check;
use crate::backend::codes::{STATE_CODES, StateCode};
use crate::backend::needle::Needle;
use crate::listing::{ListKind, scan};
use crate::{
    Archive, AttemptView, Counts, DeliveryQuery, DeliveryView, EventDetails, EventHead, EventQuery,
    Figures, FiguresScope, FindQuery, Found, HeldLane, HeldLaneQuery, LastAttempt, Listing,
    PageRequest, Period, Resolution, Result, StateCounts, StoredEvent,
};

#[async_trait]
impl Archive for MemoryStore {
    async fn event(&self, tenant: &TenantId, id: &EventId) -> Result<Option<StoredEvent>> {
        let state = self.state();
        Ok(state.event_row(tenant, id).map(|row| StoredEvent {
            tenant: row.tenant.clone(),
            accepted_at: row.accepted_at,
            event: row.event.clone(),
        }))
    }

    async fn events(&self, query: EventQuery) -> Result<Listing<EventHead>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<i64>(ListKind::Events)?.unwrap_or(i64::MAX);
        let state = self.state();
        let rows = state.rows.events.range(..after).rev();
        let rows = rows.filter(|(_, row)| row.tenant == query.tenant && state.knows(&row.tenant));
        let rows = rows.map(|(num, row)| (*num, head_of(row)));
        let rows = rows.filter(|(_, head)| query.wants(head)).take(limit + 1);
        Ok(Listing::cut(rows.collect(), limit, ListKind::Events))
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryView>> {
        Ok(self.state().view(id))
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Listing<DeliveryView>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<[u8; 16]>(ListKind::Deliveries)?;
        let after = DeliveryId::from_bytes(after.unwrap_or([u8::MAX; 16]));
        let state = self.state();
        let rows = state.rows.deliveries.range(..after).rev();
        let rows = rows.filter(|(_, row)| state.shows(&query, row.endpoint));
        let rows = rows.filter_map(|(id, _)| Some(Ok((id.to_bytes(), state.view(*id)?))));
        scan(rows, (limit, usize::MAX), ListKind::Deliveries, |view| {
            query.filter.wants(view)
                && query.filter.wants_last_attempt(state.last_result(view.delivery.id))
        })
    }

    async fn deliveries_of(&self, tenant: &TenantId, event: &EventId) -> Result<Vec<DeliveryView>> {
        let state = self.state();
        let ids = state.event_row(tenant, event).into_iter().flat_map(|row| &row.deliveries);
        Ok(ids.filter_map(|id| state.view(*id)).collect())
    }

    async fn event_details(
        &self,
        tenant: &TenantId,
        events: Vec<EventId>,
    ) -> Result<Vec<(EventId, EventDetails)>> {
        check::page_of("events", &events)?;
        let state = self.state();
        let details = |id: EventId| {
            let event = state.event_row(tenant, &id)?;
            let mut counts = [0; STATE_CODES];
            for delivery in &event.deliveries {
                let row = &state.rows.deliveries[delivery];
                counts[StateCode::from(row.state).code as usize] += 1;
            }
            let accepted_by = event.accepted_by.clone();
            let states = StateCounts::by_state_code(&counts);
            Some((id, EventDetails { accepted_by, states }))
        };
        Ok(events.into_iter().filter_map(details).collect())
    }

    async fn attempts(
        &self,
        delivery: DeliveryId,
        page: PageRequest,
    ) -> Result<Listing<AttemptView>> {
        let limit = page.limit()?;
        let after = page.position::<i64>(ListKind::Attempts)?.unwrap_or(0);
        let state = self.state();
        let rows = state.rows.attempts.get(&delivery).into_iter().flatten();
        let rows = rows.map(|(number, view)| (i64::from(*number), view.clone()));
        let rows = rows.filter(|(number, _)| *number > after).take(limit + 1);
        Ok(Listing::cut(rows.collect(), limit, ListKind::Attempts))
    }

    async fn last_attempts(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, LastAttempt)>> {
        check::page_of("deliveries", &deliveries)?;
        let state = self.state();
        let last = |id: DeliveryId| {
            let (_, view) = state.rows.attempts.get(&id)?.last_key_value()?;
            Some((id, LastAttempt::from(view.clone())))
        };
        Ok(deliveries.into_iter().filter_map(last).collect())
    }

    async fn find(&self, query: FindQuery) -> Result<Vec<Found>> {
        let needle = Needle::new(&query)?;
        Ok(self.state().find(&needle, &query))
    }

    async fn held_lanes(&self, query: HeldLaneQuery) -> Result<Listing<HeldLane>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<[u8; 16]>(ListKind::HeldLanes)?;
        let state = self.state();
        let endpoints = state.registry.live_endpoints(&query.tenant).map(|(id, _)| id);
        let endpoints = endpoints.filter(|id| query.endpoint.is_none_or(|wanted| *id == wanted));
        let open = endpoints.flat_map(|id| state.open_of(id));
        let mut rows: Vec<_> = open
            .filter(|id| after.is_none_or(|after| id.to_bytes() > after))
            .filter_map(|id| Some((id.to_bytes(), state.held_lane(id)?)))
            .collect();
        rows.sort_by_key(|(id, _)| *id);
        rows.truncate(limit + 1);
        Ok(Listing::cut(rows, limit, ListKind::HeldLanes))
    }

    async fn held_lane(&self, tenant: &TenantId, lane: LaneId) -> Result<Option<HeldLane>> {
        let state = self.state();
        let Some(row) = state.rows.lanes.get(&lane) else { return Ok(None) };
        let endpoint = state.registry.live_endpoints(tenant).find(|(id, _)| *id == row.endpoint);
        let open = endpoint.and_then(|(id, _)| state.open_lanes.get(&(id, lane)));
        let mut open = open.into_iter().flat_map(|window| window.values());
        Ok(open.find_map(|id| state.held_lane(*id)))
    }

    async fn counts(&self, endpoint: EndpointId) -> Result<Counts> {
        let state = self.state();
        Ok(if state.is_live(endpoint) { state.counts_of(endpoint) } else { Counts::default() })
    }

    async fn totals(&self, tenant: Option<&TenantId>) -> Result<Counts> {
        let state = self.state();
        let live = state.registry.endpoints.iter().filter(|(_, row)| {
            row.removed_at.is_none() && tenant.is_none_or(|tenant| row.tenant == *tenant)
        });
        Ok(live.map(|(id, _)| state.counts_of(*id)).fold(Counts::default(), Counts::plus))
    }

    async fn figures(
        &self,
        scope: &FiguresScope,
        resolution: Resolution,
        period: Period,
    ) -> Result<Vec<(Timestamp, Figures)>> {
        self.state().figures(scope, resolution, period)
    }
}

fn head_of(row: &EventRow) -> EventHead {
    let event = &row.event;
    EventHead {
        id: event.id.clone(),
        event_type: event.event_type.clone(),
        key: event.key.clone(),
        content_type: event.content_type.clone(),
        payload_len: event.payload.len(),
        schema_version: event.schema_version,
        time: event.time,
        accepted_at: row.accepted_at,
    }
}

impl State {
    fn knows(&self, tenant: &TenantId) -> bool {
        self.registry.tenants.contains_key(tenant)
    }

    /// Whether a list shows deliveries of this endpoint.
    fn shows(&self, query: &DeliveryQuery, endpoint: EndpointId) -> bool {
        let row = self.registry.endpoints.get(&endpoint);
        query.filter.endpoint.is_none_or(|wanted| endpoint == wanted)
            && row.is_some_and(|row| row.tenant == query.tenant)
    }

    fn event_row(&self, tenant: &TenantId, id: &EventId) -> Option<&EventRow> {
        let num = self.event_nums.get(&(tenant.clone(), id.clone()))?;
        self.rows.events.get(num).filter(|row| self.knows(&row.tenant))
    }

    fn last_result(&self, id: DeliveryId) -> Option<AttemptResult> {
        let (_, last) = self.rows.attempts.get(&id)?.last_key_value()?;
        Some(last.detail.result)
    }

    fn view(&self, id: DeliveryId) -> Option<DeliveryView> {
        let row = self.rows.deliveries.get(&id)?;
        let event = self.rows.events.get(&row.event).filter(|row| self.knows(&row.tenant))?;
        Some(DeliveryView {
            delivery: self.delivery(id)?,
            tenant: event.tenant.clone(),
            event: event.event.id.clone(),
            event_type: event.event.event_type.clone(),
            key: event.event.key.clone(),
            line: self.line_place(row.stood),
            created_at: Timestamp::from_millis(id.unix_ms()),
            changed_at: row.changed_at,
        })
    }

    fn held_lane(&self, id: DeliveryId) -> Option<HeldLane> {
        let row = self.rows.deliveries.get(&id)?;
        let DeliveryState::Dead { holds: true, reason } = row.state else { return None };
        let place = row.place?;
        let lane = self.rows.lanes.get(&place.lane)?;
        Some(HeldLane {
            lane: place.lane,
            endpoint: row.endpoint,
            key: lane.key.clone(),
            held_by: id,
            held_at: place.seq,
            last: lane.last,
            since: row.changed_at,
            reason,
            line: self.line_place(Some(place)),
        })
    }
}
