//! The table of a tailed source: it is read when the log cannot tell all, and what was taken is removed
//! from it.

use std::collections::HashSet;
use std::time::Duration;

use railpost_replication::Lsn;
use railpost_replication::pgoutput::Begin;
use railpost_store::limits::PARKED_ROW_LEN_MAX;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::connect::Session;
use super::mapping::Mapping;
use crate::config::{Column, Shape, SourceConfig};
use crate::handover::{Handed, Handover};
use crate::limits::{MISSING_WAIT_MAX, MISSING_WAIT_MIN, TABLE_READ_ROWS};
use crate::row::SourceRow;
use crate::trouble::Trouble;

/// The table of a tailed source.
pub(crate) struct Table {
    session: Session,
    mapping: Mapping,
    /// The column that names a row: the number that the database gave it, or else its id.
    pub(crate) key: Column,
}

impl Table {
    pub(crate) async fn open(session: Session, config: &SourceConfig) -> Result<Self, Trouble> {
        let (mapping, key) = probe(&session.client, config).await?;
        Ok(Self { session, mapping, key })
    }

    /// Hands over all rows that the table holds, on one snapshot.
    pub(crate) async fn read_all(
        &self,
        config: &SourceConfig,
        handover: &mut Handover,
    ) -> Result<u64, Trouble> {
        let client = &self.session.client;
        let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ";
        client.batch_execute(&format!("{snapshot}; {}", self.mapping.all)).await?;
        let mut count = 0;
        loop {
            let fetch = format!("FETCH {} FROM railpost_rows", config.batch.min(TABLE_READ_ROWS));
            let found = client.query(&fetch, &[]).await?;
            if found.is_empty() {
                break;
            }
            if let Err(trouble) = self.take(&found, config, handover).await {
                // What was removed is durable here. If this fails, it is read again.
                let _ = client.batch_execute("COMMIT").await;
                return Err(trouble);
            }
            count += found.len() as u64;
        }
        client.batch_execute("COMMIT").await?;
        Ok(count)
    }

    /// Hands rows over, and removes them, up to the first that is too large.
    async fn take(
        &self,
        found: &[Row],
        config: &SourceConfig,
        handover: &mut Handover,
    ) -> Result<Handed, Trouble> {
        handover.keep().await?;
        let (mut rows, mut keys, mut too_large) = (Vec::new(), Vec::new(), None);
        for row in found {
            let key = row.try_get::<_, String>(Mapping::KEY)?;
            let (row, is_too_large) = self.read(row, config)?;
            if is_too_large {
                let id = row.fields.id.unwrap_or_default();
                too_large = Some(Trouble::too_large(&id, config, &self.key, &key));
                break;
            }
            rows.push(row);
            keys.push(key);
        }
        let handed = handover.hand_over(&rows).await;
        match &handed {
            Ok(_) => {}
            Err(Trouble::Stopped { before, .. }) => keys.truncate(*before),
            Err(_) => keys.clear(),
        }
        self.remove(keys).await?;
        too_large.map_or(handed, Err)
    }

    /// A row, and whether it is too large to be kept.
    fn read(&self, row: &Row, config: &SourceConfig) -> Result<(SourceRow, bool), Trouble> {
        let size: i64 = row.try_get(Mapping::SIZE)?;
        let mut row = self.mapping.read(row)?;
        row.complete(config);
        let is_too_large = size >= PARKED_ROW_LEN_MAX as i64 || row.is_too_large();
        Ok((row, is_too_large))
    }

    /// The row that the log told of, as the table has it; nothing if it is gone. Fails if the table does not show
    /// its transaction yet, and if the row is too large as it is.
    pub(crate) async fn find(
        &self,
        row: &LogPlace,
        config: &SourceConfig,
    ) -> Result<Option<SourceRow>, Trouble> {
        let LogPlace { key, begin } = row;
        if !self.shows(begin.xid).await? {
            let problem =
                format!("row {key} at {} is committed, and not visible yet", begin.commit_lsn);
            return Err(Trouble::Unavailable(problem));
        }
        let found = self.session.client.query_opt(&self.mapping.rows, &[&[key].as_slice()]).await?;
        let Some(found) = found else { return Ok(None) };
        let (row, is_too_large) = self.read(&found, config)?;
        if !is_too_large {
            return Ok(Some(row));
        }
        let id = row.fields.id.unwrap_or_default();
        let named = format!("{id} at {} of the log", begin.commit_lsn);
        Err(Trouble::too_large(&named, config, &self.key, key))
    }

    /// Whether a transaction that the log told of is visible. The log has the low 32 bits of its number.
    async fn shows(&self, xid: u32) -> Result<bool, Trouble> {
        let sql = "SELECT pg_visible_in_snapshot((past - ((past - $1) & 4294967295))::text::xid8, snapshot) \
                   FROM (SELECT snapshot, pg_snapshot_xmax(snapshot)::text::bigint + 2147483648 AS past \
                     FROM pg_current_snapshot() AS snapshot) AS near";
        Ok(self.session.client.query_one(sql, &[&i64::from(xid)]).await?.try_get(0)?)
    }

