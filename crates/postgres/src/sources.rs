//! Sources and parked rows in PostgreSQL.

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::Span;
use railpost_wire::TenantId;

use super::PostgresStore;
use super::errors::Translate;
use super::link::Values;
use super::node::{HeldTransaction, Node};
use super::registry::write_audit;
use super::rows::{all, one};
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{self, Columns, parked_columns, to_json};
use railpost_store::limits::{BATCH_BYTES_MAX, PARKED_COMMAND_HEADS_MAX};
use railpost_store::{
    AuditEntry, Epoch, Hold, Listing, ParkBatch, ParkOutcome, ParkedAction, ParkedCommand,
    ParkedHolds, ParkedQuery, ParkedRow, ParkedSummary, ParkedTarget, ReleaseStep, ReleasedRow,
    Result, SourceLease, SourceName, SourcePosition, Sources, StoreError, lease_lost,
};

#[async_trait]
impl Sources for PostgresStore {
    async fn lease_source(
        &self,
        source: &SourceName,
        holder: &str,
        length: Span,
    ) -> Result<SourceLease> {
        check::lease(holder)?;
        self::lease_source(&self.node, source, holder, length).await
    }

    async fn release_source(&self, source: &SourceName, epoch: Epoch) -> Result<()> {
        release_source(&self.node, source, epoch).await
    }

    async fn source_position(&self, source: &SourceName) -> Result<Option<SourcePosition>> {
        source_position(&self.node, source).await
    }

    async fn save_source_position(
        &self,
        source: &SourceName,
        epoch: Epoch,
        position: SourcePosition,
    ) -> Result<()> {
        check::position(&position)?;
        save_source_position(&self.node, source, epoch, &position).await
    }

    async fn park(&self, batch: ParkBatch) -> Result<ParkOutcome> {
        let bytes = check::park(&batch)?;
        park(&self.node, &batch, bytes).await
    }

    async fn parked_holds(&self, source: &SourceName) -> Result<ParkedHolds> {
        parked_holds(&self.node, source).await
    }

    async fn parked_rows(&self, query: ParkedQuery) -> Result<Listing<ParkedRow>> {
        parked_rows(&self.node, &query).await
    }

    async fn parked_row(&self, source: &SourceName, number: u64) -> Result<Option<ParkedRow>> {
        parked_row(&self.node, source, number).await
    }

    async fn parked_payload(&self, source: &SourceName, number: u64) -> Result<Option<Bytes>> {
        parked_payload(&self.node, source, number).await
    }

    async fn command_parked(&self, command: ParkedCommand) -> Result<u64> {
        command.audit.as_ref().map_or(Ok(()), check::audit)?;
        command_parked(&self.node, &command).await
    }

    async fn released_rows(&self, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>> {
        released_rows(&self.node, source, limit).await
    }

    async fn end_release(&self, step: ReleaseStep) -> Result<()> {
        check::release_step(&step)?;
        end_release(&self.node, &step).await
    }

    async fn forget_source(&self, source: &SourceName) -> Result<()> {
        forget_source(&self.node, source).await
    }

    async fn known_sources(&self) -> Result<Vec<SourceName>> {
        known_sources(&self.node).await
    }

    async fn grant_emit(
        &self,
        role: &str,
        tenant: &TenantId,
        audit: Option<AuditEntry>,
    ) -> Result<()> {
        audit.as_ref().map_or(Ok(()), check::audit)?;
        super::emit_roles::grant(&self.node, role, tenant, audit.as_ref()).await
    }

    async fn revoke_emit(&self, role: &str, audit: Option<AuditEntry>) -> Result<()> {
        audit.as_ref().map_or(Ok(()), check::audit)?;
        super::emit_roles::revoke(&self.node, role, audit.as_ref()).await
    }

    async fn emit_grants(&self) -> Result<Vec<(String, TenantId)>> {
        super::emit_roles::grants(&self.node).await
    }
}

async fn lease_source(
    node: &Node,
    source: &SourceName,
    holder: &str,
    length: Span,
) -> Result<SourceLease> {
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let leasing = async |held: &HeldTransaction<'_>| {
        let sql = "
            INSERT INTO sources AS s (name, lease_holder, lease_epoch, lease_until)
                VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 millisecond')
            ON CONFLICT (name) DO UPDATE SET lease_holder = $2, lease_until = excluded.lease_until,
                lease_epoch = s.lease_epoch
                    + CASE WHEN s.lease_holder = $2 AND s.lease_until > clock_timestamp() THEN 0 ELSE 1 END
                WHERE s.lease_holder IS NULL OR s.lease_holder = $2 OR s.lease_until <= clock_timestamp()
            RETURNING lease_epoch, parked_version, parked_rows, parked_bytes";
        let length = length as f64;
        let taken = held.query(sql, &[&source.as_str(), &holder, &length]).await.translated()?;
        let taken = one(&taken, |columns| {
            let epoch = Epoch(columns.number("an epoch")?);
            Ok(SourceLease::Held { epoch, parked: rows::parked_summary(columns)? })
        })?;
        if let Some(lease) = taken {
            return Ok(lease);
        }
        let sql = "SELECT coalesce(lease_holder, '') FROM sources WHERE name = $1";
        let found = held.query(sql, &[&source.as_str()]).await.translated()?;
        let holder = one(&found, |columns| columns.word())?.unwrap_or_default();
        Ok(SourceLease::Elsewhere { holder })
    };
    node.changes.run(leasing).await
}

