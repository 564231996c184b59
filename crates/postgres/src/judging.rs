//! Judging deliveries in PostgreSQL.

use railpost_wire::DeliveryId;
use tokio_postgres::Row;

use super::errors::Translate;
use super::figures::add_in;
use super::link::Values;
use super::node::{HeldTransaction, Node};
use super::rows::{all, one};
use railpost_store::backend::codes::{RESOLUTION_JUDGED, SCOPE_JUDGED, millis};
use railpost_store::backend::figures::by_bucket;
use railpost_store::backend::judging::{late_columns, late_page, late_row};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::LATE_PAGE_MAX;
use railpost_store::{JudgedStep, LatePage, LateQuery, Result, StoreError};

pub(super) async fn judged_before(node: &Node) -> Result<Option<DeliveryId>> {
    let sql = "SELECT f.figures FROM figures AS f \
               WHERE f.resolution = $1 AND f.at = 0 AND f.scope = $2 AND f.num = 0";
    let values: Values<'_> = &[&RESOLUTION_JUDGED, &SCOPE_JUDGED];
    read_judged_before(&node.reader().query(sql, values).await?)
}

/// An empty row stands for no row.
fn read_judged_before(rows: &[Row]) -> Result<Option<DeliveryId>> {
    let bytes = one(rows, |columns| columns.bytes())?.filter(|bytes| !bytes.is_empty());
    let id = |bytes: Vec<u8>| {
        let corrupt = |_| StoreError::Corrupt("how far deliveries were judged".to_owned());
        Ok(DeliveryId::from_bytes(bytes.try_into().map_err(corrupt)?))
    };
    bytes.map(id).transpose()
}

/// Walks the deliveries of the stretch by their ids: there is no index of what is late, and one would cost
/// every delivery.
pub(super) async fn late_deliveries(node: &Node, query: &LateQuery) -> Result<LatePage> {
    let sql = concat!(
        "SELECT ",
        late_columns!(),
        " FROM deliveries AS d JOIN endpoints AS p ON p.num = d.endpoint \
         JOIN tenants AS t ON t.num = p.tenant LEFT JOIN LATERAL ( \
           SELECT o.attempts, o.round_attempts, o.round_started_at FROM deliveries AS o \
           WHERE o.endpoint = d.endpoint AND o.lane = d.lane AND o.standing <= 3 \
             AND o.lane IS NOT NULL ORDER BY o.seq LIMIT 1) AS h ON true \
         WHERE d.id >= $1 AND d.id < $2 \
           AND (d.standing <= 4 OR (d.standing = 5 AND d.changed_at > $3)) \
           AND p.removed_at IS NULL AND NOT t.erasing ORDER BY d.id LIMIT $4"
    );
    let (from, end) = (query.from.to_bytes(), query.end().to_bytes());
    let (deadline, most) = (millis(query.earliest_deadline()), LATE_PAGE_MAX as i64);
    let values: Values<'_> = &[&from.as_slice(), &end.as_slice(), &deadline, &most];
    let rows = node.reader().query(sql, values).await?;
    Ok(late_page(query, all(&rows, |columns| late_row(columns))?))
}

/// Both are seen at once or not at all, so nobody waits for the disk: what a crash loses is judged again.
pub(super) async fn add_judged(node: &Node, step: JudgedStep) -> Result<bool> {
    let sums = by_bucket(step.figures);
    let adding = async |transaction: &HeldTransaction<'_>| {
        if lock_judged_before(transaction).await? != step.was {
            return Ok(false);
        }
        add_in(transaction, &sums).await?;
        let sql = "UPDATE figures SET figures = $3 \
                   WHERE resolution = $1 AND at = 0 AND scope = $2 AND num = 0";
        let id = step.judged_before.to_bytes();
        let values: Values<'_> = &[&RESOLUTION_JUDGED, &SCOPE_JUDGED, &id.as_slice()];
        transaction.execute(sql, values).await.translated()?;
        Ok(true)
    };
    node.upkeep.run(adding).await
}

/// Makes the row if it is missing, and locks it: another node waits, and then finds that it was late.
async fn lock_judged_before(transaction: &HeldTransaction<'_>) -> Result<Option<DeliveryId>> {
    let values: Values<'_> = &[&RESOLUTION_JUDGED, &SCOPE_JUDGED];
    let sql = "INSERT INTO figures (resolution, at, scope, num, figures) VALUES ($1, 0, $2, 0, '') \
               ON CONFLICT DO NOTHING";
    transaction.execute(sql, values).await.translated()?;
    let sql = "SELECT f.figures FROM figures AS f \
               WHERE f.resolution = $1 AND f.at = 0 AND f.scope = $2 AND f.num = 0 FOR UPDATE";
    read_judged_before(&transaction.query(sql, values).await.translated()?)
}
