//! What can happen to a PostgreSQL server and between several nodes, and what a store makes of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use railpost_engine::{Accepted, DeliveryState, Progress, Timestamp, Transition};
use railpost_store::{
    AcceptBatch, Archive, EndpointPrivate, EndpointSettings, Event, Figures, FiguresScope,
    IdempotencyKey, IdempotencyRecord, Intake, Ledger, MasterKey, NewEndpoint, Period,
    PostgresAddress, PostgresStore, Receipt, RecordBatch, Registry, Replay, ReplayAction,
    ReplayFilter, ReplayProgress, ReplayState, Resolution, Result, Setup, StoreError,
    StoredResponse, SystemSource, TenantSettings, Upkeep, Write,
};
use railpost_wire::{EndpointId, EventId, ReplayId, TenantId};
use support::postgres::{fresh_address, server};
use support::proxy::{Proxy, Wire};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

fn setup(key: u8) -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[key; 32]) }
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

async fn connect(address: &PostgresAddress) -> PostgresStore {
    PostgresStore::connect(address, setup(1)).await.unwrap()
}

/// A connection that knows nothing of stores.
async fn client(address: &PostgresAddress) -> Client {
    let (client, connection) = tokio_postgres::connect(&address.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn add_endpoint(store: &PostgresStore, number: u128) {
    let endpoint = NewEndpoint {
        id: EndpointId::from_u128(number),
        tenant: tenant(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
}

/// A store with one tenant and one endpoint.
async fn new_store(address: &PostgresAddress) -> PostgresStore {
    let store = connect(address).await;
    let create = Write::CreateTenant(tenant(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    add_endpoint(&store, 1).await;
    store
}

fn event(number: u64) -> Event {
    Event {
        id: EventId::generate(number, [0; 10]),
        event_type: "a.b".parse().unwrap(),
        key: Some("k".parse().unwrap()),
        payload: Bytes::from_static(b"{}"),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(number),
        traceparent: None,
    }
}

async fn accept(store: &PostgresStore, number: u64) -> Result<Receipt> {
    let events = vec![event(number)];
    let batch = AcceptBatch { tenant: tenant(), events, idempotency: None };
    Ok(store.accept(batch.into()).await?.remove(0))
}

fn deliveries(receipt: Receipt) -> Vec<Accepted> {
    match receipt {
        Receipt::Accepted { deliveries, .. } => {
            deliveries.into_iter().map(|delivery| delivery.accepted).collect()
        }
        Receipt::Duplicate { .. } => vec![],
    }
}

fn delivered(accepted: &Accepted) -> RecordBatch {
    RecordBatch::of([Transition {
        delivery: accepted.id,
        endpoint: accepted.endpoint,
        place: accepted.place,
        state: DeliveryState::Delivered,
        progress: Progress::default(),
        attempt: None,
        at: Timestamp::from_millis(1),
    }])
}

/// The server behind a wire, and the address of a fresh schema through it.
async fn wired() -> (Proxy, PostgresAddress) {
    let config: tokio_postgres::Config = server().parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else {
        panic!("the test server is reached by TCP")
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let target = tokio::net::lookup_host((host.as_str(), port)).await.unwrap().next().unwrap();
    let proxy = Proxy::to(target).await;
    let mut address = fresh_address().await;
    let here = format!("{host}:{port}");
    assert!(address.url.contains(&here), "the test server's URL names its port");
    address.url = address.url.replace(&here, &proxy.address.to_string());
    (proxy, address)
}

/// Asks until it is answered: what comes back by itself needs no more than that.
async fn until_ok<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), asking).await.expect("it comes back by itself")
}

#[tokio::test]
async fn a_server_that_is_gone_refuses_promptly_and_comes_back_by_itself() {
    let (proxy, address) = wired().await;
    let store = new_store(&address).await;
    let first = deliveries(accept(&store, 1).await.unwrap())[0];
    proxy.set(Wire::Cut);
    let soon = Duration::from_secs(4);
    for _ in 0..20 {
        let refused = timeout(soon, accept(&store, 2)).await.expect("it does not wait for long");
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    let refused = timeout(soon, store.record(delivered(&first).into())).await.unwrap();
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let refused = timeout(soon, store.delivery(first.id)).await.unwrap();
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(timeout(soon, store.check()).await.unwrap().is_err());

    proxy.set(Wire::Whole);
    let second = deliveries(until_ok(async || accept(&store, 2).await).await)[0];
    assert_eq!(second.place.unwrap().seq.get(), 2);
    let recorded = until_ok(async || store.record(delivered(&first).into()).await).await;
    assert_eq!(recorded.applied, 1);
    until_ok(async || store.check().await).await;
    until_ok(async || store.commit(Write::RemoveEndpoint(EndpointId::from_u128(1)).into()).await)
        .await;
}

#[tokio::test]
async fn an_accept_whose_answer_was_lost_can_be_asked_again() {
    let (proxy, address) = wired().await;
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    proxy.set(Wire::BreaksBeforeAnswers);
    let lost = accept(&store, 2).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    proxy.set(Wire::Whole);
    let again = until_ok(async || accept(&store, 2).await).await;
    assert!(matches!(again, Receipt::Duplicate { .. }), "it had been written: {again:?}");
    let third = deliveries(accept(&store, 3).await.unwrap())[0];
    assert_eq!(third.place.unwrap().seq.get(), 3);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let address = PostgresAddress::from("postgres://postgres@127.0.0.1:1/nothing");
    let error = PostgresStore::connect(&address, setup(1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(p) if p.contains("refused")), "{error}");
    let error = PostgresStore::connect(&"nonsense".into(), setup(1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Invalid { field, .. } if field == "url"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let mut address = fresh_address().await;
    address.url += "&sslmode=require";
    let error = PostgresStore::connect(&address, setup(1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(p) if p.contains("TLS")), "{error}");
    address.root_certificates_pem = Some(b"not a certificate".to_vec());
    let error = PostgresStore::connect(&address, setup(1)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Invalid { field, .. } if field == "root certificates"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_may_only_be_read_refuses_accepts() {
    let address = fresh_address().await;
    new_store(&address).await;
    let readonly =
        address.url.replace("search_path", "default_transaction_read_only%3Don%20-csearch_path");
    let store = connect(&readonly.as_str().into()).await;
    let refused = accept(&store, 1).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert!(store.endpoint(EndpointId::from_u128(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn the_wrong_master_key_is_refused() {
    let address = fresh_address().await;
    new_store(&address).await;
    let refused = PostgresStore::connect(&address, setup(2)).await.unwrap_err();
    assert_eq!(refused, StoreError::WrongMasterKey);
    assert!(PostgresStore::connect(&address, setup(1)).await.is_ok());
}

#[tokio::test]
async fn a_schema_of_a_later_version_is_refused() {
    let address = fresh_address().await;
    new_store(&address).await;
    client(&address).await.batch_execute("UPDATE store SET version = 99").await.unwrap();
    let refused = PostgresStore::connect(&address, setup(1)).await.unwrap_err();
    assert_eq!(refused, StoreError::NewerSchema { found: 99, known: 3 });
}

/// Adds one event to the tenant's figures of an hour; how many there are then.
async fn count_one_more(store: &PostgresStore) -> u64 {
    let (scope, at) = (FiguresScope::Tenant(tenant()), Timestamp::from_millis(0));
    let figures = Figures { accepted: 1, ..Figures::default() };
    store.add_figures(vec![(scope.clone(), at, figures)]).await.unwrap();
    let found = store.figures(&scope, Resolution::Hour, Period::default()).await.unwrap();
    found[0].1.accepted
}

/// The scripts that made the versions before the newest.
const OLD_VERSIONS: [&str; 2] =
    [include_str!("../src/postgres/schema/1.sql"), include_str!("../src/postgres/schema/2.sql")];

#[tokio::test]
async fn a_schema_of_an_earlier_version_is_brought_up_to_date() {
    let other = fresh_address().await;
    new_store(&other).await;
    let rows = client(&other).await.query("SELECT key_check FROM store", &[]).await.unwrap();
    let key_check: Vec<u8> = rows[0].get(0);
    for version in 1..=OLD_VERSIONS.len() {
        let address = fresh_address().await;
        let old = client(&address).await;
        old.batch_execute(&OLD_VERSIONS[..version].concat()).await.unwrap();
        let sql = "INSERT INTO store (id, version, key_check) VALUES (1, $1, $2)";
        old.execute(sql, &[&(version as i32), &key_check]).await.unwrap();
        let sql = "INSERT INTO tenants (id, settings, created_at, updated_at) \
                   VALUES ('acme', '{}', 5, 5)";
        old.batch_execute(sql).await.unwrap();
        for times in 1..=2 {
            let store = connect(&address).await;
            assert_eq!(store.check().await.unwrap().schema, 3);
            assert_eq!(count_one_more(&store).await, times);
            assert_eq!(store.running_replays().await, Ok(vec![]));
            assert!(matches!(accept(&store, times).await, Ok(Receipt::Accepted { .. })));
            assert!(matches!(accept(&store, times).await, Ok(Receipt::Duplicate { .. })));
        }
    }
}

/// What version 1 would have written: its number, and the 13 tables it had.
fn cut_to_schema_1(backup: &[u8]) -> Vec<u8> {
    let (mark, rest) = backup.split_at(16);
    let (mut end, mut tables) = (4, 0);
    while tables < 13 {
        let len = u32::from_be_bytes(rest[end..end + 4].try_into().unwrap());
        end += 4 + len as usize;
        tables += usize::from(len == 0);
    }
    [mark, &1_u32.to_be_bytes(), &rest[4..end]].concat()
}

#[tokio::test]
async fn a_backup_of_the_first_version_can_be_restored() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    client(&address).await.batch_execute("UPDATE store SET version = 1").await.unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    store.backup(&new).await.unwrap();
    std::fs::write(&old, cut_to_schema_1(&std::fs::read(&new).unwrap())).unwrap();
    let restored = PostgresStore::restore(&fresh_address().await, &old, setup(1)).await.unwrap();
    assert_eq!(restored.check().await.unwrap().schema, 3);
    assert!(restored.tenant(&tenant()).await.unwrap().is_some());
    assert_eq!(count_one_more(&restored).await, 1);
}

#[tokio::test]
async fn figures_that_two_nodes_add_at_once_all_count() {
    let address = fresh_address().await;
    let nodes = [new_store(&address).await, connect(&address).await];
    let additions = (0..20).map(|number| count_one_more(&nodes[number % 2]));
    futures_util::future::join_all(additions).await;
    assert_eq!(count_one_more(&nodes[0]).await, 21);
}

#[tokio::test]
async fn a_change_to_a_replay_leaves_what_other_nodes_remember_alone() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let changes = async || -> i64 {
        let rows = client(&address).await.query("SELECT registry FROM store", &[]).await.unwrap();
        rows[0].get(0)
    };
    let before = changes().await;
    let replay = Replay {
        id: ReplayId::from_u128(1),
        tenant: tenant(),
        created_at: Timestamp::from_millis(1),
        actor: "key_1".to_owned(),
        action: ReplayAction::Skip,
        filter: ReplayFilter::default(),
        rate_per_s: None,
        dry_run: false,
        state: ReplayState::Running,
        progress: ReplayProgress::default(),
        cursor: None,
        problem: None,
        finished_at: None,
    };
    store.commit(Write::PutReplay(Box::new(replay)).into()).await.unwrap();
    assert_eq!(changes().await, before);
    add_endpoint(&store, 2).await;
    assert_eq!(changes().await, before + 1);
}

#[tokio::test]
async fn nodes_that_start_together_make_one_schema() {
    let address = fresh_address().await;
    let starts = (0..4).map(|_| PostgresStore::connect(&address, setup(1)));
    for started in futures_util::future::join_all(starts).await {
        started.unwrap();
    }
}

#[tokio::test]
async fn two_nodes_give_out_seqs_without_a_gap() {
    let address = fresh_address().await;
    let nodes = [Arc::new(new_store(&address).await), Arc::new(connect(&address).await)];
    let tasks = (0..8_u64).map(|task| {
        let node = nodes[task as usize % 2].clone();
        tokio::spawn(async move {
            let mut seqs = Vec::new();
            for number in 0..10 {
                let receipt = accept(&node, task * 100 + number).await.unwrap();
                seqs.extend(deliveries(receipt).iter().map(|d| d.place.unwrap().seq.get()));
            }
            assert!(seqs.is_sorted());
            seqs
        })
    });
    let mut all = Vec::new();
    for seqs in futures_util::future::join_all(tasks).await {
        all.extend(seqs.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=80).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_change_on_one_node_counts_for_the_next_accept_on_another() {
    let address = fresh_address().await;
    let (one, other) = (new_store(&address).await, connect(&address).await);
    assert_eq!(deliveries(accept(&other, 1).await.unwrap()).len(), 1);
    add_endpoint(&one, 2).await;
    assert_eq!(deliveries(accept(&other, 2).await.unwrap()).len(), 2);
    one.commit(Write::RemoveEndpoint(EndpointId::from_u128(1)).into()).await.unwrap();
    assert_eq!(deliveries(accept(&other, 3).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn an_event_published_to_two_nodes_at_once_is_delivered_once() {
    let address = fresh_address().await;
    let (one, other) = (new_store(&address).await, connect(&address).await);
    for number in 0..20 {
        let (a, b) = tokio::join!(accept(&one, number), accept(&other, number));
        let count = deliveries(a.unwrap()).len() + deliveries(b.unwrap()).len();
        assert_eq!(count, 1, "event {number}");
    }
}

#[tokio::test]
async fn a_request_sent_to_two_nodes_at_once_is_done_once() {
    let address = fresh_address().await;
    let (one, other) = (new_store(&address).await, connect(&address).await);
    for number in 0..20_u64 {
        let request = |id: u64| {
            let key =
                IdempotencyKey { owner: "o".into(), route: "r".into(), key: number.to_string() };
            let record = IdempotencyRecord {
                key,
                fingerprint: [1; 32],
                response: StoredResponse { status: 202, body: Bytes::new() },
                tenant: None,
                expires_at: Timestamp::from_millis(u64::MAX / 4),
            };
            let events = vec![event(id)];
            Arc::new(AcceptBatch { tenant: tenant(), events, idempotency: Some(Box::new(record)) })
        };
        let (a, b) =
            tokio::join!(one.accept(request(number)), other.accept(request(number + 1_000)));
        let done = [&a, &b].into_iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(done, 1, "{a:?} {b:?}");
        assert!([a, b].contains(&Err(StoreError::Repeated)));
    }
}