async fn release_source(node: &Node, source: &SourceName, epoch: Epoch) -> Result<()> {
    let releasing = async |held: &HeldTransaction<'_>| {
        let sql = "UPDATE sources SET lease_holder = NULL WHERE name = $1 AND lease_epoch = $2";
        held.execute(sql, &[&source.as_str(), &(epoch.0 as i64)]).await.translated()?;
        Ok(())
    };
    node.changes.run(releasing).await
}

/// The source's row, locked; refused if the lease is somebody else's.
async fn leased(
    held: &HeldTransaction<'_>,
    source: &SourceName,
    epoch: Epoch,
) -> Result<ParkedSummary> {
    let sql = "SELECT parked_version, parked_rows, parked_bytes FROM sources \
               WHERE name = $1 AND lease_epoch = $2 FOR UPDATE";
    let found = held.query(sql, &[&source.as_str(), &(epoch.0 as i64)]).await.translated()?;
    let summary = one(&found, |columns| rows::parked_summary(columns))?;
    summary.ok_or_else(|| lease_lost(source))
}

async fn source_position(node: &Node, source: &SourceName) -> Result<Option<SourcePosition>> {
    let sql = "SELECT system, position FROM sources WHERE name = $1 AND system IS NOT NULL";
    let found = node.reader().query(sql, &[&source.as_str()]).await?;
    one(&found, |columns| {
        Ok(SourcePosition { system: columns.word()?, number: columns.number("a position")? })
    })
}

async fn save_source_position(
    node: &Node,
    source: &SourceName,
    epoch: Epoch,
    position: &SourcePosition,
) -> Result<()> {
    let number = position.number as i64;
    let saving = async |held: &HeldTransaction<'_>| {
        leased(held, source, epoch).await?;
        let sql = "UPDATE sources SET system = $2, position = $3 WHERE name = $1";
        let values: Values<'_> = &[&source.as_str(), &position.system, &number];
        held.execute(sql, values).await.translated()?;
        Ok(())
    };
    node.changes.run(saving).await
}

async fn park(node: &Node, batch: &ParkBatch, bytes: u64) -> Result<ParkOutcome> {
    let now = millis(node.setup.source.now());
    let parking = async |held: &HeldTransaction<'_>| {
        let summary = leased(held, &batch.source, batch.epoch).await?;
        if summary.version != batch.version {
            return Ok(ParkOutcome::Changed);
        }
        if !check::parked_fit(summary, batch.rows.len(), bytes) {
            return Ok(ParkOutcome::Full(summary));
        }
        let (rows, bytes) = add_parked(held, batch, now).await?;
        count_parked(held, &batch.source, rows, bytes).await?;
        Ok(ParkOutcome::Parked)
    };
    node.changes.run(parking).await
}

