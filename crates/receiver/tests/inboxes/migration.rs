//! Tables of a version that kept places by key, made by its own schema, become those of this version.

use crate::support::{self, NOW, event, unique};
use railpost_receiver::postgres::{self, PostgresInbox, PostgresQueue};
use railpost_receiver::sqlite::{self, SqliteInbox, SqliteQueue};
use railpost_receiver::wire::Received;
use railpost_receiver::work::{WorkOutcome, WorkPolicy};
use railpost_receiver::{Delivery, InboxConfig, NotedGap, Verdict};

/// What that version wrote: an applied event, its key's place, a noted gap, a queued event of the key.
const ROWS: &str = r#"
    insert into railpost_inbox (inbox, event_id, applied_at) values ('orders', 'a6', 1767225600);
    insert into railpost_lanes (inbox, key, applied, changed_at) values ('orders', 'A', 6, 1767225600);
    insert into railpost_gaps (inbox, key, applied, seq, noted_at) values ('orders', 'A', 2, 5, 1767225600);
    insert into railpost_work (inbox, lane, due_at, head, body) values ('orders', 'A', 1767225600,
        '{"id":"a6","key":"A","seq":6,"attempt":1,"replay":false,"timestamp":1767225600,"headers":[]}', '{}');
"#;

fn noted() -> NotedGap {
    let key = Some("A".to_owned());
    NotedGap { line: String::new(), key, applied: 2, seq: 5, noted_at: NOW }
}

/// The known event again, now in a line, and the first events of that line: the place of the key says
/// nothing about them.
fn offered() -> [(Received, Verdict); 3] {
    let duplicate = event("a6", Some(("A", 1)));
    [
        (duplicate, Verdict::Duplicate),
        (event("a7", Some(("A", 2))), Verdict::Fresh),
        (event("b1", Some(("B", 1))), Verdict::Fresh),
    ]
}

fn delivery(received: Received) -> Delivery {
    Delivery { received, headers: vec![], body: vec![] }
}

/// The queued event is applied before those of the new line of its key.
const WORKED: [&str; 3] = ["a6", "a7", "b1"];

#[test]
fn on_sqlite_places_by_key_go_and_ids_gaps_and_queued_events_stay() {
    let mut database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(include_str!("places_by_key/sqlite.sql")).unwrap();
    database.execute_batch(&ROWS.replace(", '{}')", ", x'7b7d')")).unwrap();
    for _ in 0..2 {
        sqlite::create_tables(&database).unwrap();
    }
    let inbox = SqliteInbox::new(InboxConfig::named("orders"));
    assert_eq!(inbox.gaps(&database).unwrap(), [noted()]);
    let queue = SqliteQueue::new(inbox, WorkPolicy::default());
    for (received, expected) in offered() {
        let transaction = database.transaction().unwrap();
        let verdict = queue.enqueue(&transaction, &delivery(received), NOW).unwrap();
        assert_eq!(verdict, Some(expected));
        transaction.commit().unwrap();
    }
    for id in WORKED {
        let worked = queue.work_one(&mut database, NOW, |_, _| Ok::<(), String>(()));
        assert_eq!(worked.unwrap(), WorkOutcome::Done(id.parse().unwrap()));
    }
}

#[test]
fn on_sqlite_tables_are_created_within_a_transaction_too() {
    let mut database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(include_str!("places_by_key/sqlite.sql")).unwrap();
    let transaction = database.transaction().unwrap();
    sqlite::create_tables(&transaction).unwrap();
    transaction.rollback().unwrap();
    assert!(database.table_exists(None, "railpost_lanes").unwrap(), "it went back with the rest");
}

#[tokio::test]
async fn on_postgres_places_by_key_go_and_ids_gaps_and_queued_events_stay() {
    let mut client = support::postgres(&unique("places_by_key")).await;
    client.batch_execute(include_str!("places_by_key/postgres.sql")).await.unwrap();
    client.batch_execute(ROWS).await.unwrap();
    for _ in 0..2 {
        postgres::create_tables(&client).await.unwrap();
    }
    let inbox = PostgresInbox::new(InboxConfig::named("orders"));
    assert_eq!(inbox.gaps(&client).await.unwrap(), [noted()]);
    let queue = PostgresQueue::new(inbox, WorkPolicy::default());
    for (received, expected) in offered() {
        let transaction = client.transaction().await.unwrap();
        let verdict = queue.enqueue(&transaction, &delivery(received), NOW).await.unwrap();
        assert_eq!(verdict, Some(expected));
        transaction.commit().await.unwrap();
    }
    for id in WORKED {
        let worked = queue.work_one(&mut client, NOW, async |_, _| Ok::<(), String>(()));
        assert_eq!(worked.await.unwrap(), WorkOutcome::Done(id.parse().unwrap()));
    }
}
