//! Accepting events into SQLite.

use railpost_engine::{Accepted, Place, Timestamp};
use railpost_wire::{DeliveryId, Key, TenantId};
use rusqlite::{Connection, Error, ErrorCode, OptionalExtension, Statement};

use super::desk::Desk;
use super::notes::{Notes, TenantEntry};
use super::rows::one;
use crate::delivery_ids::nth;
use crate::fanout::Subscriber;
use crate::numbers::{PENDING, millis};
use crate::rows::{self, Columns, event_columns};
use crate::{
    AcceptBatch, Event, IdempotencyRecord, Receipt, RedeliverBatch, Result, Source, StoreError,
    check,
};

impl<'f> Desk<'f> {
    /// Checks everything before it writes anything, but for one thing: unless the group is wary, the
    /// insert finds out whether an event was accepted before, and its group is tried again.
    pub(super) fn accept(&mut self, batch: &AcceptBatch) -> Result<Vec<Receipt>> {
        let now = self.now();
        let tenant = self.notes.tenant(self.db, &batch.tenant)?;
        self.check_idempotency(batch.idempotency.as_deref(), now)?;
        let ids: Vec<String> = batch.events.iter().map(|event| event.id.to_string()).collect();
        let mut known = vec![None; ids.len()];
        let looks = self.is_wary() || self.check_backlog(&tenant, batch, &known).is_err();
        if looks {
            known = self.accepted_before(tenant.num, &batch.events, &ids)?;
            self.check_backlog(&tenant, batch, &known)?;
        }
        let mut shelf = self.shelf(now);
        let events = batch.events.iter().zip(&ids).zip(known);
        let receipts = events.map(|((event, id), known)| match known {
            Some(accepted_at) => Ok(Receipt::Duplicate { accepted_at }),
            None => shelf.add_event(&tenant, event, id),
        });
        let receipts = receipts.collect::<Result<_>>();
        self.collided |= shelf.collided;
        let receipts = receipts?;
        self.remember(batch.idempotency.as_deref())?;
        Ok(receipts)
    }

    pub(super) fn redeliver(&mut self, batch: &RedeliverBatch) -> Result<Vec<Accepted>> {
        let now = self.now();
        let tenant = self.notes.tenant(self.db, &batch.tenant)?;
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
        let mut shelf = self.shelf(now);
        let accepted = orders.into_iter().map(|(event, key, to)| shelf.add_again(event, key, to));
        let accepted = accepted.collect::<Result<_>>()?;
        self.remember(batch.idempotency.as_deref())?;
        Ok(accepted)
    }

    fn shelf(&mut self, now: Timestamp) -> Shelf<'_, 'f> {
        let (db, source) = (self.db, &*self.setup.source);
        let (inserts, notes) = (&mut self.inserts, &mut self.notes);
        Shelf { db, inserts, notes, source, now, collided: false }
    }

