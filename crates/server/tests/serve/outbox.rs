//! Events from other databases: each way once, refused rows, and sources that are not as they have to be.

use std::path::Path;

use serde_json::{Value, json};
use tokio_postgres::NoTls;

use super::postgres::{database, fresh_url};
use super::process::{ADMIN_KEY, PATIENCE, Running, output, railpost};
use super::receiver::Receiver;

const KEY: [(&str, &str); 1] = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];

/// A database that nobody else has.
pub(crate) fn fresh_database(name: &str) -> String {
    let database_name = format!("outbox_{name}_{}", std::process::id());
    sql(&database(), &format!("DROP DATABASE IF EXISTS {database_name}"));
    sql(&database(), &format!("CREATE DATABASE {database_name}"));
    let (server, _) =
        database().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    format!("{server}/{database_name}")
}

/// Runs statements at a database.
pub(crate) fn sql(url: &str, statements: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(statements).await.unwrap();
    });
}

/// The number that a query answers.
fn count(url: &str, query: &str) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query_one(query, &[]).await.unwrap().get(0)
    })
}

fn sqlite(path: &Path, statements: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(statements).unwrap();
}

pub(crate) fn configure(folder: &Path, sections: &[String]) {
    let sections = sections.iter().map(|section| format!("[[outbox]]\n{section}\n"));
    std::fs::write(folder.join("railpost.toml"), sections.collect::<String>()).unwrap();
}

fn start(folder: &Path, arguments: &[&str]) -> Running {
    let arguments = [&["--log-format", "json"], arguments].concat();
    Running::start_with(folder, &arguments, &KEY)
}

/// A server whose default tenant has a receiver.
pub(crate) fn start_with_receiver(folder: &Path, arguments: &[&str]) -> (Running, Receiver) {
    let (server, receiver) = (start(folder, arguments), Receiver::new());
    let endpoint = json!({"url": receiver.url()});
    assert_eq!(server.post("/v1/tenants/default/endpoints", &endpoint).0, 201);
    (server, receiver)
}

