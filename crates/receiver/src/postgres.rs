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

mod queue;

use crate::inbox::{InboxConfig, NotedGap, Verdict};
use crate::limits::{GAPS_LISTED_MAX, PRUNE_STEP};
use railpost_wire::{Received, Seq};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Row, Transaction};

pub use queue::PostgresQueue;

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
    /// Its id is unknown; this is the last seq of its lane, which is locked if it is there.
    After(Option<Seq>),
}

/// A lane's step from what was applied to the event's seq.
struct Step<'a> {
    key: &'a str,
    applied: Option<Seq>,
    seq: Seq,
    verdict: Verdict,
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
        let id = received.event_id.to_string();
        let lane = self.config.policy.lane(received);
        loop {
            let before = self.before(transaction, lane, &id, now).await?;
            let (key, seq, applied) = match (before, lane) {
                (Before::Admitted, _) => return Ok(Verdict::Fresh),
                (Before::Known, _) | (_, None) => return Ok(Verdict::Duplicate),
                (Before::After(applied), Some((key, seq))) => (key, seq, applied),
            };
            let verdict = self.config.policy.judge(received, false, applied);
            if !verdict.applies() {
                return Ok(verdict);
            }
            let step = Step { key, applied, seq, verdict };
            match self.advance(transaction, step, &id, now).await? {
                (true, true) => return Ok(verdict),
                (true, false) => return Ok(Verdict::Duplicate),
                // Another transaction made the lane meanwhile: look again.
                (false, _) => {}
            }
        }
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

    /// Locks the event's lane, if there is one yet, and reads what is known. What is fresh under every
    /// policy is written on the way, which saves a round trip.
    async fn before(
        &self,
        transaction: &Transaction<'_>,
        lane: Option<(&str, Seq)>,
        id: &str,
        now: i64,
    ) -> Result<Before, Error> {
        let sql = "select railpost_admit($1, $2, $3, $4, $5)";
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.config.name, Type::TEXT),
            (&id, Type::TEXT),
            (&lane.map(|(key, _)| key.as_bytes()), Type::BYTEA),
            (&number(lane.map(|(_, seq)| seq)), Type::INT8),
            (&now, Type::INT8),
        ];
        let rows = transaction.query_typed(sql, &values).await?;
        let said: i64 = rows.first().expect("a function returns one row").get(0);
        Ok(match said {
            -1 => Before::Admitted,
            -2 => Before::Known,
            last => Before::After(u64::try_from(last).ok().and_then(Seq::new)),
        })
    }

    /// Moves the lane on and notes the event, in one statement. Says whether it did each: the lane does
    /// not move if another transaction made it since it was looked for, and then nothing is written.
    async fn advance(
        &self,
        transaction: &Transaction<'_>,
        Step { key, applied, seq, verdict }: Step<'_>,
        id: &str,
        now: i64,
    ) -> Result<(bool, bool), Error> {
        let sql = if applied.is_some() { ADVANCE } else { BEGIN_LANE };
        let gap_after = matches!(verdict, Verdict::Gap { .. }).then(|| number(applied));
        let seq = number(Some(seq));
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.config.name, Type::TEXT),
            (&key.as_bytes(), Type::BYTEA),
            (&seq, Type::INT8),
            (&now, Type::INT8),
            (&id, Type::TEXT),
            (&gap_after, Type::INT8),
        ];
        let rows = transaction.query_typed(sql, &values).await?;
        Ok(rows.first().map_or((false, false), |row| (row.get(0), row.get(1))))
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
