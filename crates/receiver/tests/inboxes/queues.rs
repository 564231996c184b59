//! The SQL queues: order per line and key, retries, dead letters, and bounds. Each story is told on both.

use crate::support::{self, NOW, event, unique};
use railpost_receiver::postgres::{self, PostgresInbox, PostgresQueue};
use railpost_receiver::sqlite::{self, SqliteInbox, SqliteQueue};
use railpost_receiver::wire::Received;
use railpost_receiver::work::{DeadLetter, Job, WorkOutcome, WorkPolicy};
use railpost_receiver::{Delivery, InboxConfig, Verdict};
use tokio_postgres::Transaction;

fn delivery(id: &str, lane: Option<(&str, u64)>) -> Delivery {
    let headers = vec![("content-type".to_owned(), b"text/plain\xff".to_vec())];
    Delivery { received: event(id, lane), headers, body: vec![0, 159, 146, 150] }
}

fn policy() -> WorkPolicy {
    WorkPolicy { tries_max: 2, backlog_max: 4, ..WorkPolicy::default() }
}

/// A queue under test, with an effect that notes what it applied, or fails.
trait Queue {
    async fn enqueue(&mut self, delivery: &Delivery) -> Option<Verdict>;
    async fn work(&mut self, now: i64, succeeds: bool) -> WorkOutcome;
    async fn dead(&mut self) -> Vec<DeadLetter>;
    async fn retry(&mut self, position: i64) -> bool;
    async fn discard(&mut self, position: i64) -> bool;
    async fn applied(&mut self) -> Vec<String>;
}

struct OnSqlite(rusqlite::Connection, SqliteQueue);

impl OnSqlite {
    fn new() -> Self {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        sqlite::create_tables(&database).unwrap();
        database.execute_batch("create table applied (id text)").unwrap();
        let inbox = SqliteInbox::new(InboxConfig::named("orders"));
        Self(database, SqliteQueue::new(inbox, policy()))
    }
}

impl Queue for OnSqlite {
    async fn enqueue(&mut self, delivery: &Delivery) -> Option<Verdict> {
        let transaction = self.0.transaction().unwrap();
        let verdict = self.1.enqueue(&transaction, delivery, NOW).unwrap();
        if verdict.is_some() { transaction.commit() } else { transaction.rollback() }.unwrap();
        verdict
    }

    async fn work(&mut self, now: i64, succeeds: bool) -> WorkOutcome {
        let worked = self.1.work_one(&mut self.0, now, |database, job| {
            let id = job.delivery.received.event_id.to_string();
            database.execute("insert into applied values (?1)", [&id]).unwrap();
            if succeeds { Ok(()) } else { Err(format!("no luck\0 with {id}")) }
        });
        worked.unwrap()
    }

    async fn dead(&mut self) -> Vec<DeadLetter> {
        self.1.dead_letters(&self.0).unwrap()
    }

    async fn retry(&mut self, position: i64) -> bool {
        self.1.retry(&self.0, position, NOW).unwrap()
    }

    async fn discard(&mut self, position: i64) -> bool {
        self.1.discard(&self.0, position).unwrap()
    }

    async fn applied(&mut self) -> Vec<String> {
        let mut statement = self.0.prepare("select id from applied").unwrap();
        let ids = statement.query_map([], |row| row.get(0)).unwrap();
        ids.map(Result::unwrap).collect()
    }
}

struct OnPostgres(tokio_postgres::Client, PostgresQueue);

impl OnPostgres {
    async fn new() -> Self {
        let client = support::postgres(&unique("queue")).await;
        postgres::create_tables(&client).await.unwrap();
        client.batch_execute("create table applied (at serial, id text)").await.unwrap();
        let inbox = PostgresInbox::new(InboxConfig::named("orders"));
        Self(client, PostgresQueue::new(inbox, policy()))
    }
}

impl Queue for OnPostgres {
    async fn enqueue(&mut self, delivery: &Delivery) -> Option<Verdict> {
        let transaction = self.0.transaction().await.unwrap();
        let verdict = self.1.enqueue(&transaction, delivery, NOW).await.unwrap();
        let kept = verdict.is_some();
        if kept { transaction.commit().await } else { transaction.rollback().await }.unwrap();
        verdict
    }

