//! What can happen to a PostgreSQL server and between several nodes, and what a store makes of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use railpost_conformance::erasing::erase_what_is_left;
use railpost_engine::Timestamp;
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_store::{
    AcceptBatch, Access, ApiKey, Archive, DeliveryFilter, EndpointPrivate, EndpointSettings,
    Figures, FiguresScope, IdempotencyKey, IdempotencyRecord, Intake, Ledger, Period, PruneStep,
    Receipt, Registry, Replay, ReplayAction, ReplayProgress, ReplayState, Resolution, Scope,
    StoreError, StoredResponse, Sweep, TenantSettings, Upkeep, Write,
};
use railpost_wire::{DeliveryId, EndpointId, ReplayId, TenantId};
use support::postgres::{fresh_address, wired};
use support::proxy::Wire;
use support::store::{
    accept, add_endpoint, add_endpoint_of, add_tenant, client, connect, delivered, deliveries,
    event, new_store, setup, tenant, until_ok,
};
use tokio::time::timeout;

#[tokio::test]
async fn a_server_that_is_gone_refuses_promptly_and_comes_back_by_itself() {
    let (proxy, address, _) = wired().await;
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
    let (proxy, address, _) = wired().await;
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    proxy.set(Wire::BreaksBeforeAnswers);
    let lost = accept(&store, 2).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    proxy.set(Wire::Whole);
    let again = until_ok(async || accept(&store, 2).await).await;
    assert!(matches!(again, Receipt::Duplicate { .. }), "it had been written: {again:?}");
    let everything = Sweep {
        after: DeliveryId::from_u128(0),
        through: DeliveryId::from_u128(u128::MAX),
        limit: 9,
    };
    let open = until_ok(async || store.sweep(everything).await).await.deliveries;
    let seqs: Vec<_> = open.iter().map(|delivery| delivery.place.unwrap().seq.get()).collect();
    assert_eq!(seqs, [1, 2], "a sweep finds what nobody heard of");
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
async fn a_server_that_may_only_be_read_is_refused() {
    let address = fresh_address().await;
    new_store(&address).await;
    let readonly =
        address.url.replace("search_path", "default_transaction_read_only%3Don%20-csearch_path");
    let refused = PostgresStore::connect(&readonly.as_str().into(), setup(1)).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
}

#[tokio::test]
async fn a_server_that_falls_silent_holds_up_nobody_for_long() {
    let (proxy, address, _) = wired().await;
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    let id = EndpointId::from_u128(1);
    store.endpoint(id).await.unwrap();
    proxy.set(Wire::Silent);
    // First on connections that were open, then on new ones that never become usable.
    for _ in 0..2 {
        let reads = futures_util::future::join_all((0..30).map(|_| store.endpoint(id)));
        let asking = async { tokio::join!(accept(&store, 2), reads) };
        let (refused, reads) =
            timeout(Duration::from_secs(15), asking).await.expect("nobody waits for ever");
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(reads.iter().all(|read| matches!(read, Err(StoreError::Unavailable(_)))));
    }
    proxy.set(Wire::Whole);
    until_ok(async || store.endpoint(id).await).await;
    until_ok(async || accept(&store, 2).await).await;
}

#[tokio::test]
async fn a_statement_that_nobody_waits_for_ends_by_itself() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let mut other = client(&address).await;
    let watcher = client(&address).await;
    let blocking = other.transaction().await.unwrap();
    blocking.batch_execute("LOCK TABLE lanes").await.unwrap();
    let refused = accept(&store, 1).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let ended = async {
        let sql =
            "SELECT FROM pg_locks AS l WHERE NOT l.granted AND l.relation = 'lanes'::regclass";
        while !watcher.query(sql, &[]).await.unwrap().is_empty() {}
    };
    timeout(Duration::from_secs(10), ended).await.expect("nothing waits for the table any more");
    blocking.rollback().await.unwrap();
    until_ok(async || accept(&store, 1).await).await;
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
    assert_eq!(refused, StoreError::NewerSchema { found: 99, known: 10 });
}

