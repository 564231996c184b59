//! Speed: what verifying and the inboxes cost. `cargo bench -p railpost-receiver` prints one line each;
//! those for PostgreSQL need `RAILPOST_TEST_POSTGRES`. A word after `--` runs only the lines that have it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark talks to its user")]

#[path = "../tests/support/mod.rs"]
mod support;

use railpost_receiver::postgres::{PostgresInbox, Session, create_tables};
use railpost_receiver::testing::{TestRequest, TestSender};
use railpost_receiver::wire::Secret;
use railpost_receiver::{InboxConfig, MemoryInbox, Receiver, Verdict};
use std::time::{Duration, Instant};
use tokio_postgres::types::{ToSql, Type};

const SECRET: [u8; 32] = [7; 32];
const BODY_LEN: usize = 1024;
const EVENTS: usize = 50_000;
const CONNECTIONS: usize = 16;
const POSTGRES_TIME: Duration = Duration::from_secs(5);

/// How an event goes through the PostgreSQL inbox.
#[derive(Clone, Copy)]
enum Way {
    /// In a transaction that the application began.
    Transaction,
    /// In one that a session began.
    Session,
    /// The same, with an effect: a row of the application's own.
    Effect,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Transaction, "transaction"), (Way::Session, "session"), (Way::Effect, "effect")];

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    if "memory".contains(&wanted) {
        memory();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (way, name) in WAYS {
        for (keyed, kind) in [(false, "without keys"), (true, "keyed, each in its order")] {
            let line = format!("{name}, {kind}");
            if line.contains(&wanted) {
                let rate = runtime.block_on(postgres(way, keyed));
                println!(
                    "PostgreSQL inbox, {CONNECTIONS} connections, {line}: {rate:.0} fresh events/s"
                );
            }
        }
    }
}

/// Keyed events, a hundred to a key.
fn requests() -> Vec<TestRequest> {
    let mut sender = TestSender::new(&SECRET);
    let body = vec![b'x'; BODY_LEN];
    let request = |number: usize| {
        let event = sender.event(Some(&format!("key-{}", number / 100)), &body);
        sender.request(&event, 1, support::NOW)
    };
    (0..EVENTS).map(request).collect()
}

fn memory() {
    let receiver = Receiver::new(vec![Secret::from_bytes(&SECRET).unwrap()], vec![]);
    let inbox = MemoryInbox::default();
    let requests = requests();
    let begun = Instant::now();
    for sent in &requests {
        let header = |name: &str| sent.header(name);
        let received = receiver.verify(header, &sent.body, support::NOW).unwrap();
        let verdict = inbox.apply(&received, support::NOW, || Ok::<(), ()>(())).unwrap();
        assert_eq!(verdict, Verdict::Fresh);
    }
    let each = begun.elapsed() / EVENTS as u32;
    println!("verify + memory inbox, {BODY_LEN} bytes, keyed: {each:?} per event");
}

/// Each connection begins, admits and commits fresh events as fast as it can. Returns events per second.
async fn postgres(way: Way, keyed: bool) -> f64 {
    let schema = support::unique("bench");
    let client = support::postgres(&schema).await;
    create_tables(&client).await.unwrap();
    client.batch_execute("create table orders (id text primary key)").await.unwrap();
    let begun = Instant::now();
    let workers = (0..CONNECTIONS).map(|worker| {
        let schema = schema.clone();
        tokio::spawn(async move { admit_all(&schema, worker, (way, keyed), begun).await })
    });
    let mut events = 0;
    for worker in workers.collect::<Vec<_>>() {
        events += worker.await.unwrap();
    }
    f64::from(events) / begun.elapsed().as_secs_f64()
}

async fn admit_all(schema: &str, worker: usize, (way, keyed): (Way, bool), begun: Instant) -> u32 {
    let mut session = Session::new(support::postgres(schema).await);
    let inbox = PostgresInbox::new(InboxConfig::named("bench"));
    let mut events = 0;
    while begun.elapsed() < POSTGRES_TIME {
        let key = format!("key-{worker}-{}", events / 10);
        let lane = keyed.then_some((key.as_str(), u64::from(events % 10) + 1));
        let id = format!("e-{worker}-{events}");
        let received = support::event(&id, lane);
        let verdict = if let Way::Transaction = way {
            let transaction = session.client().transaction().await.unwrap();
            let verdict = inbox.admit(&transaction, &received, support::NOW).await.unwrap();
            transaction.commit().await.unwrap();
            verdict
        } else {
            let admission = session.begin(&inbox, &received, support::NOW).await.unwrap();
            let verdict = admission.verdict();
            if let Way::Effect = way {
                let order: [(&(dyn ToSql + Sync), Type); 1] = [(&id, Type::TEXT)];
                admission.commit_with("insert into orders values ($1)", &order).await.unwrap();
            } else {
                admission.commit().await.unwrap();
            }
            verdict
        };
        assert_eq!(verdict, Verdict::Fresh);
        events += 1;
    }
    events
}
