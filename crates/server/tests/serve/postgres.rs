//! PostgreSQL by its URL.

use super::process::Running;

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
fn database() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL",
    )
}

#[test]
fn a_store_in_postgresql_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let schema = fresh_schema();
    let server = database();
    let join = if server.contains('?') { '&' } else { '?' };
    let url = format!("{server}{join}options=-csearch_path%3D{schema}");
    let first = Running::start(folder.path(), &["--store", &url]);
    let key = first.key().expect(&first.greeting).to_owned();
    assert!(first.get("/health/ready", "").1.contains("\"backend\":\"postgres\""));
    assert_eq!(first.stopped().0, 0);
    let second = Running::start(folder.path(), &["--store", &url]);
    assert_eq!((second.key(), second.get("/v1/tenants/default", &key).0), (None, 200));
}

/// A schema that nobody else has.
fn fresh_schema() -> String {
    let schema = format!("serve_{}", std::process::id());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&database(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
        client.batch_execute(&sql).await.unwrap();
    });
    schema
}