    async fn work(&mut self, now: i64, succeeds: bool) -> WorkOutcome {
        let worked = self.1.work_one(&mut self.0, now, async |transaction, job| {
            let id = job.delivery.received.event_id.to_string();
            let sql = "insert into applied (id) values ($1)";
            transaction.execute(sql, &[&id]).await.unwrap();
            if succeeds { Ok(()) } else { Err(format!("no luck\0 with {id}")) }
        });
        worked.await.unwrap()
    }

    async fn dead(&mut self) -> Vec<DeadLetter> {
        self.1.dead_letters(&self.0).await.unwrap()
    }

    async fn retry(&mut self, position: i64) -> bool {
        self.1.retry(&self.0, position, NOW).await.unwrap()
    }

    async fn discard(&mut self, position: i64) -> bool {
        self.1.discard(&self.0, position).await.unwrap()
    }

    async fn applied(&mut self) -> Vec<String> {
        let rows = self.0.query("select id from applied order by at", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

async fn queued_events_are_applied_once_and_in_order(mut queue: impl Queue) {
    let (first, second) = (delivery("a1", Some(("A", 1))), delivery("a2", Some(("A", 2))));
    for delivery in [&first, &second, &delivery("free", None)] {
        assert_eq!(queue.enqueue(delivery).await, Some(Verdict::Fresh));
    }
    assert_eq!(queue.enqueue(&first).await, Some(Verdict::Duplicate));
    for id in ["a1", "a2", "free"] {
        assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done(id.parse().unwrap()));
    }
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Idle);
    assert_eq!(queue.enqueue(&first).await, Some(Verdict::Duplicate), "also when it is done");
    assert_eq!(queue.applied().await, ["a1", "a2", "free"]);
}

async fn a_failing_job_waits_and_holds_its_key(mut queue: impl Queue) {
    let first = delivery("a1", Some(("A", 1)));
    queue.enqueue(&first).await;
    queue.enqueue(&delivery("a2", Some(("A", 2)))).await;
    queue.enqueue(&delivery("b1", Some(("B", 1)))).await;
    let failed = WorkOutcome::Failed { event_id: "a1".parse().unwrap(), at: NOW + 1 };
    assert_eq!(queue.work(NOW, false).await, failed);
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done("b1".parse().unwrap()));
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Idle, "a2 waits for a1");
    assert_eq!(queue.work(NOW + 1, false).await, WorkOutcome::Dead("a1".parse().unwrap()));
    assert_eq!(queue.work(NOW + 9, true).await, WorkOutcome::Idle, "a dead letter holds its key");
    let dead = queue.dead().await;
    assert_eq!((dead.len(), dead[0].error.as_str()), (1, "no luck with a1"));
    assert_eq!(dead[0].job.delivery, first, "byte for byte");
    assert!(queue.retry(dead[0].job.position).await);
    assert!(!queue.retry(dead[0].job.position).await, "it is a dead letter no more");
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done("a1".parse().unwrap()));
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done("a2".parse().unwrap()));
    assert_eq!(queue.applied().await, ["b1", "a1", "a2"], "failed tries left nothing");
}

async fn a_discarded_dead_letter_lets_its_key_go_on(mut queue: impl Queue) {
    queue.enqueue(&delivery("a1", Some(("A", 1)))).await;
    queue.enqueue(&delivery("a2", Some(("A", 2)))).await;
    queue.work(NOW, false).await;
    queue.work(NOW + 1, false).await;
    let position = queue.dead().await[0].job.position;
    assert!(queue.discard(position).await);
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done("a2".parse().unwrap()));
    assert!(!queue.discard(position).await);
}

