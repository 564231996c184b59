//! What a node remembers of the registry and of backlogs, and how it notices that it is old.
//!
//! Every change to the registry counts `store.registry` up. What is remembered belongs to one count,
//! and an accept commits only if the count is still that one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use railpost_wire::{EndpointId, TenantId};
use tokio::time::Instant;

use super::link::{Link, duration};
use super::rows::{all, one, open_deliveries};
use crate::fanout::Subscriber;
use crate::limits::{BACKLOG_MAX, BACKLOG_RECOUNT, BACKLOG_REFUSE_WITHIN};
use crate::rows::{self, Columns};
use crate::{Result, StoreError, TenantSettings};

/// A tenant as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub(super) struct TenantEntry {
    pub(super) num: i64,
    pub(super) backlog_max: u64,
    pub(super) subscribers: Arc<[Subscriber]>,
    /// The count of changes that it belongs to.
    pub(super) registry: i64,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    tenants: HashMap<TenantId, TenantEntry>,
    /// The tenant's num by endpoint.
    tenant_of: HashMap<EndpointId, i64>,
    /// Open deliveries by the tenant's num.
    backlogs: HashMap<i64, Backlog>,
}

#[derive(Clone, Copy, Debug)]
struct Backlog {
    open: u64,
    counted_at: Instant,
}

impl Directory {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registry has changed.
    pub(super) fn forget(&self) {
        *self.memory() = Memory::default();
    }

    /// Entries that belong to one count of changes; or for each tenant why there is none.
    pub(super) async fn entries(
        &self,
        link: &Link,
        tenants: impl Iterator<Item = &TenantId> + Clone,
    ) -> Result<Vec<Result<TenantEntry>>> {
        loop {
            let mut found = Vec::new();
            for tenant in tenants.clone() {
                match self.entry(link, tenant).await {
                    Err(error) if error.is_environment() => return Err(error),
                    entry => found.push(entry),
                }
            }
            let mut counts = found.iter().flatten().map(|entry| entry.registry);
            let first = counts.next();
            if counts.all(|count| Some(count) == first) {
                return Ok(found);
            }
            self.forget();
        }
    }

    async fn entry(&self, link: &Link, tenant: &TenantId) -> Result<TenantEntry> {
        if let Some(known) = self.memory().tenants.get(tenant) {
            return Ok(known.clone());
        }
        let sql = "SELECT s.registry, t.num, t.settings FROM store AS s, tenants AS t \
                   WHERE t.id = $1 AND NOT t.erasing";
        let rows = link.query(sql, &[&tenant.as_str()]).await?;
        let found = one(&rows, |columns| {
            let registry = columns.number("a count of changes")?;
            let num: i64 = columns.number("a tenant's number")?;
            Ok((registry, num, columns.json::<TenantSettings>("a tenant's settings")?))
        })?;
        let (registry, num, settings) =
            found.ok_or_else(|| StoreError::not_found("tenant", tenant))?;
        let subscribers = subscribers(link, num).await?;
        let backlog_max = settings.backlog_max.unwrap_or(BACKLOG_MAX);
        let entry = TenantEntry { num, backlog_max, subscribers, registry };
        let mut memory = self.memory();
        let endpoints = entry.subscribers.iter().map(|subscriber| (subscriber.id, num));
        memory.tenant_of.extend(endpoints);
        memory.tenants.insert(tenant.clone(), entry.clone());
        Ok(entry)
    }

    /// Refuses if `added` more open deliveries would be too many.
    pub(super) async fn check_backlog(
        &self,
        link: &Link,
        tenant: &TenantEntry,
        added: u64,
    ) -> Result<()> {
        let fits = |open: u64| added == 0 || open + added <= tenant.backlog_max;
        let known = self.memory().backlogs.get(&tenant.num).copied();
        let age = known.map(|known| known.counted_at.elapsed());
        let open = match (known, age) {
            (Some(known), Some(age)) if fits(known.open) && age < duration(BACKLOG_RECOUNT) => {
                known.open
            }
            (Some(known), Some(age)) if age < duration(BACKLOG_REFUSE_WITHIN) => known.open,
            _ => self.count(link, tenant.num).await?,
        };
        if fits(open) {
            return Ok(());
        }
        Err(StoreError::BacklogFull { open, max: tenant.backlog_max })
    }

    async fn count(&self, link: &Link, tenant: i64) -> Result<u64> {
        let sql = concat!(
            "WITH whose AS MATERIALIZED ( \
               SELECT num FROM endpoints WHERE tenant = $1 AND removed_at IS NULL) \
             SELECT count(*) FROM ",
            open_deliveries!(),
            " AS d"
        );
        let rows = link.query(sql, &[&tenant]).await?;
        let open = one(&rows, |columns| columns.number("a count"))?.unwrap_or_default();
        let counted = Backlog { open, counted_at: Instant::now() };
        self.memory().backlogs.insert(tenant, counted);
        Ok(open)
    }

    /// Deliveries of a tenant were opened.
    pub(super) fn opened(&self, tenant: i64, count: u64) {
        if let Some(backlog) = self.memory().backlogs.get_mut(&tenant) {
            backlog.open += count;
        }
    }

    /// A delivery of this endpoint was closed.
    pub(super) fn closed(&self, endpoint: EndpointId) {
        let memory = &mut *self.memory();
        let tenant = memory.tenant_of.get(&endpoint);
        if let Some(backlog) = tenant.and_then(|tenant| memory.backlogs.get_mut(tenant)) {
            backlog.open = backlog.open.saturating_sub(1);
        }
    }
}

async fn subscribers(link: &Link, tenant: i64) -> Result<Arc<[Subscriber]>> {
    let sql = "SELECT num, id, settings FROM endpoints \
               WHERE tenant = $1 AND removed_at IS NULL ORDER BY id";
    let rows = link.query(sql, &[&tenant]).await?;
    Ok(all(&rows, |columns| rows::subscriber(columns))?.into())
}
