//! The examples, run as they are and put through the ordeal.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;
#[path = "support/running.rs"]
mod running;

use railpost_receiver::request_verifier::unix_now;
use railpost_receiver::testing::TestSender;
use railpost_receiver::wire::Secret;
use running::Running;
use std::process::Command;

const SECRET: [u8; 32] = [8; 32];

/// Cargo builds the examples beside the tests, unless it is query for one test alone.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    let mut command = Command::new(program);
    let secret = Secret::generate(&SECRET).reveal();
    command.envs([("LISTEN", "127.0.0.1:0"), ("WEBHOOK_SECRET", &secret)]);
    command
}

/// Everything that at-least-once can come to, and strangers on top.
async fn survives_the_ordeal(service: &Running, sender: &mut TestSender) {
    let events = [
        sender.event(Some("A"), br#"{"order": "A", "status": "created"}"#),
        sender.event(Some("A"), br#"{"order": "A", "status": "paid"}"#),
        sender.event(None, br#"{"order": "B", "status": "created"}"#),
    ];
    let report = sender
        .ordeal(&events, unix_now(), async |sent| service.call("POST", "/hook", sent).await.0)
        .await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.refused, report.held), (21, 1));
}

#[tokio::test]
async fn the_plain_hyper_handler_survives_the_ordeal() {
    let mut service = Running::start(&mut example("plain_hyper"));
    let mut sender = TestSender::new(&SECRET);
    // Its inbox takes an unknown line from anywhere; from here on the line is known.
    let first = sender.event(Some("A"), b"{}");
    let sent = sender.request(&first, 1, unix_now());
    assert_eq!(service.call("POST", "/hook", sent).await.0, 200);
    survives_the_ordeal(&service, &mut sender).await;
    let applied = [service.line(), service.line(), service.line(), service.line()];
    let expected = ["test-1 has 2 bytes", "test-4 has 35 bytes", "test-2 has 35 bytes"];
    assert_eq!(applied[..3], expected);
    assert_eq!(applied[3], "test-3 has 32 bytes");
}

#[tokio::test]
async fn the_sqlite_service_survives_the_ordeal_and_works_off_its_queue() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let mut service = Running::start(example("axum_sqlite").env("DATABASE", &path));
    survives_the_ordeal(&service, &mut TestSender::new(&SECRET)).await;
    let worked = [service.line(), service.line(), service.line()];
    assert_eq!(worked, ["Done(test-3)", "Done(test-1)", "Done(test-2)"]);
    let database = rusqlite::Connection::open(path).unwrap();
    let sql = "select group_concat(id || ' ' || status, ', ' order by id) from orders";
    let orders: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(orders, "A paid, B created");
}

fn start_shop(schema: &str) -> Running {
    let url = format!("{}?options=-csearch_path%3D{schema}", support::postgres_url());
    Running::start(example("axum_postgres").env("DATABASE_URL", url))
}

#[tokio::test]
async fn the_postgres_service_applies_each_event_once_and_in_order() {
    let schema = support::unique("example");
    let database = support::postgres(&schema).await;
    let service = start_shop(&schema);
    let mut sender = TestSender::new(&SECRET);
    let created =
        sender.event(Some("A"), br#"{"type": "order.created", "order": "A", "total": 10}"#);
    let updated =
        sender.event(Some("A"), br#"{"type": "order.updated", "order": "A", "total": 12}"#);
    let settled = sender.event(None, br#"{"type": "payment.settled", "payment": "P"}"#);
    let events = [created, updated, settled];
    let call = async |sent| service.call("POST", "/hook", sent).await.0;
    let report = sender.ordeal(&events, unix_now(), call).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.refused, report.held), (21, 1));
    let sql = "select (select string_agg(id || ' ' || total, ', ') from orders),
               (select string_agg(id, ', ') from payments)";
    let shop = async || {
        let row = database.query_one(sql, &[]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, String>(1))
    };
    let expected = ("A 12".to_owned(), "P".to_owned());
    assert_eq!(shop().await, expected);
    // The creation once more, late: it would fail if it were applied, and undo the update.
    for event in &events {
        assert_eq!(call(sender.request(event, 2, unix_now())).await, 200);
    }
    assert_eq!(shop().await, expected);
}

/// What the inbox does not know yet, and the shop cannot apply, is the sender's to try again.
#[tokio::test]
async fn the_postgres_service_forgets_an_event_that_it_could_not_apply() {
    let schema = support::unique("example");
    let database = support::postgres(&schema).await;
    let service = start_shop(&schema);
    let mut sender = TestSender::new(&SECRET);
    let updated = sender.event(None, br#"{"type": "order.updated", "order": "A", "total": 12}"#);
    let call = async |attempt| {
        let sent = sender.request(&updated, attempt, unix_now());
        service.call("POST", "/hook", sent).await.0
    };
    assert_eq!(call(1).await, 503);
    database.batch_execute("insert into orders values ('A', 10)").await.unwrap();
    assert_eq!(call(2).await, 200);
    let row = database.query_one("select total from orders", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 12);
}
