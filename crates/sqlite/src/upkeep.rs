//! Retention, erasure, backup and health of a SQLite store.

use std::path::Path;

use railpost_engine::{DeliveryState, DiscardReason};
use railpost_wire::{DeliveryId, TenantId};
use rusqlite::{Connection, OptionalExtension, Params};

use super::accept_log;
use super::checksum;
use super::errors::Translate;
use super::lanes::LaneKey;
use super::rows::{RowReader, all};
use super::schema;
use super::session::WriteSession;
use crate::limits::{LANES_PRUNED_MAX, PROBLEMS_LISTED_MAX};
use railpost_store::backend::check;
use railpost_store::backend::codes::{DEAD, LAST_OPEN, StateCode, millis};
use railpost_store::backend::delivery_ids::nth;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::Columns;
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{AuditEntry, Cursor, PruneStep, Pruned, Result, StoreError};

/// An event's row, as far as deleting it needs to know it.
struct OldEvent {
    num: i64,
    accepted_at: i64,
    first: DeliveryId,
    fanout: usize,
}

/// A delivery's row, as far as deleting it needs to know it.
struct OldDelivery {
    id: [u8; 16],
    state_code: i64,
    removed: bool,
}

/// A lane's row, as far as deleting it needs to know it.
struct OldLane {
    endpoint: i64,
    key: Vec<u8>,
    id: i64,
    used_at: i64,
}

