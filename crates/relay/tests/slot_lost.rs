//! A slot that the server gave up because too much of its log had to be kept. The bound is the whole
//! server's, so this test has a server of its own.
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

use database::Database;
use server::Server;
use support::{World, source};

async fn set_bound(database: &Database, sql: &str) {
    database.run(sql).await;
    database.run("SELECT pg_reload_conf()").await;
}

/// Writes log until the server has given up the slot.
async fn overrun(database: &Database, slot: &str) {
    let lost =
        format!("SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = '{slot}'");
    let writing = async {
        loop {
            let row = database.client.query_one(&lost, &[]).await.unwrap();
            if row.get::<_, Option<bool>>(0) == Some(true) {
                return;
            }
            let megabytes = "SELECT count(pg_logical_emit_message(false, 'filler', repeat('x', 1000000))) \
                             FROM generate_series(1, 20)";
            database.run(megabytes).await;
            database.run("SELECT pg_switch_wal()").await;
            database.run("CHECKPOINT").await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), writing)
        .await
        .expect("the slot is given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_overrun_is_made_again_with_an_alarm_and_the_table_is_read() {
    let server = Server::new();
    server.start(&["wal_level=logical"]);
    let database = Database::with_outbox_on(&server.url()).await;
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nmode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    relay.stop().await;
    database.emit("e1", "order.paid", Some("1")).await;
    set_bound(&database, "ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'").await;
    overrun(&database, &config.slot).await;
    set_bound(&database, "ALTER SYSTEM RESET max_slot_wal_keep_size").await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(1).await;
    assert!(world.until_alarm().await.contains("gave up slot"), "{:?}", world.alarms());
    world.until_reading("shop", 2).await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e2"]);
    relay.stop().await;
    let dropping = async { while railpost_relay::drop_source(&config, None).await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), dropping).await.unwrap();
}
