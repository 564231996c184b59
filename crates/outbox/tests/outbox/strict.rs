use crate::support::PostgresOutbox;
use railpost_outbox::{Event, tokio_postgres::emit};

fn strict(id: &str, key: &str) -> Event {
    Event::new("order.paid", "{}").id(id).key(key).strict().build().unwrap()
}

/// Without a key nothing is locked, with another key nothing is waited for, with the same key the second
/// waits.
#[tokio::test]
async fn a_strict_event_waits_for_the_commit_of_another_of_its_key() {
    let outbox = PostgresOutbox::create().await;
    let (mut first, mut second) = (outbox.connect().await, outbox.connect().await);
    let mut holder = first.transaction().await.unwrap();
    emit(&mut holder, &strict("first", "order-1")).await.unwrap();

    let mut waiter = second.transaction().await.unwrap();
    waiter.batch_execute("SET LOCAL lock_timeout = '50ms'").await.unwrap();
    emit(&mut waiter, &strict("other-key", "order-2")).await.unwrap();
    let refused = emit(&mut waiter, &strict("same-key", "order-1")).await.unwrap_err();
    let lock_timeout = &tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE;
    assert_eq!(refused.code(), Some(lock_timeout), "{refused}");
    waiter.rollback().await.unwrap();

    holder.commit().await.unwrap();
    let mut waiter = second.transaction().await.unwrap();
    emit(&mut waiter, &strict("second", "order-1")).await.unwrap();
    waiter.commit().await.unwrap();
    assert_eq!(outbox.ids().await, ["first", "second"]);
}
