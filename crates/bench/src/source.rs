//! The application whose outbox Railpost relays from: its database, and its commits.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use railpost_outbox::sql::{POSTGRES_FUNCTION, POSTGRES_NOTIFY_TRIGGER, POSTGRES_TABLE};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::cases::PLAIN;
use crate::clock::now_us;
use crate::limits::{COMMITS_PER_SESSION, LOOK_EVERY, OUTBOX_KEYS};
use crate::load::plan::due_us;
use crate::load::request::type_name;
use crate::payload::Payload;

/// A session of the application's database.
pub(crate) struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            // The next statement gets its error.
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = client.map_err(|error| format!("{url}: {error}"))?;
        Ok(Self { runtime, client })
    }

    pub(crate) fn run(&self, sql: &str) -> Result<(), String> {
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.map_err(|error| format!("the source's database: {error}"))
    }

    fn rows(&self) -> Result<i64, String> {
        let count = "SELECT count(*) FROM railpost_outbox";
        let row = self.runtime.block_on(self.client.query_one(count, &[]));
        row.map(|row| row.get(0)).map_err(|error| format!("the source's database: {error}"))
    }
}

/// A database with an outbox.
pub(crate) struct SourceDatabase {
    pub(crate) url: String,
    session: Session,
}

/// A commit that was answered: the event's number, and when.
pub(crate) type Commit = (u64, u64);

impl SourceDatabase {
    /// Sets an empty database up.
    pub(crate) fn set_up(url: String) -> Result<Self, String> {
        let session = Session::open(&url)?;
        session.run(POSTGRES_TABLE)?;
        session.run(POSTGRES_FUNCTION)?;
        Ok(Self { url, session })
    }

    pub(crate) fn run(&self, sql: &str) -> Result<(), String> {
        self.session.run(sql)
    }

    pub(crate) fn notify(&self) -> Result<(), String> {
        self.run(POSTGRES_NOTIFY_TRIGGER)
    }

    pub(crate) fn publish(&self, publication: &str) -> Result<(), String> {
        self.run(&format!(
            "CREATE PUBLICATION {publication} FOR TABLE railpost_outbox \
             WITH (publish = 'insert', publish_via_partition_root = true)"
        ))
    }

    /// Writes rows that wait, with payloads of so many bytes.
    pub(crate) fn fill(&self, events: u64, payload_bytes: usize) -> Result<(), String> {
        let (now, event_type, open) = (now_us(), type_name(0), payload_bytes.saturating_sub(2));
        let head = format!(r#"'{{"n":' || n || ',"producer":0,"sent_us":{now},"pad":"'"#);
        self.run(&format!(
            "INSERT INTO railpost_outbox (type, key, payload) \
             SELECT '{event_type}', 'k' || n % {OUTBOX_KEYS}, rpad({head}, {open}, 'x') || '\"}}' \
             FROM generate_series(0, {}) AS n; ANALYZE railpost_outbox",
            events.saturating_sub(1)
        ))
    }

    /// Waits until every row was relayed and deleted.
    pub(crate) fn wait_until_empty(&self, within: Duration) -> Result<(), String> {
        let until = Instant::now() + within;
        loop {
            let rows = self.session.rows()?;
            if rows == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("{rows} rows were not relayed within {within:?}"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Commits an event at a time by schedule, in as many sessions as it takes, and says when each was
    /// answered.
    pub(crate) fn commit(&self, numbers: Range<u64>, per_s: u64) -> Result<Vec<Commit>, String> {
        let sessions = per_s.div_ceil(COMMITS_PER_SESSION);
        let writers: Vec<Writer> = (0..sessions)
            .map(|producer| Writer::open(&self.url, producer, sessions))
            .collect::<Result<_, _>>()?;
        let begun = Instant::now();
        let commits: Vec<Result<Vec<Commit>, String>> = thread::scope(|scope| {
            let start = |writer: Writer| {
                let numbers = numbers.clone();
                scope.spawn(move || writer.commit(numbers, per_s, begun))
            };
            let threads: Vec<_> = writers.into_iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err("a writer died".to_owned()))
            };
            threads.into_iter().map(join).collect()
        });
        Ok(commits.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// One session of several, with keys of its own, so that the order within a key is known.
struct Writer {
    session: Session,
    emit: tokio_postgres::Statement,
    producer: u64,
    producers: u64,
}

impl Writer {
    fn open(url: &str, producer: u64, producers: u64) -> Result<Self, String> {
        let session = Session::open(url)?;
        let sql = "SELECT railpost_emit($1, $2, $3)";
        let emit = session.runtime.block_on(session.client.prepare(sql));
        let emit = emit.map_err(|error| format!("railpost_emit: {error}"))?;
        Ok(Self { session, emit, producer, producers })
    }

    fn commit(
        &self,
        numbers: Range<u64>,
        per_s: u64,
        begun: Instant,
    ) -> Result<Vec<Commit>, String> {
        let mut commits = Vec::new();
        let own = (0..).zip(numbers).skip(self.producer as usize).step_by(self.producers as usize);
        for (slot, number) in own {
            let due = begun + Duration::from_micros(due_us(slot, per_s));
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.emit(number)?;
            commits.push((number, now_us()));
        }
        Ok(commits)
    }

    /// A transaction of one statement.
    fn emit(&self, number: u64) -> Result<(), String> {
        let mut payload = Vec::new();
        Payload { number, producer: self.producer, sent_us: now_us() }
            .write(PLAIN.payload_bytes, &mut payload);
        let payload = String::from_utf8_lossy(&payload);
        let key = (number / self.producers % OUTBOX_KEYS) * self.producers + self.producer;
        let (event_type, key) = (type_name(0), format!("k{key}"));
        let Session { runtime, client } = &self.session;
        let done = runtime.block_on(client.execute(&self.emit, &[&event_type, &payload, &key]));
        done.map(drop).map_err(|error| format!("railpost_emit: {error}"))
    }
}
