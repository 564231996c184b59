//! What the writer remembers of the file, so that it need not look.
//!
//! All of it is in the file too: a group that fails makes the writer forget what it may have changed.

use std::sync::Arc;

use railpost_wire::{EndpointId, TenantId};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::lanes::Lanes;
use super::rows::{all, open_deliveries};
use super::unsettled::Unsettled;
use crate::delivery_ids::DeliveryIds;
use crate::fanout::Subscriber;
use crate::limits::BACKLOG_MAX;
use crate::rows::{self, json};
use crate::{Result, StoreError, TenantSettings};

#[derive(Debug)]
pub(super) struct Notes {
    pub(super) ids: DeliveryIds,
    last_event: Option<i64>,
    tenants: FxHashMap<TenantId, TenantEntry>,
    /// Open deliveries by `tenants.num`.
    backlog: FxHashMap<i64, u64>,
    /// The tenant's num of an endpoint; none if it is unknown or was removed.
    tenant_of: FxHashMap<EndpointId, Option<i64>>,
    partitions: Option<FxHashMap<u8, u64>>,
    pub(super) lanes: Lanes,
}

/// A tenant as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub(super) struct TenantEntry {
    pub(super) num: i64,
    pub(super) backlog_max: u64,
    pub(super) subscribers: Arc<[Subscriber]>,
}

impl Notes {
    pub(super) fn new(unsettled: Unsettled) -> Self {
        Self {
            ids: DeliveryIds::default(),
            last_event: None,
            tenants: FxHashMap::default(),
            backlog: FxHashMap::default(),
            tenant_of: FxHashMap::default(),
            partitions: None,
            lanes: Lanes::new(unsettled),
        }
    }

    /// Forgets everything that a failed group may have changed; not the last id, for ids ascend.
    pub(super) fn forget(&mut self) {
        self.last_event = None;
        self.lanes.forget();
        self.forget_registry();
        self.forget_backlogs();
    }

    /// Forgets what a change may have changed.
    pub(super) fn forget_registry(&mut self) {
        self.tenants.clear();
        self.tenant_of.clear();
        self.partitions = None;
    }

    /// Forgets how many deliveries are open: an endpoint is gone with all of its own.
    pub(super) fn forget_backlogs(&mut self) {
        self.backlog.clear();
    }

    /// The next event's number.
    pub(super) fn next_event(&mut self, db: &Connection) -> Result<i64> {
        let last = match self.last_event {
            Some(last) => last,
            None => {
                db.query_row("SELECT coalesce(max(num), 0) FROM events", [], |row| row.get(0))?
            }
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
            .prepare_cached(sql)?
            .query_row([id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
        let (num, settings) = row.optional()?.ok_or_else(|| StoreError::not_found("tenant", id))?;
        let settings: TenantSettings = json(&settings, "a tenant's settings")?;
        let entry = TenantEntry {
            num,
            backlog_max: settings.backlog_max.unwrap_or(BACKLOG_MAX),
            subscribers: subscribers(db, num)?,
        };
        self.tenants.insert(id.clone(), entry.clone());
        Ok(entry)
    }

    /// How many open deliveries a tenant has.
    pub(super) fn backlog(&mut self, db: &Connection, tenant: i64) -> Result<u64> {
        if let Some(known) = self.backlog.get(&tenant) {
            return Ok(*known);
        }
        let sql = concat!(
            "WITH whose AS (SELECT num FROM endpoints WHERE tenant = ?1 AND removed_at IS NULL) \
             SELECT count(*) FROM ",
            open_deliveries!()
        );
        let open: u64 = db.prepare_cached(sql)?.query_row([tenant], |row| row.get(0))?;
        self.backlog.insert(tenant, open);
        Ok(open)
    }

    /// A delivery of this endpoint was opened or closed.
    pub(super) fn backlog_changed(
        &mut self,
        db: &Connection,
        endpoint: EndpointId,
        change: i64,
    ) -> Result<()> {
        if let Some(tenant) = self.tenant_of(db, endpoint)?
            && let Some(open) = self.backlog.get_mut(&tenant)
        {
            *open = open.saturating_add_signed(change);
        }
        Ok(())
    }

    fn tenant_of(&mut self, db: &Connection, endpoint: EndpointId) -> Result<Option<i64>> {
        if let Some(known) = self.tenant_of.get(&endpoint) {
            return Ok(*known);
        }
        let sql = "SELECT tenant FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
        let found = db.prepare_cached(sql)?.query_row([endpoint.to_bytes()], |row| row.get(0));
        let found = found.optional()?;
        self.tenant_of.insert(endpoint, found);
        Ok(found)
    }

    /// The owner's epoch of every partition that ever had one.
    pub(super) fn partitions(&mut self, db: &Connection) -> Result<&FxHashMap<u8, u64>> {
        if self.partitions.is_none() {
            let mut statement = db.prepare_cached("SELECT id, epoch FROM partitions")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            self.partitions = Some(rows.collect::<std::result::Result<_, _>>()?);
        }
        Ok(self.partitions.get_or_insert_default())
    }
}

fn subscribers(db: &Connection, tenant: i64) -> Result<Arc<[Subscriber]>> {
    let sql = "SELECT num, id, settings FROM endpoints \
               WHERE tenant = ?1 AND removed_at IS NULL ORDER BY id";
    Ok(all(db, sql, [tenant], |columns| rows::subscriber(columns))?.into())
}
