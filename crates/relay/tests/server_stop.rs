//! The source's server is stopped while its log is followed: it has a server of its own.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test that cannot go on should say where; it needs a part of the support"
)]

#[path = "relay/database.rs"]
mod database;
#[path = "../../replication/tests/support/server.rs"]
mod server;
#[path = "relay/support.rs"]
mod support;

use std::time::{Duration, Instant};

use database::Database;
use server::Server;
use support::{World, source};

/// What a stop may take that waits for nobody: less than the ten seconds between positions that are confirmed
/// unasked.
const STOP_MAX: Duration = Duration::from_secs(8);

/// Waits until the server has heard that the event is durable.
async fn until_confirmed(database: &Database) {
    let end = "SELECT pg_current_wal_lsn()::text";
    let end: String = database.client.query_one(end, &[]).await.unwrap().get(0);
    let confirmed = "SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots";
    let confirming = async {
        while !database.client.query_one(confirmed, &[&end]).await.unwrap().get::<_, bool>(0) {}
    };
    tokio::time::timeout(Duration::from_secs(60), confirming).await.unwrap();
}

/// How long the server takes to stop while its log is followed and nothing is left to take.
async fn stop_while_followed(mode: &str) -> Duration {
    let server = Server::new();
    server.start(&["wal_level=logical"]);
    let database = Database::with_outbox_on(&server.url()).await;
    let fields = format!("tenant = \"acme\"\nmode = \"{mode}\"\nslot = \"stopped\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config]);
    world.until_reading("shop", 1).await;
    let message = "SELECT pg_logical_emit_message(true, 'railpost', '{\"type\":\"order.paid\",\"payload\":1}')";
    match mode {
        "messages" => database.run(message).await,
        _ => database.emit("e1", "order.paid", None).await,
    }
    world.until_accepted(1).await;
    until_confirmed(&database).await;
    // What other tables write is confirmed less often.
    database.run("CREATE TABLE other AS SELECT generate_series(1, 100)").await;
    let began = Instant::now();
    server.stop();
    let took = began.elapsed();
    relay.stop().await;
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_is_not_kept_waiting() {
    for mode in ["tail", "messages"] {
        let took = stop_while_followed(mode).await;
        assert!(took < STOP_MAX, "{mode}: {took:?}");
    }
}
