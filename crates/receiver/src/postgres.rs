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

use crate::inbox::{InboxConfig, NotedGap, Verdict};
use crate::limits::{GAPS_LISTED_MAX, PRUNE_STEP};
use railpost_wire::{Received, Seq};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Row, Transaction};

#[cfg(feature = "tower")]
pub use intake::PostgresIntake;
pub use pool::{Pool, PoolError, Pooled};
pub use queue::PostgresQueue;
pub use session::{Admission, Session};

/// Creates the tables, if they are not there, in the first schema of the connection's search path. They
/// are those of the SQLite inbox, and one function.
pub async fn create_tables(client: &Client) -> Result<(), Error> {
    client.batch_execute(include_str!("postgres/schema.sql")).await
}

/// An inbox in the application's own PostgreSQL database.
#[derive(Debug, Clone)]
pub struct PostgresInbox {
    config: InboxConfig,
}

/// What the database knows of an event before it is judged.
enum Before {
    /// It is the next in its lane, or has none: it was written on the way.
    Admitted,
    /// Its id was applied before.
    Known,
    /// Its id is unknown, and it is not the next; this is the last seq of its lane, which is locked if it
    /// is there.
    After(Option<Seq>),
}

impl PostgresInbox {
    /// The inbox of this name.
    pub fn new(config: InboxConfig) -> Self {
        Self { config }
    }

    /// Judges an event within the transaction of its effect. If the verdict applies, run the effect and
    /// commit; if anything fails, roll back, and the event was never seen. Any other verdict has
    /// written nothing.
    ///
    /// Events of one key are serialised from here to the end of the transaction, and so are deliveries
    /// of one event; all others run side by side. The transaction must be `read committed`, the default.
    pub async fn admit(
        &self,
        transaction: &Transaction<'_>,
        received: &Received,
        now: i64,
    ) -> Result<Verdict, Error> {
        let asked = self.asked(received, now);
        let before = asked.typed(transaction).await?;
        self.settle(transaction, received, &asked, before).await
    }

    /// Judges by what the database knew, and writes what the policy lets in out of its turn.
    async fn settle(
        &self,
        client: &(impl GenericClient + Sync),
        received: &Received,
        asked: &Asked<'_>,
        mut before: Before,
    ) -> Result<Verdict, Error> {
        loop {
            let applied = match before {
                Before::Admitted => return Ok(Verdict::Fresh),
                Before::Known => return Ok(Verdict::Duplicate),
                Before::After(applied) => applied,
            };
            let verdict = self.config.policy.judge(received, false, applied);
            if !verdict.applies() {
                return Ok(verdict);
            }
            match asked.advance(client, applied, verdict).await? {
                (true, true) => return Ok(verdict),
                (true, false) => return Ok(Verdict::Duplicate),
                // Another transaction made the lane meanwhile: look again.
                (false, _) => before = asked.typed(client).await?,
            }
        }
    }

    fn asked<'a>(&'a self, received: &'a Received, now: i64) -> Asked<'a> {
        let lane = self.config.policy.lane(received);
        let key = lane.map(|(key, _)| key.as_bytes());
        let seq = number(lane.map(|(_, seq)| seq));
        Asked { inbox: &self.config.name, id: received.event_id.to_string(), key, seq, now }
    }

    /// Forgets what is older than the retention, at most a step of it. Returns how many rows went: call
    /// it again while there are some. It looks through all lanes, so once a day is often enough.
    pub async fn prune(&self, client: &impl GenericClient, now: i64) -> Result<u64, Error> {
        let retention = self.config.retention;
        let mut removed = 0;
        for (table, age, since) in [
            ("railpost_inbox", "applied_at", retention.ids_since(now)),
            ("railpost_lanes", "changed_at", retention.lanes_since(now)),
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
        let sql = "select key, applied, seq, noted_at from railpost_gaps where inbox = $1
                   order by noted_at desc, seq desc limit $2";
        let limit = i64::from(GAPS_LISTED_MAX);
        let rows = client.query(sql, &[&self.config.name, &limit]).await?;
        let number = |row: &Row, at: usize| row.get::<_, i64>(at).unsigned_abs();
        let gap = |row: &Row| NotedGap {
            key: String::from_utf8_lossy(row.get(0)).into_owned(),
            applied: number(row, 1),
            seq: number(row, 2),
            noted_at: row.get(3),
        };
        Ok(rows.iter().map(gap).collect())
    }
}

/// What the database is asked about an event. One without a lane has no key.
struct Asked<'a> {
    inbox: &'a str,
    id: String,
    key: Option<&'a [u8]>,
    seq: i64,
    now: i64,
}

