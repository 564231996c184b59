//! Polling a PostgreSQL source.

use railpost_sqlite::SqliteStore;
use railpost_store::{
    EndpointPrivate, EndpointSettings, NewEndpoint, StoreError, TenantSettings, Write,
};
use railpost_wire::EndpointId;
use std::sync::Arc;

use super::database::{Database, connect, server};
use super::support::{World, setup, source};
use super::writers::{emit_own, judge, write};

const TRANSACTIONS: usize = 60;

/// The relay runs while sixteen writers write, with an open transaction in another database all the
/// while.
async fn stress(fields: &str) {
    let database = Database::with_outbox().await;
    let elsewhere = connect(&server()).await;
    elsewhere.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db"), setup()).unwrap();
    let world = World::around(Arc::new(store)).await;
    let fields = format!("tenant = \"acme\"\n{fields}");
    let relay = world.relay(vec![source("shop", &database.url, &fields)]);
    let committed = write(&database, TRANSACTIONS, emit_own).await;
    let relayed = world.until_accepted(committed.events).await;
    database.until_empty("railpost_outbox").await;
    judge(&committed, &relayed);
    relay.stop().await;
    elsewhere.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_loses_nothing_takes_nothing_early_and_keeps_the_order_of_each_key() {
    stress("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_does_with_small_batches_in_the_order_of_commits() {
    stress("batch = 7\norder = \"commit\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_at_once_lose_nothing_and_keep_the_order() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let config = source("shop", &database.url, "tenant = \"acme\"\nbatch = 3");
    // Another installation has another name for it, and no lease in common: the source's own lock keeps
    // one out.
    let other = source("store", &database.url, "tenant = \"acme\"\nbatch = 3");
    let relays =
        [world.relay_of("a", vec![config.clone()]), world.relay_of("b", vec![config, other])];
    let committed = write(&database, TRANSACTIONS / 2, emit_own).await;
    let relayed = world.until_accepted(committed.events).await;
    judge(&committed, &relayed);
    world.until_told("another process reads it (").await;
    world.until_told("session ").await;
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_table_is_drained_in_order() {
    let database = Database::with_outbox().await;
    let fill = "INSERT INTO railpost_outbox (id, type, key, payload) \
                SELECT 'e' || n, 'order.paid', 'k' || n % 10, '{}' FROM generate_series(1, 25000) AS n";
    database.run(fill).await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    world.until_accepted(25_000).await;
    let expected: Vec<String> = (1..=25_000).map(|n| format!("e{n}")).collect();
    assert!(world.ids() == expected);
    database.until_empty("railpost_outbox").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_accepted_and_not_removed_is_no_second_event() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let shop = source("shop", &database.url, "tenant = \"acme\"");
    database.emit("e1", "order.paid", Some("1")).await;
    let relay = world.relay(vec![shop.clone()]);
    world.until_accepted(1).await;
    relay.stop().await;
    // As after a crash between the two: the row is there again.
    database.run("DELETE FROM railpost_outbox").await;
    database.emit("e1", "order.paid", Some("1")).await;
    database.emit("e2", "order.paid", Some("1")).await;
    let relay = world.relay(vec![shop]);
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e2"]);
    database.until_empty("railpost_outbox").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_wakes_the_relay() {
    let database = Database::with_outbox().await;
    database.run(railpost_outbox::sql::POSTGRES_NOTIFY_TRIGGER).await;
    let world = World::new().await;
    let relay =
        world.relay(vec![source("shop", &database.url, "tenant = \"acme\"\nwake = \"notify\"")]);
    for n in 1..=20 {
        database.emit(&format!("e{n}"), "order.paid", None).await;
        world.until_accepted(n).await;
    }
    assert!(relay.status()[0].wakes_by_notify >= 5, "{:?}", relay.status());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_backlog_or_a_store_that_is_away_confirms_nothing_and_loses_nothing() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    for (n, (code, failure)) in [
        ("backlog_full", StoreError::BacklogFull { open: 1, max: 1 }),
        ("store", StoreError::Unavailable("gone".to_owned())),
    ]
    .into_iter()
    .enumerate()
    {
        *world.failure.lock().unwrap() = Some(failure);
        database.emit(&format!("e{n}"), "order.paid", Some("1")).await;
        world.until_trouble("shop", code).await;
        assert_eq!(database.count("railpost_outbox").await, 1);
        *world.failure.lock().unwrap() = None;
        world.until_accepted(n + 1).await;
        database.until_empty("railpost_outbox").await;
    }
    assert_eq!(world.ids(), ["e0", "e1"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_is_smaller_than_a_batch_is_filled_all_the_same() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let endpoint = NewEndpoint {
        id: EndpointId::from_u128(1),
        tenant: "acme".parse().unwrap(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    world.store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
    let settings = TenantSettings { backlog_max: Some(30), ..TenantSettings::default() };
    let update = Write::UpdateTenant("acme".parse().unwrap(), settings);
    world.store.commit(update.into()).await.unwrap();
    let fill = "INSERT INTO railpost_outbox (id, type, payload) SELECT 'e' || n, 'a', '{}' \
                FROM generate_series(1, 100) AS n";
    database.run(fill).await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    world.until_trouble("shop", "backlog_full").await;
    assert_eq!(world.ids().len(), 30);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn debeziums_table_is_read_as_it_is_but_for_a_number() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, \
               aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb); \
             ALTER TABLE outboxevent ADD seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE; \
             INSERT INTO outboxevent VALUES \
               ('00000000-0000-0000-0000-000000000001', 'order', '42', 'OrderCreated', '{\"total\": 7}')",
        )
        .await;
    let world = World::new().await;
    let relay =
        world.relay(vec![source("shop", &database.url, "tenant = \"acme\"\nshape = \"debezium\"")]);
    let (tenant, event) = world.until_accepted(1).await.remove(0);
    assert_eq!(tenant, "acme");
    assert_eq!(event.id.to_string(), "00000000-0000-0000-0000-000000000001");
    assert_eq!(event.key.unwrap().as_str(), "order:42");
    assert_eq!(event.event_type.as_str(), "OrderCreated");
    assert_eq!(&event.payload[..], b"{\"total\": 7}");
    database.until_empty("outboxevent").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_table_can_be_mapped_and_marked_instead_of_emptied() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE TABLE events (id bigserial PRIMARY KEY, owner text, kind text, body bytea, at bigint, \
               published_at timestamptz); \
             INSERT INTO events (owner, kind, body, at) VALUES ('acme', 'paid', '\\x00ff', 1700000000123), \
               ('globex', 'paid', '\\x00', NULL)",
        )
        .await;
    let fields = "shape = \"custom\"\ntable = \"public.events\"\nafter = \"mark\"\n\
                  columns = { id = \"id\", order = \"id\", tenant = \"owner\", type = \"'order.' || kind\", \
                    key = \"{owner}/{kind}\", payload = \"body\", time = \"at\", done = \"published_at\", \
                    content_type = \"'application/octet-stream'\" }";
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, fields)]);
    let mut accepted = world.until_accepted(2).await;
    accepted.sort_by_key(|(tenant, _)| tenant.clone());
    let (tenant, event) = &accepted[0];
    assert_eq!((tenant.as_str(), event.id.to_string().as_str()), ("acme", "shop:1"));
    assert_eq!(
        (event.event_type.as_str(), event.key.as_ref().unwrap().as_str()),
        ("order.paid", "acme/paid")
    );
    assert_eq!((&event.payload[..], event.time.as_millis()), (&b"\x00\xff"[..], 1_700_000_000_123));
    assert_eq!(accepted[1].0, "globex");
    database.until_empty("events WHERE published_at IS NULL").await;
    assert_eq!(database.count("events").await, 2);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_altered_in_mid_stream_is_read_on() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_accepted(1).await;
    database.run("ALTER TABLE railpost_outbox ADD note text, ALTER key TYPE varchar(300)").await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    database.run("ALTER TABLE railpost_outbox RENAME traceparent TO trace").await;
    database.run("INSERT INTO railpost_outbox (id, type, payload) VALUES ('e3', 'a', '{}')").await;
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("traceparent"), "{trouble}");
    assert!(trouble.remedy().is_some());
    database.run("ALTER TABLE railpost_outbox RENAME trace TO traceparent").await;
    world.until_accepted(3).await;
    assert_eq!(world.ids(), ["e1", "e2", "e3"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_are_taken_in_pieces() {
    let database = Database::with_outbox().await;
    let fill = "INSERT INTO railpost_outbox (id, type, payload) \
                SELECT 'e' || n, 'a', '\"' || repeat('x', 1000000) || '\"' FROM generate_series(1, 40) AS n";
    database.run(fill).await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    let accepted = world.until_accepted(40).await;
    assert!(accepted.iter().all(|(_, event)| event.payload.len() == 1_000_002));
    relay.stop().await;
}
