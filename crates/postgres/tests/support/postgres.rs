//! A schema of its own on the test server, for every test that asks.

use std::sync::atomic::{AtomicU32, Ordering};

use railpost_postgres::PostgresAddress;
use tokio_postgres::NoTls;

use super::proxy::Proxy;

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
pub(crate) fn server() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL \
         server for the tests, or set it to the URL of one that may be written to",
    )
}

/// The address of an empty schema that nobody else has.
pub(crate) async fn fresh_address() -> PostgresAddress {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("test_{}_{number}", std::process::id());
    execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await;
    let server = server();
    let join = if server.contains('?') { '&' } else { '?' };
    PostgresAddress::from(format!("{server}{join}options=-csearch_path%3D{schema}").as_str())
}

/// The server behind a wire, the address of a fresh schema through it, and its address without.
pub(crate) async fn wired() -> (Proxy, PostgresAddress, PostgresAddress) {
    let config: tokio_postgres::Config = server().parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else {
        panic!("the test server is reached by TCP")
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let target = tokio::net::lookup_host((host.as_str(), port)).await.unwrap().next().unwrap();
    let proxy = Proxy::to(target).await;
    let direct = fresh_address().await;
    let here = format!("{host}:{port}");
    assert!(direct.url.contains(&here), "the test server's URL names its port");
    let wired = direct.url.replace(&here, &proxy.address.to_string());
    (proxy, PostgresAddress::from(wired.as_str()), direct)
}

/// Runs statements on the test server.
pub(crate) async fn execute(sql: &str) {
    let (client, connection) = tokio_postgres::connect(&server(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
