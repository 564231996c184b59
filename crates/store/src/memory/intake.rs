//! Accepting events in memory.

use std::sync::Arc;

use async_trait::async_trait;
use railpost_engine::{Accepted, DeliveryState, LaneId, Place, Progress, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, Key, Seq, TenantId};

use super::MemoryStore;
use super::state::{DeliveryRow, EventRow, LaneRow, Line, State};
use crate::backend::check;
use crate::backend::delivery_ids::nth;
use crate::backend::fanout::Subscriber;
use crate::limits::BACKLOG_MAX;
use crate::{
    AcceptBatch, Event, EventOutcome, IdempotencyRecord, Intake, NewDelivery, Receipt,
    RedeliverBatch, Result, Source, StoreError,
};

#[async_trait]
impl Intake for MemoryStore {
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        check::accept(&batch)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        let known = state.check_accept(&batch, now)?;
        let AcceptBatch { tenant, events, accepted_by, idempotency } = &*batch;
        let subscribers = state.subscribers(tenant);
        let source = &*self.setup.source;
        let receipts = events.iter().zip(known).map(|(event, known)| match known {
            Some(accepted_at) => Receipt::Duplicate { accepted_at },
            None => {
                let row = EventRow {
                    tenant: tenant.clone(),
                    event: event.clone(),
                    accepted_at: now,
                    accepted_by: accepted_by.clone(),
                    deliveries: vec![],
                };
                state.accept(source, row, &subscribers)
            }
        });
        let receipts: Vec<Receipt> = receipts.collect();
        let outcomes: Vec<EventOutcome> = receipts.iter().map(EventOutcome::from).collect();
        state.remember(idempotency.as_ref().map(|record| Box::new(record.complete(&outcomes))));
        Ok(receipts)
    }

    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>> {
        check::redeliver(&batch)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        state.check_idempotency(batch.idempotency.as_deref(), now)?;
        let subscribers = state.subscribers(&batch.tenant);
        let mut orders = Vec::with_capacity(batch.orders.len());
        for (event, endpoint) in &batch.orders {
            let num = state.event_nums.get(&(batch.tenant.clone(), event.clone()));
            let num = *num.ok_or_else(|| StoreError::not_found("event", event))?;
            let to = subscribers.iter().find(|subscriber| subscriber.id == *endpoint);
            let to = to.ok_or_else(|| StoreError::not_found("endpoint", endpoint))?;
            orders.push((num, to));
        }
        state.check_backlog(&batch.tenant, orders.len() as u64)?;
        let accepted = orders.into_iter().map(|(num, to)| {
            let id = state.ids.take(&*self.setup.source, now, 1);
            state.add_delivery(id, num, to, true, now).accepted
        });
        let accepted = accepted.collect();
        batch.audit.into_iter().for_each(|entry| state.write_audit(entry));
        state.remember(batch.idempotency);
        Ok(accepted)
    }
}

impl State {
    /// Refuses the batch, or says for each event when it was accepted before.
    fn check_accept(
        &mut self,
        batch: &AcceptBatch,
        now: Timestamp,
    ) -> Result<Vec<Option<Timestamp>>> {
        if !self.registry.tenants.contains_key(&batch.tenant) {
            return Err(StoreError::not_found("tenant", &batch.tenant));
        }
        self.check_idempotency(batch.idempotency.as_deref().map(|accept| &accept.record), now)?;
        let known: Vec<_> = batch
            .events
            .iter()
            .enumerate()
            .map(|(index, event)| self.accepted_before(index, &batch.tenant, event))
            .collect::<Result<_>>()?;
        let subscribers = self.subscribers(&batch.tenant);
        let fresh = batch.events.iter().zip(&known).filter(|(_, known)| known.is_none());
        let wanted =
            |event: &Event| subscribers.iter().filter(|s| s.wants(&event.event_type)).count();
        let added = fresh.map(|(event, _)| wanted(event) as u64).sum();
        self.check_backlog(&batch.tenant, added)?;
        Ok(known)
    }

