//! Sources and parked rows in SQLite.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::Span;
use railpost_wire::TenantId;
use rusqlite::Connection;

use super::rows::{all, one};
use super::session::WriteSession;
use super::{SqliteStore, durable};
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::leases::SourceLeases;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{self, Columns, parked_columns, to_json};
use railpost_store::limits::{BATCH_BYTES_MAX, PARKED_COMMAND_HEADS_MAX};
use railpost_store::{
    AuditEntry, Epoch, Hold, Listing, ParkBatch, ParkOutcome, ParkedAction, ParkedCommand,
    ParkedHolds, ParkedQuery, ParkedRow, ParkedSummary, ParkedTarget, ReleaseStep, ReleasedRow,
    Result, RowToPark, SourceLease, SourceName, SourcePosition, Sources,
};

/// Who reads which source. This process has the file, so leases end with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases(Arc<Mutex<SourceLeases>>);

impl Leases {
    pub(super) fn lock(&self) -> MutexGuard<'_, SourceLeases> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sources for SqliteStore {
    async fn lease_source(
        &self,
        source: &SourceName,
        holder: &str,
        length: Span,
    ) -> Result<SourceLease> {
        check::lease(holder)?;
        let taken = self.leases.lock().take(source, holder, self.setup.source.steady(), length);
        let epoch = match taken {
            Ok(epoch) => epoch,
            Err(holder) => return Ok(SourceLease::Elsewhere { holder }),
        };
        let known = source.clone();
        let known = move |db: &Connection| known_summary(db, &known);
        if let Some(parked) = self.readers.read(known).await? {
            return Ok(SourceLease::Held { epoch, parked });
        }
        let source = source.clone();
        let know = self.writer.write(durable(1, 0), move |session| session.know_source(&source));
        Ok(SourceLease::Held { epoch, parked: know.await? })
    }

    async fn release_source(&self, source: &SourceName, epoch: Epoch) -> Result<()> {
        self.leases.lock().release(source, epoch);
        Ok(())
    }

    async fn source_position(&self, source: &SourceName) -> Result<Option<SourcePosition>> {
        let source = source.clone();
        self.readers.read(move |db| source_position(db, &source)).await
    }

    async fn save_source_position(
        &self,
        source: &SourceName,
        epoch: Epoch,
        position: SourcePosition,
    ) -> Result<()> {
        check::position(&position)?;
        let (source, leases) = (source.clone(), self.leases.clone());
        let save = move |session: &mut WriteSession<'_>| {
            session.save_source_position(&leases, &source, epoch, &position)
        };
        self.writer.write(durable(1, 0), save).await
    }

    async fn park(&self, batch: ParkBatch) -> Result<ParkOutcome> {
        let bytes = check::park(&batch)?;
        let (order, leases) = (durable(batch.rows.len(), bytes as usize), self.leases.clone());
        self.writer.write(order, move |session| session.park(&leases, &batch, bytes)).await
    }

    async fn parked_holds(&self, source: &SourceName) -> Result<ParkedHolds> {
        let source = source.clone();
        self.readers.read(move |db| parked_holds(db, &source)).await
    }

    async fn parked_rows(&self, query: ParkedQuery) -> Result<Listing<ParkedRow>> {
        self.readers.read(move |db| parked_rows(db, &query)).await
    }

    async fn parked_row(&self, source: &SourceName, number: u64) -> Result<Option<ParkedRow>> {
        let source = source.clone();
        self.readers.read(move |db| parked_row(db, &source, number)).await
    }

    async fn parked_payload(&self, source: &SourceName, number: u64) -> Result<Option<Bytes>> {
        let source = source.clone();
        self.readers.read(move |db| parked_payload(db, &source, number)).await
    }

    async fn command_parked(&self, command: ParkedCommand) -> Result<u64> {
        command.audit.as_ref().map_or(Ok(()), check::audit)?;
        self.writer.write(durable(1, 0), move |session| session.command_parked(&command)).await
    }

    async fn released_rows(&self, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>> {
        let source = source.clone();
        self.readers.read(move |db| released_rows(db, &source, limit)).await
    }

    async fn end_release(&self, step: ReleaseStep) -> Result<()> {
        check::release_step(&step)?;
        let (order, leases) = (durable(step.accepted.len() + 1, 0), self.leases.clone());
        self.writer.write(order, move |session| session.end_release(&leases, &step)).await
    }

    async fn forget_source(&self, source: &SourceName) -> Result<()> {
        let source = source.clone();
        self.writer.write(durable(1, 0), move |session| session.forget_source(&source)).await
    }

    async fn known_sources(&self) -> Result<Vec<SourceName>> {
        self.readers.read(known_sources).await
    }

    async fn grant_emit(&self, _: &str, _: &TenantId, _: Option<AuditEntry>) -> Result<()> {
        Err(check::no_emit_roles())
    }

    async fn revoke_emit(&self, _: &str, _: Option<AuditEntry>) -> Result<()> {
        Err(check::no_emit_roles())
    }

    async fn emit_grants(&self) -> Result<Vec<(String, TenantId)>> {
        Ok(Vec::new())
    }
}

