//! The inbox in PostgreSQL as a work queue.

use super::{PostgresInbox, Session};
use crate::delivery::Delivery;
use crate::inbox::Verdict;
use crate::limits::DEAD_LISTED_MAX;
use crate::work::{
    self, DeadLetter, Job, WorkError, WorkOutcome, WorkPolicy, error_text, head, order,
};
use std::fmt::Display;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Row, Transaction};

/// A queue of events in the application's own PostgreSQL database, filled through an inbox.
#[derive(Debug, Clone)]
pub struct PostgresQueue {
    inbox: PostgresInbox,
    policy: WorkPolicy,
}

impl PostgresQueue {
    /// The queue behind this inbox.
    pub fn new(inbox: PostgresInbox, policy: WorkPolicy) -> Self {
        Self { inbox, policy }
    }

    /// Judges an event and queues it if it is to be applied: commit, and acknowledge it. `None`: the
    /// queue is full, roll back.
    pub async fn enqueue(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery,
        now: i64,
    ) -> Result<Option<Verdict>, Error> {
        let verdict = self.inbox.admit(transaction, &delivery.received, now).await?;
        if !verdict.applies() {
            return Ok(Some(verdict));
        }
        let queued = self.push(transaction, delivery, now).await?;
        Ok(queued.then_some(verdict))
    }

    /// Does the same in a transaction of its own. `None`: the queue is full.
    pub async fn take(
        &self,
        session: &mut Session,
        delivery: &Delivery,
        now: i64,
    ) -> Result<Option<Verdict>, Error> {
        let admission = session.begin(&self.inbox, &delivery.received, now).await?;
        if admission.verdict().applies() && !self.push(admission.client(), delivery, now).await? {
            return Ok(None);
        }
        admission.commit().await.map(Some)
    }

    /// Says whether there was room for it.
    async fn push(
        &self,
        client: &(impl GenericClient + Sync),
        delivery: &Delivery,
        now: i64,
    ) -> Result<bool, Error> {
        let sql = "insert into railpost_work (inbox, line, key, due_at, head, body)
                   select $1, $2, $3, $4, $5, $6 where $7 > (select count(*) from
                   (select from railpost_work where inbox = $1 limit $7) as waiting)";
        let (line, key) = order(&delivery.received);
        let most = i64::from(self.policy.backlog_max);
        let values: [(&(dyn ToSql + Sync), Type); 7] = [
            (&self.inbox.config.name, Type::TEXT),
            (&line, Type::TEXT),
            (&key.map(str::as_bytes), Type::BYTEA),
            (&now, Type::INT8),
            (&head(delivery), Type::TEXT),
            (&delivery.body, Type::BYTEA),
            (&most, Type::INT8),
        ];
        Ok(client.execute_typed(sql, &values).await? == 1)
    }

    /// Takes the oldest job that is due and that no other worker holds, and runs `effect` on it. What
    /// the effect writes through the transaction it is given, and the job's removal, commit together;
    /// if it fails, nothing it wrote is kept, and the job is tried again later.
    pub async fn work_one<E: Display>(
        &self,
        client: &mut Client,
        now: i64,
        effect: impl AsyncFnOnce(&Transaction<'_>, &Job) -> Result<(), E>,
    ) -> Result<WorkOutcome, WorkError<Error>> {
        let mut transaction = client.transaction().await?;
        let Some(job) = self.due(&transaction, now).await? else { return Ok(WorkOutcome::Idle) };
        let savepoint = transaction.transaction().await?;
        let worked = match effect(&savepoint, &job).await {
            Ok(()) => {
                savepoint.commit().await?;
                let sql = "delete from railpost_work where position = $1";
                transaction.execute(sql, &[&job.position]).await?;
                WorkOutcome::Done(job.delivery.received.event_id)
            }
            Err(error) => {
                savepoint.rollback().await?;
                self.fail(&transaction, &job, error_text(&error), now).await?
            }
        };
        transaction.commit().await?;
        Ok(worked)
    }

    /// The jobs that were given up on, oldest first.
    pub async fn dead_letters(
        &self,
        client: &impl GenericClient,
    ) -> Result<Vec<DeadLetter>, WorkError<Error>> {
        let sql = "select position, tries, head, body, error from railpost_work
                   where inbox = $1 and due_at is null order by position limit $2";
        let limit = i64::from(DEAD_LISTED_MAX);
        let rows = client.query(sql, &[&self.inbox.config.name, &limit]).await?;
        let letter = |row: &Row| Ok(DeadLetter { job: read(row)?, error: row.get(4) });
        rows.iter().map(letter).collect()
    }

    /// Gives a dead letter all its tries again. Says whether there was one at this position.
    pub async fn retry(
        &self,
        client: &impl GenericClient,
        position: i64,
        now: i64,
    ) -> Result<bool, Error> {
        let sql = "update railpost_work set tries = 0, due_at = $3
                   where inbox = $1 and position = $2 and due_at is null";
        Ok(client.execute(sql, &[&self.inbox.config.name, &position, &now]).await? == 1)
    }

    /// Drops a dead letter and lets its line and key go on. Says whether there was one at this position.
    pub async fn discard(&self, client: &impl GenericClient, position: i64) -> Result<bool, Error> {
        let sql = "delete from railpost_work
                   where inbox = $1 and position = $2 and due_at is null";
        Ok(client.execute(sql, &[&self.inbox.config.name, &position]).await? == 1)
    }

    /// The row's lock is the claim: it lasts as long as the transaction, and no longer than the process.
    async fn due(
        &self,
        transaction: &Transaction<'_>,
        now: i64,
    ) -> Result<Option<Job>, WorkError<Error>> {
        let sql = "select position, tries, head, body from railpost_work as job
                   where inbox = $1 and due_at <= $2
                   and not exists (select from railpost_work as older where older.inbox = job.inbox
                   and older.line = job.line and older.position < job.position)
                   and not exists (select from railpost_work as older where older.inbox = job.inbox
                   and older.key = job.key and older.position < job.position)
                   order by position limit 1 for update skip locked";
        let row = transaction.query_opt(sql, &[&self.inbox.config.name, &now]).await?;
        row.as_ref().map(read).transpose()
    }

    async fn fail(
        &self,
        transaction: &Transaction<'_>,
        job: &Job,
        error: String,
        now: i64,
    ) -> Result<WorkOutcome, Error> {
        let tries = job.tries.saturating_add(1);
        let at = self.policy.next_try(tries, now);
        let sql =
            "update railpost_work set tries = $2, due_at = $3, error = $4 where position = $1";
        let stored = i32::try_from(tries).unwrap_or(i32::MAX);
        transaction.execute(sql, &[&job.position, &stored, &at, &error]).await?;
        let event_id = job.delivery.received.event_id.clone();
        Ok(at
            .map_or(WorkOutcome::Dead(event_id.clone()), |at| WorkOutcome::Failed { event_id, at }))
    }
}

fn read(row: &Row) -> Result<Job, WorkError<Error>> {
    let tries = i64::from(row.get::<_, i32>(1));
    work::Row { position: row.get(0), tries, head: row.get(2), body: row.get(3) }.read()
}
