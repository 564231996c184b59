//! The inbox in PostgreSQL: its row and the application's effect commit together.
//!
//! ```no_run
//! # use railpost_receiver::{InboxConfig, postgres::{self, PostgresInbox}, wire::Received};
//! # async fn handle(
//! #     client: &mut tokio_postgres::Client, received: &Received, now: i64,
//! # ) -> Result<u16, tokio_postgres::Error> {
//! postgres::create_tables(client).await?;
//! let inbox = PostgresInbox::new(InboxConfig::named("orders"));
//!
//! let transaction = client.transaction().await?;
//! let verdict = inbox.admit(&transaction, received, now).await?;
//! if verdict.applies() {
//!     transaction.execute("update orders set paid = true where id = $1", &[&"A"]).await?;
//! }
//! transaction.commit().await?;
//! Ok(verdict.answer().status)
//! # }
//! ```
//!
//! Many requests at once need a connection each: [`Pool`] has them, and its [`Session`]s save a third of
//! the round trips.

mod session;
mod pool;
mod queue;
#[cfg(feature = "tower")]
mod intake;

use crate::gap_timers::GapTimers;
use crate::inbox::{InboxConfig, LinePosition, NotedGap, PriorState, Verdict};
use crate::limits::{GAPS_LISTED_MAX, PRUNE_STEP};
use railpost_wire::{LineId, Received, Seq};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Row, Transaction};

#[cfg(feature = "tower")]
pub use intake::PostgresIntake;
pub use pool::{Pool, PoolError, Pooled};
pub use queue::PostgresQueue;
pub use session::{Admission, Session};

/// Creates the tables, if they are not there, in the first schema of the connection's search path. They
/// are those of the SQLite inbox, and one function. Tables that kept places by key are migrated: ids and
/// queued events are kept; the places are not, because a place of a key says nothing about a line.
pub async fn create_tables(client: &Client) -> Result<(), Error> {
    client.batch_execute(include_str!("postgres/schema.sql")).await
}

/// An inbox in the application's own PostgreSQL database.
///
/// With [`OnGap::Wait`](crate::OnGap::Wait), clones of an inbox share the memory of when a gap was first
/// seen; it is not in the database, so each process waits by itself, and a restart starts the wait again.
#[derive(Debug, Clone)]
pub struct PostgresInbox {
    config: InboxConfig,
    timers: GapTimers,
}

/// What the database says about an event before it is judged.
enum AdmitResult {
    /// It is the next in its line, or has none: it was written on the way.
    Admitted,
    /// Its id was applied before; its line was moved on.
    Known,
    /// Its id is unknown, and it is not the next; this is the last seq of its line, which is locked if it
    /// is there.
    After(Option<Seq>),
}

impl PostgresInbox {
    /// The inbox of this name.
    pub fn new(config: InboxConfig) -> Self {
        Self { config, timers: GapTimers::default() }
    }

    /// Judges an event within the transaction of its effect. If the verdict applies, run the effect; then
    /// commit, whatever the verdict. If anything fails, roll back, and the event was never seen. A verdict
    /// that does not apply has written nothing, but a duplicate has moved its line on.
    ///
    /// Events of one line are serialised from here to the end of the transaction, and so are deliveries
    /// of one event; all others run side by side. The transaction must be `read committed`, the default.
    pub async fn admit(
        &self,
        transaction: &Transaction<'_>,
        received: &Received,
        now: i64,
    ) -> Result<Verdict, Error> {
        let query = self.query(received, now);
        let result = query.run(transaction).await?;
        self.judge(transaction, received, &query, result).await
    }

    /// Judges by what the database knew, and writes what the policy lets in out of its turn.
    async fn judge(
        &self,
        client: &(impl GenericClient + Sync),
        received: &Received,
        query: &AdmitQuery<'_>,
        mut result: AdmitResult,
    ) -> Result<Verdict, Error> {
        loop {
            let applied = match result {
                AdmitResult::Admitted => {
                    LinePosition::of(received).inspect(|place| self.timers.clear(place.line));
                    return Ok(Verdict::Fresh);
                }
                AdmitResult::Known => return Ok(Verdict::Duplicate),
                AdmitResult::After(applied) => applied,
            };
            let known = PriorState { applied, ..PriorState::default() };
            let verdict = self.timers.judge(&self.config.policy, received, known, query.now);
            if !verdict.applies() {
                return Ok(verdict);
            }
            match query.move_on(client, applied, verdict).await? {
                (true, true) => return Ok(verdict),
                (true, false) => return Ok(Verdict::Duplicate),
                // Another transaction made the line meanwhile: look again.
                (false, _) => result = query.run(client).await?,
            }
        }
    }

    fn query<'a>(&'a self, received: &'a Received, now: i64) -> AdmitQuery<'a> {
        let place = LinePosition::of(received);
        AdmitQuery {
            inbox: &self.config.name,
            id: received.event_id.to_string(),
            line: place.map(|place| place.line.as_str()),
            key: received.key.as_ref().map_or(b"", |key| key.as_str().as_bytes()),
            seq: place.map_or(0, |place| number(place.seq.get())),
            follows: place.map_or(0, |place| number(place.follows)),
            now,
        }
    }

    /// The last seq of a line that was applied, if the line is known.
    pub async fn applied(
        &self,
        client: &impl GenericClient,
        line: &LineId,
    ) -> Result<Option<Seq>, Error> {
        let sql = "select applied from railpost_lines where inbox = $1 and line = $2";
        let row = client.query_opt(sql, &[&self.config.name, &line.as_str()]).await?;
        Ok(row.and_then(|row| read_seq(row.get(0))))
    }

