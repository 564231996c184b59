//! What can happen to a SQLite file, and what a store says of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use railpost_conformance::erasing::erase_what_is_left;
use railpost_engine::{Load, LoadedPage, Timestamp};
use railpost_sqlite::SqliteStore;
use railpost_store::{
    Archive, Figures, FiguresScope, Ledger, NewSecret, PageRequest, Period, Registry, Resolution,
    SecretValue, StoreError, Upkeep, Write,
};
use railpost_wire::{DeliveryId, EndpointId, Secret, SecretId, Seq};
use rusqlite::Connection;
use support::sqlite::{
    ENDPOINT, accept, add_endpoint, file, id, new_store, setup, tenant, try_accept,
};
use tempfile::TempDir;

#[tokio::test]
async fn a_reopened_file_has_all_that_was_acknowledged() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    for number in 1..=5 {
        assert_eq!(accept(&store, number).await, number);
    }
    drop(store);
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    for number in 1..=5 {
        assert!(store.event(&tenant(), &id(number)).await.unwrap().is_some());
    }
    assert_eq!(accept(&store, 6).await, 6);
}

/// The process that the next test kills. On its own it does nothing.
#[tokio::test]
async fn a_process_that_accepts_until_it_is_killed() {
    let Some(path) = std::env::var_os("RAILPOST_TEST_KILLED") else { return };
    let store = new_store(Path::new(&path)).await;
    for number in 1.. {
        accept(&store, number).await;
        println!("\naccepted {number}");
    }
}

#[tokio::test]
async fn a_killed_process_has_lost_nothing_that_it_acknowledged() {
    let dir = TempDir::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_accepts_until_it_is_killed", "--nocapture"])
        .env("RAILPOST_TEST_KILLED", file(&dir))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut accepted = lines.filter_map(|line| line.strip_prefix("accepted ")?.parse::<u64>().ok());
    assert_eq!(accepted.by_ref().nth(49), Some(50));
    child.kill().unwrap();
    let last = accepted.last().unwrap_or(50);
    child.wait().unwrap();
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    for number in 1..=last {
        assert!(store.event(&tenant(), &id(number)).await.unwrap().is_some(), "{number}");
    }
    let next = accept(&store, last + 1_000).await;
    assert!(next == last + 1 || next == last + 2, "one more may have been on its way: {next}");
}

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    let refused = SqliteStore::open(&file(&dir), setup(1)).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Locked(problem) if problem.contains("store.db")),
        "{refused}"
    );
    drop(store);
    assert!(SqliteStore::open(&file(&dir), setup(1)).is_ok());
}

/// Opening `path` is refused, and not a byte of it changes.
fn refused(path: &Path, key: u8) -> StoreError {
    let before = std::fs::read(path).unwrap();
    let error = SqliteStore::open(path, setup(key)).unwrap_err();
    assert!(std::fs::read(path).unwrap() == before, "a refused file stays as it is: {error}");
    error
}

#[tokio::test]
async fn the_wrong_master_key_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(new_store(&file(&dir)).await);
    assert_eq!(refused(&file(&dir), 2), StoreError::WrongMasterKey);
    assert!(SqliteStore::open(&file(&dir), setup(1)).is_ok());
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(new_store(&file(&dir)).await);
    let db = Connection::open(file(&dir)).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    db.close().unwrap();
    assert_eq!(refused(&file(&dir), 1), StoreError::NewerSchema { found: 99, known: 12 });
}

/// A file as version 1 made it, with one tenant.
async fn make_schema_1(path: &Path, dir: &TempDir) {
    let other = dir.path().join("other.db");
    drop(new_store(&other).await);
    let key_check: Vec<u8> = Connection::open(&other)
        .unwrap()
        .query_row("SELECT key_check FROM store", [], |row| row.get(0))
        .unwrap();
    let db = Connection::open(path).unwrap();
    db.execute_batch(include_str!("../src/schema/1.sql")).unwrap();
    db.execute("INSERT INTO store (id, key_check) VALUES (1, ?1)", [key_check]).unwrap();
    db.execute_batch(
        "INSERT INTO tenants (id, settings, created_at, updated_at) VALUES ('acme', '{}', 5, 5);
         PRAGMA application_id = 0x7261696c; PRAGMA user_version = 1;",
    )
    .unwrap();
}

