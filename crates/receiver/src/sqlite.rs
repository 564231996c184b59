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

use crate::inbox::{InboxConfig, NotedGap, Verdict};
use crate::limits::{GAPS_LISTED_MAX, PRUNE_STEP};
use railpost_wire::{Received, Seq};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

pub use queue::SqliteQueue;

/// Creates the tables, if they are not there.
///
/// | table | a row is | made | removed |
/// |---|---|---|---|
/// | `railpost_inbox` | an event that was applied or queued | with its effect | after the retention |
/// | `railpost_lanes` | the last seq of a key | with its first event | long after its last event |
/// | `railpost_gaps` | a gap that was accepted | with the event after it | after the retention |
/// | `railpost_work` | an event that waits for its effect | when it is acknowledged | with its effect |
pub fn create_tables(database: &Connection) -> Result<()> {
    database.execute_batch(include_str!("sqlite/schema.sql"))
}

/// An inbox in the application's own SQLite database.
#[derive(Debug, Clone)]
pub struct SqliteInbox {
    config: InboxConfig,
}

impl SqliteInbox {
    /// The inbox of this name.
    pub fn new(config: InboxConfig) -> Self {
        Self { config }
    }

    /// Judges an event within the transaction of its effect. If the verdict applies, run the effect and
    /// commit; if anything fails, roll back, and the event was never seen. Any other verdict has
    /// written nothing.
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
        let lane = self.config.policy.lane(received);
        let applied = match lane {
            Some((key, _)) if new => self.applied(transaction, key)?,
            _ => None,
        };
        let verdict = self.config.policy.judge(received, !new, applied);
        match lane {
            Some((key, seq)) if verdict.applies() => self.advance(transaction, key, seq, now)?,
            _ if new && !verdict.applies() => self.delete_id(transaction, received)?,
            _ => {}
        }
        if let (Verdict::Gap { applied, accepted: true }, Some((key, seq))) = (verdict, lane) {
            self.note_gap(transaction, key, (applied, seq), now)?;
        }
        Ok(verdict)
    }

    /// Forgets what is older than the retention, at most a step of it. Returns how many rows went: call
    /// it again while there are some. It looks through all lanes, so once a day is often enough.
    pub fn prune(&self, database: &Connection, now: i64) -> Result<usize> {
        let retention = self.config.retention;
        let steps = [
            (
                "delete from railpost_inbox where (inbox, event_id) in (select inbox, event_id
                 from railpost_inbox where inbox = ?1 and applied_at < ?2 limit ?3)",
                retention.ids_since(now),
            ),
            (
                "delete from railpost_lanes where (inbox, key) in (select inbox, key
                 from railpost_lanes where inbox = ?1 and changed_at < ?2 limit ?3)",
                retention.lanes_since(now),
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
        let sql = "select key, applied, seq, noted_at from railpost_gaps where inbox = ?1
                   order by rowid desc limit ?2";
        let mut statement = database.prepare_cached(sql)?;
        let gap = |row: &rusqlite::Row<'_>| {
            let (key, applied, seq, noted_at) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(NotedGap { key, applied, seq, noted_at })
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

    fn applied(&self, database: &Connection, key: &str) -> Result<Option<Seq>> {
        let sql = "select applied from railpost_lanes where inbox = ?1 and key = ?2";
        let mut statement = database.prepare_cached(sql)?;
        let applied: Option<u64> =
            statement.query_row(params![self.config.name, key], |row| row.get(0)).optional()?;
        Ok(applied.and_then(Seq::new))
    }

    fn advance(&self, database: &Connection, key: &str, seq: Seq, now: i64) -> Result<()> {
        // A replay may be older than what was applied.
        let sql = "insert into railpost_lanes (inbox, key, applied, changed_at)
                   values (?1, ?2, ?3, ?4) on conflict do update
                   set applied = max(applied, excluded.applied), changed_at = excluded.changed_at";
        let values = params![self.config.name, key, seq.get(), now];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn note_gap(
        &self,
        database: &Connection,
        key: &str,
        (applied, seq): (Option<Seq>, Seq),
        now: i64,
    ) -> Result<()> {
        let sql = "insert into railpost_gaps (inbox, key, applied, seq, noted_at)
                   values (?1, ?2, ?3, ?4, ?5)";
        let applied = applied.map_or(0, Seq::get);
        let values = params![self.config.name, key, applied, seq.get(), now];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }
}
