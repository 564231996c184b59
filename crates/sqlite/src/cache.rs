//! What the writer remembers of the file, so that it need not look.
//!
//! All of it is in the file too. A group that is given up takes back what it changed here.

use std::sync::Arc;

use railpost_wire::{EndpointId, TenantId};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::backlog::Backlog;
use super::errors::Translate;
use super::lanes::Lanes;
use super::rows::all;
use railpost_store::backend::delivery_ids::DeliveryIds;
use railpost_store::backend::fanout::Subscriber;
use railpost_store::backend::rows::{self, json};
use railpost_store::limits::BACKLOG_MAX;
use railpost_store::{Result, StoreError, TenantSettings};

#[derive(Debug, Default)]
pub(super) struct WriterCache {
    /// Never undone, for ids ascend.
    pub(super) ids: DeliveryIds,
    last_event: Option<i64>,
    /// The last event when the group began.
    last_committed_event: Option<i64>,
    tenants: FxHashMap<TenantId, TenantEntry>,
    /// The tenant's num of an endpoint; none if it is unknown or was removed.
    tenant_of: FxHashMap<EndpointId, Option<i64>>,
    partitions: Option<FxHashMap<u8, u64>>,
    /// The group wrote to the registry or the partitions.
    registry_changed: bool,
    pub(super) backlog: Backlog,
    pub(super) lanes: Lanes,
    /// The endpoint and key of the lane that the last step of pruning ended with.
    pub(super) pruned_lanes_to: Option<(i64, Vec<u8>)>,
}

/// A tenant as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub(super) struct TenantEntry {
    pub(super) num: i64,
    pub(super) backlog_max: u64,
    pub(super) subscribers: Arc<[Subscriber]>,
}

impl WriterCache {
    /// The group is committed.
    pub(super) fn committed(&mut self) {
        self.last_committed_event = self.last_event;
        self.registry_changed = false;
        self.backlog.committed();
        self.lanes.committed();
    }

    /// The group was given up.
    pub(super) fn undo(&mut self) {
        self.last_event = self.last_committed_event;
        if self.registry_changed {
            self.registry_changed();
            self.registry_changed = false;
        }
        self.backlog.undo();
        self.lanes.undo();
    }

    /// Forgets what a change may have changed.
    pub(super) fn registry_changed(&mut self) {
        self.tenants.clear();
        self.tenant_of.clear();
        self.partitions = None;
        self.registry_changed = true;
    }

    /// The next event's number.
    pub(super) fn next_event(&mut self, db: &Connection) -> Result<i64> {
        let last = match self.last_event {
            Some(last) => last,
            None => db
                .query_row("SELECT coalesce(max(num), 0) FROM events", [], |row| row.get(0))
                .translated()?,
        };
        self.last_event = Some(last + 1);
        Ok(last + 1)
    }

    /// A tenant that is not being erased.
    pub(super) fn tenant(&mut self, db: &Connection, id: &TenantId) -> Result<TenantEntry> {
        if let Some(known) = self.tenants.get(id) {
            return Ok(known.clone());
        }
        let sql = "SELECT num, settings FROM tenants WHERE id = ?1 AND NOT erasing";
        let row = db
            .prepare_cached(sql)
            .translated()?
            .query_row([id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
        let (num, settings) =
            row.optional().translated()?.ok_or_else(|| StoreError::not_found("tenant", id))?;
        let settings: TenantSettings = json(&settings, "a tenant's settings")?;
        let entry = TenantEntry {
            num,
            backlog_max: settings.backlog_max.unwrap_or(BACKLOG_MAX),
            subscribers: subscribers(db, num)?,
        };
        self.tenants.insert(id.clone(), entry.clone());
        Ok(entry)
    }

    /// A delivery of this endpoint was opened or closed.
    pub(super) fn backlog_changed(
        &mut self,
        db: &Connection,
        endpoint: EndpointId,
        by: i64,
    ) -> Result<()> {
        if let Some(tenant) = self.tenant_of(db, endpoint)? {
            self.backlog.change(tenant, by);
        }
        Ok(())
    }

    fn tenant_of(&mut self, db: &Connection, endpoint: EndpointId) -> Result<Option<i64>> {
        if let Some(known) = self.tenant_of.get(&endpoint) {
            return Ok(*known);
        }
        let sql = "SELECT tenant FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
        let found =
            db.prepare_cached(sql).translated()?.query_row([endpoint.to_bytes()], |row| row.get(0));
        let found = found.optional().translated()?;
        self.tenant_of.insert(endpoint, found);
        Ok(found)
    }

    /// The owner's epoch of every partition that ever had one.
    pub(super) fn partitions(&mut self, db: &Connection) -> Result<&FxHashMap<u8, u64>> {
        if self.partitions.is_none() {
            let mut statement =
                db.prepare_cached("SELECT id, epoch FROM partitions").translated()?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).translated()?;
            self.partitions = Some(rows.collect::<std::result::Result<_, _>>().translated()?);
        }
        Ok(self.partitions.get_or_insert_default())
    }
}

fn subscribers(db: &Connection, tenant: i64) -> Result<Arc<[Subscriber]>> {
    let sql = "SELECT num, id, settings FROM endpoints \
               WHERE tenant = ?1 AND removed_at IS NULL ORDER BY id";
    Ok(all(db, sql, [tenant], |columns| rows::subscriber(columns))?.into())
}
