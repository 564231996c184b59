//! The source's server crashes and is started again while it is read. It takes all of its sessions along, so
//! this test has a server of its own.
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

use std::time::Duration;

use database::Database;
use railpost_relay::SourceConfig;
use server::Server;
use support::{World, source};

const ROWS: usize = 3_000;
const RESTARTS: usize = 2;

const SETTINGS: [&str; 1] = ["wal_level=logical"];

/// Each crash comes when some more rows were taken.
async fn crash_while_reading(server: &Server, database: Database, config: SourceConfig) {
    let fill = format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) SELECT 'e' || n, 'order.paid', 'k', '{{}}' \
         FROM generate_series(1, {ROWS}) AS n"
    );
    database.run(&fill).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    for crash in 1..=RESTARTS {
        world.until_accepted(ROWS * crash / (RESTARTS + 2)).await;
        server.crash();
        server.start(&SETTINGS);
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
    let server = Server::new();
    server.start(&SETTINGS);
    let database = Database::with_outbox_on(&server.url()).await;
    let config = source("shop", &database.url, "tenant = \"acme\"\nbatch = 10");
    crash_while_reading(&server, database, config).await;
    let database = Database::with_outbox_on(&server.url()).await;
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nbatch = 10\nmode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    crash_while_reading(&server, database, config).await;
}
