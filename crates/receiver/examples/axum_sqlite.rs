//! An axum service on SQLite: events are acknowledged once they are in the inbox, and a worker creates
//! and updates orders from there.
//!
//! `WEBHOOK_SECRET=whsec_… cargo run -p railpost-receiver --example axum_sqlite`;
//! `DATABASE` is `orders.db` unless it is set, and `LISTEN` is `127.0.0.1:8080`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a service talks to its operator")]

use axum::Router;
use railpost_receiver::request_verifier::{RequestVerifier, unix_now};
use railpost_receiver::sqlite::{SqliteInbox, SqliteQueue, create_tables};
use railpost_receiver::tower::{BoxError, IntakeService};
use railpost_receiver::work::{Job, WorkOutcome, WorkPolicy};
use railpost_receiver::{Delivery, InboxConfig, Receiver, Verdict};
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(serde::Deserialize)]
struct OrderEvent {
    order: String,
    status: String,
}

/// One connection takes in, another works; the bell saves the worker from waiting for its next look.
struct Shop {
    queue: SqliteQueue,
    intake: Mutex<Connection>,
    bell: Notify,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let secret = std::env::var("WEBHOOK_SECRET")?.parse()?;
    let path = std::env::var("DATABASE").unwrap_or("orders.db".to_owned());
    let mut worker = open(&path)?;
    let queue =
        SqliteQueue::new(SqliteInbox::new(InboxConfig::named("orders")), WorkPolicy::default());
    let shop = Arc::new(Shop { queue, intake: open(&path)?.into(), bell: Notify::new() });

    let verifier = RequestVerifier::new(Receiver::new(vec![secret], vec![]))
        .log(|problem| eprintln!("turned away: {problem}"));
    let taking = shop.clone();
    let intake = IntakeService::new(verifier, move |delivery: Delivery, now| {
        let shop = taking.clone();
        async move { tokio::task::spawn_blocking(move || take(&shop, &delivery, now)).await? }
    });
    tokio::spawn(async move { work(&shop, &mut worker).await });

    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}/hook", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().route_service("/hook", intake)).await?)
}

fn open(path: &str) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.pragma_update(None, "journal_mode", "wal")?;
    create_tables(&database)?;
    database
        .execute_batch("create table if not exists orders (id text primary key, status text)")?;
    Ok(database)
}

/// Durable when it returns: then the sender is told so.
fn take(shop: &Shop, delivery: &Delivery, now: i64) -> Result<Option<Verdict>, BoxError> {
    let mut database = shop.intake.lock().map_err(|poisoned| poisoned.to_string())?;
    let transaction = database.transaction()?;
    let verdict = shop.queue.enqueue(&transaction, delivery, now)?;
    if verdict.is_some() {
        transaction.commit()?;
        shop.bell.notify_one();
    }
    Ok(verdict)
}

async fn work(shop: &Shop, database: &mut Connection) {
    loop {
        match shop.queue.work_one(database, unix_now(), apply) {
            Ok(WorkOutcome::Idle) => {}
            Ok(worked) => {
                println!("{worked:?}");
                continue;
            }
            Err(problem) => eprintln!("the queue: {problem}"),
        }
        // Jobs that are to be tried again come due without a bell.
        let _ = tokio::time::timeout(Duration::from_secs(1), shop.bell.notified()).await;
    }
}

fn apply(database: &Connection, job: &Job) -> Result<(), BoxError> {
    let event: OrderEvent = job.delivery.json()?;
    let sql =
        "insert into orders values (?1, ?2) on conflict do update set status = excluded.status";
    database.execute(sql, [event.order, event.status])?;
    Ok(())
}
