//! Rows that are refused: they are parked with the later ones of their key, and people decide.

use railpost_store::{
    PageRequest, ParkedAction, ParkedCommand, ParkedQuery, ParkedTarget, SourceName,
};
use std::sync::Arc;

use super::database::Database;
use super::support::{World, source};

fn shop() -> SourceName {
    "shop".parse().unwrap()
}

async fn parked(world: &World) -> Vec<(u64, String, bool)> {
    let query = ParkedQuery::of(shop(), PageRequest::first(100));
    let rows = world.store.parked_rows(query).await.unwrap().items;
    rows.into_iter()
        .map(|row| (row.number, row.fields.id.unwrap(), row.refusal.is_some()))
        .collect()
}

async fn parked_ids(world: &World) -> Vec<String> {
    parked(world).await.into_iter().map(|(_, id, _)| id).collect()
}

async fn command(world: &World, action: ParkedAction, id: &str) {
    let (number, ..) = parked(world).await.into_iter().find(|(_, row, _)| row == id).unwrap();
    let target = ParkedTarget::Head(number);
    let command = ParkedCommand { source: shop(), action, target, audit: None };
    world.store.command_parked(command).await.unwrap();
}

/// `a1`, `a2`, `a3` of key a, of which the first is refused, and others between them.
async fn with_parked(fields: &str) -> (Database, Arc<World>, railpost_relay::Relay) {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    world.refuse_types(&["order.bad"]);
    let fields = format!("tenant = \"acme\"\n{fields}");
    let relay = world.relay(vec![source("shop", &database.url, &fields)]);
    for (id, kind, key) in [
        ("a1", "order.bad", Some("a")),
        ("b1", "order.good", Some("b")),
        ("a2", "order.good", Some("a")),
        ("c", "order.bad", None),
        ("d", "order.good", None),
        ("a3", "order.good", Some("a")),
    ] {
        database.emit(id, kind, key).await;
    }
    (database, world, relay)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_holds_its_key_and_no_other() {
    let (database, world, relay) = with_parked("").await;
    world.until_accepted(2).await;
    world.until_parked(&shop(), 4).await;
    database.until_empty("railpost_outbox").await;
    assert_eq!(world.ids(), ["b1", "d"]);
    let rows: Vec<(String, bool)> =
        parked(&world).await.into_iter().map(|(_, id, refused)| (id, refused)).collect();
    let expected = [("a1", true), ("a2", false), ("c", true), ("a3", false)];
    assert_eq!(rows, expected.map(|(id, refused)| (id.to_owned(), refused)));
    database.emit("a4", "order.good", Some("a")).await;
    world.until_parked(&shop(), 5).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_row_is_followed_by_those_behind_it_and_by_new_ones() {
    let (database, world, relay) = with_parked("").await;
    world.until_parked(&shop(), 4).await;
    // Nothing is fixed yet: the same row is refused again.
    command(&world, ParkedAction::Retry, "a1").await;
    relay.wake();
    world.refuse_types(&[]);
    world.until_accepted(2).await;
    command(&world, ParkedAction::Retry, "a1").await;
    relay.wake();
    world.until_parked(&shop(), 1).await;
    database.emit("a4", "order.good", Some("a")).await;
    world.until_accepted(6).await;
    let of_a: Vec<String> = world.ids().into_iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3", "a4"]);
    assert_eq!(parked_ids(&world).await, ["c"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_row_is_gone_and_the_rest_comes_in_order() {
    let (database, world, relay) = with_parked("").await;
    world.until_parked(&shop(), 4).await;
    database.emit("a4", "order.bad", Some("a")).await;
    database.emit("a5", "order.good", Some("a")).await;
    world.until_parked(&shop(), 6).await;
    command(&world, ParkedAction::Skip, "a1").await;
    relay.wake();
    world.until_accepted(4).await;
    // The next bad one holds the key again.
    world.until_parked(&shop(), 3).await;
    assert_eq!(parked_ids(&world).await, ["c", "a4", "a5"]);
    command(&world, ParkedAction::Discard, "a4").await;
    relay.wake();
    database.emit("a6", "order.good", Some("a")).await;
    world.until_accepted(5).await;
    let of_a: Vec<String> = world.ids().into_iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a2", "a3", "a6"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_relay_knows_what_is_held() {
    let (database, world, relay) = with_parked("").await;
    world.until_parked(&shop(), 4).await;
    relay.stop().await;
    let relay = world.relay_of("b", vec![source("shop", &database.url, "tenant = \"acme\"")]);
    database.emit("a4", "order.good", Some("a")).await;
    world.until_parked(&shop(), 5).await;
    assert_eq!(world.ids(), ["b1", "d"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_stop_at_a_refused_row() {
    let (database, world, relay) = with_parked("on_refused = \"stop\"\nbatch = 1").await;
    let trouble = world.until_trouble("shop", "stopped").await;
    assert_eq!(trouble.to_string(), "stopped at row a1: schema: it does not fit");
    assert_eq!(world.ids(), Vec::<String>::new());
    world.refuse_types(&[]);
    relay.wake();
    world.until_accepted(6).await;
    assert_eq!(world.ids(), ["a1", "b1", "a2", "c", "d", "a3"]);
    database.until_empty("railpost_outbox").await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_skip_what_is_refused() {
    let (database, world, relay) = with_parked("on_refused = \"skip\"").await;
    world.until_accepted(4).await;
    database.until_empty("railpost_outbox").await;
    assert_eq!(world.ids(), ["b1", "a2", "d", "a3"]);
    assert_eq!(parked_ids(&world).await, Vec::<String>::new());
    assert_eq!(relay.status()[0].refused, 2);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_with_other_content_is_parked_as_a_conflict_among_many_good_ones() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    database.emit("e50", "order.paid", Some("1")).await;
    let shop_source = source("shop", &database.url, "tenant = \"acme\"");
    let relay = world.relay(vec![shop_source.clone()]);
    world.until_accepted(1).await;
    relay.stop().await;
    let fill = "INSERT INTO railpost_outbox (id, type, payload) \
                SELECT 'e' || n, 'other', '{}' FROM generate_series(1, 300) AS n";
    database.run(fill).await;
    let relay = world.relay(vec![shop_source]);
    world.until_accepted(300).await;
    world.until_parked(&shop(), 1).await;
    assert_eq!(parked_ids(&world).await, ["e50"]);
    let query =
        ParkedQuery { refused_only: true, ..ParkedQuery::of(shop(), PageRequest::first(1)) };
    let row = world.store.parked_rows(query).await.unwrap().items.remove(0);
    assert_eq!(row.refusal.unwrap().code, "conflict");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_does_not_exist_holds_only_its_own_rows() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let fill = "INSERT INTO railpost_outbox (id, tenant, type, key, payload) \
                SELECT 'e' || n, (ARRAY['acme', 'nobody'])[n % 2 + 1], 'a', 'k', '{}' \
                FROM generate_series(1, 20) AS n; \
                INSERT INTO railpost_outbox (id, type, payload) VALUES ('e21', 'a', '{}')";
    database.run(fill).await;
    let relay = world.relay(vec![source("shop", &database.url, "")]);
    world.until_accepted(10).await;
    world.until_parked(&shop(), 11).await;
    assert!(world.accepted().iter().all(|(tenant, _)| tenant == "acme"));
    let refused = parked(&world).await.into_iter().filter(|(.., refused)| *refused).count();
    assert_eq!(refused, 2, "the first row of `nobody`, and the one without a tenant");
    relay.stop().await;
}
