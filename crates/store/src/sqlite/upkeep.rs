//! Retention, erasure, backup and health of a SQLite store.

use std::path::Path;

use railpost_engine::Timestamp;
use railpost_wire::{DeliveryId, TenantId};
use rusqlite::{Connection, OptionalExtension, Params};

use super::desk::Desk;
use super::errors::At;
use super::rows::{Found, all};
use crate::delivery_ids::nth;
use crate::limits::UPKEEP_STEP_MAX;
use crate::listing::ListKind;
use crate::numbers::{DEAD, LAST_OPEN, millis};
use crate::rows::Columns;
use crate::{Cursor, PruneStep, Pruned, Result, StoreError};

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
    standing: i64,
    removed: bool,
    /// Its endpoint's num, its lane and its seq, if it has a place.
    place: Option<(i64, i64, i64)>,
}

impl Desk<'_> {
    pub(super) fn prune(&mut self, step: &PruneStep) -> Result<Pruned> {
        self.add_accepted()?;
        let (after, limit) = (step.position()?, step.limit as usize);
        let mut pruned = Pruned { others: self.prune_others(step)?, ..Pruned::default() };
        let seen = self.old_events("num > ?1 ORDER BY num LIMIT ?2", (after, limit))?;
        let more = seen.len() == limit;
        for event in &seen {
            // Events are numbered as they are accepted: from here on all are younger.
            if event.accepted_at >= millis(step.closed_before) {
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

    fn prune_others(&self, step: &PruneStep) -> Result<u64> {
        let limit = UPKEEP_STEP_MAX;
        let sql = "DELETE FROM audit WHERE id IN \
                   (SELECT id FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)";
        let audit = self.db.prepare_cached(sql)?.execute((millis(step.closed_before), limit))?;
        let sql = "DELETE FROM idempotency WHERE (owner, route, key) IN \
                   (SELECT owner, route, key FROM idempotency WHERE expires_at <= ?1 \
                    ORDER BY expires_at LIMIT ?2)";
        let now: Timestamp = self.now();
        let answers = self.db.prepare_cached(sql)?.execute((millis(now), limit))?;
        let sql = "DELETE FROM replays WHERE id IN \
                   (SELECT id FROM replays WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2)";
        let replays = self.db.prepare_cached(sql)?.execute((millis(step.closed_before), limit))?;
        Ok((audit + answers + replays) as u64 + self.prune_figures()?)
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
        const COLUMNS: &str =
            "d.id, d.standing, p.removed_at IS NOT NULL, d.endpoint, d.lane, d.seq";
        let read = |columns: &mut Found<'_, '_>| {
            let id = columns.array("a delivery's id")?;
            let standing = columns.number("a standing")?;
            let removed = columns.flag()?;
            let (endpoint, lane, seq) = (columns.int()?, columns.int()?, columns.int()?);
            let place =
                endpoint.zip(lane).zip(seq).map(|((endpoint, lane), seq)| (endpoint, lane, seq));
            Ok(OldDelivery { id, standing, removed, place })
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
        for OldDelivery { id, standing, place, .. } in deliveries {
            if let Some(place) = place.filter(|_| *standing <= LAST_OPEN) {
                let sql = "DELETE FROM places WHERE endpoint = ?1 AND lane = ?2 AND seq = ?3";
                self.db.prepare_cached(sql)?.execute(place)?;
            }
            self.db.prepare_cached("DELETE FROM attempts WHERE delivery = ?1")?.execute([id])?;
            self.db.prepare_cached("DELETE FROM deliveries WHERE id = ?1")?.execute([id])?;
        }
        self.db.prepare_cached("DELETE FROM events WHERE num = ?1")?.execute([event.num])?;
        Ok(())
    }

    /// One step; true when nothing is left.
    pub(super) fn erase_tenant(&mut self, tenant: &TenantId) -> Result<bool> {
        self.add_accepted()?;
        let sql = "SELECT num, erasing FROM tenants WHERE id = ?1";
        let found = self.db.prepare_cached(sql)?.query_row([tenant.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?))
        });
        let Some((num, erasing)) = found.optional()? else { return Ok(true) };
        self.notes.forget_registry();
        self.notes.forget_backlogs();
        if !erasing {
            self.erase_registry(tenant, num)?;
        }
        let events =
            self.old_events("tenant = ?1 ORDER BY num LIMIT ?2", (num, UPKEEP_STEP_MAX))?;
        for event in &events {
            self.delete_event(event, &self.old_deliveries(event)?)?;
        }
        let left = (UPKEEP_STEP_MAX as usize).saturating_sub(events.len());
        let left = left - self.erase_lanes(num, left)?;
        let left = left - self.erase_figures(num, left)?;
        if left == 0 {
            return Ok(false);
        }
        self.db.prepare_cached("DELETE FROM endpoints WHERE tenant = ?1")?.execute([num])?;
        self.db.prepare_cached("DELETE FROM tenants WHERE num = ?1")?.execute([num])?;
        Ok(true)
    }

    fn erase_lanes(&mut self, tenant: i64, limit: usize) -> Result<usize> {
        let sql = "SELECT k.endpoint, k.key, k.lane FROM endpoints AS p \
                   JOIN lane_keys AS k ON k.endpoint = p.num WHERE p.tenant = ?1 LIMIT ?2";
        let lanes = all(self.db, sql, (tenant, limit), |columns| {
            let endpoint: i64 = columns.number("an endpoint's number")?;
            Ok((endpoint, columns.bytes()?, columns.number::<i64>("a lane")?))
        })?;
        for (endpoint, key, lane) in &lanes {
            let sql = "DELETE FROM lane_keys WHERE endpoint = ?1 AND key = ?2";
            self.db.prepare_cached(sql)?.execute((endpoint, key))?;
            self.db.prepare_cached("DELETE FROM lanes WHERE id = ?1")?.execute([lane])?;
        }
        self.notes.lanes.forget_keys();
        Ok(lanes.len())
    }

    /// Hides the tenant, and deletes all that its events do not need to be found.
    fn erase_registry(&self, tenant: &TenantId, num: i64) -> Result<()> {
        for sql in [
            "UPDATE tenants SET erasing = 1, settings = '{}' WHERE num = ?1",
            "DELETE FROM secrets WHERE endpoint IN (SELECT num FROM endpoints WHERE tenant = ?1)",
            "DELETE FROM event_types WHERE tenant = ?1",
            "DELETE FROM api_keys WHERE tenant = ?1",
            "DELETE FROM replays WHERE tenant = ?1",
            "UPDATE endpoints SET removed_at = coalesce(removed_at, 0), private = x'' \
             WHERE tenant = ?1",
        ] {
            self.db.prepare_cached(sql)?.execute([num])?;
        }
        for sql in
            ["DELETE FROM audit WHERE tenant = ?1", "DELETE FROM idempotency WHERE tenant = ?1"]
        {
            self.db.prepare_cached(sql)?.execute([tenant.as_str()])?;
        }
        Ok(())
    }
}

impl OldDelivery {
    fn is_prunable(&self, event: &OldEvent, step: &PruneStep) -> bool {
        match self.standing {
            _ if self.removed => true,
            DEAD => event.accepted_at < millis(step.dead_before),
            standing => standing > LAST_OPEN,
        }
    }
}

/// Writes a copy of the file as of now. Its free pages are left out.
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
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(refuse)
}
