use crate::suite::{InboxUnderTest, follows_the_rules, remembers_a_gap_without_a_commit};
use crate::support::{NOW, event, redis_url, unique};
use ::redis::aio::MultiplexedConnection;
use railpost_receiver::redis::RedisInbox;
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{InboxConfig, NotedGap, OnGap, Policy, Verdict};

type Inbox = RedisInbox<MultiplexedConnection>;

async fn connection() -> MultiplexedConnection {
    let client = ::redis::Client::open(redis_url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn inbox(policy: Policy) -> Inbox {
    let config = InboxConfig { policy, ..InboxConfig::named(&unique("inbox")) };
    RedisInbox::new(config, connection().await)
}

impl InboxUnderTest for Inbox {
    async fn applied(&mut self, line: &LineId) -> Option<Seq> {
        RedisInbox::applied(self, line).await.unwrap()
    }

    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict {
        let ticket = self.begin(received, now).await.unwrap();
        let verdict = ticket.verdict();
        if succeeds {
            self.done(ticket, now).await.unwrap();
        } else {
            self.undo(ticket).await.unwrap();
        }
        verdict
    }
}

#[tokio::test]
async fn the_redis_inbox_follows_the_rules() {
    follows_the_rules(inbox).await;
    remembers_a_gap_without_a_commit(inbox(Policy::default()).await).await;
}

#[tokio::test]
async fn while_an_event_is_applied_its_copies_and_its_line_are_held_off() {
    let inbox = inbox(Policy::default()).await;
    let (first, second) = (event("1", Some(("A", 1))), event("2", Some(("A", 2))));
    let ticket = inbox.begin(&first, NOW).await.unwrap();
    assert_eq!(inbox.begin(&first, NOW).await.unwrap().verdict(), Verdict::Busy);
    assert_eq!(inbox.begin(&second, NOW).await.unwrap().verdict(), Verdict::Busy);
    let same_key = Received { line: Some("A-2".parse().unwrap()), ..event("4", Some(("A", 1))) };
    let other_line = inbox.begin(&same_key, NOW).await.unwrap();
    assert_eq!(other_line.verdict(), Verdict::Fresh, "another line");
    inbox.done(ticket, NOW).await.unwrap();
    assert_eq!(inbox.begin(&second, NOW).await.unwrap().verdict(), Verdict::Fresh);
}

#[tokio::test]
async fn an_accepted_gap_is_noted() {
    let inbox = inbox(Policy { on_gap: OnGap::Accept, ..Policy::default() }).await;
    for (id, seq) in [("3", 3), ("4", 4), ("6", 6)] {
        let ticket = inbox.begin(&event(id, Some(("A b", seq))), NOW).await.unwrap();
        inbox.done(ticket, NOW).await.unwrap();
    }
    let gap = |applied, seq| {
        let (line, key) = ("A%20b".to_owned(), Some("A b".to_owned()));
        NotedGap { line, key, applied, seq, noted_at: NOW }
    };
    assert_eq!(inbox.gaps().await.unwrap(), [gap(4, 6), gap(0, 3)], "latest first");
}

#[tokio::test]
async fn everything_it_writes_has_a_time_to_live() {
    let name = unique("ttl");
    let mut connection = connection().await;
    let inbox = RedisInbox::new(InboxConfig::named(&name), connection.clone());
    let ticket = inbox.begin(&event("1", Some(("A", 1))), NOW).await.unwrap();
    inbox.done(ticket, NOW).await.unwrap();
    let ticket = inbox.begin(&event("2", Some(("A", 2))), NOW).await.unwrap();
    assert_eq!(ticket.verdict(), Verdict::Fresh);
    let gap = inbox.begin(&event("3", Some(("B", 3))), NOW).await.unwrap();
    assert!(!gap.verdict().applies());
    for (key, most) in [
        ("id:1", 30 * 86_400),
        ("line:A", 360 * 86_400),
        ("gap:B", 3 * 86_400),
        ("claim:id:2", 60),
        ("claim:line:A", 60),
    ] {
        let ttl: i64 = ::redis::cmd("TTL")
            .arg(format!("{name}:{key}"))
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!((1..=most).contains(&ttl), "{key} lives {ttl} s");
    }
}