#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date() {
    let dir = TempDir::new().unwrap();
    make_schema_1(&file(&dir), &dir).await;
    for times in 1..=2 {
        let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
        assert_eq!(store.check().await.unwrap().schema, 12);
        assert!(store.tenant(&tenant()).await.unwrap().is_some());
        let (scope, at) = (FiguresScope::Tenant(tenant()), Timestamp::from_millis(0));
        let figures = Figures { accepted: 1, ..Figures::default() };
        store.add_figures(vec![(scope.clone(), at, figures)]).await.unwrap();
        let found = store.figures(&scope, Resolution::Hour, Period::default()).await.unwrap();
        assert_eq!(found[0].1.accepted, times);
        assert_eq!(store.running_replays().await, Ok(vec![]));
    }
}

#[tokio::test]
async fn a_tenant_that_an_earlier_version_began_to_erase_is_erased_to_the_end() {
    let dir = TempDir::new().unwrap();
    make_schema_1(&file(&dir), &dir).await;
    let db = Connection::open(file(&dir)).unwrap();
    db.execute_batch("UPDATE tenants SET erasing = 1, updated_at = 7").unwrap();
    db.close().unwrap();
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    erase_what_is_left(&store, &tenant()).await;
}

#[tokio::test]
async fn deliveries_of_the_first_version_keep_their_places() {
    let dir = TempDir::new().unwrap();
    make_schema_1(&file(&dir), &dir).await;
    let endpoint = EndpointId::from_u128(1);
    let db = Connection::open(file(&dir)).unwrap();
    let sql = "INSERT INTO endpoints (id, tenant, settings, private, status, revision, created_at, \
               updated_at) VALUES (?1, 1, '{}', x'', 0, 1, 5, 5)";
    db.execute(sql, [endpoint.to_bytes()]).unwrap();
    db.execute_batch("INSERT INTO lanes (endpoint, last_seq) VALUES (1, 3)").unwrap();
    let ids = [1, 2, 3, 4].map(DeliveryId::from_u128);
    // One that is delivered, one that waits, one that is pending, and one without a place.
    let rows = [(Some(1), 5, None), (Some(2), 2, Some(9)), (Some(3), 0, None), (None, 0, None)];
    for (id, (seq, standing, due)) in ids.iter().zip(rows) {
        let lane = seq.map(|_| 1);
        let sql = "INSERT INTO deliveries (id, event, endpoint, lane, seq, standing, due, changed_at) \
                   VALUES (?1, 1, 1, ?2, ?3, ?4, ?5, 5)";
        db.execute(sql, (id.to_bytes(), lane, seq, standing, due)).unwrap();
    }
    db.close().unwrap();

    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    let load = Load::Lanes { endpoint, after: None, limit: 9, window: 9 };
    let LoadedPage::Lanes { lanes, next: None } = store.load(load).await.unwrap() else { panic!() };
    let [page] = &lanes[..] else { panic!("{lanes:?}") };
    let listed: Vec<_> = page.deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!((&listed[..], page.through), (&ids[1..3], Seq::new(3)));
    let due_by = Timestamp::from_millis(0);
    let load = Load::Unkeyed { endpoint, after: None, due_by, due_beyond: due_by, limit: 9 };
    let LoadedPage::Unkeyed { deliveries, .. } = store.load(load).await.unwrap() else { panic!() };
    assert_eq!(deliveries.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), ids[3..]);
    let counts = store.counts(endpoint).await.unwrap();
    assert_eq!((counts.pending, counts.waiting), (2, 1));
}