/// Adds one event to the tenant's figures of an hour; how many there are then.
async fn count_one_more(store: &PostgresStore) -> u64 {
    let (scope, at) = (FiguresScope::Tenant(tenant()), Timestamp::from_millis(0));
    let figures = Figures { accepted: 1, ..Figures::default() };
    store.add_figures(vec![(scope.clone(), at, figures)]).await.unwrap();
    let found = store.figures(&scope, Resolution::Hour, Period::default()).await.unwrap();
    found[0].1.accepted
}

/// The scripts that made the versions before lanes had lines.
const OLD_VERSIONS: [&str; 3] = [
    include_str!("../src/schema/1.sql"),
    include_str!("../src/schema/2.sql"),
    include_str!("../src/schema/3.sql"),
];

/// A schema as an earlier version left it: one tenant with one endpoint whose lane has seven deliveries. 1
/// was delivered, 2 and 3 were skipped (3 was replayed since), 4 and 7 are open, 5 and 6 were discarded.
async fn old_schema(version: usize) -> PostgresAddress {
    let other = fresh_address().await;
    new_store(&other).await;
    let rows = client(&other).await.query("SELECT key_check FROM store", &[]).await.unwrap();
    let key_check: Vec<u8> = rows[0].get(0);
    let address = fresh_address().await;
    let old = client(&address).await;
    old.batch_execute(&OLD_VERSIONS[..version].concat()).await.unwrap();
    let sql = "INSERT INTO store (id, version, key_check) VALUES (1, $1, $2)";
    old.execute(sql, &[&(version as i32), &key_check]).await.unwrap();
    let settings = serde_json::to_string(&EndpointSettings::all_events("https://example.com"));
    let sql = "INSERT INTO endpoints (num, id, tenant, settings, private, status, revision, \
               created_at, updated_at) VALUES (1, $1, 1, $2, '', 0, 1, 5, 5)";
    let id = EndpointId::from_u128(1).to_bytes().to_vec();
    old.execute(sql, &[&id, &settings.unwrap()]).await.unwrap();
    old.batch_execute(
        "INSERT INTO tenants (num, id, settings, created_at, updated_at) \
           VALUES (1, 'acme', '{}', 5, 5); \
         INSERT INTO lanes (id, endpoint, last_seq, key) VALUES (1, 1, 7, 'k'); \
         INSERT INTO events (num, tenant, accepted_at, time, first, last, id, type, key, \
             content_type, payload) \
           SELECT n, 1, 5, 5, decode(lpad(n::text, 32, '0'), 'hex'), \
             decode(lpad(n::text, 32, '0'), 'hex'), 'old-' || n, 'a.b', 'k', 'text/plain', '' \
           FROM generate_series(1, 7) AS n; \
         INSERT INTO deliveries (id, event, endpoint, lane, seq, left_seq, changed_at, standing, \
             reason) \
           SELECT decode(lpad(n::text, 32, '0'), 'hex'), n, 1, \
             CASE WHEN n IN (2, 3) THEN NULL ELSE 1 END, \
             CASE WHEN n IN (2, 3) THEN NULL ELSE n END, \
             CASE WHEN n IN (2, 3) THEN n END, 5, (ARRAY[5, 4, 5, 0, 6, 6, 0])[n], \
             CASE WHEN n = 2 THEN 1 END FROM generate_series(1, 7) AS n; \
         SELECT setval(pg_get_serial_sequence(c.t, c.c), 100) FROM (VALUES ('tenants', 'num'), \
           ('endpoints', 'num'), ('events', 'num'), ('lanes', 'id')) AS c (t, c)",
    )
    .await
    .unwrap();
    address
}