/// In one statement, in order. Answers how many rows were not parked yet, and their bytes.
async fn add_parked(held: &HeldTransaction<'_>, batch: &ParkBatch, now: i64) -> Result<(i64, i64)> {
    let sql = "
        WITH added AS (
            INSERT INTO parked (source, hold, tenant, parked_at, bytes, refusal, fields, payload, digest)
            SELECT $1, r.hold, r.tenant, $2, r.bytes, r.refusal, r.fields, r.payload, r.digest
            FROM unnest($3::bytea[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bytea[], $9::bytea[])
                WITH ORDINALITY AS r (hold, tenant, bytes, refusal, fields, payload, digest, ord)
            ORDER BY r.ord
            ON CONFLICT (source, digest) DO NOTHING
            RETURNING bytes
        )
        SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM added";
    let rows = &batch.rows;
    let holds: Vec<_> = rows.iter().map(|row| row.hold.as_ref().map(|hold| &hold.0[..])).collect();
    // A text cannot hold every character: then it is no tenant's id either.
    let tenant = |text: &&str| !text.contains('\0');
    let tenants: Vec<_> =
        rows.iter().map(|row| row.fields.tenant.as_deref().filter(tenant)).collect();
    let bytes: Vec<i64> = rows.iter().map(|row| check::parked_len(row) as i64).collect();
    let refusals: Vec<_> = rows.iter().map(|row| row.refusal.as_ref().map(to_json)).collect();
    let fields: Vec<_> = rows.iter().map(|row| to_json(&row.fields)).collect();
    let payloads: Vec<_> = rows.iter().map(|row| row.payload.as_deref()).collect();
    let digests: Vec<_> = rows.iter().map(|row| check::parked_digest(row).to_vec()).collect();
    let values: Values<'_> = &[
        &batch.source.as_str(),
        &now,
        &holds,
        &tenants,
        &bytes,
        &refusals,
        &fields,
        &payloads,
        &digests,
    ];
    let added = held.query_one(sql, values).await.translated()?;
    Ok((added.get(0), added.get(1)))
}

async fn count_parked(
    held: &HeldTransaction<'_>,
    source: &SourceName,
    rows: i64,
    bytes: i64,
) -> Result<()> {
    let sql = "UPDATE sources SET parked_rows = parked_rows + $2, parked_bytes = parked_bytes + $3 \
               WHERE name = $1";
    held.execute(sql, &[&source.as_str(), &rows, &bytes]).await.translated()?;
    Ok(())
}

async fn parked_holds(node: &Node, source: &SourceName) -> Result<ParkedHolds> {
    // One statement, so that the version is that of the holds.
    let sql = "SELECT s.parked_version, s.parked_rows, s.parked_bytes, p.hold FROM sources AS s \
               LEFT JOIN LATERAL (SELECT DISTINCT hold FROM parked \
                 WHERE source = s.name AND hold IS NOT NULL) AS p ON true \
               WHERE s.name = $1 ORDER BY p.hold";
    let found = node.reader().query(sql, &[&source.as_str()]).await?;
    let mut answer = ParkedHolds::default();
    for row in all(&found, |columns| {
        Ok((rows::parked_summary(columns)?, columns.maybe_array("a hold")?.map(Hold)))
    })? {
        answer.summary = row.0;
        answer.holds.extend(row.1);
    }
    Ok(answer)
}

async fn parked_rows(node: &Node, query: &ParkedQuery) -> Result<Listing<ParkedRow>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<i64>(ListKind::ParkedRows)?.unwrap_or_default();
    let sql = concat!(
        "SELECT ",
        parked_columns!(),
        " FROM parked AS p WHERE p.source = $1 AND p.num > $2 AND (NOT $3 OR p.refusal IS NOT NULL) \
         AND ($4::text IS NULL OR p.refusal::json ->> 'code' = $4) AND ($5::text IS NULL OR p.tenant = $5) \
         ORDER BY p.num LIMIT $6"
    );
    let most = limit as i64 + 1;
    let ParkedQuery { source, refused_only, code, tenant, .. } = query;
    let values: Values<'_> = &[&source.as_str(), &after, refused_only, code, tenant, &most];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        let row = rows::parked_row(columns)?;
        Ok((row.number as i64, row))
    })?;
    Ok(Listing::cut(found, limit, ListKind::ParkedRows))
}

async fn parked_row(node: &Node, source: &SourceName, number: u64) -> Result<Option<ParkedRow>> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let sql = concat!(
        "SELECT ",
        parked_columns!(),
        " FROM parked AS p WHERE p.source = $1 AND p.num = $2"
    );
    let found = node.reader().query(sql, &[&source.as_str(), &number]).await?;
    one(&found, |columns| rows::parked_row(columns))
}

