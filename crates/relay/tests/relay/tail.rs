//! Following the log of a PostgreSQL source.

use std::sync::Arc;

use railpost_relay::{Relay, SourceConfig};
use railpost_replication::limits::{BUFFERED_BYTES_MAX, WAL_SENDER_TIMEOUT};
use railpost_sqlite::SqliteStore;
use railpost_store::StoreError;

use super::database::{Database, connect, server};
use super::support::{World, setup, source};
use super::writers::{Emit, emit_own, judge, write};

const TRANSACTIONS: usize = 60;

/// A slot is known to the whole server: its name is the database's.
pub(crate) fn tailed(database: &Database, fields: &str) -> SourceConfig {
    let slot = database.url.rsplit('/').next().unwrap();
    let mode = if fields.contains("mode") { "" } else { "mode = \"tail\"" };
    source(
        "shop",
        &database.url,
        &format!("tenant = \"acme\"\nslot = \"{slot}\"\n{mode}\n{fields}"),
    )
}

/// A database with our own table, its publication, and a relay that follows its log.
pub(crate) async fn following(fields: &str) -> (Database, Arc<World>, SourceConfig, Relay) {
    let database = Database::with_outbox().await;
    let config = tailed(&database, fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    (database, world, config, relay)
}

/// Stops the relay and removes its slot, of which a server has only so many.
pub(crate) async fn end(database: &Database, config: &SourceConfig, relay: Relay) {
    relay.stop().await;
    drop_slot(database, config).await;
}

async fn drop_slot(database: &Database, config: &SourceConfig) {
    let slot = &config.slot;
    let sql = format!(
        "SELECT pg_drop_replication_slot('{slot}') FROM pg_replication_slots WHERE slot_name = '{slot}'"
    );
    let dropping = async {
        // A session that was ended this moment may still have it.
        while database.client.batch_execute(&sql).await.is_err() {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), dropping).await.unwrap();
}

/// The relay runs while sixteen writers write, with an open transaction in another database all the
/// while.
async fn stress(fields: &str, emit: Emit) {
    let database = Database::with_outbox().await;
    let config = tailed(&database, fields);
    let database = Database::with_publication(&config, database).await;
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db"), setup()).unwrap();
    let world = World::around(Arc::new(store)).await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    let elsewhere = connect(&server()).await;
    elsewhere.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let committed = write(&database, TRANSACTIONS, emit).await;
    let relayed = world.until_accepted(committed.events).await;
    database.until_empty("railpost_outbox").await;
    judge(&committed, &relayed);
    assert_eq!(world.alarms(), Vec::<String>::new());
    elsewhere.batch_execute("ROLLBACK").await.unwrap();
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tailing_loses_nothing_takes_nothing_early_and_keeps_the_order_of_each_key() {
    stress("", emit_own).await;
}

fn emit_message(id: &str, key: &str, number: i64) -> String {
    format!(
        "SELECT pg_logical_emit_message(true, 'railpost', jsonb_build_object('id', '{id}', 'type', 'order.changed', \
         'key', '{key}', 'payload', jsonb_build_object('n', {number}))::text)"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_does_with_messages() {
    stress("mode = \"messages\"\nbatch = 7", emit_message).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_from_before_the_slot_and_from_a_pause_are_relayed() {
    let database = Database::with_outbox().await;
    let config = tailed(&database, "");
    let database = Database::with_publication(&config, database).await;
    database.emit("before", "order.paid", Some("1")).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(1).await;
    world.until_reading("shop", 1).await;
    database.emit("live", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    relay.stop().await;
    database.emit("paused", "order.paid", Some("1")).await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(3).await;
    assert_eq!(world.ids(), ["before", "live", "paused"]);
    database.until_empty("railpost_outbox").await;
    assert_eq!(world.alarms(), Vec::<String>::new());
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_ids_are_its_only_numbers_is_read_in_their_order() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE TABLE events (id bigserial PRIMARY KEY, kind text, body text); \
             INSERT INTO events (kind, body) SELECT 'a', '{}' FROM generate_series(1, 120)",
        )
        .await;
    let fields = "shape = \"custom\"\ntable = \"events\"\n\
                  columns = { id = \"id\", type = \"kind\", payload = \"body\" }";
    let config = tailed(&database, fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(120).await;
    world.until_reading("shop", 1).await;
    database.run("INSERT INTO events (kind, body) VALUES ('a', '{}')").await;
    world.until_accepted(121).await;
    let expected: Vec<String> = (1..=121).map(|n| format!("shop:{n}")).collect();
    assert_eq!(world.ids(), expected);
    database.until_empty("events").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_dropped_is_made_again_with_an_alarm_and_the_table_is_read() {
    let (database, world, config, relay) = following("").await;
    relay.stop().await;
    drop_slot(&database, &config).await;
    database.emit("e1", "order.paid", Some("1")).await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(1).await;
    assert!(world.until_alarm().await.contains("is gone"), "{:?}", world.alarms());
    world.until_reading("shop", 2).await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e2"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_a_lost_slot_took_along_are_named_by_their_stretch_of_the_log() {
    let (database, world, config, relay) = following("mode = \"messages\"").await;
    database.run(&emit_message("e1", "k", 1)).await;
    world.until_accepted(1).await;
    relay.stop().await;
    drop_slot(&database, &config).await;
    database.run(&emit_message("lost", "k", 2)).await;
    let relay = world.relay(vec![config.clone()]);
    let alarm = world.until_alarm().await;
    assert!(
        alarm.contains("read up to") && alarm.contains("messages between the two are lost"),
        "{alarm}"
    );
    world.until_reading("shop", 2).await;
    database.run(&emit_message("e3", "k", 3)).await;
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e3"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_moved_ahead_raises_an_alarm_and_the_table_is_read() {
    let (database, world, config, relay) = following("").await;
    relay.stop().await;
    database.emit("e1", "order.paid", Some("1")).await;
    let advance =
        format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", config.slot);
    let advancing = async { while database.client.batch_execute(&advance).await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), advancing).await.unwrap();
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(1).await;
    assert!(world.until_alarm().await.contains("was read up to"), "{:?}", world.alarms());
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_is_missing_is_named_with_the_sql_that_makes_it() {
    let database = Database::with_outbox().await;
    let config = tailed(&database, "");
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("publication"), "{trouble}");
    database.emit("e1", "order.paid", None).await;
    // A slot that is older than its publication fails on every change between the two.
    database.run(trouble.remedy().unwrap()).await;
    world.until_accepted(1).await;
    world.until_reading("shop", 1).await;
    database.emit("e2", "order.paid", None).await;
    world.until_accepted(2).await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_was_away_costs_the_slot_and_no_row() {
    let (database, world, config, relay) = following("").await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_accepted(1).await;
    database.run(&format!("DROP PUBLICATION {}", config.slot)).await;
    database.emit("e2", "order.paid", Some("1")).await;
    let trouble = world.until_trouble("shop", "wrong").await;
    database.emit("e3", "order.paid", Some("1")).await;
    database.run(trouble.remedy().unwrap()).await;
    world.until_accepted(3).await;
    world.until_reading("shop", 2).await;
    database.emit("e4", "order.paid", Some("1")).await;
    world.until_accepted(4).await;
    assert_eq!(world.ids(), ["e1", "e2", "e3", "e4"]);
    assert!(world.until_alarm().await.contains("publication"), "{:?}", world.alarms());
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_altered_in_mid_stream_is_followed_by_the_names_of_its_columns() {
    let (database, world, config, relay) = following("").await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_accepted(1).await;
    database.run("ALTER TABLE railpost_outbox DROP payload_bytes, ADD note text, ADD payload_bytes bytea").await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    database.run("ALTER TABLE railpost_outbox RENAME traceparent TO trace").await;
    database.run("INSERT INTO railpost_outbox (id, type, payload) VALUES ('e3', 'a', '{}')").await;
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("traceparent"), "{trouble}");
    assert_eq!(world.ids(), ["e1", "e2"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn debeziums_table_is_tailed_as_it_is_also_if_rows_go_in_the_transaction_that_brings_them() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, \
               aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb); \
             INSERT INTO outboxevent VALUES (gen_random_uuid(), 'order', '42', 'Before', '{}')",
        )
        .await;
    let config = tailed(&database, "shape = \"debezium\"");
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(1).await;
    world.until_reading("shop", 1).await;
    for n in 1..=3 {
        let sql = format!(
            "BEGIN; INSERT INTO outboxevent VALUES (gen_random_uuid(), 'order', '42', 'Changed{n}', '{{}}'); \
             DELETE FROM outboxevent; COMMIT"
        );
        database.run(&sql).await;
    }
    let kept = "INSERT INTO outboxevent VALUES (gen_random_uuid(), 'order', '42', 'Kept', '{}')";
    database.run(kept).await;
    let accepted = world.until_accepted(5).await;
    let types: Vec<&str> = accepted.iter().map(|(_, event)| event.event_type.as_str()).collect();
    assert_eq!(types, ["Before", "Changed1", "Changed2", "Changed3", "Kept"]);
    assert_eq!(accepted[1].1.key.as_ref().unwrap().as_str(), "order:42");
    database.until_empty("outboxevent").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_table_is_tailed_by_its_root() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE TABLE events (id uuid NOT NULL DEFAULT gen_random_uuid(), seq bigserial, kind text, body bytea, \
               at timestamptz DEFAULT now()) PARTITION BY RANGE (seq); \
             CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (3); \
             CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (3) TO (100)",
        )
        .await;
    let fields = "shape = \"custom\"\ntable = \"events\"\ncolumns = { id = \"id\", type = \"kind\", payload = \"body\", \
                  order = \"seq\", time = \"at\", content_type = \"kind\" }";
    let fields = fields.replace(", content_type = \"kind\"", "");
    let config = tailed(&database, &fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    for n in 1..=5 {
        database.run(&format!("INSERT INTO events (kind, body) VALUES ('a{n}', '[{n}]')")).await;
    }
    let accepted = world.until_accepted(5).await;
    let payloads: Vec<&[u8]> = accepted.iter().map(|(_, event)| &event.payload[..]).collect();
    assert_eq!(payloads, [b"[1]", b"[2]", b"[3]", b"[4]", b"[5]"]);
    database.until_empty("events").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_backlog_is_full_the_session_is_kept_and_nothing_is_confirmed() {
    let (database, world, config, relay) = following("").await;
    *world.failure.lock().unwrap() = Some(StoreError::BacklogFull { open: 1, max: 1 });
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_trouble("shop", "backlog_full").await;
    assert_eq!(database.count("railpost_outbox").await, 1);
    let pid =
        format!("SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}'", config.slot);
    let before: Option<i32> = database.client.query_one(&pid, &[]).await.unwrap().get(0);
    *world.failure.lock().unwrap() = None;
    world.until_accepted(1).await;
    database.until_empty("railpost_outbox").await;
    let after: Option<i32> = database.client.query_one(&pid, &[]).await.unwrap().get(0);
    assert_eq!((before.is_some(), before), (true, after), "the stream was not started again");
    end(&database, &config, relay).await;
}

/// How often the server would have ended a silent session.
const TIMEOUTS: u32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_backlog_outlasts_several_timeouts_of_the_server_and_then_everything_arrives() {
    let (database, world, config, relay) = following("").await;
    *world.failure.lock().unwrap() = Some(StoreError::BacklogFull { open: 1, max: 1 });
    // More than the client holds in memory: it stops to read, and statuses must go out all the same.
    let rows = 2 + 2 * BUFFERED_BYTES_MAX as usize / 1_000_000;
    let fill = format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) \
         SELECT 'e' || n, 'order.paid', '1', repeat('x', 1000000) FROM generate_series(1, {rows}) AS n"
    );
    database.run(&fill).await;
    world.until_trouble("shop", "backlog_full").await;
    let age = format!(
        "SELECT active_pid, extract(epoch FROM clock_timestamp() - backend_start)::float8 \
         FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid WHERE slot_name = '{}'",
        config.slot
    );
    let first: i32 = database.client.query_one(&age, &[]).await.unwrap().get(0);
    let enough = (WAL_SENDER_TIMEOUT * TIMEOUTS).as_secs_f64();
    loop {
        // The server waits between two looks.
        database.run("SELECT pg_sleep(0.2)").await;
        let row = database.client.query_one(&age, &[]).await.expect("the session lives");
        assert_eq!(row.get::<_, i32>(0), first, "the stream was started again");
        if row.get::<_, f64>(1) > enough {
            break;
        }
    }
    assert_eq!(world.ids(), Vec::<String>::new());
    assert_eq!(database.count("railpost_outbox").await, rows as i64);
    *world.failure.lock().unwrap() = None;
    world.until_accepted(rows).await;
    assert_eq!(world.ids(), (1..=rows).map(|n| format!("e{n}")).collect::<Vec<_>>());
    database.until_empty("railpost_outbox").await;
    let last: i32 = database.client.query_one(&age, &[]).await.unwrap().get(0);
    assert_eq!(last, first, "the stream was started again");
    end(&database, &config, relay).await;
}
