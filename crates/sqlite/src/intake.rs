//! Accepting events into SQLite.

use std::sync::Arc;

use railpost_engine::{Accepted, Timestamp};
use railpost_wire::{DeliveryId, Key, TenantId};
use rusqlite::{Connection, OptionalExtension};

use super::cache::{TenantEntry, WriterCache};
use super::errors::Translate;
use super::inserts::{DeliveryInsert, Inserts, NewEvent};
use super::rows::one;
use super::session::WriteSession;
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::delivery_ids::nth;
use railpost_store::backend::fanout::Subscriber;
use railpost_store::backend::rows::{self, Columns, event_columns};
use railpost_store::{
    AcceptBatch, Event, EventOutcome, IdempotencyRecord, NewDelivery, Receipt, RedeliverBatch,
    Result, Source, StoreError,
};

impl<'f> WriteSession<'f> {
    /// Checks everything before it writes anything, but for one thing: unless the group looks
    /// events up, the insert finds out whether one was accepted before, and its group is tried again.
    pub(super) fn accept(&mut self, batch: &Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        let now = self.now();
        let tenant = self.cache.tenant(self.db, &batch.tenant)?;
        self.check_idempotency(batch.idempotency.as_deref().map(|accept| &accept.record), now)?;
        let mut known = vec![None; batch.events.len()];
        if self.log.is_open && !self.may_log(&tenant, batch, &known)? {
            return Err(self.log.refuse());
        }
        let looks = !self.log.is_open
            && (self.looks_up() || self.check_backlog(&tenant, batch, &known).is_err());
        if looks {
            self.add_accepted()?;
            known = self.accepted_before(tenant.num, &batch.events)?;
            self.check_backlog(&tenant, batch, &known)?;
        }
        let mut writer = self.delivery_writer(now);
        let receipts = known.into_iter().enumerate().map(|(index, known)| match known {
            Some(accepted_at) => Ok(Receipt::Duplicate { accepted_at }),
            None => writer.add_event(&tenant, batch, index),
        });
        let receipts: Vec<Receipt> = receipts.collect::<Result<_>>()?;
        if let Some(record) = &batch.idempotency {
            let outcomes: Vec<EventOutcome> = receipts.iter().map(EventOutcome::from).collect();
            self.remember(Some(&record.complete(&outcomes)))?;
        }
        Ok(receipts)
    }

    pub(super) fn redeliver(&mut self, batch: &RedeliverBatch) -> Result<Vec<Accepted>> {
        self.add_accepted()?;
        let now = self.now();
        let tenant = self.cache.tenant(self.db, &batch.tenant)?;
        self.check_idempotency(batch.idempotency.as_deref(), now)?;
        let mut orders = Vec::with_capacity(batch.orders.len());
        for (event, endpoint) in &batch.orders {
            let sql = "SELECT num, key FROM events WHERE tenant = ?1 AND id = ?2";
            let found = one(self.db, sql, (tenant.num, event.to_string()), |columns| {
                Ok((columns.number::<i64>("an event's number")?, columns.key()?))
            })?;
            let (num, key) = found.ok_or_else(|| StoreError::not_found("event", event))?;
            let to = tenant.subscribers.iter().find(|subscriber| subscriber.id == *endpoint);
            orders.push((num, key, to.ok_or_else(|| StoreError::not_found("endpoint", endpoint))?));
        }
        self.check_room(&tenant, orders.len())?;
        let mut writer = self.delivery_writer(now);
        let accepted = orders
            .iter()
            .map(|(event, key, to)| writer.add_again(&tenant, *event, key.as_ref(), to));
        let accepted = accepted.collect::<Result<_>>()?;
        batch.audit.iter().try_for_each(|entry| self.write_audit(entry).map(drop))?;
        self.remember(batch.idempotency.as_deref())?;
        Ok(accepted)
    }

    fn delivery_writer(&mut self, now: Timestamp) -> DeliveryWriter<'_, 'f> {
        let (db, source) = (self.db, &*self.setup.source);
        let (inserts, cache) = (&mut self.inserts, &mut self.cache);
        DeliveryWriter { db, inserts, cache, source, now }
    }

