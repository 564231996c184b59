//! Records and loads in memory.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_engine::{
    Accepted, Delivery, DeliveryState, EndpointRecord, LaneId, LanePage, Load, LoadedPage, Place,
    Progress, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, Seq};

use super::MemoryStore;
use super::state::{DeliveryRow, State};
use crate::backend::check;
use crate::backend::loading::{attempt_view, lane_page};
use crate::limits::PARCELS_MAX;
use crate::{
    AttemptDetail, AuditEntry, Epoch, Ledger, Parcel, Partition, RecordBatch, Recorded,
    RefusedTransition, Result, StoreError, Sweep, SweepPage,
};

#[async_trait]
impl Ledger for MemoryStore {
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded> {
        check::record(&batch)?;
        let mut state = self.state();
        state.check_epoch(&batch)?;
        let mut recorded = Recorded::default();
        for (transition, detail) in &batch.transitions {
            match state.record(transition, detail.as_deref()) {
                Ok(()) => recorded.applied += 1,
                Err(refused) => recorded.refused.push(refused),
            }
        }
        for endpoint in &batch.endpoints {
            state.record_endpoint(endpoint);
        }
        batch.audit.iter().for_each(|entry| state.write_audit(entry.clone()));
        Ok(recorded)
    }

    async fn load(&self, load: Load) -> Result<LoadedPage> {
        check::load(&load)?;
        let state = self.state();
        Ok(match load {
            Load::Lanes { endpoint, after, limit, window } => {
                state.load_lanes(endpoint, after, limit as usize, window as usize)
            }
            Load::Lane { endpoint, lane, from, limit } => {
                LoadedPage::Lane(state.load_lane(endpoint, lane, from, limit as usize))
            }
            Load::Unkeyed { endpoint, after, due_by, due_beyond, limit } => {
                state.load_unkeyed(endpoint, after, (due_by, due_beyond), limit as usize)
            }
        })
    }

    async fn parcels(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
        check::at_most("deliveries (entries)", deliveries.len(), PARCELS_MAX)?;
        let state = self.state();
        Ok(deliveries.into_iter().filter_map(|id| Some((id, Ok(state.parcel(id)?)))).collect())
    }

    async fn sweep(&self, sweep: Sweep) -> Result<SweepPage> {
        check::sweep(&sweep)?;
        let state = self.state();
        Ok(state.sweep(&sweep))
    }

    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()> {
        check::epoch(epoch)?;
        let mut state = self.state();
        let stored = state.registry.partitions.entry(partition.0).or_default();
        if *stored > epoch.0 {
            return Err(StoreError::Fenced { partition });
        }
        *stored = epoch.0;
        Ok(())
    }
}

impl State {
    fn check_epoch(&self, batch: &RecordBatch) -> Result<()> {
        let later = |partition: &Partition| {
            self.registry.partitions.get(&partition.0).is_some_and(|epoch| *epoch > batch.epoch.0)
        };
        match batch.partitions().find(later) {
            Some(partition) => Err(StoreError::Fenced { partition }),
            None => Ok(()),
        }
    }

    fn record(
        &mut self,
        transition: &Transition,
        detail: Option<&AttemptDetail>,
    ) -> std::result::Result<(), RefusedTransition> {
        let id = transition.delivery;
        let Some(row) = self.rows.deliveries.get_mut(&id) else {
            return Err(RefusedTransition { delivery: id, on_record: None });
        };
        let (on_record, next) = (row.state.stage(), transition.state.stage());
        if !on_record.may_be_recorded_as(next) {
            return Err(RefusedTransition { delivery: id, on_record: Some(on_record) });
        }
        let (endpoint, was, place) = (row.endpoint, row.state, row.place);
        row.state = transition.state;
        let attempts = transition.progress.attempts.max(row.progress.attempts);
        row.progress = Progress { attempts, ..transition.progress };
        row.changed_at = transition.at;
        if matches!(transition.state, DeliveryState::Dead { holds: false, .. }) {
            row.place = None;
        }
        let place_now = row.place;
        if let Some(Place { lane, seq }) = place.filter(|_| transition.state.is_skipped())
            && let Some(lane) = self.rows.lanes.get_mut(&lane)
        {
            lane.skipped(seq);
        }
        self.leave(id, endpoint, place, was);
        self.enter(id, endpoint, place_now, transition.state);
        if let Some(detail) = detail {
            let view = attempt_view(detail, transition);
            self.rows.attempts.entry(id).or_default().entry(view.detail.number).or_insert(view);
        }
        Ok(())
    }