/// Writes an event that is fresh under every policy; locks the lane of any other, and says what is known.
const ADMIT: &str = "select railpost_admit($1, $2, $3, $4, $5)";
const ADMIT_TYPES: [Type; 5] = [Type::TEXT, Type::TEXT, Type::BYTEA, Type::INT8, Type::INT8];

impl Asked<'_> {
    fn values(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.inbox, &self.id, &self.key, &self.seq, &self.now]
    }

    /// Asks without a prepared statement, in one round trip.
    async fn typed(&self, client: &(impl GenericClient + Sync)) -> Result<Before, Error> {
        let values: Vec<_> = self.values().into_iter().zip(ADMIT_TYPES).collect();
        Ok(Before::read(&client.query_typed(ADMIT, &values).await?))
    }

    /// Moves the lane on and notes the event, in one statement. Says whether it did each: the lane does
    /// not move if another transaction made it since it was looked for, and then nothing is written.
    async fn advance(
        &self,
        client: &(impl GenericClient + Sync),
        applied: Option<Seq>,
        verdict: Verdict,
    ) -> Result<(bool, bool), Error> {
        let sql = if applied.is_some() { ADVANCE } else { BEGIN_LANE };
        let gap_after = matches!(verdict, Verdict::Gap { .. }).then(|| number(applied));
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.inbox, Type::TEXT),
            (&self.key, Type::BYTEA),
            (&self.seq, Type::INT8),
            (&self.now, Type::INT8),
            (&self.id, Type::TEXT),
            (&gap_after, Type::INT8),
        ];
        let rows = client.query_typed(sql, &values).await?;
        Ok(rows.first().map_or((false, false), |row| (row.get(0), row.get(1))))
    }
}

impl Before {
    fn read(rows: &[Row]) -> Self {
        match rows.first().expect("a function returns one row").get(0) {
            -1i64 => Self::Admitted,
            -2 => Self::Known,
            last => Self::After(u64::try_from(last).ok().and_then(Seq::new)),
        }
    }
}

/// A seq as a column holds it; 0 for none.
fn number(seq: Option<Seq>) -> i64 {
    seq.map_or(0, |seq| i64::try_from(seq.get()).expect("a seq fits a signed column"))
}

/// For events that a policy lets in out of their turn. The lane is there and locked; the event is new
/// unless a copy under another key came at the same time. A replay may be older than what was applied.
const ADVANCE: &str = "with new as (
    insert into railpost_inbox (inbox, event_id, applied_at) values ($1, $5, $4)
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, key, applied, seq, noted_at)
    select $1, $2, $6, $3, $4 from new where $6 is not null
), lane as (
    update railpost_lanes set applied = greatest(applied, $3), changed_at = $4
    where inbox = $1 and key = $2 and exists (select from new)
)
select true, exists (select from new)";

/// The lane is not there. A conflict waits for the transaction that makes it.
const BEGIN_LANE: &str = "with lane as (
    insert into railpost_lanes (inbox, key, applied, changed_at) values ($1, $2, $3, $4)
    on conflict do nothing returning 1
), new as (
    insert into railpost_inbox (inbox, event_id, applied_at) select $1, $5, $4 from lane
    on conflict do nothing returning 1
), gap as (
    insert into railpost_gaps (inbox, key, applied, seq, noted_at)
    select $1, $2, $6, $3, $4 from new where $6 is not null
)
select exists (select from lane), exists (select from new)";