impl WriteSession<'_> {
    /// The source has a row from here on.
    fn know_source(&self, source: &SourceName) -> Result<ParkedSummary> {
        let sql = "INSERT INTO sources (name) VALUES (?1) ON CONFLICT DO NOTHING";
        self.execute(sql, [source.as_str()])?;
        summary(self.db, source)
    }

    fn save_source_position(
        &self,
        leases: &Leases,
        source: &SourceName,
        epoch: Epoch,
        position: &SourcePosition,
    ) -> Result<()> {
        leases.lock().check(source, epoch)?;
        let sql = "INSERT INTO sources (name, system, position) VALUES (?1, ?2, ?3) ON CONFLICT (name) \
                   DO UPDATE SET system = excluded.system, position = excluded.position";
        self.execute(sql, (source.as_str(), &position.system, position.number))?;
        Ok(())
    }

    fn park(&self, leases: &Leases, batch: &ParkBatch, bytes: u64) -> Result<ParkOutcome> {
        leases.lock().check(&batch.source, batch.epoch)?;
        let summary = self.know_source(&batch.source)?;
        if summary.version != batch.version {
            return Ok(ParkOutcome::Changed);
        }
        if !check::parked_fit(summary, batch.rows.len(), bytes) {
            return Ok(ParkOutcome::Full(summary));
        }
        let (mut rows, mut added) = (0, 0);
        for row in &batch.rows {
            if self.park_row(&batch.source, row)? {
                rows += 1;
                added += check::parked_len(row) as i64;
            }
        }
        self.count_parked(&batch.source, rows, added)?;
        Ok(ParkOutcome::Parked)
    }

    /// Whether the row was not parked yet.
    fn park_row(&self, source: &SourceName, row: &RowToPark) -> Result<bool> {
        let sql = "INSERT INTO parked \
                   (source, hold, tenant, parked_at, bytes, digest, refusal, fields, payload) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (source, digest) DO NOTHING";
        let values = (
            source.as_str(),
            row.hold.map(|hold| hold.0),
            &row.fields.tenant,
            millis(self.now()),
            check::parked_len(row),
            check::parked_digest(row),
            row.refusal.as_ref().map(to_json),
            to_json(&row.fields),
            row.payload.as_deref(),
        );
        Ok(self.execute(sql, values)? > 0)
    }

    fn count_parked(&self, source: &SourceName, rows: i64, bytes: i64) -> Result<()> {
        let sql = "UPDATE sources SET parked_rows = parked_rows + ?2, parked_bytes = parked_bytes + ?3 \
                   WHERE name = ?1";
        self.execute(sql, (source.as_str(), rows, bytes))?;
        Ok(())
    }

    fn command_parked(&self, command: &ParkedCommand) -> Result<u64> {
        let mut about = 0;
        for head in heads(self.db, command)? {
            about += self.command_head(&command.source, head, command.action)?;
        }
        if about > 0 {
            let sql = "UPDATE sources SET parked_version = parked_version + 1 WHERE name = ?1";
            self.execute(sql, [command.source.as_str()])?;
            command.audit.as_ref().map_or(Ok(0), |entry| self.write_audit(entry))?;
        }
        Ok(about)
    }

    fn command_head(&self, source: &SourceName, head: u64, action: ParkedAction) -> Result<u64> {
        match action {
            ParkedAction::Retry => {
                self.execute("UPDATE parked SET released = 1 WHERE num = ?1", [head])
            }
            ParkedAction::Skip => {
                let hold = self.remove_parked(source, head)?;
                self.release_next(source, hold)?;
                Ok(1)
            }
            ParkedAction::Discard => {
                let Some(hold) = self.remove_parked(source, head)? else { return Ok(1) };
                let sql = "DELETE FROM parked WHERE source = ?1 AND hold = ?2 RETURNING bytes";
                let values = (source.as_str(), hold.0);
                let gone = all(self.db, sql, values, |columns| columns.number::<i64>("a size"))?;
                self.count_parked(source, -(gone.len() as i64), -gone.iter().sum::<i64>())?;
                Ok(1 + gone.len() as u64)
            }
        }
    }

    /// Removes a row, if it is there. Answers its hold.
    fn remove_parked(&self, source: &SourceName, number: u64) -> Result<Option<Hold>> {
        let sql = "DELETE FROM parked WHERE source = ?1 AND num = ?2 RETURNING bytes, hold";
        let gone = one(self.db, sql, (source.as_str(), number), |columns| {
            Ok((columns.number::<i64>("a size")?, columns.maybe_array("a hold")?.map(Hold)))
        })?;
        let Some((bytes, hold)) = gone else { return Ok(None) };
        self.count_parked(source, -1, -bytes)?;
        Ok(hold)
    }

    /// The first of the rows that are left of a hold is to be handed over.
    fn release_next(&self, source: &SourceName, hold: Option<Hold>) -> Result<()> {
        let Some(hold) = hold else { return Ok(()) };
        let sql = "UPDATE parked SET released = 1 WHERE num = \
                   (SELECT min(num) FROM parked WHERE source = ?1 AND hold = ?2)";
        self.execute(sql, (source.as_str(), hold.0))?;
        Ok(())
    }

    fn end_release(&self, leases: &Leases, step: &ReleaseStep) -> Result<()> {
        leases.lock().check(&step.source, step.epoch)?;
        for number in &step.accepted {
            let hold = self.remove_parked(&step.source, *number)?;
            self.release_next(&step.source, hold)?;
        }
        let Some((number, refusal)) = &step.refused else { return Ok(()) };
        let sql = "UPDATE parked SET released = 0, refusal = ?3 WHERE source = ?1 AND num = ?2";
        self.execute(sql, (step.source.as_str(), number, to_json(refusal)))?;
        Ok(())
    }

    fn forget_source(&self, source: &SourceName) -> Result<()> {
        check::nothing_parked(source, summary(self.db, source)?.rows)?;
        self.execute("DELETE FROM sources WHERE name = ?1", [source.as_str()])?;
        Ok(())
    }

    /// Removes up to `limit` rows that a tenant has parked.
    pub(super) fn erase_parked(&self, tenant: &str, limit: usize) -> Result<usize> {
        let sql = "SELECT source, num FROM parked WHERE tenant = ?1 LIMIT ?2";
        let rows = all(self.db, sql, (tenant, limit), |columns| {
            Ok((columns.parsed::<SourceName>("a source")?, columns.number::<u64>("a number")?))
        })?;
        for (source, number) in &rows {
            self.remove_parked(source, *number)?;
            let sql = "UPDATE sources SET parked_version = parked_version + 1 WHERE name = ?1";
            self.execute(sql, [source.as_str()])?;
        }
        Ok(rows.len())
    }
}