/// A file of schema 4 in which nothing is settled: lane 1 gave out 1 to 5, lane 2 gave out 1 and 2, and
/// their rows say less.
async fn make_schema_4(path: &Path, dir: &TempDir) {
    make_schema_1(path, dir).await;
    let db = Connection::open(path).unwrap();
    for script in [
        include_str!("../src/schema/2.sql"),
        include_str!("../src/schema/3.sql"),
        include_str!("../src/schema/4.sql"),
    ] {
        db.execute_batch(script).unwrap();
    }
    let sql = "INSERT INTO endpoints (id, tenant, settings, private, status, revision, created_at, \
               updated_at) VALUES (?1, 1, '{\"url\":\"https://e.com\",\"filters\":[\"*\"]}', x'', 0, 1, 5, 5)";
    db.execute(sql, [ENDPOINT.to_bytes()]).unwrap();
    // Packed: the layout, how many lanes, and each lane (as a distance) with its last seq.
    db.execute_batch(
        "INSERT INTO lanes (endpoint, last_seq) VALUES (1, 2), (1, 0);
         INSERT INTO lane_keys (endpoint, key, lane) VALUES (1, x'6b', 1), (1, x'6c', 2);
         INSERT INTO given (places) VALUES (x'010201040102'), (x'01010105');
         PRAGMA user_version = 4;",
    )
    .unwrap();
    let event = "INSERT INTO events (num, tenant, id, type, key, content_type, time, accepted_at, first, \
                 fanout, payload) VALUES (1, 1, 'e', 'a.b', x'6b', 'text/plain', 5, 5, ?1, 9, x'')";
    db.execute(event, [DeliveryId::from_u128(1).to_bytes()]).unwrap();
    // Of lane 1: delivered, waiting, discarded, a dead letter that left, pending. Of lane 2: delivered.
    for (number, lane, seq, left_seq, standing, due, reason) in [
        (1, Some(1), Some(1), None, 5, None, None),
        (2, Some(1), Some(2), None, 2, Some(9), None),
        (3, Some(1), Some(3), None, 6, None, None),
        (4, None, None, Some(4), 4, None, Some(1)),
        (5, Some(1), Some(5), None, 0, None, None),
        (6, Some(2), Some(1), None, 5, None, None),
        (7, Some(2), Some(2), None, 5, None, None),
    ] {
        let sql = "INSERT INTO deliveries (id, event, endpoint, lane, seq, left_seq, standing, due, \
                   reason, changed_at) VALUES (?1, 1, 1, ?2, ?3, ?4, ?5, ?6, ?7, 5)";
        let id = DeliveryId::from_u128(number).to_bytes();
        db.execute(sql, (id, lane, seq, left_seq, standing, due, reason)).unwrap();
    }
    db.close().unwrap();
}

#[tokio::test]
async fn lanes_of_the_fourth_version_go_on_with_all_that_was_given_out() {
    let dir = TempDir::new().unwrap();
    make_schema_4(&file(&dir), &dir).await;
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    let load = Load::Lanes { endpoint: ENDPOINT, after: None, limit: 9, window: 9 };
    let LoadedPage::Lanes { lanes, next: None } = store.load(load).await.unwrap() else { panic!() };
    let [page] = &lanes[..] else { panic!("{lanes:?}") };
    let listed: Vec<_> = page.deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!(listed, [2, 5].map(DeliveryId::from_u128));
    assert_eq!((page.through, page.last), (Seq::new(5), Seq::new(5)));
    let follows: Vec<_> = page.follows.iter().map(|(seq, before)| (seq.get(), *before)).collect();
    assert_eq!(follows, [(2, 0), (5, 2)], "receivers have applied nothing of the line");
    let left = store.delivery(DeliveryId::from_u128(4)).await.unwrap().unwrap();
    let line = left.line.unwrap();
    assert_eq!(line.seq.get(), 4, "the lane that it left is found by its key");
    let next = try_accept(&store, 8).await.unwrap();
    assert_eq!(next.line.unwrap().line, line.line);
    assert_eq!(next.accepted.place.unwrap().seq.get(), 6, "no seq is given out twice");
    let lane = next.accepted.place.unwrap().lane;
    let other = railpost_engine::LaneId(2);
    assert_ne!(lane, other);
    let load = Load::Lane { endpoint: ENDPOINT, lane: other, from: Seq::FIRST, limit: 9 };
    let LoadedPage::Lane(page) = store.load(load).await.unwrap() else { panic!() };
    assert_eq!((page.last, page.deliveries.len()), (Seq::new(2), 0));
    assert_eq!(page.follows, [(Seq::new(3).unwrap(), 0)]);
    assert_eq!(store.verify().await, Ok(()));
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let dir = TempDir::new().unwrap();
    std::fs::write(file(&dir), "precious notes, not a database ".repeat(500)).unwrap();
    let error = refused(&file(&dir), 1);
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
}