    /// Names a row of the table that is too large, if there is one.
    pub(crate) async fn find_too_large(
        &self,
        config: &SourceConfig,
    ) -> Result<Option<Trouble>, Trouble> {
        let Some(sql) = &self.mapping.large else { return Ok(None) };
        let Some(row) = self.session.client.query_opt(sql, &[]).await? else { return Ok(None) };
        let (id, key): (Option<String>, String) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Some(Trouble::too_large(&id.unwrap_or_default(), config, &self.key, &key)))
    }

    /// The rows that the table shows, if any.
    pub(crate) async fn visible(&self) -> Result<Option<Visible>, Trouble> {
        let found = self.session.client.query(&self.mapping.near, &[]).await?;
        let Some(first) = found.first() else { return Ok(None) };
        let log_end = Lsn::from_u64(first.try_get::<_, i64>(0)? as u64);
        let keys = found.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
        Ok(Some(Visible { log_end, keys }))
    }

    /// Hands over those of these rows that are still there. Answers how many of them were new.
    pub(crate) async fn take_left(
        &self,
        keys: &[String],
        config: &SourceConfig,
        handover: &mut Handover,
    ) -> Result<u64, Trouble> {
        let mut count = 0;
        for keys in keys.chunks(config.batch.min(TABLE_READ_ROWS)) {
            let found = self.session.client.query(&self.mapping.rows, &[&keys]).await?;
            if !found.is_empty() {
                let handed = self.take(&found, config, handover).await?;
                count += handed.accepted + handed.parked + handed.dropped;
            }
        }
        Ok(count)
    }

    /// Removes or marks rows by exactly these keys. Answers those that are not there.
    pub(crate) async fn remove(&self, mut keys: Vec<String>) -> Result<Vec<String>, Trouble> {
        if keys.is_empty() {
            return Ok(keys);
        }
        let removed = self.session.client.query(&self.mapping.remove, &[&keys]).await?;
        if removed.len() < keys.len() {
            let found = removed.iter().map(|row| row.try_get::<_, String>(0));
            let found: HashSet<String> = found.collect::<Result<_, _>>()?;
            keys.retain(|key| !found.contains(key));
        } else {
            keys.clear();
        }
        Ok(keys)
    }
}

/// What names a row that the log told of.
#[derive(Clone, Debug)]
pub(crate) struct LogPlace {
    /// Its key in the table.
    pub(crate) key: String,
    /// Its transaction.
    pub(crate) begin: Begin,
}

/// Rows that a table showed. When all before the end that the log had then was taken and removed, a row of
/// these that is still there is one that the log does not tell of.
#[derive(Debug)]
pub(crate) struct Visible {
    pub(crate) log_end: Lsn,
    pub(crate) keys: Vec<String>,
}

/// Rows that the log has told of and that were not in their table. The log may tell of a commit before
/// the table shows it, so they are looked for a few times more. A row that was deleted in the
/// transaction that brought it never appears.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    batches: Vec<MissingBatch>,
}

#[derive(Debug)]
struct MissingBatch {
    keys: Vec<String>,
    look_at: Instant,
    wait: Duration,
}

impl Missing {
    pub(crate) fn add(&mut self, keys: Vec<String>) {
        self.add_after(keys, MISSING_WAIT_MIN);
    }

    fn add_after(&mut self, keys: Vec<String>, wait: Duration) {
        if !keys.is_empty() && wait <= MISSING_WAIT_MAX {
            self.batches.push(MissingBatch { keys, look_at: Instant::now() + wait, wait });
        }
    }

    /// Whether the row is being looked for.
    pub(crate) fn has(&self, key: &String) -> bool {
        self.batches.iter().any(|batch| batch.keys.contains(key))
    }

    /// When to look for them next.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.batches.iter().map(|batch| batch.look_at).min()
    }

    /// Removes those whose time has come, and whose rows have appeared.
    pub(crate) async fn remove_from(&mut self, table: &Table) -> Result<(), Trouble> {
        let now = Instant::now();
        let due: Vec<MissingBatch> =
            self.batches.extract_if(.., |batch| batch.look_at <= now).collect();
        for MissingBatch { keys, wait, .. } in due {
            let missing = table.remove(keys).await?;
            self.add_after(missing, wait * 4);
        }
        Ok(())
    }
}

/// How the table is read, and what names its rows. This fails if a column is missing or may not be read.
pub(crate) async fn probe(
    client: &Client,
    config: &SourceConfig,
) -> Result<(Mapping, Column), Trouble> {
    let (key, kind) = key_of(client, config).await?;
    Ok((Mapping::of_table(client, config, &key, &kind).await?, key))
}

/// What names a row, and its type. A table that is tailed need not have a number.
async fn key_of(client: &Client, config: &SourceConfig) -> Result<(Column, Type), Trouble> {
    let order = config.columns.order.iter();
    for key in order.chain([&config.columns.id]) {
        let Column::Name(name) = key else { continue };
        let sql = "SELECT atttypid FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND attnum > 0 \
                   AND NOT attisdropped";
        let found = client.query_opt(sql, &[&config.table.sql(), &name]).await?;
        let kind = found.map(|row| row.try_get::<_, u32>(0)).transpose()?;
        if let Some(kind) = kind {
            let kind = Type::from_oid(kind).unwrap_or(Type::TEXT);
            return Ok((key.clone(), kind));
        }
    }
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    let exists: bool = client.query_one(sql, &[&config.table.sql()]).await?.try_get(0)?;
    if !exists {
        let problem = format!("there is no table {}", config.table);
        let remedy = match config.shape {
            Shape::Railpost => "make the table: railpost outbox init",
            Shape::Debezium | Shape::Custom => "name a table that exists in `table`",
        };
        return Err(Trouble::wrong(problem, remedy));
    }
    let problem = format!("table {} has neither the order's column nor the id's", config.table);
    Err(Trouble::wrong(problem, "name its columns in `columns`"))
}
