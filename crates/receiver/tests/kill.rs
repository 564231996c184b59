//! A process is killed between the inbox's row and the application's effect, and at every other point of
//! the way: the effect happens once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "what it shows is part of the proof")]

mod support;

use railpost_receiver::postgres::{self, PostgresInbox, PostgresQueue};
use railpost_receiver::sqlite::{self, SqliteInbox, SqliteQueue};
use railpost_receiver::work::{WorkOutcome, WorkPolicy};
use railpost_receiver::{Delivery, InboxConfig, Verdict};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use support::{NOW, event, unique};

/// Where the child stops and waits for its death.
const POINTS: [&str; 4] = ["admitted", "effect", "committed", "nowhere"];
const EFFECT: &str = "update orders set paid = paid + 1";

/// What the child says when it has come to a point; it dies there if it was told to.
fn reached(point: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\nreached {point}").and_then(|()| output.flush()).unwrap();
    if std::env::var("RAILPOST_KILL_AT").unwrap() == point {
        // The parent kills it while it waits for an input that never comes.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        panic!("it should be dead");
    }
}

/// The process that is killed: runs only when the parent asks for it.
#[tokio::test]
async fn the_child() {
    let Ok(store) = std::env::var("RAILPOST_KILL_STORE") else { return };
    let received = event("1", Some(("A", 1)));
    let verdict = match store.strip_prefix("sqlite:") {
        Some(path) => {
            let mut database = rusqlite::Connection::open(path).unwrap();
            let transaction = database.transaction().unwrap();
            let inbox = SqliteInbox::new(InboxConfig::named("orders"));
            let verdict = inbox.admit(&transaction, &received, NOW).unwrap();
            reached("admitted");
            if verdict.applies() {
                transaction.execute(EFFECT, []).unwrap();
            }
            reached("effect");
            transaction.commit().unwrap();
            verdict
        }
        None => {
            let mut client = support::postgres(&store).await;
            let transaction = client.transaction().await.unwrap();
            let inbox = PostgresInbox::new(InboxConfig::named("orders"));
            let verdict = inbox.admit(&transaction, &received, NOW).await.unwrap();
            reached("admitted");
            if verdict.applies() {
                transaction.execute(EFFECT, &[]).await.unwrap();
            }
            reached("effect");
            transaction.commit().await.unwrap();
            verdict
        }
    };
    reached("committed");
    println!("\nanswered {verdict:?}");
}

/// The process that is killed while it works on its queue.
#[tokio::test]
async fn the_working_child() {
    let Ok(store) = std::env::var("RAILPOST_KILL_QUEUE") else { return };
    let worked = match store.strip_prefix("sqlite:") {
        Some(path) => {
            let mut database = rusqlite::Connection::open(path).unwrap();
            let worked = sqlite_queue().work_one(&mut database, NOW, |database, _| {
                database.execute(EFFECT, [])?;
                reached("effect");
                Ok::<(), rusqlite::Error>(())
            });
            worked.unwrap()
        }
        None => {
            let mut client = support::postgres(&store).await;
            let queue = postgres_queue();
            let work = queue.work_one(&mut client, NOW, async |transaction, _| {
                transaction.execute(EFFECT, &[]).await?;
                reached("effect");
                Ok::<(), tokio_postgres::Error>(())
            });
            work.await.unwrap()
        }
    };
    println!("\nanswered {worked:?}");
}

fn sqlite_queue() -> SqliteQueue {
    SqliteQueue::new(SqliteInbox::new(InboxConfig::named("orders")), WorkPolicy::default())
}

fn postgres_queue() -> PostgresQueue {
    PostgresQueue::new(PostgresInbox::new(InboxConfig::named("orders")), WorkPolicy::default())
}