#[test]
fn a_database_of_another_program_is_refused() {
    let dir = TempDir::new().unwrap();
    let db = Connection::open(file(&dir)).unwrap();
    db.execute_batch("CREATE TABLE theirs (precious TEXT)").unwrap();
    db.close().unwrap();
    let error = refused(&file(&dir), 1);
    assert!(
        matches!(&error, StoreError::Corrupt(p) if p.contains("not a Railpost store")),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_page_is_an_error_and_no_wrong_answer() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    for number in 1..=200 {
        accept(&store, number).await;
    }
    drop(store);
    let mut bytes = std::fs::read(file(&dir)).unwrap();
    let from = bytes.len() / 3;
    bytes[from..].fill(0xee);
    std::fs::write(file(&dir), &bytes).unwrap();
    let mut errors = Vec::new();
    match SqliteStore::open(&file(&dir), setup(1)) {
        Err(error) => errors.push(error),
        Ok(store) => {
            for number in 1..=200 {
                errors.extend(store.event(&tenant(), &id(number)).await.err());
            }
        }
    }
    assert!(errors.iter().any(|error| matches!(error, StoreError::Corrupt(_))), "{errors:?}");
    assert!(errors.iter().all(|error| matches!(error, StoreError::Corrupt(_))), "{errors:?}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = SqliteStore::open(Path::new("/no/such/folder/store.db"), setup(1)).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/store.db.lock"), "{error}");
}

/// A superuser is stopped by no permission: the file opens.
#[tokio::test]
async fn a_write_protected_file_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(new_store(&file(&dir)).await);
    let mut permissions = std::fs::metadata(file(&dir)).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(file(&dir), permissions).unwrap();
    let protected = std::fs::File::options().write(true).open(file(&dir)).is_err();
    let opened = SqliteStore::open(&file(&dir), setup(1));
    assert_eq!(matches!(opened, Err(StoreError::ReadOnly(_))), protected, "{opened:?}");
}

#[tokio::test]
async fn no_secret_can_be_read_in_the_file_or_its_log() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    let secret = railpost_wire::Secret::from_bytes(b"this secret is thirty-two bytes!").unwrap();
    let text = secret.reveal().to_string();
    let new = railpost_store::NewSecret {
        id: railpost_wire::SecretId::from_u128(1),
        endpoint: EndpointId::from_u128(1),
        value: railpost_store::SecretValue::Shared(secret),
        expires_at: None,
    };
    store.commit(Write::CreateSecret(new).into()).await.unwrap();
    for name in ["store.db", "store.db-wal"] {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        let holds = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        assert!(!holds(b"thirty-two bytes") && !holds(&text.as_bytes()[6..]), "{name}");
    }
}

/// Changes the file behind a store's back.
fn tamper(dir: &TempDir, sql: &str, id: &[u8]) {
    let db = Connection::open(file(dir)).unwrap();
    assert_eq!(db.execute(sql, [id]).unwrap(), 1);
}

