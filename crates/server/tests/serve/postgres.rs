//! PostgreSQL by its URL.

use serde_json::json;

use super::admin_key::{assert_removed, assert_replaced};
use super::process::{ADMIN_KEY, Running, output};
use super::receiver::Receiver;

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
pub(crate) fn database() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL",
    )
}

#[test]
fn a_store_in_postgresql_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh_url("restart");
    let first = Running::start(folder.path(), &["--store", &url]);
    let key = first.key().expect(&first.greeting).to_owned();
    assert!(first.get("/health/ready", "").1.contains("\"backend\":\"postgres\""));
    assert_eq!(first.stopped().0, 0);
    let second = Running::start(folder.path(), &["--store", &url]);
    assert_eq!((second.key(), second.get("/v1/tenants/default", &key).0), (None, 200));
}

#[test]
fn the_key_of_the_configuration_is_one_key() {
    let folder = tempfile::tempdir().unwrap();
    assert_replaced(folder.path(), &["--store", &fresh_url("replaced_key")]);
    assert_removed(folder.path(), &["--store", &fresh_url("removed_key")]);
}

#[test]
fn a_second_server_on_the_same_database_is_refused_as_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh_url("lock");
    let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];
    let first = Running::start_with(folder.path(), &["--store", &url], &set);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", &url];
    let (code, _, err) = output(folder.path(), &arguments);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use"), "{err}");
    assert_eq!(first.post("/v1/backup", &json!({"path": "a.db"})).0, 200);
    let restore = ["restore", "railpost-data/backups/a.db", "--store", &url];
    let (code, _, err) = output(folder.path(), &restore);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use") && err.contains("until its process has ended"), "{err}");
}

#[test]
fn a_backup_is_verified_in_an_empty_database() {
    let folder = tempfile::tempdir().unwrap();
    let (url, scratch) = (fresh_url("verified"), fresh_url("scratch"));
    let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];
    let server = Running::start_with(folder.path(), &["--store", &url], &set);
    server.publish(&json!({"id": "e1", "type": "a", "payload": 1}));
    assert_eq!(server.post("/v1/backup", &json!({"path": "a.backup"})).0, 200);
    let verify = ["backup", "verify", "railpost-data/backups/a.backup"];
    let (code, _, err) = output(folder.path(), &verify);
    assert!(code == 1 && err.contains("--scratch postgres://"), "{err}");
    let verify = [&verify[..], &["--scratch", &scratch]].concat();
    let (code, out, err) = output(folder.path(), &verify);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("can be restored: 2 tenants, ") && out.contains(" 1 events"), "{out}");
    let (code, _, err) = output(folder.path(), &verify);
    assert!(code == 1 && err.contains("this one holds a store"), "{err}");
}

#[test]
fn work_on_a_stopped_store_makes_none_and_refuses_one_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh_url("nothing");
    let offline = ["--offline", "--store", &url];
    let verify = [&["store", "verify"][..], &offline].concat();
    let renew = [&["lines", "renew", "--yes"][..], &offline].concat();
    // Whatever the first made, the next would find.
    for command in [&verify, &renew, &verify] {
        let (code, _, err) = output(folder.path(), command);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("there is no store at postgres://"), "{err}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    let server = Running::start(folder.path(), &["--store", &url]);
    let (code, _, err) = output(folder.path(), &renew);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use") && err.contains("until its process has ended"), "{err}");
    assert_eq!(server.stopped().0, 0);
    for command in [&renew, &verify] {
        let (code, _, err) = output(folder.path(), command);
        assert_eq!(code, 0, "{err}");
    }
}

#[test]
fn a_backup_is_restored_into_an_empty_database_and_begins_new_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (url, empty) = (fresh_url("backup"), fresh_url("restored"));
    let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];
    let receiver = Receiver::new();
    let publish = |server: &Running, id: &str| {
        server.publish(&json!({"id": id, "type": "a", "key": "k", "payload": 1}));
        let arrived = receiver.next();
        let place = ["x-lane", "x-seq"].map(|name| arrived.header(name).unwrap().to_owned());
        arrived.answer(200);
        place
    };
    let server = Running::start_with(folder.path(), &["--store", &url], &set);
    let endpoint = json!({"url": receiver.url()});
    assert_eq!(server.post("/v1/tenants/default/endpoints", &endpoint).0, 201);
    let [line, _] = publish(&server, "e1");
    let path = |path: &str| format!("/v1/tenants/default/events/{path}/deliveries");
    while !server.get(&path("e1"), ADMIN_KEY).1.contains("delivered") {}
    assert_eq!(server.post("/v1/backup", &json!({"path": "a.db"})).0, 200);
    assert_eq!(publish(&server, "e2"), [line.clone(), "2".to_owned()]);
    assert_eq!(server.stopped().0, 0);
    let backup = "railpost-data/backups/a.db";
    let (code, out, err) = output(folder.path(), &["restore", backup, "--store", &empty]);
    assert_eq!(code, 0, "{out}{err}");
    let server = Running::start_with(folder.path(), &["--store", &empty], &set);
    let [new_line, seq] = publish(&server, "e3");
    assert_eq!(seq, "1");
    assert_ne!(new_line, line);
    assert_eq!(server.get("/v1/tenants/default/events/e2", ADMIN_KEY).0, 404);
}

/// The URL of a schema that nobody else has.
pub(crate) fn fresh_url(name: &str) -> String {
    let (server, schema) = (database(), fresh_schema(name));
    let join = if server.contains('?') { '&' } else { '?' };
    format!("{server}{join}options=-csearch_path%3D{schema}")
}

/// A schema that nobody else has.
fn fresh_schema(name: &str) -> String {
    let schema = format!("serve_{name}_{}", std::process::id());
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
