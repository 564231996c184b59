//! A SQLite file as a source: it is only read.

use rusqlite::Connection;
use tempfile::TempDir;

use super::support::{World, source};

fn outbox(folder: &TempDir) -> (Connection, String) {
    let path = folder.path().join("shop.db");
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.execute_batch(railpost_outbox::sql::SQLITE_TABLE).unwrap();
    (db, format!("sqlite:{}", path.display()))
}

fn emit(db: &Connection, id: &str, key: &str) {
    let sql =
        "INSERT INTO railpost_outbox (id, type, key, payload) VALUES (?1, 'order.paid', ?2, '{}')";
    db.execute(sql, (id, key)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_rows_of_a_file_are_relayed_once_and_in_order() {
    let folder = TempDir::new().unwrap();
    let (mut db, url) = outbox(&folder);
    let world = World::new().await;
    let shop = source("shop", &url, "tenant = \"acme\"\nbatch = 10");
    let relay = world.relay(vec![shop.clone()]);
    let mut expected = Vec::new();
    for n in 0..100 {
        let transaction = db.transaction().unwrap();
        emit(&transaction, &format!("e{n}"), "k");
        if n % 7 == 0 {
            transaction.rollback().unwrap();
        } else {
            transaction.commit().unwrap();
            expected.push(format!("e{n}"));
        }
    }
    world.until_accepted(expected.len()).await;
    relay.stop().await;
    // Another start goes on where this one stopped.
    emit(&db, "later", "k");
    expected.push("later".to_owned());
    let relay = world.relay(vec![shop]);
    world.until_accepted(expected.len()).await;
    assert_eq!(world.ids(), expected);
    assert_eq!(relay.status()[0].duplicates, 0);
    let left: usize =
        db.query_row("SELECT count(*) FROM railpost_outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(left, expected.len());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_is_read_again_with_an_alarm() {
    let folder = TempDir::new().unwrap();
    let (db, url) = outbox(&folder);
    let world = World::new().await;
    let shop = source("shop", &url, "tenant = \"acme\"");
    let relay = world.relay(vec![shop.clone()]);
    for n in 1..=5 {
        emit(&db, &format!("e{n}"), "k");
    }
    world.until_accepted(5).await;
    relay.stop().await;
    db.execute_batch("DELETE FROM railpost_outbox; DELETE FROM sqlite_sequence").unwrap();
    emit(&db, "new", "k");
    let relay = world.relay(vec![shop]);
    world.until_accepted(6).await;
    assert!(world.until_alarm().await.contains("read again from its beginning"));
    relay.stop().await;
}

/// Reads four rows, lets `renew` make the table again, writes six rows to it, and reads again.
async fn made_again_between_two_starts(renew: impl FnOnce(Connection, &TempDir) -> Connection) {
    let folder = TempDir::new().unwrap();
    let (db, url) = outbox(&folder);
    let world = World::new().await;
    let shop = source("shop", &url, "tenant = \"acme\"");
    let relay = world.relay(vec![shop.clone()]);
    for n in 1..=4 {
        emit(&db, &format!("old{n}"), "k");
    }
    world.until_accepted(4).await;
    relay.stop().await;
    let db = renew(db, &folder);
    for n in 1..=6 {
        emit(&db, &format!("new{n}"), "k");
    }
    let relay = world.relay(vec![shop]);
    world.until_accepted(10).await;
    assert_eq!(world.ids()[4..], ["new1", "new2", "new3", "new4", "new5", "new6"]);
    assert!(world.until_alarm().await.contains("read again from its beginning"));
    relay.stop().await;
}

fn replace_file(db: Connection, folder: &TempDir) -> Connection {
    db.close().unwrap();
    std::fs::remove_file(folder.path().join("shop.db")).unwrap();
    outbox(folder).0
}

fn replace_table(db: &Connection) {
    db.execute_batch("DROP TABLE railpost_outbox").unwrap();
    db.execute_batch(railpost_outbox::sql::SQLITE_TABLE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_and_has_grown_past_the_position_is_read_from_its_beginning() {
    made_again_between_two_starts(replace_file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_a_table_that_was_dropped_and_made_again() {
    made_again_between_two_starts(|db, _| {
        replace_table(&db);
        db
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_or_file_that_is_made_again_under_the_reader_is_read_from_its_beginning() {
    let folder = TempDir::new().unwrap();
    let (mut db, url) = outbox(&folder);
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &url, "tenant = \"acme\"")]);
    for n in 1..=4 {
        emit(&db, &format!("a{n}"), "k");
    }
    world.until_accepted(4).await;
    let transaction = db.transaction().unwrap();
    replace_table(&transaction);
    for n in 1..=6 {
        emit(&transaction, &format!("b{n}"), "k");
    }
    transaction.commit().unwrap();
    world.until_accepted(10).await;
    let db = replace_file(db, &folder);
    for n in 1..=8 {
        emit(&db, &format!("c{n}"), "k");
    }
    world.until_accepted(18).await;
    assert_eq!(world.alarms().len(), 2, "{:?}", world.alarms());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_were_cleaned_up_raise_no_alarm_and_are_not_missed() {
    let folder = TempDir::new().unwrap();
    let (db, url) = outbox(&folder);
    let world = World::new().await;
    let shop = source("shop", &url, "tenant = \"acme\"");
    let relay = world.relay(vec![shop.clone()]);
    for n in 1..=4 {
        emit(&db, &format!("e{n}"), "k");
    }
    world.until_accepted(4).await;
    relay.stop().await;
    db.execute_batch("DELETE FROM railpost_outbox").unwrap();
    emit(&db, "e5", "k");
    let relay = world.relay(vec![shop]);
    world.until_accepted(5).await;
    assert_eq!((relay.status()[0].duplicates, world.alarms()), (0, Vec::new()));
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_there_or_has_no_table_says_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let world = World::new().await;
    let relay = world.relay(vec![
        source("missing", "sqlite:/nowhere/shop.db", "tenant = \"acme\""),
        source("other", &format!("sqlite:{}", path.display()), "tenant = \"acme\""),
    ]);
    let missing = world.until_trouble("missing", "wrong").await;
    assert!(missing.to_string().contains("/nowhere/shop.db"), "{missing}");
    let other = world.until_trouble("other", "wrong").await;
    assert_eq!(other.remedy(), Some("make the table: railpost outbox init"));
    relay.stop().await;
}
