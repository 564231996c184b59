//! One server at a time has a PostgreSQL store; and what becomes of it when the database crashes, fails
//! over or is demoted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::time::Duration;

use railpost_conformance::erasing::erased;
use railpost_engine::{Accepted, EndpointRecord, EndpointStatus, Stage, Timestamp};
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_store::{
    Archive, Durability, Epoch, Figures, FiguresScope, Intake, Ledger, Partition, PruneStep,
    RecordBatch, RedeliverBatch, Registry, Result, StoreError, Sweep, TenantSettings, Upkeep,
    Write,
};
use railpost_wire::{DeliveryId, EndpointId};
use support::cluster::Server;
use support::postgres::{fresh_address, wired};
use support::proxy::Wire;
use support::store::{
    accept, add_endpoint, client, connect, delivered, deliveries, event, made, new_store, setup,
    tenant, until_ok,
};
use tokio::time::timeout;

/// The session that has the store's lock.
const LOCK_SESSION: &str = "SELECT l.pid FROM pg_locks AS l WHERE l.locktype = 'advisory' \
    AND l.granted AND l.objsubid = 1 \
    AND ((l.classid::bigint << 32) | l.objid::bigint) = railpost_lock_key('server')";

async fn era(store: &PostgresStore) -> u64 {
    let (after, through) = (DeliveryId::from_u128(0), DeliveryId::from_u128(1));
    until_ok(async || store.sweep(Sweep { after, through, limit: 1 }).await).await.era
}

fn is_locked<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StoreError::Locked(_)))
}

#[tokio::test]
async fn a_second_server_is_refused_and_told_who_has_the_store() {
    let address = fresh_address().await;
    let first = new_store(&address).await;
    let session: i32 = client(&address).await.query_one(LOCK_SESSION, &[]).await.unwrap().get(0);
    let refused = PostgresStore::connect(&address, setup(1)).await.unwrap_err();
    let StoreError::Locked(problem) = &refused else { panic!("{refused}") };
    for named in [
        format!("railpost {}", hostname()),
        format!(" {}, from 127.0.0.1", std::process::id()),
        format!("session {session}"),
        "since 2".to_owned(),
    ] {
        assert!(problem.contains(&named), "{named:?} in {problem:?}");
    }
    accept(&first, 1).await.unwrap();
    drop(first);
    let second = connect(&address).await;
    assert_eq!(deliveries(accept(&second, 2).await.unwrap())[0].place.unwrap().seq.get(), 2);
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn servers_that_start_together_make_one_schema_and_one_of_them_has_it() {
    let address = fresh_address().await;
    let starts = (0..4).map(|_| PostgresStore::connect(&address, setup(1)));
    let started = futures_util::future::join_all(starts).await;
    assert_eq!(started.iter().filter(|store| store.is_ok()).count(), 1);
    assert_eq!(started.iter().filter(|store| is_locked(store)).count(), 3);
}

#[tokio::test]
async fn a_lock_whose_session_is_ended_is_taken_again() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    let database = client(&address).await;
    let session = async || {
        let rows = database.query(LOCK_SESSION, &[]).await.unwrap();
        rows.first().map(|row| row.get::<_, i32>(0))
    };
    let ended = session().await.unwrap();
    database.execute("SELECT pg_terminate_backend($1)", &[&ended]).await.unwrap();
    let taken_again = async { while session().await.is_none_or(|session| session == ended) {} };
    timeout(Duration::from_secs(20), taken_again).await.expect("it is taken again by itself");
    let first = until_ok(async || accept(&store, 1).await).await;
    assert_eq!(deliveries(first).len(), 1);
    assert!(is_locked(&PostgresStore::connect(&address, setup(1)).await));
}

/// Everything that writes, by name.
async fn write_everything(store: &PostgresStore) -> Vec<(&'static str, Result<()>)> {
    let known = EndpointId::from_u128(1);
    let id = DeliveryId::from_u128(9);
    let record = |durability| RecordBatch {
        durability,
        ..delivered(&Accepted { id, endpoint: known, place: None, replay: false })
    };
    let orders = vec![(event(1).id, known)];
    let again = RedeliverBatch { tenant: tenant(), orders, audit: None, idempotency: None };
    let change = Write::UpdateTenant(tenant(), TenantSettings::default());
    let figures = Figures { accepted: 1, ..Figures::default() };
    let figures = (FiguresScope::All, Timestamp::default(), figures);
    let step = PruneStep::of_all_before(Timestamp::default(), 1);
    vec![
        ("accept", accept(store, 99).await.map(drop)),
        ("redeliver", store.redeliver(again).await.map(drop)),
        ("record", store.record(record(Durability::Visible).into()).await.map(drop)),
        ("durable record", store.record(record(Durability::Durable).into()).await.map(drop)),
        ("fence", store.fence(Partition(7), Epoch(7)).await),
        ("commit", store.commit(change.into()).await),
        ("prune", store.prune(step).await.map(drop)),
        ("erase", store.erase_tenant(&tenant(), &erased(&tenant())).await.map(drop)),
        ("close", store.close_removed(1).await.map(drop)),
        ("era", store.begin_era().await),
        ("figures", store.add_figures(vec![figures]).await),
        ("check", store.check().await.map(drop)),
    ]
}

