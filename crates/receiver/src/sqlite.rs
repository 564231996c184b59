//! The inbox in SQLite: its row and the application's effect commit together.
//!
//! ```
//! # use railpost_receiver::{InboxConfig, sqlite::{self, SqliteInbox}, wire::Received};
//! # fn handle(received: &Received, now: i64) -> rusqlite::Result<u16> {
//! let mut database = rusqlite::Connection::open_in_memory()?;
//! sqlite::create_tables(&database)?;
//! let inbox = SqliteInbox::new(InboxConfig::named("orders"));
//!
//! let transaction = database.transaction()?;
//! let verdict = inbox.admit(&transaction, received, now)?;
//! if verdict.applies() {
//!     transaction.execute("update orders set paid = 1 where id = ?1", ["A"])?;
//! }
//! transaction.commit()?;
//! Ok(verdict.answer().status)
//! # }
//! ```

mod queue;

use crate::gap_timers::GapTimers;
use crate::inbox::{InboxConfig, LinePosition, NotedGap, PriorState, Verdict};
use crate::limits::{GAPS_LISTED_MAX, PRUNE_STEP};
use railpost_wire::{Key, LineId, Received, Seq};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, TransactionBehavior, params};

pub use queue::SqliteQueue;

/// Creates the tables, if they are not there. Tables that kept places by key are migrated: ids and queued
/// events are kept; the places are not, because a place of a key says nothing about a line.
///
/// | table | a row is | made | removed |
/// |---|---|---|---|
/// | `railpost_inbox` | an event that was applied or queued | with its effect | after the retention |
/// | `railpost_lines` | the last seq of a line | with its first event | long after its last event |
/// | `railpost_gaps` | a gap that was accepted | with the event after it | after the retention |
/// | `railpost_work` | an event that waits for its effect | when it is acknowledged | with its effect |
pub fn create_tables(database: &Connection) -> Result<()> {
    if !database.is_autocommit() {
        return create_in_transaction(database);
    }
    // The writer's lock comes first: several processes may start at once.
    let transaction = Transaction::new_unchecked(database, TransactionBehavior::Immediate)?;
    create_in_transaction(&transaction)?;
    transaction.commit()
}

fn create_in_transaction(database: &Connection) -> Result<()> {
    if database.table_exists(None, "railpost_lanes")? {
        database.execute_batch(include_str!("sqlite/migrate_lanes.sql"))?;
    }
    database.execute_batch(include_str!("sqlite/schema.sql"))
}

/// An inbox in the application's own SQLite database.
///
/// With [`OnGap::Wait`](crate::OnGap::Wait), clones of an inbox share the memory of when a gap was first
/// seen; it is not in the database, so a restart starts the wait again.
#[derive(Debug, Clone)]
pub struct SqliteInbox {
    config: InboxConfig,
    timers: GapTimers,
}

impl SqliteInbox {
    /// The inbox of this name.
    pub fn new(config: InboxConfig) -> Self {
        Self { config, timers: GapTimers::default() }
    }

    /// Judges an event within the transaction of its effect. If the verdict applies, run the effect; then
    /// commit, whatever the verdict. If anything fails, roll back, and the event was never seen. A verdict
    /// that does not apply has written nothing, but a duplicate has moved its line on.
    ///
    /// SQLite has one writer at a time, so events are serialised from here to the commit.
    pub fn admit(
        &self,
        transaction: &Transaction<'_>,
        received: &Received,
        now: i64,
    ) -> Result<Verdict> {
        // Writing first takes the writer's lock before anything is read, in every kind of transaction.
        let new = self.insert_id(transaction, received, now)?;
        let place = LinePosition::of(received);
        let applied = match place {
            Some(place) => self.applied(transaction, place.line)?,
            None => None,
        };
        let known = PriorState { id: !new, applied, gap_since: None };
        let verdict = self.timers.judge(&self.config.policy, received, known, now);
        if new && !verdict.applies() {
            self.delete_id(transaction, received)?;
        }
        if let Some(place) = place.filter(|_| verdict.moves_line()) {
            self.move_on(transaction, place, now)?;
        }
        if let Verdict::Gap { accepted: true, .. } = verdict {
            self.note_gap(transaction, received, applied, now)?;
        }
        Ok(verdict)
    }

