//! A refused row among others of one batch: the rows in front of it are taken, those behind it wait.

use std::sync::Arc;

use railpost_relay::{Relay, SourceConfig};
use railpost_store::{
    PageRequest, ParkedAction, ParkedCommand, ParkedQuery, ParkedTarget, SourceName,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::database::Database;
use super::support::{World, source};

/// No type that an event may have: the row itself is wrong.
const NO_TYPE: &str = "no type";
/// A type that the tenant refuses.
const REFUSED: &str = "order.refused";
const GOOD: &str = "order.good";

/// A row's id, type and key.
type Row = (&'static str, &'static str, &'static str);

/// Two good rows, one whose type is `kind`, two more of its key, and one of another key.
fn around(kind: &'static str) -> [Row; 6] {
    [
        ("m1", GOOD, "m"),
        ("m2", GOOD, "m"),
        ("m3", kind, "m"),
        ("m4", GOOD, "m"),
        ("m5", NO_TYPE, "m"),
        ("n1", GOOD, "n"),
    ]
}

fn insert(rows: &[Row]) -> String {
    let values = rows.iter().map(|(id, kind, key)| format!("('{id}', '{kind}', '{key}', '{{}}')"));
    let values: Vec<String> = values.collect();
    format!("INSERT INTO railpost_outbox (id, type, key, payload) VALUES {}", values.join(", "))
}

fn shop() -> SourceName {
    "shop".parse().unwrap()
}

/// The id and the number of each parked row, and whether it was refused itself.
async fn parked(world: &World) -> Vec<(String, u64, bool)> {
    let query = ParkedQuery::of(shop(), PageRequest::first(100));
    let rows = world.store.parked_rows(query).await.unwrap().items;
    let parked = rows.into_iter();
    parked.map(|row| (row.fields.id.unwrap(), row.number, row.refusal.is_some())).collect()
}

/// A file that holds these rows, written at once.
struct File {
    db: Connection,
    url: String,
    _folder: TempDir,
}

impl File {
    fn with(rows: &[Row]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shop.db");
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        db.execute_batch(railpost_outbox::sql::SQLITE_TABLE).unwrap();
        db.pragma_update(None, "ignore_check_constraints", true).unwrap();
        db.execute_batch(&insert(rows)).unwrap();
        let url = format!("sqlite:{}", path.display());
        Self { db, url, _folder: folder }
    }

    fn source(&self, fields: &str) -> SourceConfig {
        source("shop", &self.url, &format!("tenant = \"acme\"\n{fields}"))
    }
}

/// A database whose outbox has a column `type` for any text.
async fn unchecked() -> Database {
    let database = Database::with_outbox().await;
    let sql = "ALTER TABLE railpost_outbox DROP CONSTRAINT type_of_1_to_128_characters_such_as_order_paid";
    database.run(sql).await;
    database
}

async fn refusing() -> Arc<World> {
    let world = World::new().await;
    world.refuse_types(&[REFUSED]);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_holds_the_later_rows_of_its_key_and_no_earlier_one() {
    for kind in [NO_TYPE, REFUSED] {
        let file = File::with(&around(kind));
        let world = refusing().await;
        let relay = world.relay(vec![file.source("")]);
        world.until_parked(&shop(), 3).await;
        assert_eq!(world.ids(), ["m1", "m2", "n1"], "{kind}");
        let rows = parked(&world).await;
        let told: Vec<(&str, bool)> =
            rows.iter().map(|(id, _, refused)| (id.as_str(), *refused)).collect();
        assert_eq!(told, [("m3", true), ("m4", false), ("m5", false)], "{kind}");
        let (action, target) = (ParkedAction::Skip, ParkedTarget::Head(rows[0].1));
        let skip = ParkedCommand { source: shop(), action, target, audit: None };
        assert_eq!(world.store.command_parked(skip).await.unwrap(), 1);
        relay.wake();
        world.until_accepted(4).await;
        assert_eq!(world.ids(), ["m1", "m2", "n1", "m4"], "{kind}");
        relay.stop().await;
    }
}

/// The store finds a conflict only when the rows in front of it are accepted: what stands behind it and
/// is wrong itself then waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_holds_the_rows_behind_it_and_none_in_front() {
    let rows: [Row; 6] = [
        ("m3", "order.other", "x"),
        ("m1", GOOD, "m"),
        ("m2", GOOD, "m"),
        ("m3", GOOD, "m"),
        ("m4", GOOD, "m"),
        ("m5", NO_TYPE, "m"),
    ];
    let file = File::with(&rows);
    let world = refusing().await;
    let relay = world.relay(vec![file.source("")]);
    world.until_parked(&shop(), 3).await;
    assert_eq!(world.ids(), ["m3", "m1", "m2"]);
    let told: Vec<(String, bool)> =
        parked(&world).await.into_iter().map(|(id, _, refused)| (id, refused)).collect();
    let expected = [("m3", true), ("m4", false), ("m5", false)];
    assert_eq!(told, expected.map(|(id, refused)| (id.to_owned(), refused)));
    relay.stop().await;
}

const STOP: &str = "on_refused = \"stop\"";

/// The rows in front of the refused one are taken, and the others are not.
async fn stopped_at_m3(world: &World) {
    let trouble = world.until_trouble("shop", "stopped").await;
    assert!(trouble.to_string().starts_with("stopped at row m3: "), "{trouble}");
    assert_eq!(world.ids(), ["m1", "m2"]);
}

async fn went_on(world: &World, relay: &Relay, expected: &[&str]) {
    relay.wake();
    world.until_accepted(expected.len()).await;
    assert_eq!(world.ids(), expected);
    assert_eq!(parked(world).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_up_to_a_refused_row_and_on_from_there() {
    for kind in [NO_TYPE, REFUSED] {
        let file = File::with(&around(kind));
        let world = refusing().await;
        let relay = world.relay(vec![file.source(STOP)]);
        stopped_at_m3(&world).await;
        let repair = "UPDATE railpost_outbox SET type = 'order.good' WHERE id = 'm3'; \
                      DELETE FROM railpost_outbox WHERE id = 'm5'";
        file.db.execute_batch(repair).unwrap();
        went_on(&world, &relay, &["m1", "m2", "m3", "m4", "n1"]).await;
        assert_eq!(relay.status()[0].duplicates, 0, "{kind}");
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polled_table_keeps_a_refused_row_and_all_behind_it() {
    for kind in [NO_TYPE, REFUSED] {
        let database = unchecked().await;
        database.run(&insert(&around(kind))).await;
        let world = refusing().await;
        let fields = format!("tenant = \"acme\"\n{STOP}");
        let relay = world.relay(vec![source("shop", &database.url, &fields)]);
        stopped_at_m3(&world).await;
        assert_eq!(database.count("railpost_outbox").await, 4, "{kind}");
        database.run("DELETE FROM railpost_outbox WHERE id IN ('m3', 'm5')").await;
        went_on(&world, &relay, &["m1", "m2", "m4", "n1"]).await;
        database.until_empty("railpost_outbox").await;
        assert_eq!(relay.status()[0].duplicates, 0, "{kind}");
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_stopped_shows_how_long_its_rows_wait_and_how_many() {
    let database = unchecked().await;
    database.run(&insert(&around(NO_TYPE))).await;
    database
        .run("UPDATE railpost_outbox SET \"time\" = now() - interval '1 hour' WHERE id = 'm3'")
        .await;
    let world = refusing().await;
    let fields = format!("tenant = \"acme\"\n{STOP}");
    let relay = world.relay(vec![source("shop", &database.url, &fields)]);
    stopped_at_m3(&world).await;
    let hour = std::time::Duration::from_secs(3_600);
    let looking = async {
        loop {
            let status = relay.status().remove(0);
            if status.pending == 4 && status.lag > hour {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let looked = tokio::time::timeout(std::time::Duration::from_secs(30), looking).await;
    assert!(looked.is_ok(), "{:?}", relay.status());
    relay.stop().await;
}

/// The log tells of a row as it was inserted: the cause of the refusal is what can be repaired.
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_is_read_up_to_a_refused_row_and_on_from_there() {
    let database = Database::with_outbox().await;
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nmode = \"tail\"\nslot = \"{slot}\"\n{STOP}");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    let world = refusing().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    let mut rows = around(REFUSED);
    rows[4].1 = REFUSED;
    for row in rows {
        database.run(&insert(&[row])).await;
    }
    stopped_at_m3(&world).await;
    // What was taken is out of the table.
    let taken = async { while database.count("railpost_outbox").await > 4 {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), taken).await.unwrap();
    world.refuse_types(&[]);
    went_on(&world, &relay, &["m1", "m2", "m3", "m4", "m5", "n1"]).await;
    database.until_empty("railpost_outbox").await;
    assert_eq!(relay.status()[0].duplicates, 0);
    relay.stop().await;
    let drop_slot = format!("SELECT pg_drop_replication_slot('{}')", config.slot);
    let dropping = async {
        // The session that followed the log may still have it.
        while database.client.batch_execute(&drop_slot).await.is_err() {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), dropping).await.unwrap();
}

/// A row that waits since another setting is parked before the source stops behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_held_key_in_front_of_a_refused_one_is_parked() {
    let file = File::with(&[("k1", NO_TYPE, "k")]);
    let world = refusing().await;
    let relay = world.relay(vec![file.source("")]);
    world.until_parked(&shop(), 1).await;
    relay.stop().await;
    let rows = [("k2", GOOD, "k"), ("m1", GOOD, "m"), ("m2", NO_TYPE, "m"), ("k3", GOOD, "k")];
    file.db.execute_batch(&insert(&rows)).unwrap();
    let relay = world.relay(vec![file.source(STOP)]);
    world.until_trouble("shop", "stopped").await;
    assert_eq!(world.ids(), ["m1"]);
    let ids: Vec<String> = parked(&world).await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["k1", "k2"]);
    relay.stop().await;
}