impl WriteSession<'_> {
    pub(super) fn prune(&mut self, step: &PruneStep) -> Result<Pruned> {
        self.flush()?;
        let (after, limit) = (step.position()?, step.limit as usize);
        let others = self.prune_others(step)?;
        let mut pruned = Pruned { others, lanes: self.prune_lanes(step)?, ..Pruned::default() };
        let seen = self.old_events("num > ?1 ORDER BY num LIMIT ?2", (after, limit))?;
        let more = seen.len() == limit;
        for event in &seen {
            // Events are numbered as they are accepted: from here on all are younger. Not so behind one
            // that a wrong clock dated in the future.
            if event.accepted_at >= millis(step.closed_before) {
                if event.accepted_at > millis(self.now()) {
                    continue;
                }
                return Ok(pruned);
            }
            let deliveries = self.old_deliveries(event)?;
            if deliveries.iter().all(|delivery| delivery.is_prunable(event, step)) {
                self.delete_event(event, &deliveries)?;
                pruned.deliveries += deliveries.len() as u64;
                pruned.events += 1;
            }
        }
        pruned.next =
            seen.last().filter(|_| more).map(|event| Cursor::at(ListKind::Events, &event.num));
        Ok(pruned)
    }

    /// Deletes some of the lanes that have stood empty for long. Each step goes on where the one before it
    /// ended, and after the last lane with the first.
    fn prune_lanes(&mut self, step: &PruneStep) -> Result<u64> {
        let after = self.cache.pruned_lanes_to.take();
        let (endpoint, key) = after.unwrap_or_default();
        let sql = "SELECT k.endpoint, k.key, k.lane, l.used_at FROM lane_keys AS k \
                   CROSS JOIN lanes AS l ON l.id = k.lane \
                   WHERE (k.endpoint, k.key) > (?1, ?2) ORDER BY k.endpoint, k.key LIMIT ?3";
        let lanes = all(self.db, sql, (endpoint, key, LANES_PRUNED_MAX), old_lane)?;
        if lanes.len() == LANES_PRUNED_MAX {
            self.cache.pruned_lanes_to = lanes.last().map(|lane| (lane.endpoint, lane.key.clone()));
        }
        let mut pruned = 0;
        for lane in &lanes {
            if lane.used_at < millis(step.lanes_before) && !self.is_open(lane)? {
                self.delete_lane(lane)?;
                self.cache.lanes.forget(&lane.cache_key()?);
                pruned += 1;
            }
        }
        Ok(pruned)
    }

    fn is_open(&self, lane: &OldLane) -> Result<bool> {
        let sql = "SELECT 1 FROM deliveries INDEXED BY deliveries_open \
                   WHERE endpoint = ?1 AND lane = ?2 AND standing <= 3";
        self.db.prepare_cached(sql).translated()?.exists((lane.endpoint, lane.id)).translated()
    }

    fn delete_lane(&self, lane: &OldLane) -> Result<()> {
        let sql = "DELETE FROM lane_keys WHERE endpoint = ?1 AND key = ?2";
        self.execute(sql, (lane.endpoint, &lane.key))?;
        for sql in [
            "DELETE FROM lanes WHERE id = ?1",
            "DELETE FROM old_lines WHERE lane = ?1",
            "DELETE FROM lane_follows WHERE lane = ?1",
        ] {
            self.execute(sql, [lane.id])?;
        }
        Ok(())
    }

    fn prune_others(&self, step: &PruneStep) -> Result<u64> {
        let limit = UPKEEP_STEP_MAX;
        let sql = "DELETE FROM audit WHERE id IN \
                   (SELECT id FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)";
        let audit = self
            .db
            .prepare_cached(sql)
            .translated()?
            .execute((millis(step.closed_before), limit))
            .translated()?;
        let sql = "DELETE FROM idempotency WHERE (owner, route, key) IN \
                   (SELECT owner, route, key FROM idempotency WHERE expires_at <= ?1 \
                    ORDER BY expires_at LIMIT ?2)";
        let answers = self
            .db
            .prepare_cached(sql)
            .translated()?
            .execute((millis(self.now()), limit))
            .translated()?;
        let sql = "DELETE FROM replays WHERE id IN \
                   (SELECT id FROM replays WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2)";
        let replays = self
            .db
            .prepare_cached(sql)
            .translated()?
            .execute((millis(step.closed_before), limit))
            .translated()?;
        let alerts = self.prune_alerts(step.alerts_before, limit)?;
        Ok((audit + answers + replays) as u64 + alerts + self.prune_figures()?)
    }

    fn old_events(&self, which: &str, values: impl Params) -> Result<Vec<OldEvent>> {
        let sql = format!("SELECT num, accepted_at, first, fanout FROM events WHERE {which}");
        all(self.db, &sql, values, |columns| {
            Ok(OldEvent {
                num: columns.number("an event's number")?,
                accepted_at: columns.number("an instant")?,
                first: DeliveryId::from_bytes(columns.array("a delivery's id")?),
                fanout: columns.number("a number of deliveries")?,
            })
        })
    }

    fn old_deliveries(&self, event: &OldEvent) -> Result<Vec<OldDelivery>> {
        const COLUMNS: &str = "d.id, d.standing, p.removed_at IS NOT NULL";
        let read = |columns: &mut RowReader<'_, '_>| {
            let (id, state_code) =
                (columns.array("a delivery's id")?, columns.number("a state code")?);
            Ok(OldDelivery { id, state_code, removed: columns.flag()? })
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM deliveries AS d JOIN endpoints AS p ON p.num = d.endpoint \
             WHERE d.id >= ?1 AND d.id < ?2"
        );
        let range = (event.first.to_bytes(), nth(event.first, event.fanout).to_bytes());
        let mut found = all(self.db, &sql, range, read)?;
        let sql = format!(
            "SELECT {COLUMNS} FROM deliveries AS d INDEXED BY deliveries_again \
             JOIN endpoints AS p ON p.num = d.endpoint WHERE d.event = ?1 AND d.again = 1"
        );
        found.extend(all(self.db, &sql, [event.num], read)?);
        Ok(found)
    }

    fn delete_event(&self, event: &OldEvent, deliveries: &[OldDelivery]) -> Result<()> {
        for OldDelivery { id, .. } in deliveries {
            self.db
                .prepare_cached("DELETE FROM attempts WHERE delivery = ?1")
                .translated()?
                .execute([id])
                .translated()?;
            self.db
                .prepare_cached("DELETE FROM deliveries WHERE id = ?1")
                .translated()?
                .execute([id])
                .translated()?;
        }
        self.db
            .prepare_cached("DELETE FROM events WHERE num = ?1")
            .translated()?
            .execute([event.num])
            .translated()?;
        Ok(())
    }

    /// One step; true when nothing is left.
    pub(super) fn erase_tenant(&mut self, tenant: &TenantId, ended: &AuditEntry) -> Result<bool> {
        self.flush()?;
        let sql = "SELECT num, erasing FROM tenants WHERE id = ?1";
        let found = self.db.prepare_cached(sql).translated()?.query_row([tenant.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?))
        });
        let Some((num, erasing)) = found.optional().translated()? else { return Ok(true) };
        check::is_erasing(erasing, tenant)?;
        self.cache.registry_changed();
        self.cache.backlog.forget(num);
        let erased = self.erase_some(tenant, num, UPKEEP_STEP_MAX as usize)?;
        if erased == UPKEEP_STEP_MAX as usize {
            let sql = "UPDATE tenants SET erased = erased + ?2 WHERE num = ?1";
            self.execute(sql, (num, erased))?;
            return Ok(false);
        }
        self.execute("DELETE FROM tenants WHERE num = ?1", [num])?;
        accept_log::blank(self.db)?;
        self.write_audit(ended)?;
        Ok(true)
    }

    /// Deletes up to `limit` of what a tenant has, endpoints last: the rest is found by them.
    fn erase_some(&mut self, tenant: &TenantId, num: i64, limit: usize) -> Result<usize> {
        let events = self.old_events("tenant = ?1 ORDER BY num LIMIT ?2", (num, limit))?;
        for event in &events {
            self.delete_event(event, &self.old_deliveries(event)?)?;
        }
        let mut left = limit - events.len();
        left -= self.erase_lanes(num, left)?;
        left -= self.erase_figures(num, left)?;
        left -= self.erase_parked(tenant.as_str(), left)?;
        for sql in [
            "DELETE FROM event_types WHERE tenant = ?1 AND name IN \
             (SELECT name FROM event_types WHERE tenant = ?1 LIMIT ?2)",
            "DELETE FROM replays WHERE id IN (SELECT id FROM replays WHERE tenant = ?1 LIMIT ?2)",
        ] {
            left -= self.execute(sql, (num, left))? as usize;
        }
        for sql in [
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE tenant = ?1 LIMIT ?2)",
            "DELETE FROM idempotency WHERE (owner, route, key) IN \
             (SELECT owner, route, key FROM idempotency WHERE tenant = ?1 LIMIT ?2)",
            "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE tenant = ?1 LIMIT ?2)",
            "DELETE FROM silences WHERE id IN (SELECT id FROM silences WHERE tenant = ?1 LIMIT ?2)",
        ] {
            left -= self.execute(sql, (tenant.as_str(), left))? as usize;
        }
        let sql = "DELETE FROM endpoints WHERE num IN \
                   (SELECT num FROM endpoints WHERE tenant = ?1 LIMIT ?2)";
        left -= self.execute(sql, (num, left))? as usize;
        Ok(limit - left)
    }

    fn erase_lanes(&mut self, tenant: i64, limit: usize) -> Result<usize> {
        let sql = "SELECT k.endpoint, k.key, k.lane, 0 FROM endpoints AS p \
                   JOIN lane_keys AS k ON k.endpoint = p.num WHERE p.tenant = ?1 LIMIT ?2";
        let lanes = all(self.db, sql, (tenant, limit), old_lane)?;
        lanes.iter().try_for_each(|lane| self.delete_lane(lane))?;
        self.cache.lanes.forget_all();
        Ok(lanes.len())
    }

    /// Closes up to `limit` deliveries of removed endpoints, and says how many those were.
    pub(super) fn close_removed(&mut self, limit: u32) -> Result<u64> {
        self.add_accepted()?;
        let sql = "SELECT d.id FROM endpoints AS p INDEXED BY endpoints_removed \
                   CROSS JOIN deliveries AS d INDEXED BY deliveries_open \
                   ON d.endpoint = p.num AND d.standing <= 3 WHERE p.removed_at IS NOT NULL \
                   LIMIT ?1";
        let mut ids = self.delivery_ids(sql, limit)?;
        let sql = "SELECT d.id FROM endpoints AS p INDEXED BY endpoints_removed \
                   CROSS JOIN deliveries AS d INDEXED BY deliveries_dead \
                   ON d.endpoint = p.num AND d.standing IN (3, 4) AND d.standing = 4 \
                   WHERE p.removed_at IS NOT NULL LIMIT ?1";
        ids.extend(self.delivery_ids(sql, limit - ids.len() as u32)?);
        let reason = DiscardReason::EndpointRemoved;
        let closed = StateCode::from(DeliveryState::Discarded { reason });
        let sql = "UPDATE deliveries SET standing = ?2, due = NULL, reason = ?3, changed_at = ?4 \
                   WHERE id = ?1";
        for id in &ids {
            self.execute(sql, (id, closed.code, closed.reason, millis(self.now())))?;
        }
        Ok(ids.len() as u64)
    }

    fn delivery_ids(&self, sql: &str, limit: u32) -> Result<Vec<[u8; 16]>> {
        all(self.db, sql, [limit], |columns| columns.array("a delivery's id"))
    }
}