/// What every version's data has become. A second line begins after number `first_line`.
async fn check_migrated(store: &PostgresStore, first_line: u64) {
    assert_eq!(store.check().await.unwrap().schema, 10);
    assert_eq!(store.running_replays().await, Ok(vec![]));
    let line = async |number: u128| {
        let view = store.delivery(DeliveryId::from_u128(number)).await.unwrap().unwrap();
        (view.line.as_ref().unwrap().line.clone(), view.line.unwrap().seq.get())
    };
    let (first, last) = (line(1).await.0, line(7).await.0);
    assert_eq!(first == last, first_line == 7);
    for number in 1..=7_u64 {
        let expected = match number.checked_sub(first_line) {
            Some(number @ 1..) => (last.clone(), number),
            _ => (first.clone(), number),
        };
        assert_eq!(line(number.into()).await, expected);
    }
    let load = railpost_engine::Load::Lanes {
        endpoint: EndpointId::from_u128(1),
        after: None,
        limit: 9,
        window: 9,
    };
    let page = store.load(load).await.unwrap();
    let railpost_engine::LoadedPage::Lanes { lanes, .. } = &page else { panic!("{page:?}") };
    let follows = lanes[0].follows.iter().map(|(seq, before)| (seq.get(), *before));
    // Receivers know nothing of the line yet: the first open one follows nothing.
    assert_eq!(follows.collect::<Vec<_>>(), [(4, 0), (7, 4)]);
}

#[tokio::test]
async fn a_schema_of_an_earlier_version_is_brought_up_to_date() {
    for version in 1..=OLD_VERSIONS.len() {
        let address = old_schema(version).await;
        for times in 1..=2 {
            let store = connect(&address).await;
            check_migrated(&store, 7).await;
            assert_eq!(count_one_more(&store).await, times);
            let fresh = deliveries(accept(&store, times).await.unwrap())[0];
            assert_eq!(fresh.place.unwrap().seq.get(), 7 + times, "the line goes on");
            assert!(matches!(accept(&store, times).await, Ok(Receipt::Duplicate { .. })));
        }
    }
}

#[tokio::test]
async fn a_tenant_that_an_earlier_version_began_to_erase_is_erased_to_the_end() {
    let address = old_schema(1).await;
    let sql = "UPDATE tenants SET erasing = true, updated_at = 7";
    client(&address).await.batch_execute(sql).await.unwrap();
    erase_what_is_left(&connect(&address).await, &tenant()).await;
}

/// A backup of version 1: a mark, the form's version, the schema's, the 13 tables it had, and a checksum.
async fn backup_of_version_1(address: &PostgresAddress) -> Vec<u8> {
    let tables = [
        "store",
        "tenants",
        "endpoints",
        "secrets",
        "event_types",
        "api_keys",
        "audit",
        "idempotency",
        "partitions",
        "events",
        "lanes",
        "deliveries",
        "attempts",
    ];
    let old = client(address).await;
    let mut backup = b"railpost pg dump\0\0\0\x64\0\0\0\x01".to_vec();
    for table in tables {
        let rows = old.copy_out(&format!("COPY {table} TO STDOUT (FORMAT binary)")).await.unwrap();
        let pieces: Vec<Bytes> = rows.try_collect().await.unwrap();
        for piece in pieces.into_iter().chain([Bytes::new()]) {
            backup.extend((piece.len() as u32).to_be_bytes());
            backup.extend(piece);
        }
    }
    let checksum = ring::digest::digest(&ring::digest::SHA256, &backup);
    backup.extend(checksum.as_ref());
    backup
}

#[tokio::test]
async fn a_backup_of_the_first_version_can_be_restored() {
    let backup = backup_of_version_1(&old_schema(1).await).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), backup).unwrap();
    let address = fresh_address().await;
    let restored = PostgresStore::restore(&address, file.path(), setup(1)).await.unwrap();
    // 4 is the first open one.
    check_migrated(&restored, 3).await;
    assert_eq!(count_one_more(&restored).await, 1);
}

