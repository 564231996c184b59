//! Speed: what verifying and the inboxes cost. `cargo bench -p railpost-receiver` prints one line each;
//! the one for PostgreSQL needs `RAILPOST_TEST_POSTGRES`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark talks to its user")]

#[path = "../tests/support/mod.rs"]
mod support;

use railpost_receiver::postgres::{PostgresInbox, create_tables};
use railpost_receiver::testing::{TestRequest, TestSender};
use railpost_receiver::wire::Secret;
use railpost_receiver::{InboxConfig, MemoryInbox, Receiver, Verdict};
use std::time::{Duration, Instant};

const SECRET: [u8; 32] = [7; 32];
const BODY_LEN: usize = 1024;
const EVENTS: usize = 50_000;
const CONNECTIONS: usize = 16;
const POSTGRES_TIME: Duration = Duration::from_secs(5);

fn main() {
    memory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for keyed in [false, true] {
        runtime.block_on(postgres(keyed));
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

/// Each connection begins, admits and commits fresh events as fast as it can.
async fn postgres(keyed: bool) {
    let schema = support::unique("bench");
    create_tables(&support::postgres(&schema).await).await.unwrap();
    let begun = Instant::now();
    let workers = (0..CONNECTIONS).map(|worker| {
        let schema = schema.clone();
        tokio::spawn(async move { admit_all(&schema, worker, keyed, begun).await })
    });
    let mut events = 0;
    for worker in workers.collect::<Vec<_>>() {
        events += worker.await.unwrap();
    }
    let rate = f64::from(events) / begun.elapsed().as_secs_f64();
    let kind = if keyed { "keyed, each in its order" } else { "without keys" };
    println!("PostgreSQL inbox, {CONNECTIONS} connections, {kind}: {rate:.0} fresh events/s");
}

async fn admit_all(schema: &str, worker: usize, keyed: bool, begun: Instant) -> u32 {
    let mut client = support::postgres(schema).await;
    let inbox = PostgresInbox::new(InboxConfig::named("bench"));
    let mut events = 0;
    while begun.elapsed() < POSTGRES_TIME {
        let key = format!("key-{worker}-{}", events / 10);
        let lane = keyed.then_some((key.as_str(), u64::from(events % 10) + 1));
        let received = support::event(&format!("e-{worker}-{events}"), lane);
        let transaction = client.transaction().await.unwrap();
        let verdict = inbox.admit(&transaction, &received, support::NOW).await.unwrap();
        assert_eq!(verdict, Verdict::Fresh);
        transaction.commit().await.unwrap();
        events += 1;
    }
    events
}