    /// Forgets what is older than the retention, at most a step of it. Returns how many rows went: call
    /// it again while there are some. It looks through all lines, so once a day is often enough.
    pub async fn prune(&self, client: &impl GenericClient, now: i64) -> Result<u64, Error> {
        let retention = self.config.retention;
        let mut removed = 0;
        for (table, age, since) in [
            ("railpost_inbox", "applied_at", retention.ids_since(now)),
            ("railpost_lines", "changed_at", retention.lines_since(now)),
            ("railpost_gaps", "noted_at", retention.ids_since(now)),
        ] {
            let sql = format!(
                "delete from {table} where ctid = any (array(select ctid from {table}
                 where inbox = $1 and {age} < $2 limit $3 for update skip locked))"
            );
            let step = i64::from(PRUNE_STEP);
            removed += client.execute(&sql, &[&self.config.name, &since, &step]).await?;
        }
        Ok(removed)
    }

    /// The latest gaps that were accepted, latest first.
    pub async fn gaps(&self, client: &impl GenericClient) -> Result<Vec<NotedGap>, Error> {
        let sql = "select line, key, applied, seq, noted_at from railpost_gaps where inbox = $1
                   order by noted_at desc, seq desc limit $2";
        let limit = i64::from(GAPS_LISTED_MAX);
        let rows = client.query(sql, &[&self.config.name, &limit]).await?;
        let number = |row: &Row, at: usize| row.get::<_, i64>(at).unsigned_abs();
        let gap = |row: &Row| NotedGap {
            line: row.get(0),
            key: Some(row.get(1))
                .filter(|key: &&[u8]| !key.is_empty())
                .map(|key| String::from_utf8_lossy(key).into_owned()),
            applied: number(row, 2),
            seq: number(row, 3),
            noted_at: row.get(4),
        };
        Ok(rows.iter().map(gap).collect())
    }
}

/// What the database needs to admit an event. One without a line has neither seq.
struct AdmitQuery<'a> {
    inbox: &'a str,
    id: String,
    line: Option<&'a str>,
    /// For people, with a gap; empty without one.
    key: &'a [u8],
    seq: i64,
    follows: i64,
    now: i64,
}

/// Writes an event that is fresh under every policy, and moves the line of a duplicate on; locks the line
/// of any other, and says what is known.
const ADMIT: &str = "select railpost_admit($1, $2, $3, $4, $5, $6)";
const ADMIT_TYPES: [Type; 6] =
    [Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8, Type::INT8];

impl AdmitQuery<'_> {
    fn values(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.inbox, &self.id, &self.line, &self.seq, &self.follows, &self.now]
    }

    /// Asks without a prepared statement, in one round trip.
    async fn run(&self, client: &(impl GenericClient + Sync)) -> Result<AdmitResult, Error> {
        let values: Vec<_> = self.values().into_iter().zip(ADMIT_TYPES).collect();
        Ok(AdmitResult::read(&client.query_typed(ADMIT, &values).await?))
    }

    /// Moves the line on and notes the event, in one statement. Says whether it did each: the line does
    /// not move if another transaction made it since it was looked for, and then nothing is written.
    async fn move_on(
        &self,
        client: &(impl GenericClient + Sync),
        applied: Option<Seq>,
        verdict: Verdict,
    ) -> Result<(bool, bool), Error> {
        let sql = if applied.is_some() { MOVE_ON } else { BEGIN_LINE };
        let is_gap = matches!(verdict, Verdict::Gap { .. });
        let gap_after = is_gap.then(|| number(applied.map_or(0, Seq::get)));
        let values: [(&(dyn ToSql + Sync), Type); 7] = [
            (&self.inbox, Type::TEXT),
            (&self.line, Type::TEXT),
            (&self.seq, Type::INT8),
            (&self.now, Type::INT8),
            (&self.id, Type::TEXT),
            (&gap_after, Type::INT8),
            (&self.key, Type::BYTEA),
        ];
        let rows = client.query_typed(sql, &values).await?;
        Ok(rows.first().map_or((false, false), |row| (row.get(0), row.get(1))))
    }
}

impl AdmitResult {
    fn read(rows: &[Row]) -> Self {
        match rows.first().expect("a function returns one row").get(0) {
            -1i64 => Self::Admitted,
            -2 => Self::Known,
            last => Self::After(read_seq(last)),
        }
    }
}

/// A seq, or 0, as a column holds it.
fn number(seq: u64) -> i64 {
    i64::try_from(seq).expect("a seq fits a signed column")
}

fn read_seq(column: i64) -> Option<Seq> {
    u64::try_from(column).ok().and_then(Seq::new)
}

/// For events that a policy lets in out of their turn. The line is there and locked; the event is new
/// unless a copy in another line came at the same time. A replay may be older than what was applied.
const MOVE_ON: &str = "with new as (
    insert into railpost_inbox (inbox, event_id, applied_at) values ($1, $5, $4)
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
    select $1, $2, $7, $6, $3, $4 from new where $6 is not null
), line as (
    update railpost_lines set applied = greatest(applied, $3), changed_at = $4
    where inbox = $1 and line = $2
)
select true, exists (select from new)";

/// The line is not there. A conflict waits for the transaction that makes it.
const BEGIN_LINE: &str = "with line as (
    insert into railpost_lines (inbox, line, applied, changed_at) values ($1, $2, $3, $4)
    on conflict do nothing returning 1
), new as (
    insert into railpost_inbox (inbox, event_id, applied_at) select $1, $5, $4 from line
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, line, key, applied, seq, noted_at)
    select $1, $2, $7, $6, $3, $4 from new where $6 is not null
)
select exists (select from line), exists (select from new)";
