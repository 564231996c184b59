//! How many deliveries each tenant has open, as far as the writer had to count them.
//!
//! Counting a tenant reads all that it has open. So it is done once, and every group brings the count up to
//! date; a group that is given up takes back its own changes.

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::rows::open_deliveries;
use crate::Result;

/// Open deliveries by `tenants.num`.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    open: FxHashMap<i64, u64>,
    /// What this group changed.
    changes: FxHashMap<i64, i64>,
    /// Whom this group counted, perhaps with changes of its own.
    counted: Vec<i64>,
    /// How often a tenant was counted.
    #[cfg(test)]
    pub(super) counts: u64,
}

impl Backlog {
    /// How many open deliveries a tenant has, if they were counted.
    pub(super) fn get(&self, tenant: i64) -> Option<u64> {
        self.open.get(&tenant).copied()
    }

    /// Counts them. What the group made has to be in the file.
    pub(super) fn count(&mut self, db: &Connection, tenant: i64) -> Result<u64> {
        let sql = concat!(
            "WITH whose AS (SELECT num FROM endpoints WHERE tenant = ?1 AND removed_at IS NULL) \
             SELECT count(*) FROM ",
            open_deliveries!()
        );
        let open: u64 = db.prepare_cached(sql)?.query_row([tenant], |row| row.get(0))?;
        self.open.insert(tenant, open);
        self.counted.push(tenant);
        #[cfg(test)]
        {
            self.counts += 1;
        }
        Ok(open)
    }

    /// Deliveries of this tenant were opened or closed.
    pub(super) fn change(&mut self, tenant: i64, by: i64) {
        if let Some(open) = self.open.get_mut(&tenant) {
            *open = open.saturating_add_signed(by);
            *self.changes.entry(tenant).or_default() += by;
        }
    }

    pub(super) fn forget(&mut self, tenant: i64) {
        self.open.remove(&tenant);
        self.changes.remove(&tenant);
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        self.changes.clear();
        self.counted.clear();
    }

    /// The group was given up.
    pub(super) fn undo(&mut self) {
        for (tenant, by) in self.changes.drain() {
            if let Some(open) = self.open.get_mut(&tenant) {
                *open = open.saturating_add_signed(-by);
            }
        }
        for tenant in self.counted.drain(..) {
            self.open.remove(&tenant);
        }
    }
}