/// How much is parked; nothing if the source has no row.
fn known_summary(db: &Connection, source: &SourceName) -> Result<Option<ParkedSummary>> {
    let sql = "SELECT parked_version, parked_rows, parked_bytes FROM sources WHERE name = ?1";
    one(db, sql, [source.as_str()], |columns| rows::parked_summary(columns))
}

fn summary(db: &Connection, source: &SourceName) -> Result<ParkedSummary> {
    Ok(known_summary(db, source)?.unwrap_or_default())
}

/// The heads that a command is about.
fn heads(db: &Connection, command: &ParkedCommand) -> Result<Vec<u64>> {
    let source = command.source.as_str();
    let is_head = "(p.hold IS NULL OR NOT EXISTS (SELECT 1 FROM parked AS b \
                    WHERE b.source = p.source AND b.hold = p.hold AND b.num < p.num))";
    match command.target {
        ParkedTarget::Head(number) => {
            let sql = format!(
                "SELECT p.num FROM parked AS p WHERE p.source = ?1 AND p.num = ?2 AND {is_head}"
            );
            let asked = i64::try_from(number).unwrap_or(-1);
            let found = one(db, &sql, (source, asked), |columns| columns.number("a number"))?;
            found.map(|head| vec![head]).ok_or_else(|| check::no_head(&command.source, number))
        }
        ParkedTarget::AllHeads => {
            let sql = format!(
                "SELECT p.num FROM parked AS p WHERE p.source = ?1 AND NOT p.released AND {is_head} \
                 ORDER BY p.num LIMIT ?2"
            );
            let values = (source, PARKED_COMMAND_HEADS_MAX);
            all(db, &sql, values, |columns| columns.number("a number"))
        }
    }
}