/// A key begins a new line while events of the old one are still queued: those go first.
async fn a_new_line_of_a_key_waits_for_the_old_one(mut queue: impl Queue) {
    let in_line = |line: &str, id: &str| {
        let delivery = delivery(id, Some(("A", 1)));
        let received = Received { line: Some(line.parse().unwrap()), ..delivery.received };
        Delivery { received, ..delivery }
    };
    queue.enqueue(&in_line("old", "old")).await;
    queue.enqueue(&in_line("new", "new")).await;
    let failed = WorkOutcome::Failed { event_id: "old".parse().unwrap(), at: NOW + 1 };
    assert_eq!(queue.work(NOW, false).await, failed);
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Idle, "the new one waits");
    for id in ["old", "new"] {
        assert_eq!(queue.work(NOW + 1, true).await, WorkOutcome::Done(id.parse().unwrap()));
    }
}

/// An endpoint with one order for everything has one line for all keys.
async fn events_of_one_line_wait_for_each_other_whatever_their_keys(mut queue: impl Queue) {
    let with_key = |key: Option<&str>, seq: u64| {
        let delivery = delivery(&format!("e{seq}"), Some(("line", seq)));
        let key = key.map(|key| key.parse().unwrap());
        Delivery { received: Received { key, ..delivery.received }, ..delivery }
    };
    for (key, seq) in [(Some("A"), 1), (Some("B"), 2), (None, 3)] {
        assert_eq!(queue.enqueue(&with_key(key, seq)).await, Some(Verdict::Fresh));
    }
    let failed = WorkOutcome::Failed { event_id: "e1".parse().unwrap(), at: NOW + 1 };
    assert_eq!(queue.work(NOW, false).await, failed);
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Idle, "all of the line wait");
    for id in ["e1", "e2", "e3"] {
        assert_eq!(queue.work(NOW + 1, true).await, WorkOutcome::Done(id.parse().unwrap()));
    }
}

/// An endpoint without order sends keys, but no lines.
async fn events_without_a_line_do_not_wait_for_their_key(mut queue: impl Queue) {
    for id in ["1", "2"] {
        let delivery = delivery(id, Some(("A", 1)));
        let received = Received { line: None, seq: None, ..delivery.received };
        queue.enqueue(&Delivery { received, ..delivery }).await;
    }
    let failed = WorkOutcome::Failed { event_id: "1".parse().unwrap(), at: NOW + 1 };
    assert_eq!(queue.work(NOW, false).await, failed);
    assert_eq!(queue.work(NOW, true).await, WorkOutcome::Done("2".parse().unwrap()));
}

async fn a_full_queue_takes_nothing_and_remembers_nothing(mut queue: impl Queue) {
    for number in 0..4 {
        queue.enqueue(&delivery(&format!("{number}"), None)).await.unwrap();
    }
    let more = delivery("more", Some(("A", 1)));
    assert_eq!(queue.enqueue(&more).await, None);
    assert_eq!(queue.enqueue(&delivery("0", None)).await, Some(Verdict::Duplicate));
    queue.work(NOW, true).await;
    assert_eq!(queue.enqueue(&more).await, Some(Verdict::Fresh));
}

#[tokio::test]
async fn a_worker_runs_as_a_task_of_its_own() {
    let mut queue = OnPostgres::new().await;
    for (id, seq) in [("a1", 1), ("a2", 2)] {
        queue.enqueue(&delivery(id, Some(("A", seq)))).await;
    }
    let task = tokio::spawn(async move {
        let effect = async |transaction: &Transaction<'_>, job: &Job| {
            let id = job.delivery.received.event_id.to_string();
            transaction.execute("insert into applied (id) values ($1)", &[&id]).await.map(drop)
        };
        while queue.1.work_one(&mut queue.0, NOW, effect).await.unwrap() != WorkOutcome::Idle {}
        queue
    });
    assert_eq!(task.await.unwrap().applied().await, ["a1", "a2"]);
}

macro_rules! on_both {
    ($($story:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $story() {
                super::$story(super::OnSqlite::new()).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $story() {
                super::$story(super::OnPostgres::new().await).await;
            })*
        }
    };
}

on_both!(
    queued_events_are_applied_once_and_in_order,
    a_failing_job_waits_and_holds_its_key,
    a_discarded_dead_letter_lets_its_key_go_on,
    a_new_line_of_a_key_waits_for_the_old_one,
    events_of_one_line_wait_for_each_other_whatever_their_keys,
    events_without_a_line_do_not_wait_for_their_key,
    a_full_queue_takes_nothing_and_remembers_nothing,
);