fn spawn(test: &str, variable: &str, store: &str, kill_at: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs([(variable, store), ("RAILPOST_KILL_AT", kill_at)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a child until it dies where it should, or ends: what it answered, if it lived to.
fn live(mut child: Child, kill_at: &str) -> Option<String> {
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == format!("reached {kill_at}") {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        if let Some(answer) = line.strip_prefix("answered ") {
            child.wait().unwrap();
            return Some(answer.to_owned());
        }
    }
    panic!("the child ended by itself: {:?}", child.wait());
}

/// Kills a child at each point, and lets the sender try again until it is acknowledged.
fn kill_between(store: &str, mut paid: impl FnMut() -> i64) {
    for kill_at in POINTS {
        let answer = live(spawn("the_child", "RAILPOST_KILL_STORE", store, kill_at), kill_at);
        let effects = paid();
        println!("killed at {kill_at:9}: answered {answer:?}, effects {effects}");
        let expected = i64::from(matches!(kill_at, "committed" | "nowhere"));
        assert_eq!(effects, expected, "killed at {kill_at}");
    }
    let answer = live(spawn("the_child", "RAILPOST_KILL_STORE", store, "nowhere"), "nowhere");
    assert_eq!(answer.as_deref(), Some("Duplicate"));
    assert_eq!(paid(), 1);
}

fn kill_worker(store: &str, mut paid: impl FnMut() -> i64) {
    for (kill_at, effects) in [("effect", 0), ("effect", 0), ("nowhere", 1), ("nowhere", 1)] {
        let child = spawn("the_working_child", "RAILPOST_KILL_QUEUE", store, kill_at);
        let answer = live(child, kill_at);
        println!("worker killed at {kill_at:9}: answered {answer:?}, effects {}", paid());
        assert_eq!(paid(), effects, "killed at {kill_at}");
    }
}

const SHOP: &str = "create table orders (paid integer); insert into orders values (0);";

#[test]
fn on_sqlite_a_kill_between_row_and_effect_leaves_neither() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    database.execute_batch(SHOP).unwrap();
    sqlite::create_tables(&database).unwrap();
    let paid = || database.query_row("select paid from orders", [], |row| row.get(0)).unwrap();
    kill_between(&format!("sqlite:{}", path.display()), paid);
}

#[test]
fn on_sqlite_a_killed_worker_loses_no_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let mut database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch(SHOP).unwrap();
    sqlite::create_tables(&database).unwrap();
    let transaction = database.transaction().unwrap();
    let verdict = sqlite_queue().enqueue(&transaction, &delivery(), NOW).unwrap();
    assert_eq!(verdict, Some(Verdict::Fresh));
    transaction.commit().unwrap();
    let paid = || database.query_row("select paid from orders", [], |row| row.get(0)).unwrap();
    kill_worker(&format!("sqlite:{}", path.display()), paid);
}

fn delivery() -> Delivery {
    Delivery { received: event("1", Some(("A", 1))), headers: vec![], body: vec![] }
}

async fn shop(schema: &str) -> tokio_postgres::Client {
    let client = support::postgres(schema).await;
    postgres::create_tables(&client).await.unwrap();
    client.batch_execute(SHOP).await.unwrap();
    client
}

async fn paid(client: &tokio_postgres::Client) -> i64 {
    // A killed process's transaction ends when the server notices; its lock tells when.
    client.batch_execute("begin; lock table orders, railpost_inbox; commit").await.unwrap();
    let row = client.query_one("select paid::bigint from orders", &[]).await.unwrap();
    row.get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_kill_between_row_and_effect_leaves_neither() {
    let schema = unique("kill");
    let client = shop(&schema).await;
    tokio::task::block_in_place(|| {
        kill_between(&schema, || tokio::runtime::Handle::current().block_on(paid(&client)));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_killed_worker_loses_no_job() {
    let schema = unique("kill");
    let mut client = shop(&schema).await;
    let transaction = client.transaction().await.unwrap();
    postgres_queue().enqueue(&transaction, &delivery(), NOW).await.unwrap();
    transaction.commit().await.unwrap();
    tokio::task::block_in_place(|| {
        kill_worker(&schema, || tokio::runtime::Handle::current().block_on(paid(&client)));
    });
    assert!(matches!(
        postgres_queue().work_one(&mut client, NOW, async |_, _| Ok::<(), String>(())).await,
        Ok(WorkOutcome::Idle)
    ));
}
