//! A connection of the inbox's own: fewer round trips for each event.

use super::{ADMIT, ADMIT_TYPES, AdmitResult, PostgresInbox};
use crate::inbox::Verdict;
use railpost_wire::Received;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Statement};

/// A connection whose events cost two round trips beside their effect, where a transaction of the driver's
/// costs three: the transaction is begun and the inbox asked in one. Its statement is prepared with the first,
/// so it needs a connection to the server, or a pooler that knows prepared statements.
#[derive(Debug)]
pub struct Session {
    client: Client,
    admit: Option<Statement>,
}

/// An event that was judged, in a transaction that is open. Dropped, it is rolled back, and the event was
/// never seen.
#[derive(Debug)]
#[must_use = "an event is remembered when its transaction is committed"]
pub struct Admission<'s> {
    open: Open<'s>,
    verdict: Verdict,
}

impl Session {
    /// Takes a connection over.
    pub fn new(client: Client) -> Self {
        Self { client, admit: None }
    }

    /// The connection, for whatever else is to be done with it.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Begins a transaction and judges an event within it, as [`PostgresInbox::admit`] does.
    pub async fn begin(
        &mut self,
        inbox: &PostgresInbox,
        received: &Received,
        now: i64,
    ) -> Result<Admission<'_>, Error> {
        let admit = self.admit().await?;
        let open = Open { client: &self.client, settled: false };
        let query = inbox.query(received, now);
        let values = query.values();
        // The driver sends them in the order of their first polls, so both are under way at once.
        let begin = self.client.batch_execute(BEGIN);
        let admit = self.client.query(&admit, &values);
        let (begun, rows) = tokio::join!(biased; begin, admit);
        begun?;
        let result = AdmitResult::read(&rows?);
        let verdict = inbox.judge(&self.client, received, &query, result).await?;
        Ok(Admission { open, verdict })
    }

    async fn admit(&mut self) -> Result<Statement, Error> {
        if let Some(admit) = &self.admit {
            return Ok(admit.clone());
        }
        let sql = format!("{ADMIT} {IF_BEGUN}");
        let admit = self.client.prepare_typed(&sql, &ADMIT_TYPES).await?;
        Ok(self.admit.insert(admit).clone())
    }
}

impl Admission<'_> {
    /// What the event is. If it applies, run the effect.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Runs statements within the transaction.
    pub fn client(&self) -> &Client {
        self.open.client
    }

    /// The event and its effect are durable when this returns.
    pub async fn commit(mut self) -> Result<Verdict, Error> {
        self.open.settled = true;
        self.open.client.batch_execute(COMMIT).await?;
        Ok(self.verdict)
    }

    /// Runs the effect's last statement and commits, in one round trip. Returns how many rows it changed.
    /// If it fails, nothing is kept; but how many rows there are is known only when they are durable, so an
    /// effect that looks at what it did runs on [`client`](Self::client).
    pub async fn commit_with(
        mut self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64, Error> {
        let client = self.open.client;
        let mut last = pin!(client.execute_typed(sql, values));
        // The first poll sends it. What fails before that must not be followed by a commit.
        if let Poll::Ready(rows) = poll_fn(|context| Poll::Ready(last.as_mut().poll(context))).await
        {
            let rows = rows?;
            self.commit().await?;
            return Ok(rows);
        }
        self.open.settled = true;
        // If the statement fails, the server ends the transaction without keeping anything.
        let (rows, committed) = tokio::join!(biased; last, client.batch_execute(COMMIT));
        committed.and(rows)
    }
}

/// The inbox needs `read committed`. Being deferrable means nothing to such a transaction, but shows.
const BEGIN: &str = "begin isolation level read committed deferrable";

const COMMIT: &str = "commit";

/// The question is sent before the answer to `BEGIN` is there. Had that failed, this keeps the event from
/// being noted by itself.
const IF_BEGUN: &str = "where current_setting('transaction_deferrable') = 'on'";

/// Rolls back what was not committed, also when a future is dropped half-way.
#[derive(Debug)]
struct Open<'s> {
    client: &'s Client,
    settled: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.settled {
            // The first poll sends it, ahead of whatever comes next on this connection.
            let rollback = pin!(self.client.batch_execute("rollback"));
            let _ = rollback.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
