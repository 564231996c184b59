//! What `railpost_emit` promises beside the row.

use crate::support::{PostgresOutbox, postgres_url};
use railpost_outbox::{Event, sql, tokio_postgres::emit};
use std::future::poll_fn;
use tokio::sync::mpsc::unbounded_channel;
use tokio_postgres::AsyncMessage;

fn strict(id: &str, key: &str) -> Event {
    Event::new("order.paid", "{}").id(id).key(key).strict().build().unwrap()
}

#[tokio::test]
async fn a_strict_event_waits_for_the_commit_of_another_of_its_key() {
    let outbox = PostgresOutbox::create().await;
    // Locks are those of the whole database, where other runs of this test may be.
    let (key, other_key) = (&outbox.schema, &format!("{}_other", outbox.schema));
    let (mut first, mut second) = (outbox.connect().await, outbox.connect().await);
    let mut holder = first.transaction().await.unwrap();
    emit(&mut holder, &strict("first", key)).await.unwrap();

    let mut waiter = second.transaction().await.unwrap();
    waiter.batch_execute("SET LOCAL lock_timeout = '50ms'").await.unwrap();
    emit(&mut waiter, &strict("other-key", other_key)).await.unwrap();
    let refused = emit(&mut waiter, &strict("same-key", key)).await.unwrap_err();
    let lock_timeout = &tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE;
    assert_eq!(refused.code(), Some(lock_timeout), "{refused}");
    waiter.rollback().await.unwrap();

    holder.commit().await.unwrap();
    let mut waiter = second.transaction().await.unwrap();
    emit(&mut waiter, &strict("second", key)).await.unwrap();
    waiter.commit().await.unwrap();
    assert_eq!(outbox.ids().await, ["first", "second"]);
}

#[tokio::test]
async fn an_application_needs_insert_alone_and_any_search_path_will_do() {
    let outbox = PostgresOutbox::create().await;
    let schema = &outbox.schema;
    let application = outbox.connect().await;
    let become_application = format!(
        "CREATE ROLE {schema}; GRANT USAGE ON SCHEMA {schema} TO {schema};
         GRANT INSERT ON railpost_outbox TO {schema}; SET ROLE {schema}; SET search_path = pg_catalog"
    );
    application.batch_execute(&become_application).await.unwrap();
    let emit = format!("SELECT {schema}.railpost_emit('order.paid', '{{}}', id => 'emitted')");
    application.batch_execute(&emit).await.unwrap();
    assert_eq!(outbox.ids().await, ["emitted"]);
}

#[tokio::test]
async fn the_trigger_notifies_once_at_each_commit_and_not_after_a_rollback() {
    let outbox = PostgresOutbox::create().await;
    let (listener, mut connection) =
        tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.unwrap();
    let (send, mut receive) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                send.send((notification.process_id(), notification.payload().to_owned())).unwrap();
            }
        }
    });
    listener.batch_execute(&format!("LISTEN {}", sql::NOTIFY_CHANNEL)).await.unwrap();

    for statements in [
        "BEGIN; SELECT railpost_emit('a', '1'); SELECT railpost_emit('a', '2'); COMMIT",
        "BEGIN; SELECT railpost_emit('a', '3'); ROLLBACK",
        "SELECT railpost_emit('a', '4')",
        "NOTIFY railpost_outbox, 'end'",
    ] {
        outbox.client.batch_execute(statements).await.unwrap();
    }

    let own: i32 = outbox.client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut payloads = Vec::new();
    while payloads.last().is_none_or(|payload| payload != "end") {
        let (process, payload) = receive.recv().await.unwrap();
        // Other tests notify the same channel.
        payloads.extend((process == own).then_some(payload));
    }
    assert_eq!(payloads, ["", "", "end"]);
}