    fn record_endpoint(&mut self, record: &EndpointRecord) {
        let row = self.registry.endpoints.get_mut(&record.endpoint);
        if let Some(row) = row.filter(|row| row.status == record.was) {
            row.set_status(record.status, record.at);
            row.failing_since = record.failing_since;
            let entry = AuditEntry::of_switch_off(record, Some(row.tenant.clone()));
            entry.into_iter().for_each(|entry| self.write_audit(entry));
        }
    }

    /// Writes an entry unless it is on record.
    pub(super) fn write_audit(&mut self, entry: AuditEntry) {
        self.registry.audit.entry(entry.id).or_insert(entry);
    }

    pub(super) fn is_live(&self, endpoint: EndpointId) -> bool {
        self.registry.endpoints.get(&endpoint).is_some_and(|row| row.removed_at.is_none())
    }

    fn load_lanes(
        &self,
        endpoint: EndpointId,
        after: Option<LaneId>,
        limit: usize,
        window: usize,
    ) -> LoadedPage {
        let lanes = self.lanes_of(endpoint, after).filter(|_| self.is_live(endpoint));
        let mut ids: Vec<_> = lanes.map(|(lane, _)| lane).take(limit + 1).collect();
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().copied().filter(|_| more);
        let page = |lane| self.load_lane(endpoint, lane, Seq::FIRST, window);
        LoadedPage::Lanes { lanes: ids.into_iter().map(page).collect(), next }
    }

    fn load_lane(&self, endpoint: EndpointId, lane: LaneId, from: Seq, limit: usize) -> LanePage {
        let row = self.rows.lanes.get(&lane).filter(|row| row.endpoint == endpoint);
        let last = row.filter(|_| self.is_live(endpoint)).map(|row| row.last);
        let open = self.open_lanes.get(&(endpoint, lane)).filter(|_| last.is_some());
        let open = open.into_iter().flat_map(|window| window.range(from..));
        let deliveries = open.filter_map(|(_, id)| self.delivery(*id)).take(limit).collect();
        let follows = row.into_iter().flat_map(|row| &row.follows);
        let follows = follows.filter_map(|(seq, before)| Some((Seq::new(*seq)?, *before)));
        lane_page(lane, from, last, limit, deliveries, follows.collect())
    }

    fn load_unkeyed(
        &self,
        endpoint: EndpointId,
        after: Option<DeliveryId>,
        (due_by, due_beyond): (Timestamp, Timestamp),
        limit: usize,
    ) -> LoadedPage {
        let all = self.open_unkeyed.get(&endpoint).filter(|_| self.is_live(endpoint));
        let all = || all.into_iter().flatten().filter_map(|id| self.delivery(*id));
        let waits = |until: Timestamp| until > due_by && until <= due_beyond;
        let due = |delivery: &Delivery| !due_at(delivery).is_some_and(waits);
        let rest = all().filter(|delivery| after.is_none_or(|after| delivery.id > after));
        let mut deliveries: Vec<_> = rest.filter(due).take(limit + 1).collect();
        let more = deliveries.len() > limit;
        deliveries.truncate(limit);
        let next = deliveries.last().map(|delivery| delivery.id).filter(|_| more);
        let next_due = all().filter_map(|delivery| due_at(&delivery)).filter(|at| waits(*at)).min();
        LoadedPage::Unkeyed { deliveries, next, next_due }
    }

    fn sweep(&self, sweep: &Sweep) -> SweepPage {
        let stretch = (Bound::Excluded(sweep.after), Bound::Included(sweep.through));
        // A stretch that ends before it begins is empty, and no range.
        let rows = (sweep.after < sweep.through).then(|| self.rows.deliveries.range(stretch));
        let open = rows
            .into_iter()
            .flatten()
            .filter(|(_, row)| row.state.is_open() && self.is_live(row.endpoint));
        let accepted = |(id, row): (&DeliveryId, &DeliveryRow)| Accepted {
            id: *id,
            endpoint: row.endpoint,
            place: row.place,
            replay: row.progress.replay,
        };
        let limit = sweep.limit as usize;
        let mut deliveries: Vec<_> = open.map(accepted).take(limit + 1).collect();
        let more = deliveries.len() > limit;
        deliveries.truncate(limit);
        let next = deliveries.last().map(|last| last.id).filter(|_| more);
        SweepPage { deliveries, next, era: self.era() }
    }

    fn parcel(&self, id: DeliveryId) -> Option<Parcel> {
        let row = self.rows.deliveries.get(&id)?;
        let event = self.rows.events.get(&row.event)?;
        Some(Parcel {
            delivery: id,
            endpoint: row.endpoint,
            tenant: event.tenant.clone(),
            line: self.line_place(row.stood),
            event: event.event.clone(),
            accepted_at: event.accepted_at,
        })
    }
}

fn due_at(delivery: &Delivery) -> Option<Timestamp> {
    match delivery.state {
        DeliveryState::Waiting { until } => Some(until),
        _ => None,
    }
}
