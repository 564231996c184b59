//! Figures over time in SQLite.

use std::collections::BTreeMap;

use railpost_engine::Timestamp;
use rusqlite::Connection;

use super::rows::{all, one};
use super::session::WriteSession;
use railpost_store::backend::codes::{
    SCOPE_ENDPOINT, SCOPE_TENANT, millis, resolution_code, scope_code,
};
use railpost_store::backend::figures::{Bucket, READ_MAX, read_buckets};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::FIGURES_PRUNE_MAX;
use railpost_store::{Figures, FiguresScope, Period, Resolution, Result};

impl WriteSession<'_> {
    pub(super) fn add_figures(&self, sums: &BTreeMap<Bucket, Figures>) -> Result<()> {
        let mut nums = BTreeMap::new();
        for (bucket, figures) in sums {
            let num = match nums.get(&bucket.scope) {
                Some(known) => *known,
                None => scope_num(self.db, &bucket.scope)?,
            };
            nums.insert(&bucket.scope, num);
            if let Some(num) = num {
                self.add_to_bucket(bucket, num, figures)?;
            }
        }
        Ok(())
    }

    fn add_to_bucket(&self, bucket: &Bucket, num: i64, figures: &Figures) -> Result<()> {
        let (resolution, at) = (resolution_code(bucket.resolution), millis(bucket.at));
        let scope = scope_code(&bucket.scope);
        let sql = "SELECT figures FROM figures \
                   WHERE resolution = ?1 AND at = ?2 AND scope = ?3 AND num = ?4";
        let key = (resolution, at, scope, num);
        let stored = one(self.db, sql, key, |columns| columns.bytes())?;
        let sum = figures.merged_with_stored(stored.as_deref())?;
        let sql = "REPLACE INTO figures (resolution, at, scope, num, figures) \
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(sql, (resolution, at, scope, num, sum))?;
        Ok(())
    }

    /// Deletes what is past its time and says how many rows that were.
    pub(super) fn prune_figures(&self) -> Result<u64> {
        let sql = "DELETE FROM figures WHERE (resolution, at, scope, num) IN \
                   (SELECT resolution, at, scope, num FROM figures \
                    WHERE resolution = ?1 AND at < ?2 ORDER BY at LIMIT ?3)";
        let prune = |resolution: Resolution| {
            let from = millis(resolution.kept_from(self.now()));
            self.execute(sql, (resolution_code(resolution), from, FIGURES_PRUNE_MAX))
        };
        Ok(prune(Resolution::Minute)? + prune(Resolution::Hour)?)
    }

    /// Deletes up to `limit` rows of a tenant and its endpoints.
    pub(super) fn erase_figures(&self, tenant: i64, limit: usize) -> Result<usize> {
        let sql = "DELETE FROM figures WHERE (resolution, at, scope, num) IN ( \
                   SELECT f.resolution, f.at, f.scope, f.num FROM figures AS f \
                   WHERE f.scope = ?2 AND f.num = ?1 UNION ALL \
                   SELECT f.resolution, f.at, f.scope, f.num FROM endpoints AS p \
                   JOIN figures AS f ON f.scope = ?3 AND f.num = p.num WHERE p.tenant = ?1 \
                   LIMIT ?4)";
        let gone = self.execute(sql, (tenant, SCOPE_TENANT, SCOPE_ENDPOINT, limit))?;
        Ok(gone as usize)
    }
}

/// What a scope is called in a row; nothing if it was deleted.
fn scope_num(db: &Connection, scope: &FiguresScope) -> Result<Option<i64>> {
    let num = |columns: &mut super::rows::RowReader<'_, '_>| columns.number("a scope's number");
    match scope {
        FiguresScope::All => Ok(Some(0)),
        FiguresScope::Tenant(id) => {
            let sql = "SELECT num FROM tenants WHERE id = ?1 AND NOT erasing";
            one(db, sql, [id.as_str()], num)
        }
        FiguresScope::Endpoint(id) => {
            let sql = "SELECT p.num FROM endpoints AS p \
                       JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = ?1";
            one(db, sql, [id.to_bytes()], num)
        }
    }
}

pub(super) fn figures(
    db: &Connection,
    scope: &FiguresScope,
    resolution: Resolution,
    period: Period,
) -> Result<Vec<(Timestamp, Figures)>> {
    let Some(num) = scope_num(db, scope)? else { return Ok(vec![]) };
    let (from, before) = period.millis();
    let sql = "SELECT at, figures FROM figures INDEXED BY figures_by_scope \
               WHERE scope = ?1 AND num = ?2 AND resolution = ?3 AND at >= ?4 AND at < ?5 \
               ORDER BY at LIMIT ?6";
    let resolution = resolution_code(resolution);
    let values = (scope_code(scope), num, resolution, from, before, READ_MAX);
    read_buckets(all(db, sql, values, |columns| Ok((columns.instant()?, columns.bytes()?)))?)
}
