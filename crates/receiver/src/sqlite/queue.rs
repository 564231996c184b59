//! The inbox in SQLite as a work queue.

use super::SqliteInbox;
use crate::delivery::Delivery;
use crate::inbox::Verdict;
use crate::limits::DEAD_LISTED_MAX;
use crate::work::{
    DeadLetter, Job, Row, WorkError, WorkOutcome, WorkPolicy, error_text, head, order,
};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, TransactionBehavior, params};
use std::fmt::Display;

/// A queue of events in the application's own SQLite database, filled through an inbox.
#[derive(Debug, Clone)]
pub struct SqliteQueue {
    inbox: SqliteInbox,
    policy: WorkPolicy,
}

impl SqliteQueue {
    /// The queue behind this inbox.
    pub fn new(inbox: SqliteInbox, policy: WorkPolicy) -> Self {
        Self { inbox, policy }
    }

    /// Judges an event and queues it if it is to be applied: commit, and acknowledge it. `None`: the
    /// queue is full, roll back.
    pub fn enqueue(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery,
        now: i64,
    ) -> Result<Option<Verdict>> {
        let verdict = self.inbox.admit(transaction, &delivery.received, now)?;
        if !verdict.applies() {
            return Ok(Some(verdict));
        }
        let sql = "insert into railpost_work (inbox, line, key, due_at, head, body)
                   select ?1, ?2, ?3, ?4, ?5, ?6 where ?7 > (select count(*) from
                   (select 1 from railpost_work where inbox = ?1 limit ?7))";
        let (line, key) = order(&delivery.received);
        let (name, most) = (&self.inbox.config.name, self.policy.backlog_max);
        let values = params![name, line, key, now, head(delivery), delivery.body, most];
        let rows = transaction.prepare_cached(sql)?.execute(values)?;
        Ok((rows == 1).then_some(verdict))
    }

    /// Takes the oldest job that is due and runs `effect` on it. What the effect writes through the
    /// connection it is given, and the job's removal, commit together; if it fails, nothing it wrote is
    /// kept, and the job is tried again later.
    pub fn work_one<E: Display>(
        &self,
        database: &mut Connection,
        now: i64,
        effect: impl FnOnce(&Connection, &Job) -> Result<(), E>,
    ) -> Result<WorkOutcome, WorkError<rusqlite::Error>> {
        let mut transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some(row) = self.due(&transaction, now)? else { return Ok(WorkOutcome::Idle) };
        let job = row.read()?;
        let savepoint = transaction.savepoint()?;
        let worked = match effect(&savepoint, &job) {
            Ok(()) => {
                savepoint.commit()?;
                remove(&transaction, job.position)?;
                WorkOutcome::Done(job.delivery.received.event_id)
            }
            Err(error) => {
                // Dropped without a commit, it undoes what the effect wrote.
                drop(savepoint);
                self.fail(&transaction, &job, &error, now)?
            }
        };
        transaction.commit()?;
        Ok(worked)
    }

    /// The jobs that were given up on, oldest first.
    pub fn dead_letters(
        &self,
        database: &Connection,
    ) -> Result<Vec<DeadLetter>, WorkError<rusqlite::Error>> {
        let sql = "select position, tries, head, body, error from railpost_work
                   where inbox = ?1 and due_at is null order by position limit ?2";
        let mut statement = database.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.inbox.config.name, DEAD_LISTED_MAX])?;
        let mut letters = Vec::new();
        while let Some(row) = rows.next()? {
            letters.push(DeadLetter { job: read(row)?.read()?, error: row.get(4)? });
        }
        Ok(letters)
    }

    /// Gives a dead letter all its tries again. Says whether there was one at this position.
    pub fn retry(&self, database: &Connection, position: i64, now: i64) -> Result<bool> {
        let sql = "update railpost_work set tries = 0, due_at = ?3
                   where inbox = ?1 and position = ?2 and due_at is null";
        Ok(database.execute(sql, params![self.inbox.config.name, position, now])? == 1)
    }

    /// Drops a dead letter and lets its line and key go on. Says whether there was one at this position.
    pub fn discard(&self, database: &Connection, position: i64) -> Result<bool> {
        let sql = "delete from railpost_work
                   where inbox = ?1 and position = ?2 and due_at is null";
        Ok(database.execute(sql, params![self.inbox.config.name, position])? == 1)
    }

    fn due(&self, database: &Connection, now: i64) -> Result<Option<Row>> {
        let sql = "select position, tries, head, body from railpost_work as job
                   where inbox = ?1 and due_at <= ?2
                   and not exists (select 1 from railpost_work as older where older.inbox = job.inbox
                   and older.line = job.line and older.position < job.position)
                   and not exists (select 1 from railpost_work as older where older.inbox = job.inbox
                   and older.key = job.key and older.position < job.position)
                   order by position limit 1";
        let mut statement = database.prepare_cached(sql)?;
        statement.query_row(params![self.inbox.config.name, now], read).optional()
    }

    fn fail(
        &self,
        database: &Connection,
        job: &Job,
        error: &dyn Display,
        now: i64,
    ) -> Result<WorkOutcome> {
        let tries = job.tries.saturating_add(1);
        let at = self.policy.next_try(tries, now);
        let sql =
            "update railpost_work set tries = ?2, due_at = ?3, error = ?4 where position = ?1";
        database.execute(sql, params![job.position, tries, at, error_text(error)])?;
        let event_id = job.delivery.received.event_id.clone();
        Ok(at
            .map_or(WorkOutcome::Dead(event_id.clone()), |at| WorkOutcome::Failed { event_id, at }))
    }
}

fn read(row: &rusqlite::Row<'_>) -> Result<Row> {
    Ok(Row { position: row.get(0)?, tries: row.get(1)?, head: row.get(2)?, body: row.get(3)? })
}

fn remove(database: &Connection, position: i64) -> Result<()> {
    let sql = "delete from railpost_work where position = ?1";
    database.prepare_cached(sql)?.execute([position])?;
    Ok(())
}