#[tokio::test]
async fn a_damaged_backup_is_refused_before_anything_is_written() {
    let store = new_store(&fresh_address().await).await;
    let mut event = event(1);
    event.payload = Bytes::from_static(b"find this payload");
    let batch =
        AcceptBatch { tenant: tenant(), events: vec![event], accepted_by: None, idempotency: None };
    store.accept(batch.into()).await.unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("backup");
    store.backup(&file).await.unwrap();
    let whole = std::fs::read(&file).unwrap();
    let payload = whole.windows(17).position(|bytes| bytes == b"find this payload").unwrap();
    let flip = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cut = |len: usize| whole[..len].to_vec();
    let address = fresh_address().await;
    for (what, bytes) in [
        ("a changed payload", flip(payload)),
        ("a changed schema version", flip(23)),
        ("a changed checksum", flip(whole.len() - 1)),
        ("a missing byte", cut(whole.len() - 1)),
        ("a missing checksum", cut(whole.len() - 32)),
        ("a missing half", cut(whole.len() / 2)),
        ("little more than a mark", cut(21)),
        ("half a mark", cut(8)),
        ("nothing", vec![]),
        ("junk at the end", [&whole[..], b"junk"].concat()),
    ] {
        let damaged = dir.path().join("damaged");
        std::fs::write(&damaged, bytes).unwrap();
        let refused = PostgresStore::restore(&address, &damaged, setup(1)).await.unwrap_err();
        let told = refused.to_string();
        assert!(matches!(refused, StoreError::Corrupt(_)), "{what}: {told}");
        assert!(told.contains(damaged.to_str().unwrap()) && told.contains("is damaged"), "{told}");
        let sql =
            "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace";
        let tables: i64 = client(&address).await.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(tables, 0, "{what}");
    }
    let restored = PostgresStore::restore(&address, &file, setup(1)).await.unwrap();
    assert!(restored.tenant(&tenant()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_backup_is_restored_into_an_empty_schema_only() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let dir = tempfile::TempDir::new().unwrap();
    let backup = dir.path().join("backup");
    store.backup(&backup).await.unwrap();
    let refused = PostgresStore::restore(&address, &backup, setup(1)).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Locked(_)), "a server has it: {refused}");
    drop(store);
    let refused = PostgresStore::restore(&address, &backup, setup(1)).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Conflict { field, problem }
            if field == "schema" && problem.contains("drop this one")),
        "{refused}"
    );
    connect(&address).await.tenant(&tenant()).await.unwrap().unwrap();
}

#[tokio::test]
async fn figures_that_two_nodes_add_at_once_all_count() {
    let address = fresh_address().await;
    let first = new_store(&address).await;
    let nodes = [first.second_node(), first];
    let additions = (0..20).map(|number| count_one_more(&nodes[number % 2]));
    futures_util::future::join_all(additions).await;
    assert_eq!(count_one_more(&nodes[0]).await, 21);
}