async fn parked_payload(node: &Node, source: &SourceName, number: u64) -> Result<Option<Bytes>> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let sql = "SELECT payload FROM parked WHERE source = $1 AND num = $2";
    let found = node.reader().query(sql, &[&source.as_str(), &number]).await?;
    Ok(one(&found, |columns| columns.blob())?.flatten().map(Bytes::from))
}

async fn command_parked(node: &Node, command: &ParkedCommand) -> Result<u64> {
    let commanding = async |held: &HeldTransaction<'_>| {
        let source = &command.source;
        let sql = "SELECT FROM sources WHERE name = $1 FOR UPDATE";
        held.execute(sql, &[&source.as_str()]).await.translated()?;
        let mut about = 0;
        let heads = heads(held, command).await?;
        match command.action {
            ParkedAction::Retry => {
                let sql = "UPDATE parked SET released = true WHERE num = ANY ($1)";
                about += held.execute(sql, &[&heads]).await.translated()?;
            }
            ParkedAction::Skip => {
                about += heads.len() as u64;
                remove_parked(held, source, &heads, true).await?;
            }
            ParkedAction::Discard => {
                let sql = "SELECT b.num FROM parked AS p JOIN parked AS b \
                           ON b.source = p.source AND (b.num = p.num OR b.hold = p.hold) \
                           WHERE p.num = ANY ($1)";
                let rows = held.query(sql, &[&heads]).await.translated()?;
                let all: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                about += all.len() as u64;
                remove_parked(held, source, &all, false).await?;
            }
        }
        if about > 0 {
            raise_version(held, source).await?;
            if let Some(entry) = &command.audit {
                write_audit(held, entry).await?;
            }
        }
        Ok(about)
    };
    node.changes.run(commanding).await
}

async fn raise_version(held: &HeldTransaction<'_>, source: &SourceName) -> Result<()> {
    let sql = "UPDATE sources SET parked_version = parked_version + 1 WHERE name = $1";
    held.execute(sql, &[&source.as_str()]).await.translated()?;
    Ok(())
}

/// The heads that a command is about.
async fn heads(held: &HeldTransaction<'_>, command: &ParkedCommand) -> Result<Vec<i64>> {
    let sql = "SELECT p.num FROM parked AS p WHERE p.source = $1 \
               AND ($2::bigint IS NULL AND NOT p.released OR p.num = $2) \
               AND (p.hold IS NULL OR NOT EXISTS (SELECT FROM parked AS b \
                 WHERE b.source = p.source AND b.hold = p.hold AND b.num < p.num)) \
               ORDER BY p.num LIMIT $3";
    let number = match command.target {
        ParkedTarget::Head(number) => Some(number),
        ParkedTarget::AllHeads => None,
    };
    let asked = number.map(|number| i64::try_from(number).unwrap_or(-1));
    let limit = i64::from(PARKED_COMMAND_HEADS_MAX);
    let values: Values<'_> = &[&command.source.as_str(), &asked, &limit];
    let found = held.query(sql, values).await.translated()?;
    match number {
        Some(number) if found.is_empty() => Err(check::no_head(&command.source, number)),
        _ => Ok(found.iter().map(|row| row.get(0)).collect()),
    }
}

/// Removes rows. If asked to, the first of the rows that are left of each hold is to be handed over.
async fn remove_parked(
    held: &HeldTransaction<'_>,
    source: &SourceName,
    numbers: &[i64],
    release_next: bool,
) -> Result<()> {
    let sql = "WITH gone AS (DELETE FROM parked WHERE source = $1 AND num = ANY ($2) RETURNING bytes, hold) \
               SELECT count(*), coalesce(sum(bytes), 0)::bigint, \
                 coalesce(array_agg(DISTINCT hold) FILTER (WHERE hold IS NOT NULL), '{}') FROM gone";
    let gone = held.query_one(sql, &[&source.as_str(), &numbers]).await.translated()?;
    let (rows, bytes): (i64, i64) = (gone.get(0), gone.get(1));
    let holds: Vec<Vec<u8>> = gone.get(2);
    count_parked(held, source, -rows, -bytes).await?;
    if release_next && !holds.is_empty() {
        let sql = "UPDATE parked SET released = true WHERE num IN (SELECT min(p.num) FROM parked AS p \
                   WHERE p.source = $1 AND p.hold = ANY ($2) GROUP BY p.hold)";
        held.execute(sql, &[&source.as_str(), &holds]).await.translated()?;
    }
    Ok(())
}