fn old_lane(columns: &mut RowReader<'_, '_>) -> Result<OldLane> {
    Ok(OldLane {
        endpoint: columns.number("an endpoint's number")?,
        key: columns.bytes()?,
        id: columns.number("a lane")?,
        used_at: columns.number("an instant")?,
    })
}

impl OldLane {
    fn cache_key(&self) -> Result<LaneKey> {
        let strange =
            || StoreError::Corrupt(format!("the key of lane {} does not read back", self.id));
        let text = str::from_utf8(&self.key).map_err(|_| strange())?;
        let key = Some(text).filter(|text| !text.is_empty());
        Ok((self.endpoint, key.map(str::parse).transpose().map_err(|_| strange())?))
    }
}

impl OldDelivery {
    fn is_prunable(&self, event: &OldEvent, step: &PruneStep) -> bool {
        match self.state_code {
            _ if self.removed => true,
            DEAD => event.accepted_at < millis(step.dead_before),
            code => code > LAST_OPEN,
        }
    }
}

/// Every lane begins a new line with its next delivery.
pub(super) fn begin_era(session: &mut WriteSession<'_>) -> Result<()> {
    session.add_accepted()?;
    schema::begin_era(session.db, session.setup)?;
    session.cache.lanes.era_changed();
    Ok(())
}

/// Writes a copy of the file as of now, and its checksum at the end. Its free pages are left out.
pub(super) fn backup(db: &Connection, to: &Path) -> Result<()> {
    let refuse = |error| {
        StoreError::Unavailable(format!("cannot write the backup {}: {error}", to.display()))
    };
    // SQLite would fill an existing file if it is empty; this one must be ours alone.
    std::fs::File::create_new(to).map_err(refuse)?;
    let text = to.to_str().ok_or_else(|| {
        StoreError::invalid("to", format!("expected a path in UTF-8; got {}", to.display()))
    })?;
    db.execute("VACUUM INTO ?1", [text]).at("the backup")?;
    checksum::append(to).map_err(refuse)
}

/// Looks through the whole file for damage.
pub(super) fn verify(db: &Connection) -> Result<()> {
    let mut statement =
        db.prepare(&format!("PRAGMA integrity_check({PROBLEMS_LISTED_MAX})")).translated()?;
    let problems = statement.query_map([], |row| row.get::<_, String>(0));
    let problems: Vec<String> =
        problems.translated()?.collect::<rusqlite::Result<_>>().at("the integrity check")?;
    if problems == ["ok"] {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!("the file is damaged: {}", problems.join("; "))))
}