#[tokio::test]
async fn only_what_accepts_of_a_tenant_have_to_know_of_counts_as_its_change() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let other: TenantId = "other".parse().unwrap();
    add_tenant(&store, &other).await;
    let database = client(&address).await;
    let changes = async || -> Vec<i64> {
        let rows = database.query("SELECT changes FROM tenants ORDER BY id", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let id = EndpointId::from_u128(1);
    let key = ApiKey {
        id: railpost_wire::ApiKeyId::from_u128(1),
        tenant: Some(tenant()),
        hash: [1; 32],
        scope: Scope::PublishOnly,
        name: String::new(),
        created_at: Timestamp::from_millis(1),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    let (key_id, at) = (key.id, Timestamp::from_millis(2));
    for write in [
        Write::PutReplay(Box::new(replay())),
        Write::CreateApiKey(key),
        Write::TouchApiKey(key_id, at),
        Write::SetEndpointStatus(id, railpost_engine::EndpointStatus::Paused),
    ] {
        let before = changes().await;
        store.commit(write.clone().into()).await.unwrap();
        assert_eq!(changes().await, before, "{write:?}");
    }
    assert_eq!(store.api_key(key_id).await.unwrap().unwrap().last_used_at, Some(at));
    let update = Write::UpdateEndpoint {
        id,
        settings: EndpointSettings::all_events("https://example.org"),
        private: EndpointPrivate::default(),
        revision: None,
    };
    for write in [
        Write::UpdateTenant(tenant(), TenantSettings::default()),
        update,
        Write::RemoveEndpoint(id),
    ] {
        let before = changes().await;
        store.commit(write.clone().into()).await.unwrap();
        assert_eq!(changes().await, [before[0] + 1, before[1]], "{write:?}");
    }
    let before = changes().await;
    add_endpoint_of(&store, other, 2).await;
    assert_eq!(changes().await, [before[0], before[1] + 1]);
}

fn replay() -> Replay {
    Replay {
        id: ReplayId::from_u128(1),
        tenant: tenant(),
        created_at: Timestamp::from_millis(1),
        actor: "key_1".to_owned(),
        action: ReplayAction::Skip,
        filter: DeliveryFilter::default(),
        rate_per_s: None,
        dry_run: false,
        state: ReplayState::Running,
        progress: ReplayProgress::default(),
        preview: vec![],
        cursor: None,
        problem: None,
        finished_at: None,
    }
}

#[tokio::test]
async fn two_nodes_give_out_seqs_without_a_gap() {
    let address = fresh_address().await;
    let first = new_store(&address).await;
    let nodes = [Arc::new(first.second_node()), Arc::new(first)];
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
    let one = new_store(&address).await;
    let other = one.second_node();
    assert_eq!(deliveries(accept(&other, 1).await.unwrap()).len(), 1);
    add_endpoint(&one, 2).await;
    assert_eq!(deliveries(accept(&other, 2).await.unwrap()).len(), 2);
    one.commit(Write::RemoveEndpoint(EndpointId::from_u128(1)).into()).await.unwrap();
    assert_eq!(deliveries(accept(&other, 3).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn a_lane_is_never_pruned_under_an_accept() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let step = PruneStep {
        lanes_before: Timestamp::from_millis(u64::MAX / 4),
        ..PruneStep::of_all_before(Timestamp::default(), 9)
    };
    let accepting = async {
        for number in 0..100 {
            let accepted = deliveries(accept(&store, number).await.unwrap())[0];
            let stored = store.delivery(accepted.id).await.unwrap().unwrap();
            assert!(stored.line.is_some(), "its lane is there");
            store.record(delivered(&accepted).into()).await.unwrap();
        }
    };
    let mut accepting = std::pin::pin!(accepting);
    let mut pruned = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut accepting => break,
            done = store.prune(step.clone()) => pruned += done.unwrap().lanes,
        }
    }
    assert!(pruned > 0);
}

#[tokio::test]
async fn an_event_published_to_two_nodes_at_once_is_delivered_once() {
    let address = fresh_address().await;
    let one = new_store(&address).await;
    let other = one.second_node();
    for number in 0..20 {
        let (a, b) = tokio::join!(accept(&one, number), accept(&other, number));
        let count = deliveries(a.unwrap()).len() + deliveries(b.unwrap()).len();
        assert_eq!(count, 1, "event {number}");
    }
}

#[tokio::test]
async fn a_request_sent_to_two_nodes_at_once_is_done_once() {
    let address = fresh_address().await;
    let one = new_store(&address).await;
    let other = one.second_node();
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
            let idempotency = Some(Box::new(record.into()));
            Arc::new(AcceptBatch { tenant: tenant(), events, accepted_by: None, idempotency })
        };
        let (a, b) =
            tokio::join!(one.accept(request(number)), other.accept(request(number + 1_000)));
        let done = [&a, &b].into_iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(done, 1, "{a:?} {b:?}");
        assert!([a, b].contains(&Err(StoreError::Repeated)));
    }
}