    /// The last seq of a line that was applied, if the line is known.
    pub fn applied(&self, database: &Connection, line: &LineId) -> Result<Option<Seq>> {
        let sql = "select applied from railpost_lines where inbox = ?1 and line = ?2";
        let mut statement = database.prepare_cached(sql)?;
        let values = params![self.config.name, line.as_str()];
        let applied: Option<u64> = statement.query_row(values, |row| row.get(0)).optional()?;
        Ok(applied.and_then(Seq::new))
    }

    /// Forgets what is older than the retention, at most a step of it. Returns how many rows went: call
    /// it again while there are some. It looks through all lines, so once a day is often enough.
    pub fn prune(&self, database: &Connection, now: i64) -> Result<usize> {
        let retention = self.config.retention;
        let steps = [
            (
                "delete from railpost_inbox where (inbox, event_id) in (select inbox, event_id
                 from railpost_inbox where inbox = ?1 and applied_at < ?2 limit ?3)",
                retention.ids_since(now),
            ),
            (
                "delete from railpost_lines where (inbox, line) in (select inbox, line
                 from railpost_lines where inbox = ?1 and changed_at < ?2 limit ?3)",
                retention.lines_since(now),
            ),
            (
                "delete from railpost_gaps where rowid in (select rowid
                 from railpost_gaps where inbox = ?1 and noted_at < ?2 limit ?3)",
                retention.ids_since(now),
            ),
        ];
        let step =
            |(sql, since)| database.execute(sql, params![self.config.name, since, PRUNE_STEP]);
        steps.into_iter().map(step).sum()
    }

    /// The latest gaps that were accepted, latest first.
    pub fn gaps(&self, database: &Connection) -> Result<Vec<NotedGap>> {
        let sql = "select line, key, applied, seq, noted_at from railpost_gaps where inbox = ?1
                   order by rowid desc limit ?2";
        let mut statement = database.prepare_cached(sql)?;
        let gap = |row: &rusqlite::Row<'_>| {
            let (line, key): (_, String) = (row.get(0)?, row.get(1)?);
            let (applied, seq, noted_at) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let key = Some(key).filter(|key| !key.is_empty());
            Ok(NotedGap { line, key, applied, seq, noted_at })
        };
        statement.query_map(params![self.config.name, GAPS_LISTED_MAX], gap)?.collect()
    }

    fn insert_id(&self, database: &Connection, received: &Received, now: i64) -> Result<bool> {
        let sql = "insert into railpost_inbox (inbox, event_id, applied_at) values (?1, ?2, ?3)
                   on conflict do nothing";
        let id = received.event_id.to_string();
        let rows = database.prepare_cached(sql)?.execute(params![self.config.name, id, now])?;
        Ok(rows == 1)
    }

    fn delete_id(&self, database: &Connection, received: &Received) -> Result<()> {
        let sql = "delete from railpost_inbox where inbox = ?1 and event_id = ?2";
        let id = received.event_id.to_string();
        database.prepare_cached(sql)?.execute(params![self.config.name, id])?;
        Ok(())
    }

    /// A replay or a duplicate may be older than what was applied.
    fn move_on(&self, database: &Connection, place: LinePosition<'_>, now: i64) -> Result<()> {
        let sql = "insert into railpost_lines (inbox, line, applied, changed_at)
                   values (?1, ?2, ?3, ?4) on conflict do update
                   set applied = excluded.applied, changed_at = excluded.changed_at
                   where applied < excluded.applied";
        let values = params![self.config.name, place.line.as_str(), place.seq.get(), now];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn note_gap(
        &self,
        database: &Connection,
        received: &Received,
        applied: Option<Seq>,
        now: i64,
    ) -> Result<()> {
        let Some(place) = LinePosition::of(received) else { return Ok(()) };
        let sql = "insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
                   values (?1, ?2, ?3, ?4, ?5, ?6)";
        let (line, key) = (place.line.as_str(), received.key.as_ref().map_or("", Key::as_str));
        let applied = applied.map_or(0, Seq::get);
        let values = params![self.config.name, line, key, applied, place.seq.get(), now];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }
}
