//! What the tests share: events, and a database of each test's own.
#![allow(dead_code, reason = "each test binary uses its part")]

use railpost_receiver::postgres::Pool;
use railpost_receiver::wire::{EventId, Key, Received, Seq};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const NOW: i64 = 1_767_225_600;
pub(crate) const DAY: i64 = 24 * 60 * 60;

/// An event: its id, and its key and seq if it has them. The line of a key is named after it.
pub(crate) fn event(id: &str, lane: Option<(&str, u64)>) -> Received {
    let key: Option<Key> = lane.map(|(key, _)| key.parse().unwrap());
    Received {
        event_id: id.parse::<EventId>().unwrap(),
        event_type: Some("order.paid".parse().unwrap()),
        event_unix_ms: Some(NOW * 1000 + 123),
        schema_version: Some(2),
        line: key.as_ref().map(|key| key.to_header().parse().unwrap()),
        key,
        after: None,
        seq: lane.map(|(_, seq)| Seq::new(seq).unwrap()),
        attempt: Some(1),
        replay: false,
        thin: false,
        timestamp: NOW,
    }
}

fn setting(name: &str) -> String {
    let advice = "run the tests with `cargo xtask with-services test -p railpost-receiver`";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {advice}"))
}

/// A name that no other test has, in this process or another.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn postgres_url() -> String {
    setting("RAILPOST_TEST_POSTGRES")
}

pub(crate) fn redis_url() -> String {
    setting("RAILPOST_TEST_REDIS")
}

pub(crate) fn interop_folder() -> std::path::PathBuf {
    setting("RAILPOST_TEST_INTEROP").into()
}

/// A connection to a schema. It is made if it is not there.
pub(crate) async fn postgres(schema: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = format!("create schema if not exists {schema}; set search_path to {schema}");
    client.batch_execute(&sql).await.unwrap();
    client
}

/// A pool of connections to a schema that is there.
pub(crate) fn pool(size: u16, schema: &str) -> Pool {
    let schema = schema.to_owned();
    Pool::new(size, move || {
        let schema = schema.clone();
        async move { Ok(postgres(&schema).await) }
    })
}