    /// Whether a batch may be logged: its events are new and within the tenant's bound, for sure.
    fn may_log(
        &mut self,
        tenant: &TenantEntry,
        batch: &AcceptBatch,
        known: &[Option<Timestamp>],
    ) -> Result<bool> {
        let counted = self.cache.backlog.get(tenant.num).is_some();
        if !counted || self.check_backlog(tenant, batch, known).is_err() {
            return Ok(false);
        }
        let sql = "SELECT 1 FROM events WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.db.prepare_cached(sql).translated()?;
        for event in &batch.events {
            let fresh = self.log.note(tenant.num, &event.id);
            if !fresh || statement.exists((tenant.num, event.id.to_string())).translated()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// When the tenant's events of these ids were accepted before, if they were.
    fn accepted_before(&self, tenant: i64, events: &[Event]) -> Result<Vec<Option<Timestamp>>> {
        let sql = "SELECT num FROM events WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.db.prepare_cached(sql).translated()?;
        let mut known = vec![None; events.len()];
        for (index, event) in events.iter().enumerate() {
            let id = event.id.to_string();
            let num =
                statement.query_row((tenant, id), |row| row.get(0)).optional().translated()?;
            if let Some(num) = num {
                known[index] = self.compare(index, event, num)?;
            }
        }
        Ok(known)
    }

    /// When the event with this number was accepted, if it is the same.
    fn compare(&self, index: usize, event: &Event, num: i64) -> Result<Option<Timestamp>> {
        let sql =
            concat!("SELECT ", event_columns!(), ", e.accepted_at FROM events AS e WHERE num = ?1");
        one(self.db, sql, [num], |columns| {
            check::same_event(index, &rows::event(columns)?, event)?;
            columns.instant()
        })
    }

    /// That there is room for the deliveries of those events that are not `known`.
    fn check_backlog(
        &mut self,
        tenant: &TenantEntry,
        batch: &AcceptBatch,
        known: &[Option<Timestamp>],
    ) -> Result<()> {
        let fresh = batch.events.iter().zip(known).filter(|(_, known)| known.is_none());
        self.check_room(tenant, fresh.map(|(event, _)| tenant.wanting(event).count()).sum())
    }

    fn check_room(&mut self, tenant: &TenantEntry, added: usize) -> Result<()> {
        let (open, max) = (self.backlog(tenant.num)?, tenant.backlog_max);
        if added > 0 && open + added as u64 > max {
            return Err(StoreError::BacklogFull { open, max });
        }
        Ok(())
    }

    fn backlog(&mut self, tenant: i64) -> Result<u64> {
        if let Some(open) = self.cache.backlog.get(tenant) {
            return Ok(open);
        }
        self.add_accepted()?;
        self.cache.backlog.count(self.db, tenant)
    }

    pub(super) fn check_idempotency(
        &self,
        record: Option<&IdempotencyRecord>,
        now: Timestamp,
    ) -> Result<()> {
        let Some(key) = record.map(|record| &record.key) else { return Ok(()) };
        let sql = "SELECT 1 FROM idempotency \
                   WHERE owner = ?1 AND route = ?2 AND key = ?3 AND expires_at > ?4";
        let mut statement = self.db.prepare_cached(sql).translated()?;
        if statement.exists((&key.owner, &key.route, &key.key, millis(now))).translated()? {
            return Err(StoreError::Repeated);
        }
        Ok(())
    }

    pub(super) fn remember(&self, record: Option<&IdempotencyRecord>) -> Result<()> {
        let Some(record) = record else { return Ok(()) };
        let (key, response) = (&record.key, &record.response);
        let sql = "REPLACE INTO idempotency \
                   (owner, route, key, fingerprint, status, body, tenant, expires_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        self.db
            .prepare_cached(sql)
            .translated()?
            .execute((
                &key.owner,
                &key.route,
                &key.key,
                record.fingerprint,
                response.status,
                &response.body[..],
                record.tenant.as_ref().map(TenantId::as_str),
                millis(record.expires_at),
            ))
            .translated()?;
        Ok(())
    }
}

/// Adds events and deliveries to a group.
struct DeliveryWriter<'a, 'f> {
    db: &'f Connection,
    inserts: &'a mut Inserts<'f>,
    cache: &'a mut WriterCache,
    source: &'a dyn Source,
    now: Timestamp,
}

impl DeliveryWriter<'_, '_> {
    /// Adds the event with this index in the batch.
    fn add_event(
        &mut self,
        tenant: &TenantEntry,
        batch: &Arc<AcceptBatch>,
        index: usize,
    ) -> Result<Receipt> {
        let event = &batch.events[index];
        let fanout = tenant.wanting(event).count();
        let first = self.cache.ids.take(self.source, self.now, fanout);
        let num = self.cache.next_event(self.db)?;
        let (tenant_num, batch, accepted_at) = (tenant.num, batch.clone(), self.now);
        self.inserts.add_event(NewEvent {
            num,
            tenant: tenant_num,
            batch,
            index,
            accepted_at,
            first,
            fanout,
        });
        let deliveries = tenant.wanting(event).enumerate().map(|(index, to)| {
            self.add_delivery(nth(first, index), num, event.key.as_ref(), to, false)
        });
        let deliveries = deliveries.collect::<Result<_>>()?;
        self.cache.backlog.change(tenant.num, fanout as i64);
        Ok(Receipt::Accepted { accepted_at, deliveries })
    }

    /// Adds a delivery of an event that was accepted earlier.
    fn add_again(
        &mut self,
        tenant: &TenantEntry,
        event: i64,
        key: Option<&Key>,
        to: &Subscriber,
    ) -> Result<Accepted> {
        let id = self.cache.ids.take(self.source, self.now, 1);
        let added = self.add_delivery(id, event, key, to, true)?;
        self.cache.backlog.change(tenant.num, 1);
        Ok(added.accepted)
    }

    fn add_delivery(
        &mut self,
        id: DeliveryId,
        event: i64,
        key: Option<&Key>,
        to: &Subscriber,
        again: bool,
    ) -> Result<NewDelivery> {
        let (endpoint, made_at) = (to.num, self.now);
        let lane = to.lane_for(key).map(Option::<&Key>::cloned);
        let lanes = &mut self.cache.lanes;
        let place =
            lane.map(|key| lanes.next_place(self.db, self.inserts, (endpoint, key), made_at));
        let (place, line) = place.transpose()?.unzip();
        self.inserts.add_delivery(DeliveryInsert { id, event, endpoint, place, again, made_at });
        let accepted = Accepted { id, endpoint: to.id, place, replay: again };
        Ok(NewDelivery { accepted, line })
    }
}

impl TenantEntry {
    fn wanting(&self, event: &Event) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter().filter(|subscriber| subscriber.wants(&event.event_type))
    }
}