/// All that may change, as one text.
async fn contents(address: &PostgresAddress) -> String {
    let database = client(address).await;
    let mut all = String::new();
    for table in
        ["tenants", "endpoints", "events", "lanes", "deliveries", "partitions", "eras", "figures"]
    {
        let sql = format!("SELECT coalesce(string_agg(t::text, ';'), '') FROM {table} AS t");
        all += &database.query_one(&sql, &[]).await.unwrap().get::<_, String>(0);
    }
    all
}

#[tokio::test]
async fn what_comes_late_from_a_server_that_lost_the_store_is_refused_by_the_database() {
    let address = fresh_address().await;
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    // The store believes that it has the lock: its session for that is as it was.
    client(&address).await.execute("SELECT railpost_take_over(5, NULL)", &[]).await.unwrap();
    let before = contents(&address).await;
    for (what, answer) in write_everything(&store).await {
        assert!(is_locked(&answer), "{what}: {answer:?}");
    }
    assert_eq!(contents(&address).await, before);
}

#[tokio::test]
async fn a_store_whose_lock_another_server_has_taken_answers_nothing_else() {
    let (proxy, address, direct) = wired().await;
    let lost = new_store(&address).await;
    let first = deliveries(accept(&lost, 1).await.unwrap())[0];
    proxy.set(Wire::Cut);
    let other = connect(&direct).await;
    proxy.set(Wire::Whole);
    let told = async { while !is_locked(&lost.delivery(first.id).await) {} };
    timeout(Duration::from_secs(30), told).await.expect("it hears of the other one");
    let before = contents(&direct).await;
    for (what, answer) in write_everything(&lost).await {
        assert!(is_locked(&answer), "{what}: {answer:?}");
    }
    assert_eq!(contents(&direct).await, before);
    assert_eq!(deliveries(accept(&other, 2).await.unwrap())[0].place.unwrap().seq.get(), 2);
    drop(other);
    // What it has in memory is old, so it stays out even when the other one is gone.
    assert!(is_locked(&accept(&lost, 3).await));
    connect(&direct).await;
}

/// Halts the process that writes the log in the background. It ends with its server.
async fn stop_log_writer(database: &tokio_postgres::Client) {
    let sql = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let pid: String = database.query_one(sql, &[]).await.unwrap().get(0);
    let halted = std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    assert!(halted.success());
}

#[tokio::test]
async fn a_record_that_a_crash_of_the_server_lost_is_written_again() {
    let server =
        Server::start(&["wal_writer_delay = 10s", "bgwriter_lru_maxpages = 0", "autovacuum = off"]);
    let address = Server::address(&[&server]);
    let store = new_store(&address).await;
    let first = deliveries(accept(&store, 1).await.unwrap())[0];
    let database = client(&address).await;
    // Nothing but a commit that waits for the disk writes the log from here on.
    stop_log_writer(&database).await;
    // Written before the record and lost: then the record is lost too.
    let lost = "SET synchronous_commit = off; CREATE TABLE witness ()";
    database.batch_execute(lost).await.unwrap();
    assert_eq!(store.record(delivered(&first).into()).await.unwrap().applied, 1);
    server.crash();
    server.start_again();
    let database = client(&address).await;
    let sql = "SELECT to_regclass('witness') IS NULL";
    assert!(database.query_one(sql, &[]).await.unwrap().get::<_, bool>(0), "nothing was lost");
    let swept = async || {
        let (after, through) = (DeliveryId::from_u128(0), DeliveryId::from_u128(u128::MAX));
        store.sweep(Sweep { after, through, limit: 9 }).await
    };
    assert_eq!(until_ok(swept).await.deliveries, [], "it is delivered before anyone can look");
    let stage = store.delivery(first.id).await.unwrap().unwrap().delivery.state.stage();
    assert_eq!(stage, Stage::Delivered);
}

