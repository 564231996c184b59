//! What can happen to a SQLite file, and what a store says of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use railpost_engine::{Load, Page, Timestamp};
use railpost_store::{
    AcceptBatch, Archive, EndpointPrivate, EndpointSettings, Event, Figures, FiguresScope, Intake,
    Ledger, MasterKey, NewEndpoint, Period, Receipt, Registry, Resolution, Setup, SqliteStore,
    StoreError, SystemSource, TenantSettings, Upkeep, Write,
};
use railpost_wire::{DeliveryId, EndpointId, EventId, Seq, TenantId};
use rusqlite::Connection;
use tempfile::TempDir;

fn setup(key: u8) -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[key; 32]) }
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

/// A store with one tenant and one endpoint.
async fn new_store(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path, setup(1)).unwrap();
    let create = Write::CreateTenant(tenant(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    let endpoint = NewEndpoint {
        id: EndpointId::from_u128(1),
        tenant: tenant(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
    store
}

/// Accepts event number `number`; its seq.
async fn accept(store: &SqliteStore, number: u64) -> u64 {
    let event = Event {
        id: id(number),
        event_type: "a.b".parse().unwrap(),
        key: Some("k".parse().unwrap()),
        payload: Bytes::from_static(b"{}"),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(number),
        traceparent: None,
    };
    let batch = AcceptBatch { tenant: tenant(), events: vec![event], idempotency: None };
    match store.accept(batch.into()).await.unwrap().remove(0) {
        Receipt::Accepted { deliveries, .. } => deliveries[0].accepted.place.unwrap().seq.get(),
        Receipt::Duplicate { .. } => panic!("every number is used once"),
    }
}

fn id(number: u64) -> EventId {
    EventId::generate(number, [0; 10])
}

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("store.db")
}

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
    assert_eq!(refused(&file(&dir), 1), StoreError::NewerSchema { found: 99, known: 5 });
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
    db.execute_batch(include_str!("../src/sqlite/schema/1.sql")).unwrap();
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
        assert_eq!(store.check().await.unwrap().schema, 5);
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
    let Page::Lanes { lanes, next: None } = store.load(load).await.unwrap() else { panic!() };
    let [page] = &lanes[..] else { panic!("{lanes:?}") };
    let listed: Vec<_> = page.deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!((&listed[..], page.through), (&ids[1..3], Seq::new(3)));
    let due_by = Timestamp::from_millis(0);
    let load = Load::Unkeyed { endpoint, after: None, due_by, due_beyond: due_by, limit: 9 };
    let Page::Unkeyed { deliveries, .. } = store.load(load).await.unwrap() else { panic!() };
    assert_eq!(deliveries.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), ids[3..]);
    let counts = store.counts(endpoint).await.unwrap();
    assert_eq!((counts.pending, counts.waiting), (2, 1));
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

/// Whoever is stopped by no permission (a superuser) finds the file writable, and it opens.
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