    /// When the tenant's events of these ids were accepted before, if they were.
    fn accepted_before(
        &self,
        tenant: i64,
        events: &[Event],
        ids: &[String],
    ) -> Result<Vec<Option<Timestamp>>> {
        let sql = "SELECT num FROM events WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut known = vec![None; events.len()];
        for (index, id) in ids.iter().enumerate() {
            let num = statement.query_row((tenant, id), |row| row.get(0)).optional()?;
            if let Some(num) = num {
                known[index] = self.compare(index, &events[index], num)?;
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
        let (open, max) = (self.notes.backlog(self.db, tenant.num)?, tenant.backlog_max);
        if added > 0 && open + added as u64 > max {
            return Err(StoreError::BacklogFull { open, max });
        }
        Ok(())
    }

    pub(super) fn check_idempotency(
        &self,
        record: Option<&IdempotencyRecord>,
        now: Timestamp,
    ) -> Result<()> {
        let Some(key) = record.map(|record| &record.key) else { return Ok(()) };
        let sql = "SELECT 1 FROM idempotency \
                   WHERE owner = ?1 AND route = ?2 AND key = ?3 AND expires_at > ?4";
        let mut statement = self.db.prepare_cached(sql)?;
        if statement.exists((&key.owner, &key.route, &key.key, millis(now)))? {
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
        self.db.prepare_cached(sql)?.execute((
            &key.owner,
            &key.route,
            &key.key,
            record.fingerprint,
            response.status,
            &response.body[..],
            record.tenant.as_ref().map(TenantId::as_str),
            millis(record.expires_at),
        ))?;
        Ok(())
    }
}

/// The statements that add what is accepted. They are prepared once: even to find them among those that
/// the connection keeps would be a twentieth of the writer's time.
#[derive(Debug)]
pub(super) struct Inserts<'f> {
    event: Statement<'f>,
    delivery: Statement<'f>,
}

impl<'f> Inserts<'f> {
    pub(super) fn new(db: &'f Connection) -> rusqlite::Result<Self> {
        let event = db.prepare(
            "INSERT INTO events (num, tenant, id, type, key, content_type, schema_version, time, \
             accepted_at, traceparent, first, fanout, payload) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        let delivery = db.prepare(
            "INSERT INTO deliveries (id, event, endpoint, lane, seq, standing, again, changed_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        Ok(Self { event, delivery })
    }
}

/// Where events and deliveries are put.
struct Shelf<'a, 'f> {
    db: &'f Connection,
    inserts: &'a mut Inserts<'f>,
    notes: &'a mut Notes,
    source: &'a dyn Source,
    now: Timestamp,
    /// An event could not be added because it is there.
    collided: bool,
}

impl Shelf<'_, '_> {
    fn add_event(&mut self, tenant: &TenantEntry, event: &Event, id: &str) -> Result<Receipt> {
        let fanout = tenant.wanting(event).count();
        let first = self.notes.ids.take(self.source, self.now, fanout);
        let num = self.notes.next_event(self.db)?;
        let inserted = self.inserts.event.execute((
            num,
            tenant.num,
            id,
            event.event_type.as_str(),
            event.key.as_ref().map(|key| key.as_str().as_bytes()),
            event.content_type.as_str(),
            event.schema_version,
            millis(event.time),
            millis(self.now),
            &event.traceparent,
            first.to_bytes(),
            fanout,
            &event.payload[..],
        ));
        let code = inserted.as_ref().err().and_then(Error::sqlite_error_code);
        self.collided = code == Some(ErrorCode::ConstraintViolation);
        inserted?;
        let deliveries = tenant.wanting(event).enumerate().map(|(index, to)| {
            let (id, key) = (nth(first, index), event.key.clone());
            self.add_delivery(NewDelivery { id, event: num, key, to, again: false })
        });
        let deliveries = deliveries.collect::<Result<_>>()?;
        Ok(Receipt::Accepted { accepted_at: self.now, deliveries })
    }

    fn add_again(&mut self, event: i64, key: Option<Key>, to: &Subscriber) -> Result<Accepted> {
        let id = self.notes.ids.take(self.source, self.now, 1);
        self.add_delivery(NewDelivery { id, event, key, to, again: true })
    }

    fn add_delivery(&mut self, new: NewDelivery<'_>) -> Result<Accepted> {
        let NewDelivery { id, event, key, to, again } = new;
        let lane = to.lane_for(key.as_ref()).map(Option::<&Key>::cloned);
        let place =
            lane.map(|key| self.notes.lanes.next_place(self.db, to.num, key)).transpose()?;
        self.inserts.delivery.execute((
            id.to_bytes(),
            event,
            to.num,
            place.map(|Place { lane, .. }| lane.0),
            place.map(|Place { seq, .. }| seq.get()),
            PENDING,
            again,
            millis(self.now),
        ))?;
        self.notes.backlog_changed(self.db, to.id, 1)?;
        Ok(Accepted { id, endpoint: to.id, place })
    }
}

impl TenantEntry {
    fn wanting(&self, event: &Event) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter().filter(|subscriber| subscriber.wants(&event.event_type))
    }
}

/// A delivery that is to be made.
struct NewDelivery<'a> {
    id: DeliveryId,
    /// Its event's num.
    event: i64,
    /// Its event's key.
    key: Option<Key>,
    to: &'a Subscriber,
    /// Whether the event was accepted earlier.
    again: bool,
}
