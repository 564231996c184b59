//! How fast rows come from a PostgreSQL source into a SQLite store: a waiting table that is drained, the
//! time from COMMIT to accepted, and what 300,000 dead rows cost that vacuum may not remove.
//!
//! `cargo bench -p railpost-relay` needs `RAILPOST_TEST_POSTGRES`, the URL of a server with `wal_level =
//! logical`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    dead_code,
    reason = "a benchmark prints"
)]

#[path = "../tests/relay/database.rs"]
mod database;
#[path = "../tests/relay/support.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::Database;
use railpost_sqlite::SqliteStore;
use support::{World, setup, source};

/// How many rows wait, and how many are written one after the other.
const WAITING: usize = 200_000;
const LIVE: usize = 400;
const DEAD: usize = 300_000;

async fn sqlite_world(folder: &tempfile::TempDir) -> Arc<World> {
    World::around(Arc::new(SqliteStore::open(&folder.path().join("store.db"), setup()).unwrap()))
        .await
}

async fn drain() {
    let database = Database::with_outbox().await;
    let fill = format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) SELECT 'e' || n, 'order.paid', 'k' || n % 1000, \
         '\"' || repeat('x', 510) || '\"' FROM generate_series(1, {WAITING}) AS n"
    );
    database.run(&fill).await;
    let folder = tempfile::TempDir::new().unwrap();
    let world = sqlite_world(&folder).await;
    let began = Instant::now();
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"\nbatch = 1000")]);
    world.until_accepted(WAITING).await;
    let rate = WAITING as f64 / began.elapsed().as_secs_f64();
    println!("drain of {WAITING} waiting rows of 512 bytes: {rate:.0}/s");
    relay.stop().await;
}

/// The time from the answer to COMMIT until the event is accepted, sorted, at about 200 commits a
/// second.
async fn live(database: &Database, fields: &str) -> Vec<Duration> {
    let folder = tempfile::TempDir::new().unwrap();
    let world = sqlite_world(&folder).await;
    let relay =
        world.relay(vec![source("shop", &database.url, &format!("tenant = \"acme\"\n{fields}"))]);
    world.until_reading("shop", 1).await;
    let mut taken = Vec::new();
    for n in 1..=LIVE {
        database.emit(&format!("live-{n}"), "order.paid", Some("1")).await;
        let committed = Instant::now();
        world.until_accepted(n).await;
        taken.push(committed.elapsed());
        tokio::time::sleep(Duration::from_millis(5).saturating_sub(committed.elapsed())).await;
    }
    relay.stop().await;
    taken.sort();
    taken
}

fn show(what: &str, taken: &[Duration]) {
    let at = |part: usize| taken[taken.len() * part / 100].as_secs_f64() * 1_000.0;
    println!("COMMIT to accepted, {what}: p50 {:.2} ms, p99 {:.2} ms", at(50), at(99));
}

async fn latencies() {
    let database = Database::with_outbox().await;
    show("poll every 5 to 100 ms", &live(&database, "").await);
    let database = Database::with_outbox().await;
    database.run(railpost_outbox::sql::POSTGRES_NOTIFY_TRIGGER).await;
    show("notify", &live(&database, "wake = \"notify\"").await);
    let database = Database::with_outbox().await;
    let slot = database.url.rsplit('/').next().unwrap().to_owned();
    let fields = format!("mode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &format!("tenant = \"acme\"\n{fields}"));
    let database = Database::with_publication(&config, database).await;
    show("tail", &live(&database, &fields).await);
    while railpost_relay::drop_source(&config, None).await.is_err() {}
}

/// An old snapshot keeps vacuum from removing what was relayed.
async fn dead_rows() {
    let database = Database::with_outbox().await;
    let fields = "poll_interval = \"1ms\"";
    let before = live(&database, fields).await;
    let old = database.connect().await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let fill = format!(
        "INSERT INTO railpost_outbox (type, payload) SELECT 'a', '{{}}' FROM generate_series(1, {DEAD}); \
         DELETE FROM railpost_outbox"
    );
    database.run(&fill).await;
    let after = live(&database, fields).await;
    let (before, after) = (before[LIVE / 2].as_secs_f64(), after[LIVE / 2].as_secs_f64());
    let ratio = after / before;
    println!(
        "{DEAD} dead rows: p50 {:.2} ms instead of {:.2} ms, {ratio:.2} times",
        after * 1e3,
        before * 1e3
    );
}

#[tokio::main]
async fn main() {
    drain().await;
    latencies().await;
    dead_rows().await;
}