fn source_position(db: &Connection, source: &SourceName) -> Result<Option<SourcePosition>> {
    let sql = "SELECT system, position FROM sources WHERE name = ?1 AND system IS NOT NULL";
    one(db, sql, [source.as_str()], |columns| {
        Ok(SourcePosition { system: columns.word()?, number: columns.number("a position")? })
    })
}

fn parked_holds(db: &Connection, source: &SourceName) -> Result<ParkedHolds> {
    let sql =
        "SELECT DISTINCT hold FROM parked WHERE source = ?1 AND hold IS NOT NULL ORDER BY hold";
    let holds = all(db, sql, [source.as_str()], |columns| Ok(Hold(columns.array("a hold")?)))?;
    Ok(ParkedHolds { summary: summary(db, source)?, holds })
}

fn parked_rows(db: &Connection, query: &ParkedQuery) -> Result<Listing<ParkedRow>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<i64>(ListKind::ParkedRows)?.unwrap_or_default();
    let sql = concat!(
        "SELECT ",
        parked_columns!(),
        " FROM parked AS p WHERE p.source = ?1 AND p.num > ?2 AND (NOT ?3 OR p.refusal IS NOT NULL) \
         AND (?4 IS NULL OR p.refusal ->> 'code' = ?4) AND (?5 IS NULL OR p.tenant = ?5) \
         ORDER BY p.num LIMIT ?6"
    );
    let ParkedQuery { source, refused_only, code, tenant, .. } = query;
    let values = (source.as_str(), after, refused_only, code, tenant, limit + 1);
    let found = all(db, sql, values, |columns| {
        let row = rows::parked_row(columns)?;
        Ok((row.number as i64, row))
    })?;
    Ok(Listing::cut(found, limit, ListKind::ParkedRows))
}

fn parked_row(db: &Connection, source: &SourceName, number: u64) -> Result<Option<ParkedRow>> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let sql = concat!(
        "SELECT ",
        parked_columns!(),
        " FROM parked AS p WHERE p.source = ?1 AND p.num = ?2"
    );
    one(db, sql, (source.as_str(), number), |columns| rows::parked_row(columns))
}

fn parked_payload(db: &Connection, source: &SourceName, number: u64) -> Result<Option<Bytes>> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let sql = "SELECT payload FROM parked WHERE source = ?1 AND num = ?2";
    let payload = one(db, sql, (source.as_str(), number), |columns| columns.blob())?;
    Ok(payload.flatten().map(Bytes::from))
}

fn released_rows(db: &Connection, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>> {
    let sql = "SELECT num, hold FROM parked WHERE source = ?1 AND released ORDER BY num LIMIT 1";
    let first = one(db, sql, [source.as_str()], |columns| {
        Ok((columns.number::<u64>("a number")?, columns.maybe_array::<16>("a hold")?))
    })?;
    let Some((number, hold)) = first else { return Ok(Vec::new()) };
    let sql = concat!(
        "SELECT ",
        parked_columns!(),
        ", p.payload FROM (SELECT *, sum(bytes) OVER (ORDER BY num) - bytes AS before FROM parked \
           WHERE source = ?1 AND (num = ?2 OR hold = ?3)) AS p \
         WHERE p.before = 0 OR p.before + p.bytes <= ?4 ORDER BY p.num LIMIT ?5"
    );
    let values = (source.as_str(), number, hold, BATCH_BYTES_MAX, limit);
    all(db, sql, values, |columns| rows::released_row(columns))
}

fn known_sources(db: &Connection) -> Result<Vec<SourceName>> {
    let sql = "SELECT name FROM sources ORDER BY name";
    all(db, sql, [], |columns| columns.parsed("a source"))
}
