//! What a node remembers of tenants and of their backlogs, and how it notices that it is old.
//!
//! Every change to a tenant that its accepts have to know of counts `tenants.changes` up. What is
//! remembered of a tenant belongs to one count, and an accept commits only if the count is still that one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_wire::{EndpointId, TenantId};
use tokio::time::Instant;

use super::link::Link;
use super::rows::{all, one, open_deliveries};
use crate::limits::{BACKLOG_RECOUNT, BACKLOG_REFUSE_WITHIN};
use railpost_store::backend::fanout::Subscriber;
use railpost_store::backend::rows::{self, Columns};
use railpost_store::limits::BACKLOG_MAX;
use railpost_store::{Result, StoreError, TenantSettings};

/// A tenant as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub(super) struct TenantEntry {
    pub(super) num: i64,
    pub(super) backlog_max: u64,
    pub(super) subscribers: Arc<[Subscriber]>,
    /// The count of the tenant's changes that it belongs to.
    pub(super) changes: i64,
}

#[derive(Debug, Default)]
pub(super) struct TenantCache {
    cached: Mutex<CachedTenants>,
}

#[derive(Debug, Default)]
struct CachedTenants {
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

impl TenantCache {
    fn cached(&self) -> MutexGuard<'_, CachedTenants> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tenants, by their numbers, have changed. How much each has open stays known.
    pub(super) fn forget(&self, nums: &[i64]) {
        if !nums.is_empty() {
            self.cached().tenants.retain(|_, entry| !nums.contains(&entry.num));
        }
    }

    /// The open deliveries of tenants, by their numbers, have to be counted again.
    pub(super) fn forget_backlogs(&self, nums: &[i64]) {
        let cached = &mut *self.cached();
        for num in nums {
            cached.backlogs.remove(num);
        }
    }

    /// For each tenant its entry, or why there is none.
    pub(super) async fn entries(
        &self,
        link: &Link,
        tenants: impl Iterator<Item = &TenantId>,
    ) -> Result<Vec<Result<TenantEntry>>> {
        let mut found = Vec::new();
        for tenant in tenants {
            match self.entry(link, tenant).await {
                Err(error) if error.is_environment() => return Err(error),
                entry => found.push(entry),
            }
        }
        Ok(found)
    }

    async fn entry(&self, link: &Link, tenant: &TenantId) -> Result<TenantEntry> {
        if let Some(known) = self.cached().tenants.get(tenant) {
            return Ok(known.clone());
        }
        let sql = "SELECT t.changes, t.num, t.settings FROM tenants AS t \
                   WHERE t.id = $1 AND NOT t.erasing";
        let rows = link.query(sql, &[&tenant.as_str()]).await?;
        let found = one(&rows, |columns| {
            let changes = columns.number("a count of changes")?;
            let num: i64 = columns.number("a tenant's number")?;
            Ok((changes, num, columns.json::<TenantSettings>("a tenant's settings")?))
        })?;
        let (changes, num, settings) =
            found.ok_or_else(|| StoreError::not_found("tenant", tenant))?;
        let subscribers = subscribers(link, num).await?;
        let backlog_max = settings.backlog_max.unwrap_or(BACKLOG_MAX);
        // Read after the count: if they have changed since, the count has too, and an accept notices.
        let entry = TenantEntry { num, backlog_max, subscribers, changes };
        let mut cached = self.cached();
        let endpoints = entry.subscribers.iter().map(|subscriber| (subscriber.id, num));
        cached.tenant_of.extend(endpoints);
        cached.tenants.insert(tenant.clone(), entry.clone());
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
        let known = self.cached().backlogs.get(&tenant.num).copied();
        let age = known.map(|known| known.counted_at.elapsed());
        let open = match (known, age) {
            (Some(known), Some(age))
                if fits(known.open) && age < Duration::from(BACKLOG_RECOUNT) =>
            {
                known.open
            }
            (Some(known), Some(age)) if age < Duration::from(BACKLOG_REFUSE_WITHIN) => known.open,
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
        self.cached().backlogs.insert(tenant, counted);
        Ok(open)
    }

    /// Deliveries of a tenant were opened.
    pub(super) fn opened(&self, tenant: i64, count: u64) {
        if let Some(backlog) = self.cached().backlogs.get_mut(&tenant) {
            backlog.open += count;
        }
    }

    /// A delivery of this endpoint was closed.
    pub(super) fn closed(&self, endpoint: EndpointId) {
        let cached = &mut *self.cached();
        let tenant = cached.tenant_of.get(&endpoint);
        if let Some(backlog) = tenant.and_then(|tenant| cached.backlogs.get_mut(tenant)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_tenant_leaves_the_others_and_all_backlogs_known() {
        let tenants = TenantCache::default();
        for (num, id) in [(1, "one"), (2, "two")] {
            let entry = TenantEntry { num, backlog_max: 9, subscribers: Arc::new([]), changes: 0 };
            tenants.cached().tenants.insert(id.parse().unwrap(), entry);
            let backlog = Backlog { open: 5, counted_at: Instant::now() };
            tenants.cached().backlogs.insert(num, backlog);
        }
        tenants.forget(&[1]);
        let known: Vec<_> = tenants.cached().tenants.keys().map(TenantId::to_string).collect();
        assert_eq!(known, ["two"]);
        tenants.opened(1, 2);
        assert_eq!(tenants.cached().backlogs[&1].open, 7);
        tenants.forget_backlogs(&[1]);
        assert!(!tenants.cached().backlogs.contains_key(&1));
        assert_eq!(tenants.cached().backlogs[&2].open, 5);
    }
}
