use crate::suite::{InboxUnderTest, follows_the_rules, remembers_a_gap_without_a_commit};
use crate::support::{self, DAY, NOW, event, unique};
use railpost_receiver::postgres::{PostgresInbox, Session, create_tables};
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{InboxConfig, NotedGap, OnGap, Policy, Start, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::Client;

struct Postgres {
    client: Client,
    inbox: PostgresInbox,
}

async fn postgres(policy: Policy) -> Postgres {
    let client = support::postgres(&unique("inbox")).await;
    create_tables(&client).await.unwrap();
    create_tables(&client).await.unwrap();
    let inbox = PostgresInbox::new(InboxConfig { policy, ..InboxConfig::named("orders") });
    Postgres { client, inbox }
}

impl InboxUnderTest for Postgres {
    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict {
        let transaction = self.client.transaction().await.unwrap();
        let verdict = self.inbox.admit(&transaction, received, now).await.unwrap();
        if succeeds { transaction.commit().await } else { transaction.rollback().await }.unwrap();
        verdict
    }

    async fn applied(&mut self, line: &LineId) -> Option<Seq> {
        self.inbox.applied(&self.client, line).await.unwrap()
    }
}

#[tokio::test]
async fn the_postgres_inbox_follows_the_rules() {
    follows_the_rules(postgres).await;
    remembers_a_gap_without_a_commit(postgres(Policy::default()).await).await;
}

#[tokio::test]
async fn a_line_that_begins_anywhere_has_no_gap() {
    let mut tested = postgres(Policy { start: Start::Anywhere, ..Policy::default() }).await;
    assert_eq!(tested.take(&event("7", Some(("A", 7)))).await, Verdict::Fresh);
    assert_eq!(tested.inbox.gaps(&tested.client).await.unwrap(), []);
}

#[tokio::test]
async fn pruning_keeps_what_is_young() {
    let mut tested = postgres(Policy { on_gap: OnGap::Accept, ..Policy::default() }).await;
    tested.take(&event("1", None)).await;
    tested.take(&event("5", Some(("A\0", 5)))).await;
    let gaps = tested.inbox.gaps(&tested.client).await.unwrap();
    let expected = NotedGap {
        line: "A%00".to_owned(),
        key: Some("A\0".to_owned()),
        applied: 0,
        seq: 5,
        noted_at: NOW,
    };
    assert_eq!(gaps, [expected]);
    assert_eq!(tested.inbox.prune(&tested.client, NOW + 30 * DAY).await.unwrap(), 0);
    assert_eq!(tested.inbox.prune(&tested.client, NOW + 31 * DAY).await.unwrap(), 3);
    assert!(matches!(tested.take(&event("5", Some(("A\0", 5)))).await, Verdict::Stale { .. }));
}

/// Many connections offer the same events again and again, in any order: each is applied once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_line_are_serialised_whoever_brings_them() {
    const EVENTS: u64 = 40;
    let schema = unique("race");
    let client = support::postgres(&schema).await;
    create_tables(&client).await.unwrap();
    let sql = "create table applied (position serial, seq bigint)";
    client.batch_execute(sql).await.unwrap();
    let acknowledged = Arc::new(AtomicU32::new(0));
    let workers = (0..6).map(|seed| {
        let (schema, acknowledged) = (schema.clone(), acknowledged.clone());
        tokio::spawn(async move {
            let mut session = Session::new(support::postgres(&schema).await);
            let inbox = PostgresInbox::new(InboxConfig::named("orders"));
            let mut dice = fastrand::Rng::with_seed(seed);
            while acknowledged.load(Ordering::SeqCst) < EVENTS as u32 {
                let front = u64::from(acknowledged.load(Ordering::SeqCst));
                let seq = dice.u64(front.saturating_sub(2)..front + 3).clamp(1, EVENTS);
                let received = event(&format!("e{seq}"), Some(("A", seq)));
                let sql = "insert into applied (seq) values ($1)";
                let seq = seq as i64;
                let verdict = if dice.bool() {
                    let transaction = session.client().transaction().await.unwrap();
                    let verdict = inbox.admit(&transaction, &received, NOW).await.unwrap();
                    if verdict.applies() {
                        transaction.execute(sql, &[&seq]).await.unwrap();
                    }
                    transaction.commit().await.unwrap();
                    verdict
                } else {
                    let admission = session.begin(&inbox, &received, NOW).await.unwrap();
                    if admission.verdict().applies() {
                        admission.client().execute(sql, &[&seq]).await.unwrap();
                    }
                    admission.commit().await.unwrap()
                };
                if verdict.applies() {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let rows = client.query("select seq from applied order by position", &[]).await.unwrap();
    let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(seqs, (1..=EVENTS as i64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_copy_in_another_line_waits_too_and_moves_its_own_line_on() {
    let schema = unique("lines");
    let (mut one, mut two) = (support::postgres(&schema).await, support::postgres(&schema).await);
    create_tables(&one).await.unwrap();
    let inbox = PostgresInbox::new(InboxConfig::named("orders"));
    let first = one.transaction().await.unwrap();
    let received = event("1", Some(("A", 1)));
    assert_eq!(inbox.admit(&first, &received, NOW).await.unwrap(), Verdict::Fresh);
    let second = two.transaction().await.unwrap();
    let received = event("1", Some(("B", 1)));
    let copy = inbox.admit(&second, &received, NOW);
    let (verdict, committed) = tokio::join!(biased; copy, first.commit());
    committed.unwrap();
    assert_eq!(verdict.unwrap(), Verdict::Duplicate);
    second.commit().await.unwrap();
    for line in ["A", "B"] {
        let line = line.parse().unwrap();
        assert_eq!(inbox.applied(&one, &line).await.unwrap(), Some(Seq::FIRST));
    }
}

#[tokio::test]
async fn a_copy_waits_for_the_transaction_that_applies_the_first() {
    let schema = unique("copy");
    let (mut one, mut two) = (support::postgres(&schema).await, support::postgres(&schema).await);
    create_tables(&one).await.unwrap();
    for received in [event("1", None), event("2", Some(("A", 1))), event("3", Some(("A", 2)))] {
        let inbox = PostgresInbox::new(InboxConfig::named("orders"));
        let first = one.transaction().await.unwrap();
        assert_eq!(inbox.admit(&first, &received, NOW).await.unwrap(), Verdict::Fresh);
        let second = two.transaction().await.unwrap();
        let copy = inbox.admit(&second, &received, NOW);
        let (verdict, committed) = tokio::join!(biased; copy, first.commit());
        committed.unwrap();
        let verdict = verdict.unwrap();
        assert!(matches!(verdict, Verdict::Duplicate | Verdict::Stale { .. }), "{verdict:?}");
        second.commit().await.unwrap();
    }
}