async fn released_rows(node: &Node, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>> {
    let sql = concat!(
        "WITH first AS (SELECT num, hold FROM parked WHERE source = $1 AND released ORDER BY num LIMIT 1) \
         SELECT ",
        parked_columns!(),
        ", p.payload FROM (SELECT r.*, (sum(r.bytes) OVER (ORDER BY r.num) - r.bytes)::bigint AS before \
             FROM first AS f JOIN parked AS r ON r.source = $1 AND (r.num = f.num OR r.hold = f.hold)) AS p \
         WHERE p.before = 0 OR p.before + p.bytes <= $2 ORDER BY p.num LIMIT $3"
    );
    let (bytes, limit) = (BATCH_BYTES_MAX as i64, i64::from(limit));
    let found = node.reader().query(sql, &[&source.as_str(), &bytes, &limit]).await?;
    all(&found, |columns| rows::released_row(columns))
}

async fn end_release(node: &Node, step: &ReleaseStep) -> Result<()> {
    let accepted: Vec<i64> = step.accepted.iter().map(|number| *number as i64).collect();
    let ending = async |held: &HeldTransaction<'_>| {
        leased(held, &step.source, step.epoch).await?;
        remove_parked(held, &step.source, &accepted, true).await?;
        let Some((number, refusal)) = &step.refused else { return Ok(()) };
        let sql = "UPDATE parked SET released = false, refusal = $3 WHERE source = $1 AND num = $2";
        let values: Values<'_> = &[&step.source.as_str(), &(*number as i64), &to_json(refusal)];
        held.execute(sql, values).await.translated()?;
        Ok(())
    };
    node.changes.run(ending).await
}

async fn forget_source(node: &Node, source: &SourceName) -> Result<()> {
    let forgetting = async |held: &HeldTransaction<'_>| {
        let sql = "SELECT parked_rows FROM sources WHERE name = $1 FOR UPDATE";
        let found = held.query(sql, &[&source.as_str()]).await.translated()?;
        let rows = one(&found, |columns| columns.number("a count"))?.unwrap_or_default();
        check::nothing_parked(source, rows)?;
        let sql = "DELETE FROM sources WHERE name = $1";
        held.execute(sql, &[&source.as_str()]).await.translated()?;
        Ok(())
    };
    node.changes.run(forgetting).await
}

async fn known_sources(node: &Node) -> Result<Vec<SourceName>> {
    let rows = node.reader().query("SELECT name FROM sources ORDER BY name", &[]).await?;
    all(&rows, |columns| columns.parsed("a source"))
}

/// Removes up to `limit` rows that a tenant has parked or emitted, and at last its roles.
pub(super) async fn erase_parked(
    held: &HeldTransaction<'_>,
    tenant: &TenantId,
    limit: i64,
) -> Result<i64> {
    let sql = "SELECT source, array_agg(num) FROM \
               (SELECT source, num FROM parked WHERE tenant = $1 LIMIT $2) AS p GROUP BY source";
    let mut left = limit;
    for row in held.query(sql, &[&tenant.as_str(), &limit]).await.translated()? {
        let (source, numbers): (String, Vec<i64>) = (row.get(0), row.get(1));
        let strange = |_| StoreError::Corrupt(format!("the source {source:?} does not read back"));
        let source: SourceName = source.parse().map_err(strange)?;
        remove_parked(held, &source, &numbers, false).await?;
        raise_version(held, &source).await?;
        left -= numbers.len() as i64;
    }
    for sql in [
        "DELETE FROM railpost_outbox WHERE seq IN \
         (SELECT seq FROM railpost_outbox WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM emit_roles WHERE role IN (SELECT role FROM emit_roles WHERE tenant = $1 LIMIT $2)",
    ] {
        left -= held.execute(sql, &[&tenant.as_str(), &left]).await.translated()? as i64;
    }
    Ok(limit - left)
}