/// A command of the client.
pub(crate) fn ask(folder: &Path, server: &Running, arguments: &[&str]) -> (i32, String, String) {
    let mut command = railpost(folder, arguments);
    command.env("RAILPOST_URL", server.url("")).env("RAILPOST_API_KEY", ADMIN_KEY);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A command of the client that must do what it was asked for.
#[track_caller]
fn done(folder: &Path, server: &Running, arguments: &[&str]) -> String {
    let (code, out, err) = ask(folder, server, arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

pub(crate) fn source(server: &Running, name: &str) -> Value {
    let (status, text) = server.get(&format!("/v1/outbox/{name}"), ADMIN_KEY);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Looks at a source until it is as it should be.
#[track_caller]
pub(crate) fn until(server: &Running, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let source = source(server, name);
        if is_so(&source) {
            return source;
        }
        assert!(std::time::Instant::now() < deadline, "{source:#}");
    }
}

#[track_caller]
pub(crate) fn until_reading(server: &Running, name: &str) {
    until(server, name, |source| source["state"] == "reading");
}

#[track_caller]
pub(crate) fn arrives(receiver: &Receiver, body: &str) {
    let arrived = receiver.next();
    assert_eq!(arrived.body, body);
    arrived.answer(200);
}

#[test]
fn the_first_event_of_each_way_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (polled, tailed) = (fresh_database("ways_poll"), fresh_database("ways_tail"));
    let messages = fresh_database("ways_messages");
    let file = folder.path().join("app.db");
    let (store, tenant) = (fresh_url("ways"), "tenant = \"default\"");
    let tail = |name: &str, url: &str, mode: &str| {
        let slot = format!("slot = \"ways_{name}_{}\"", std::process::id());
        format!("name = \"{name}\"\nurl = \"{url}\"\nmode = \"{mode}\"\n{slot}\n{tenant}")
    };
    let sections = [
        format!("name = \"polled\"\nurl = \"{polled}\"\nwake = \"notify\"\n{tenant}"),
        tail("tailed", &tailed, "tail"),
        tail("messages", &messages, "messages"),
        "name = \"store\"\nurl = \"store\"".to_owned(),
        format!("name = \"file\"\nurl = \"sqlite:{}\"\n{tenant}", file.display()),
    ];
    configure(folder.path(), &sections);
    for name in ["polled", "tailed", "messages", "file", "store"] {
        let (code, out, err) = output(folder.path(), &["outbox", "init", name]);
        assert_eq!(code, 0, "{out}{err}");
    }
    let (server, receiver) = start_with_receiver(folder.path(), &["--store", &store]);
    done(folder.path(), &server, &["outbox", "grant", "railpost", "default"]);
    for name in ["polled", "tailed", "messages", "store", "file"] {
        until_reading(&server, name);
    }
    let checked = done(folder.path(), &server, &["outbox", "check"]);
    assert!(!checked.contains("  bad  "), "{checked}");

    let emit = |way: &str| format!("SELECT railpost_emit('a.b', '\"{way}\"', key => 'k')");
    sql(&polled, &emit("polled"));
    arrives(&receiver, "\"polled\"");
    sql(&tailed, &emit("tailed"));
    arrives(&receiver, "\"tailed\"");
    let message = json!({"id": "m1", "type": "a.b", "payload": "messages"});
    sql(&messages, &format!("SELECT pg_logical_emit_message(true, 'railpost', '{message}')"));
    arrives(&receiver, "\"messages\"");
    sql(&store, &emit("store"));
    arrives(&receiver, "\"store\"");
    let insert = "INSERT INTO railpost_outbox (type, payload) VALUES ('a.b', json_quote('file'))";
    sqlite(&file, insert);
    arrives(&receiver, "\"file\"");

    for name in ["polled", "tailed", "messages", "store", "file"] {
        until(&server, name, |source| source["relayed"] == 1);
    }
    until(&server, "file", |source| source["position"] == "1");
    let (_, metrics) = server.get("/metrics", "");
    for name in ["polled", "tailed", "messages", "store", "file"] {
        assert!(
            metrics.contains(&format!("railpost_outbox_up{{source=\"{name}\"}} 1")),
            "{metrics}"
        );
    }
    assert_eq!(server.stopped().0, 0);
}

#[test]
fn a_refused_row_holds_its_key_until_it_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("parked");
    configure(folder.path(), &[format!("name = \"shop\"\nurl = \"{shop}\"\ntenant = \"default\"")]);
    assert_eq!(output(folder.path(), &["outbox", "init"]).0, 0);
    let (server, receiver) = start_with_receiver(folder.path(), &[]);
    let judge = |validation: &str| {
        let put = ["event-types", "put", "order.paid", "--schema", "1={\"type\": \"object\"}"];
        done(folder.path(), &server, &[&put[..], &["--validation", validation]].concat());
    };
    judge("reject");
    let insert = |key: &str, payload: &str| {
        let columns = "INSERT INTO railpost_outbox (id, type, key, payload) VALUES";
        let id = format!("{key}-{}", payload.len());
        sql(&shop, &format!("{columns} ('{id}', 'order.paid', '{key}', '{payload}')"));
    };
    insert("held", "1");
    insert("held", "{\"a\":1}");
    insert("free", "{\"b\":1}");
    arrives(&receiver, "{\"b\":1}");
    until(&server, "shop", |source| source["parked_rows"] == 2);
    assert_eq!(count(&shop, "SELECT count(*) FROM railpost_outbox"), 0);

    let list = ["outbox", "parked", "list", "shop", "--json"];
    let parked: Value = serde_json::from_str(&done(folder.path(), &server, &list)).unwrap();
    assert_eq!(parked["items"][0]["refusal"]["code"], "schema");
    assert_eq!(parked["items"][1]["refusal"], Value::Null);
    let number = parked["items"][0]["number"].to_string();
    for (filter, rows) in
        [("refused=true", 1), ("reason=schema", 1), ("reason=size", 0), ("tenant=other", 0)]
    {
        let (_, text) = server.get(&format!("/v1/outbox/shop/parked?{filter}"), ADMIN_KEY);
        let page: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(page["items"].as_array().unwrap().len(), rows, "{filter}: {text}");
    }
    let (_, whole) = server.get(&format!("/v1/outbox/shop/parked/{number}"), ADMIN_KEY);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!((&whole["payload"], &whole["key"]), (&json!(1), &json!("held")));
    let behind = parked["items"][1]["number"].to_string();
    let (code, _, err) =
        ask(folder.path(), &server, &["outbox", "parked", "skip", "shop", &behind, "--yes"]);
    assert_eq!(code, 1, "a row that is no head: {err}");

    let retry = ["outbox", "parked", "retry", "shop", &number];
    let (code, _, err) = ask(folder.path(), &server, &retry);
    assert_eq!(code, 1, "nothing was fixed: {err}");
    assert!(err.contains("was refused again: schema"), "{err}");

    judge("warn");
    let said = done(folder.path(), &server, &["outbox", "parked", "retry", "shop", &number]);
    assert_eq!(
        said,
        format!("row {number} was accepted, and the rows behind it are handed over\n")
    );
    arrives(&receiver, "1");
    arrives(&receiver, "{\"a\":1}");
    until(&server, "shop", |source| source["parked_rows"] == 0);
    let audit = done(folder.path(), &server, &["audit", "list", "--everywhere"]);
    assert!(audit.contains("outbox.retry"), "{audit}");
}

#[test]
fn a_source_that_is_not_ready_says_what_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("not_ready");
    let section = |url: &str| format!("name = \"shop\"\nurl = \"{url}\"\ntenant = \"default\"");
    let away = "name = \"away\"\nurl = \"postgres://me:hunter2@127.0.0.1:1/none\"".to_owned();
    configure(folder.path(), &[section(&shop), away]);
    let (mut server, receiver) = start_with_receiver(folder.path(), &[]);
    let trouble = server.wait_for("outbox_trouble");
    assert!(!trouble.to_string().contains("hunter2"), "{trouble}");
    let found = until(&server, "shop", |source| source["state"] == "trouble");
    assert_eq!(found["trouble"]["fix"], "make the table: railpost outbox init", "{found:#}");
    assert!(source(&server, "away")["url"] == "postgres://me:…@127.0.0.1:1/none");
    let (code, out, err) = ask(folder.path(), &server, &["outbox", "check", "shop"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(
        out.contains("  bad      table") && out.contains("CREATE TABLE railpost_outbox"),
        "{out}"
    );
    assert_eq!(server.get("/health/ready", "").0, 200);

    let (code, _, err) = output(folder.path(), &["outbox", "init", "shop"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = ask(folder.path(), &server, &["outbox", "check", "shop"]);
    assert_eq!(code, 0, "{out}{err}");
    sql(&shop, "SELECT railpost_emit('a.b', '\"ready\"')");
    arrives(&receiver, "\"ready\"");
}

#[test]
fn what_was_written_while_the_server_was_down_arrives_once() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("restart");
    configure(folder.path(), &[format!("name = \"shop\"\nurl = \"{shop}\"\ntenant = \"default\"")]);
    assert_eq!(output(folder.path(), &["outbox", "init", "shop"]).0, 0);
    let (server, receiver) = start_with_receiver(folder.path(), &[]);
    sql(&shop, "SELECT railpost_emit('a.b', '1', key => 'k')");
    arrives(&receiver, "1");
    assert_eq!(server.stopped().0, 0);
    sql(&shop, "SELECT railpost_emit('a.b', '2', key => 'k')");
    let server = start(folder.path(), &[]);
    arrives(&receiver, "2");
    until(&server, "shop", |source| source["relayed"] == 1);
    assert_eq!(server.stopped().0, 0);

    configure(folder.path(), &[]);
    let mut server = start(folder.path(), &[]);
    let warning = server.wait_for("config_warning");
    let problem = warning["problem"].as_str().unwrap();
    assert!(
        problem.contains("`shop`") && problem.contains("railpost outbox drop shop"),
        "{problem}"
    );
}

#[test]
fn a_source_that_was_taken_out_of_the_configuration_shows_its_parked_rows() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("removed");
    // The tenant does not exist, so the row is parked.
    configure(folder.path(), &[format!("name = \"shop\"\nurl = \"{shop}\"\ntenant = \"nobody\"")]);
    assert_eq!(output(folder.path(), &["outbox", "init", "shop"]).0, 0);
    let server = start(folder.path(), &[]);
    sql(&shop, "SELECT railpost_emit('a.b', '1', key => 'k')");
    until(&server, "shop", |source| source["parked_rows"] == 1);
    let (code, out, _) = ask(folder.path(), &server, &["outbox", "check"]);
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("bad      tenant") && out.contains("railpost tenants create nobody"),
        "{out}"
    );
    assert_eq!(server.stopped().0, 0);

    configure(folder.path(), &[]);
    let server = start(folder.path(), &[]);
    let removed = source(&server, "shop");
    assert_eq!((&removed["state"], &removed["parked_rows"]), (&json!("removed"), &json!(1)));
    let status = done(folder.path(), &server, &["outbox", "status"]);
    assert!(status.contains("removed") && status.contains("railpost outbox drop shop"), "{status}");
    let (code, out, err) = ask(folder.path(), &server, &["outbox", "check"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("bad      configuration"), "{out}");
    let list = done(folder.path(), &server, &["outbox", "parked", "list", "shop", "--json"]);
    let parked: Value = serde_json::from_str(&list).unwrap();
    let number = parked["items"][0]["number"].to_string();
    // Nobody would hand over what these release.
    for action in ["skip", "retry"] {
        let yes = if action == "skip" { &["--yes"][..] } else { &[] };
        let command = [&["outbox", "parked", action, "shop", &number], yes].concat();
        let (code, out, err) = ask(folder.path(), &server, &command);
        assert_eq!(code, 1, "{out}{err}");
        assert!(err.contains("discard"), "{err}");
    }
    assert_eq!(source(&server, "shop")["parked_rows"], 1);
    done(folder.path(), &server, &["outbox", "parked", "discard", "shop", &number, "--yes"]);
    assert_eq!(source(&server, "shop")["parked_rows"], 0);
    assert_eq!(server.get("/v1/outbox/other", ADMIN_KEY).0, 404);
}

#[test]
fn a_source_is_dropped_when_its_server_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("drop");
    let slot = format!("drop_{}", std::process::id());
    let section = format!(
        "name = \"shop\"\nurl = \"{shop}\"\nmode = \"tail\"\nslot = \"{slot}\"\ntenant = \"default\""
    );
    configure(folder.path(), &[section]);
    assert_eq!(output(folder.path(), &["outbox", "init", "shop"]).0, 0);
    let server = start(folder.path(), &[]);
    until_reading(&server, "shop");
    let (code, _, err) = output(folder.path(), &["outbox", "drop", "shop"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use") && err.contains("stop the server"), "{err}");
    assert_eq!(server.stopped().0, 0);
    let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}'");
    assert_eq!(count(&shop, &slots), 1);
    let (code, out, err) = output(folder.path(), &["outbox", "drop", "shop"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(out, format!("shop: dropped slot {slot}, publication {slot}\n"));
    assert_eq!(count(&shop, &slots), 0);
    assert_eq!(count(&shop, "SELECT count(*) FROM railpost_outbox"), 0);

    configure(folder.path(), &[]);
    let (_, log) = start(folder.path(), &[]).stopped();
    assert!(!log.contains("config_warning"), "{log}");
}

#[test]
fn a_source_whose_database_is_gone_is_dropped_and_says_that_nobody_looked() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://me@127.0.0.1:1/none";
    configure(folder.path(), &[format!("name = \"shop\"\nurl = \"{url}\"\ntenant = \"default\"")]);
    assert_eq!(start(folder.path(), &[]).stopped().0, 0);
    let (code, out, err) = output(folder.path(), &["outbox", "drop", "shop"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("its database was not looked at") && out.contains("127.0.0.1:1"), "{out}");
}

#[test]
fn a_mistake_in_a_section_ends_the_start_and_names_the_field() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &["name = \"shop\"\nurl = \"mysql://db/shop\"".to_owned()]);
    for command in [&["serve"][..], &["config", "check"], &["outbox", "init"]] {
        let (code, _, err) = output(folder.path(), command);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("railpost.toml, line 3: outbox[0].url: expected"), "{err}");
    }
}
