//! Judging deliveries in SQLite.

use std::collections::BTreeMap;

use railpost_wire::DeliveryId;
use rusqlite::Connection;

use super::rows::{all, one};
use super::session::WriteSession;
use railpost_store::backend::codes::{RESOLUTION_JUDGED, SCOPE_JUDGED, millis};
use railpost_store::backend::figures::Bucket;
use railpost_store::backend::judging::{late_columns, late_page, late_row};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::LATE_PAGE_MAX;
use railpost_store::{Figures, LatePage, LateQuery, Result};

impl WriteSession<'_> {
    /// Adds figures, and says that deliveries were judged up to another one than so far.
    pub(super) fn add_judged(
        &self,
        was: Option<DeliveryId>,
        next: DeliveryId,
        sums: &BTreeMap<Bucket, Figures>,
    ) -> Result<bool> {
        if judged_before(self.db)? != was {
            return Ok(false);
        }
        self.add_figures(sums)?;
        let sql = "REPLACE INTO figures (resolution, at, scope, num, figures) \
                   VALUES (?1, 0, ?2, 0, ?3)";
        self.execute(sql, (RESOLUTION_JUDGED, SCOPE_JUDGED, next.to_bytes()))?;
        Ok(true)
    }
}

pub(super) fn judged_before(db: &Connection) -> Result<Option<DeliveryId>> {
    let sql = "SELECT figures FROM figures \
               WHERE resolution = ?1 AND at = 0 AND scope = ?2 AND num = 0";
    one(db, sql, (RESOLUTION_JUDGED, SCOPE_JUDGED), |columns| {
        Ok(DeliveryId::from_bytes(columns.array("how far deliveries were judged")?))
    })
}

/// Walks the deliveries of the stretch by their ids: there is no index of what is late, and one would cost
/// every delivery. The rows of a stretch lie together, and each is walked once in its life.
pub(super) fn late_deliveries(db: &Connection, query: &LateQuery) -> Result<LatePage> {
    let (from, end) = (query.from.to_bytes(), query.end().to_bytes());
    let deadline = millis(query.earliest_deadline());
    let rows =
        all(db, LATE_SQL, (from, end, deadline, LATE_PAGE_MAX), |columns| late_row(columns))?;
    Ok(late_page(query, rows))
}

const LATE_SQL: &str = concat!(
    "SELECT ",
    late_columns!(),
    " FROM deliveries AS d CROSS JOIN endpoints AS p ON p.num = d.endpoint \
     CROSS JOIN tenants AS t ON t.num = p.tenant LEFT JOIN deliveries AS h ON h.id = ( \
       SELECT id FROM deliveries INDEXED BY deliveries_open WHERE endpoint = d.endpoint \
       AND lane = d.lane AND standing <= 3 ORDER BY seq LIMIT 1) \
     WHERE d.id >= ?1 AND d.id < ?2 \
       AND (d.standing <= 4 OR (d.standing = 5 AND d.changed_at > ?3)) \
       AND p.removed_at IS NULL AND NOT t.erasing ORDER BY d.id LIMIT ?4"
);

#[cfg(test)]
mod tests {
    use super::super::session::testing::open;
    use super::*;
    use tempfile::TempDir;

    /// Whatever is stored: without statistics the plan is the same for an empty file.
    #[test]
    fn late_deliveries_are_found_by_ranges_of_ids_and_the_head_of_a_lane_by_what_is_open() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder.path().join("store.db"));
        let session = file.session().unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {LATE_SQL}");
        let mut statement = session.db.prepare(&sql).unwrap();
        let steps = statement.query_map(([0; 16], [1; 16], 0, 1), |row| row.get(3)).unwrap();
        let steps: Vec<String> = steps.map(|step| step.unwrap()).collect();
        assert_eq!(steps[0], "SEARCH d USING PRIMARY KEY (id>? AND id<?)");
        let head = "SEARCH deliveries USING COVERING INDEX deliveries_open (endpoint=? AND lane=?)";
        assert!(steps.iter().any(|step| step == head), "{steps:?}");
        let sorts = |step: &String| step.contains("TEMP B-TREE") || step.starts_with("SCAN");
        assert!(!steps.iter().any(sorts), "{steps:?}");
    }
}
