//! The source's server is killed and started again while it is read. It takes all of its sessions along,
//! so this test has a program of its own.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test that cannot go on should say where; it needs a part of the support"
)]

#[path = "relay/database.rs"]
mod database;
#[path = "relay/support.rs"]
mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use database::Database;
use railpost_relay::SourceConfig;
use support::{World, source};

const ROWS: usize = 3_000;
const RESTARTS: usize = 2;

/// Kills the server without letting it write anything, and starts it again: as a crash of its machine
/// would.
async fn restart() {
    let program = std::env::var("RAILPOST_TEST_POSTGRES_RESTART")
        .expect("RAILPOST_TEST_POSTGRES_RESTART is not set: run `cargo xtask test`");
    let run = move || Command::new(program).stdout(Stdio::null()).status().unwrap();
    let status = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(status.success(), "PostgreSQL did not restart: {status}");
}

/// Each crash comes when some more rows were taken.
async fn crash_while_reading(database: Database, config: SourceConfig) {
    let fill = format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) SELECT 'e' || n, 'order.paid', 'k', '{{}}' \
         FROM generate_series(1, {ROWS}) AS n"
    );
    database.run(&fill).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    for crash in 1..=RESTARTS {
        world.until_accepted(ROWS * crash / (RESTARTS + 2)).await;
        restart().await;
        relay.wake();
    }
    world.until_accepted(ROWS).await;
    let expected: Vec<String> = (1..=ROWS).map(|n| format!("e{n}")).collect();
    assert!(world.ids() == expected, "in order, and none twice");
    let database = Database { client: database::connect(&database.url).await, ..database };
    database.until_empty("railpost_outbox").await;
    assert_eq!(world.alarms(), Vec::<String>::new());
    relay.stop().await;
    let dropping = async { while railpost_relay::drop_source(&config, None).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), dropping).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_while_it_is_read_loses_no_row_and_no_order() {
    let database = Database::with_outbox().await;
    let config = source("shop", &database.url, "tenant = \"acme\"\nbatch = 10");
    crash_while_reading(database, config).await;
    let database = Database::with_outbox().await;
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nbatch = 10\nmode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    crash_while_reading(database, config).await;
}