#[tokio::test]
async fn an_endpoint_whose_private_settings_do_not_open_does_not_hide_the_others() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    let other = EndpointId::from_u128(2);
    add_endpoint(&store, other).await;
    tamper(&dir, "UPDATE endpoints SET private = x'00' WHERE id = ?1", &ENDPOINT.to_bytes());
    let listed = store.endpoints(None, PageRequest::first(9)).await.unwrap().items;
    let [broken, whole] = &listed[..] else { panic!("{listed:?}") };
    let named = ENDPOINT.to_string();
    assert!(
        matches!(&broken.private, Err(StoreError::Corrupt(problem)) if problem.contains(&named)),
        "{broken:?}"
    );
    assert_eq!((whole.id, whole.private.is_ok()), (other, true));
    assert_eq!(store.endpoint(ENDPOINT).await.unwrap().as_ref(), Some(broken));
}

#[tokio::test]
async fn a_secret_that_does_not_open_is_its_own_endpoints_trouble() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    let other = EndpointId::from_u128(2);
    add_endpoint(&store, other).await;
    for (number, endpoint) in [(1, ENDPOINT), (2, other)] {
        let value = SecretValue::Shared(Secret::generate(&[7; 32]));
        let id = SecretId::from_u128(number);
        let new = NewSecret { id, endpoint, value, expires_at: None };
        store.commit(Write::CreateSecret(new).into()).await.unwrap();
    }
    let broken = SecretId::from_u128(1);
    tamper(&dir, "UPDATE secrets SET sealed = x'00' WHERE id = ?1", &broken.to_bytes());
    let refused = store.secrets(ENDPOINT).await.unwrap_err();
    assert!(refused.to_string().contains(&broken.to_string()), "{refused}");
    assert_eq!(store.secrets(other).await.unwrap().len(), 1);
    assert_eq!(store.endpoints(None, PageRequest::first(9)).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_delivery_that_does_not_read_back_is_named_and_keeps_no_other_back() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    let mut deliveries = Vec::new();
    for number in 1..=3 {
        deliveries.push(try_accept(&store, number).await.unwrap().accepted.id);
    }
    // Who reads has the accept log applied.
    assert_eq!(store.parcels(deliveries.clone()).await.unwrap().len(), 3);
    tamper(
        &dir,
        "UPDATE events SET type = '' WHERE num = (SELECT event FROM deliveries WHERE id = ?1)",
        &deliveries[1].to_bytes(),
    );
    let parcels = store.parcels(deliveries.clone()).await.unwrap();
    for (id, parcel) in &parcels {
        let problem = parcel.as_ref().err().map(ToString::to_string);
        let named = problem.as_ref().is_some_and(|text| text.contains(&id.to_string()));
        assert_eq!(named, *id == deliveries[1], "{problem:?}");
    }
    assert_eq!(parcels.len(), 3);
    assert_eq!(store.verify().await, Ok(()), "the file is whole");
}

#[tokio::test]
async fn a_file_that_is_looked_through_shows_its_damage() {
    let dir = TempDir::new().unwrap();
    let store = new_store(&file(&dir)).await;
    for number in 1..=20 {
        accept(&store, number).await;
    }
    assert_eq!(store.verify().await, Ok(()));
    drop(store);
    // An entry of an index that its table does not have.
    let db = Connection::open(file(&dir)).unwrap();
    db.execute_batch(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'standing <= 3', 'standing <= 2')
         WHERE name = 'deliveries_open';
         PRAGMA writable_schema = RESET;
         UPDATE deliveries SET standing = 3, reason = 1;
         PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'standing <= 2', 'standing <= 3')
         WHERE name = 'deliveries_open';",
    )
    .unwrap();
    db.close().unwrap();
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    let found = store.verify().await;
    assert!(
        matches!(&found, Err(StoreError::Corrupt(problem)) if problem.contains("damaged")),
        "{found:?}"
    );
}
