//! A database of its own on the test server, with a table, a publication and a slot.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use railpost_replication::pgoutput::{Insert, Message, Value};
use railpost_replication::{Connection, Error, Frame, Lsn, NewSlot, Start, Stream, Target};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// Longer than anything in a test takes.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A database whose table `outbox` is published, and its slot. Both have the database's name.
pub(crate) struct Source {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) client: Client,
}

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
fn server() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL \
         server for the tests, or set it to the URL of one with wal_level=logical",
    )
}

pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Source {
    pub(crate) async fn new() -> Self {
        let source = Self::without_slot().await;
        source.create_slot().await;
        source
    }

    pub(crate) async fn without_slot() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("replication_{}_{number}", std::process::id());
        let create = format!("CREATE DATABASE {name}");
        client(&server()).await.batch_execute(&create).await.unwrap();
        let url = server();
        let (place, _) = url.rsplit_once('/').unwrap();
        let url = format!("{place}/{name}");
        let source = Self { client: client(&url).await, url, name };
        source
            .execute(
                "CREATE TABLE outbox (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text); \
                 CREATE PUBLICATION outbox FOR TABLE outbox WITH (publish = 'insert')",
            )
            .await;
        source
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn insert(&self, payload: &str) {
        let sql = "INSERT INTO outbox (payload) VALUES ($1)";
        self.client.execute(sql, &[&payload]).await.unwrap();
    }

    /// One value of one row.
    pub(crate) async fn ask(&self, sql: &str) -> String {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) fn target(&self) -> Target {
        Target::new(&self.url, None).unwrap().with_application_name(&self.name)
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::connect(&self.target()).await.unwrap()
    }

    pub(crate) async fn create_slot(&self) -> Lsn {
        let slot = NewSlot { name: &self.name, failover: true, wait_max: WAIT_MAX };
        self.connect().await.create_slot(&slot).await.unwrap()
    }

    pub(crate) async fn start(&self) -> Stream {
        self.try_start(Lsn::ZERO).await.unwrap()
    }

    pub(crate) async fn try_start(&self, from: Lsn) -> Result<Stream, Error> {
        let publications = &["outbox"];
        let start = Start { slot: &self.name, from, publications, messages: true };
        self.connect().await.start(&start).await
    }

    /// How far the slot is confirmed, as the server says.
    pub(crate) async fn confirmed(&self) -> Lsn {
        let sql = format!(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{}'",
            self.name
        );
        self.ask(&sql).await.parse().unwrap()
    }

    /// Where the server's log is.
    pub(crate) async fn log_end(&self) -> Lsn {
        self.ask("SELECT pg_current_wal_flush_lsn()::text").await.parse().unwrap()
    }
}

impl Drop for Source {
    /// A slot that is left behind would keep the server's log for as long as the server runs.
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        // In a thread of its own, because the test's runtime cannot wait in here.
        let removing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(remove_slot(&name));
        });
        let removed = removing.join();
        assert!(removed.is_ok() || std::thread::panicking(), "the slot could not be removed");
    }
}

async fn remove_slot(name: &str) {
    let client = client(&server()).await;
    let end = format!(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{name}'"
    );
    let drop_slot = format!(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'"
    );
    client.batch_execute(&end).await.unwrap();
    until(async || client.batch_execute(&drop_slot).await.is_ok()).await;
}

/// The next frame that is not idle. Idle ones are confirmed, as a caller would.
pub(crate) async fn next(stream: &mut Stream) -> Result<Message, Error> {
    let message = async {
        loop {
            match stream.next().await? {
                Frame::Message(message) => return Ok(message),
                Frame::Idle(lsn) => stream.confirm(lsn),
            }
        }
    };
    timeout(WAIT_MAX, message).await.expect("a frame comes")
}

/// The payloads of the next transaction and where it ends, or the message that came outside of one.
pub(crate) async fn transaction(stream: &mut Stream) -> Result<(Vec<String>, Lsn), Error> {
    let mut payloads = Vec::new();
    loop {
        match next(stream).await? {
            Message::Insert(insert) => payloads.push(payload(&insert)),
            Message::Logical(message) => {
                let kind = if message.transactional { "in" } else { "out" };
                let content = String::from_utf8_lossy(&message.content);
                payloads.push(format!("{kind} {}: {content}", message.prefix));
                if !message.transactional {
                    return Ok((payloads, message.lsn));
                }
            }
            Message::Commit(commit) => return Ok((payloads, commit.end_lsn)),
            Message::Begin(_) | Message::Relation(_) => {}
            Message::Other(tag) => panic!("unexpected message {tag}"),
        }
    }
}

/// The payloads of so many transactions that have any, all confirmed.
pub(crate) async fn payloads(stream: &mut Stream, transactions: usize) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    while all.len() < transactions {
        let (payloads, end) = transaction(stream).await.unwrap();
        stream.confirm(end);
        if !payloads.is_empty() {
            all.push(payloads);
        }
    }
    all
}

fn payload(insert: &Insert) -> String {
    match insert.values.get(1) {
        Some(Value::Text(text)) => String::from_utf8(text.to_vec()).unwrap(),
        Some(Value::Null) => "NULL".to_owned(),
        other => panic!("{other:?} is no payload"),
    }
}

/// Asks until the answer is yes.
pub(crate) async fn until(mut ask: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !ask().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT_MAX, asking).await.expect("it happens");
}