#[tokio::test]
async fn a_record_that_is_written_again_undoes_no_later_change_of_an_endpoint() {
    let (proxy, address, _) = wired().await;
    let store = new_store(&address).await;
    let id = EndpointId::from_u128(1);
    let first = deliveries(accept(&store, 1).await.unwrap())[0];
    let failing = EndpointRecord {
        endpoint: id,
        status: EndpointStatus::Failing,
        was: EndpointStatus::Active,
        failing_since: None,
        at: Timestamp::from_millis(1),
    };
    let batch = RecordBatch { endpoints: vec![failing], ..delivered(&first) };
    store.record(batch.into()).await.unwrap();
    let resumed = Write::SetEndpointStatus(id, EndpointStatus::Active);
    store.commit(resumed.into()).await.unwrap();
    proxy.set(Wire::Cut);
    while store.endpoint(id).await.is_ok() {}
    proxy.set(Wire::Whole);
    // On its new session the store begins with what the old one may have lost.
    until_ok(async || store.record(RecordBatch::default().into()).await).await;
    let stored = until_ok(async || store.endpoint(id).await).await.unwrap();
    assert_eq!(stored.status, EndpointStatus::Active);
}

#[tokio::test]
async fn a_standby_that_takes_over_begins_an_era() {
    let first = Server::start(&[]);
    let second = Server::standby_of(&first);
    let primary = Server::address(&[&first]);
    let replicate = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    client(&primary).await.batch_execute(replicate).await.unwrap();
    client(&primary).await.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let store = new_store(&Server::address(&[&first, &second])).await;
    let old = made(accept(&store, 1).await.unwrap()).remove(0);
    let before = era(&store).await;
    first.crash();
    second.promote();
    // Nothing was accepted there: a sweep reports it all the same.
    let heard = async { while era(&store).await == before {} };
    timeout(Duration::from_secs(20), heard).await.expect("the era is another one");
    let new = made(until_ok(async || accept(&store, 2).await).await).remove(0);
    let (old_line, new_line) = (old.line.unwrap(), new.line.unwrap());
    assert_ne!(old_line.line, new_line.line);
    assert_eq!((new_line.seq.get(), new_line.before), (1, 1));
    assert_eq!(new.accepted.place.unwrap().seq.get(), 2, "the lane's numbers go on");
    let stored = store.delivery(old.accepted.id).await.unwrap().unwrap();
    assert_eq!(stored.line, Some(old_line));
}

#[tokio::test]
async fn a_server_that_is_demoted_is_left_for_the_one_that_may_be_written() {
    let first = Server::start(&[]);
    let second = Server::standby_of(&first);
    let primary = client(&Server::address(&[&first])).await;
    let store = new_store(&Server::address(&[&first, &second])).await;
    accept(&store, 1).await.unwrap();
    let standby = client(&Server::address(&[&second])).await;
    let written: String =
        primary.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
    let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
    let caught_up =
        async { while !standby.query_one(&sql, &[]).await.unwrap().get::<_, bool>(0) {} };
    timeout(Duration::from_secs(20), caught_up).await.unwrap();
    primary.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    primary.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    second.promote();
    let accepted = async {
        loop {
            match accept(&store, 2).await {
                Ok(receipt) => return receipt,
                Err(StoreError::ReadOnly(_) | StoreError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let receipt = timeout(Duration::from_secs(20), accepted).await.expect("it finds the other one");
    let place = made(receipt).remove(0);
    assert_eq!(place.accepted.place.unwrap().seq.get(), 2);
    assert_eq!(place.line.unwrap().seq.get(), 1);
    // Everything follows: reading, changing and recording.
    until_ok(async || store.delivery(place.accepted.id).await).await.unwrap();
    add_endpoint(&store, 2).await;
    until_ok(async || store.record(delivered(&place.accepted).into()).await).await;
    let sql = "SELECT count(*) FROM endpoints";
    assert_eq!(standby.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test]
async fn an_ordinary_role_is_enough_and_may_be_kept_from_the_system_identifier() {
    let server = Server::start(&[]);
    let admin = client(&Server::address(&[&server])).await;
    for sql in ["CREATE ROLE plain LOGIN", "CREATE DATABASE plain OWNER plain"] {
        admin.batch_execute(sql).await.unwrap();
    }
    let url = format!("postgres://plain@127.0.0.1:{}/plain", server.port);
    let address = PostgresAddress::from(url.as_str());
    let identity = async || -> (Option<i64>, Option<i32>) {
        let row =
            client(&address).await.query_one("SELECT system_id, timeline FROM eras", &[]).await;
        let row = row.unwrap();
        (row.get(0), row.get(1))
    };
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    assert!(matches!(identity().await, (Some(_), Some(1))), "{:?}", identity().await);
    assert!(is_locked(&PostgresStore::connect(&address, setup(1)).await));
    drop(store);

    let url = format!("postgres://railpost@127.0.0.1:{}/plain", server.port);
    let admin = client(&url.as_str().into()).await;
    let sql = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; \
               DROP OWNED BY plain; GRANT ALL ON SCHEMA public TO plain";
    admin.batch_execute(sql).await.unwrap();
    let store = new_store(&address).await;
    accept(&store, 1).await.unwrap();
    assert_eq!(identity().await, (None, Some(1)));
    assert_eq!(store.verify().await, Ok(()));
}