    fn accepted_before(
        &self,
        index: usize,
        tenant: &TenantId,
        event: &Event,
    ) -> Result<Option<Timestamp>> {
        let Some(num) = self.event_nums.get(&(tenant.clone(), event.id.clone())) else {
            return Ok(None);
        };
        let row = &self.rows.events[num];
        check::same_event(index, &row.event, event)?;
        Ok(Some(row.accepted_at))
    }

    fn check_backlog(&mut self, tenant: &TenantId, added: u64) -> Result<()> {
        let settings = self.registry.tenants.get(tenant).map(|row| &row.settings);
        let max = settings.and_then(|settings| settings.backlog_max).unwrap_or(BACKLOG_MAX);
        let open = self.backlog(tenant);
        if added > 0 && open + added > max {
            return Err(StoreError::BacklogFull { open, max });
        }
        Ok(())
    }

    pub(super) fn check_idempotency(
        &self,
        record: Option<&IdempotencyRecord>,
        now: Timestamp,
    ) -> Result<()> {
        let known = record.and_then(|record| self.registry.idempotency.get(&record.key));
        match known.filter(|known| known.expires_at > now) {
            Some(_) => Err(StoreError::Repeated),
            None => Ok(()),
        }
    }

    fn remember(&mut self, record: Option<Box<IdempotencyRecord>>) {
        if let Some(record) = record {
            self.registry.idempotency.insert(record.key.clone(), *record);
        }
    }

    fn accept(
        &mut self,
        source: &dyn Source,
        row: EventRow,
        subscribers: &[Subscriber],
    ) -> Receipt {
        let (event, now) = (&row.event, row.accepted_at);
        let wanted: Vec<_> = subscribers.iter().filter(|s| s.wants(&event.event_type)).collect();
        self.rows.last_event += 1;
        let num = self.rows.last_event;
        self.event_nums.insert((row.tenant.clone(), event.id.clone()), num);
        self.rows.events.insert(num, row);
        let first = self.ids.take(source, now, wanted.len());
        let deliveries = wanted.into_iter().enumerate();
        let deliveries =
            deliveries.map(|(index, to)| self.add_delivery(nth(first, index), num, to, false, now));
        Receipt::Accepted { accepted_at: now, deliveries: deliveries.collect() }
    }

    fn add_delivery(
        &mut self,
        id: DeliveryId,
        event: i64,
        to: &Subscriber,
        replay: bool,
        now: Timestamp,
    ) -> NewDelivery {
        let row = self.rows.events.get_mut(&event).expect("its event is stored");
        row.deliveries.push(id);
        let key = row.event.key.clone();
        let lane = to.lane_for(key.as_ref()).map(Option::<&Key>::cloned);
        let place = lane.map(|key| self.next_place(to.id, key, now));
        let row = DeliveryRow {
            event,
            endpoint: to.id,
            place,
            stood: place,
            state: DeliveryState::Pending,
            progress: Progress { replay, ..Progress::default() },
            changed_at: now,
        };
        self.rows.deliveries.insert(id, row);
        self.enter(id, to.id, place, DeliveryState::Pending);
        let accepted = Accepted { id, endpoint: to.id, place, replay };
        NewDelivery { accepted, line: self.line_place(place) }
    }

    /// The end of the lane, which is one longer from here on.
    fn next_place(&mut self, endpoint: EndpointId, key: Option<Key>, now: Timestamp) -> Place {
        let era = self.era();
        if let Some(lane) = self.lane_ids.get(&(endpoint, key.clone())) {
            let row = self.rows.lanes.get_mut(lane).expect("a lane's id is in its row");
            if row.line.era != era {
                row.old_lines.insert(row.last.get(), row.line);
                row.line = Line { era, before: row.last.get() };
            }
            row.last = row.last.next();
            row.used_at = now;
            return Place { lane: *lane, seq: row.last };
        }
        self.rows.last_lane += 1;
        let lane = LaneId(self.rows.last_lane);
        self.lane_ids.insert((endpoint, key.clone()), lane);
        let row = LaneRow {
            endpoint,
            key,
            last: Seq::FIRST,
            line: Line { era, before: 0 },
            old_lines: Default::default(),
            follows: Default::default(),
            used_at: now,
        };
        self.rows.lanes.insert(lane, row);
        Place { lane, seq: Seq::FIRST }
    }
}
