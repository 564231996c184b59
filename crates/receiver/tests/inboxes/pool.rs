//! The pool: many requests, few connections.

use crate::support::{self, NOW, event, unique};
use railpost_receiver::postgres::{
    Pool, PostgresInbox, PostgresIntake, PostgresQueue, create_tables,
};
use railpost_receiver::tower::Intake;
use railpost_receiver::work::WorkPolicy;
use railpost_receiver::{Delivery, InboxConfig, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

async fn schema_with_tables() -> (String, tokio_postgres::Client) {
    let schema = unique("pool");
    let client = support::postgres(&schema).await;
    create_tables(&client).await.unwrap();
    (schema, client)
}

fn delivery(id: &str) -> Delivery {
    Delivery { received: event(id, None), headers: vec![], body: vec![] }
}

fn intake(pool: &Pool, backlog_max: u32) -> PostgresIntake {
    let inbox = PostgresInbox::new(InboxConfig::named("orders"));
    let policy = WorkPolicy { backlog_max, ..WorkPolicy::default() };
    PostgresIntake::new(PostgresQueue::new(inbox, policy), pool.clone())
}

#[tokio::test]
async fn many_requests_share_few_connections() {
    let (schema, client) = schema_with_tables().await;
    let opened = Arc::new(AtomicU32::new(0));
    let counted = opened.clone();
    let pool = Pool::new(3, move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let schema = schema.clone();
        async move { Ok(support::postgres(&schema).await) }
    });
    let intake = intake(&pool, 100);
    // Each event comes twice, all at once.
    let tasks = (0..40).map(|number| {
        let intake = intake.clone();
        tokio::spawn(async move { intake.take(delivery(&format!("{}", number / 2)), NOW).await })
    });
    let mut fresh = 0;
    for task in tasks.collect::<Vec<_>>() {
        let verdict = task.await.unwrap().unwrap().unwrap();
        assert!(matches!(verdict, Verdict::Fresh | Verdict::Duplicate), "{verdict:?}");
        fresh += u32::from(verdict.applies());
    }
    let row = client.query_one("select count(*) from railpost_work", &[]).await.unwrap();
    assert_eq!((fresh, row.get::<_, i64>(0)), (20, 20));
    assert_eq!(opened.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_full_queue_leaves_the_event_to_the_sender() {
    let (schema, client) = schema_with_tables().await;
    let intake = intake(&support::pool(1, &schema), 1);
    for (id, verdict) in
        [("1", Some(Verdict::Fresh)), ("2", None), ("1", Some(Verdict::Duplicate)), ("2", None)]
    {
        assert_eq!(intake.take(delivery(id), NOW).await.unwrap(), verdict, "{id}");
    }
    let row = client.query_one("select string_agg(event_id, ' ') from railpost_inbox", &[]).await;
    assert_eq!(row.unwrap().get::<_, String>(0), "1");
}

#[tokio::test]
async fn a_connection_that_ended_is_replaced() {
    let (_, client) = schema_with_tables().await;
    let (ended, mut endings) = mpsc::unbounded_channel();
    let pool = Pool::new(1, move || {
        let ended = ended.clone();
        async move {
            let url = support::postgres_url();
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(async move { ended.send(connection.await.is_err()) });
            Ok(client)
        }
    });
    let backend = async || {
        let mut session = pool.get().await.unwrap();
        let row = session.client().query_one("select pg_backend_pid()", &[]).await.unwrap();
        row.get::<_, i32>(0)
    };
    let first = backend().await;
    assert_eq!(backend().await, first, "it is kept");
    client.execute("select pg_terminate_backend($1)", &[&first]).await.unwrap();
    assert_eq!(endings.recv().await, Some(true));
    assert_ne!(backend().await, first);
}

#[tokio::test]
async fn a_request_is_told_why_there_is_no_connection() {
    let pool = Pool::new(1, || async { Err("the server is down".into()) });
    for _ in 0..2 {
        let error = pool.get().await.unwrap_err().to_string();
        assert_eq!(error, "no connection could be opened: the server is down");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_wait_for_ever() {
    let pool = Pool::new(1, std::future::pending);
    let (one, two) = tokio::join!(pool.get(), pool.get());
    for waited in [one, two] {
        let error = waited.unwrap_err().to_string();
        assert_eq!(error, "no connection was to be had within 5s");
    }
}
