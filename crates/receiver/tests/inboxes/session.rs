//! Sessions on PostgreSQL: the same rules, and what becomes of a transaction that nobody ends.

use crate::suite::{InboxUnderTest, follows_the_rules, remembers_a_gap_without_a_commit};
use crate::support::{self, NOW, event, unique};
use railpost_receiver::postgres::{PostgresInbox, Session, create_tables};
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{InboxConfig, Policy, Verdict};
use std::pin::pin;
use std::task::{Context, Waker};
use tokio_postgres::types::{ToSql, Type};

struct InSession {
    session: Session,
    inbox: PostgresInbox,
}

async fn in_session(policy: Policy) -> InSession {
    let client = support::postgres(&unique("session")).await;
    create_tables(&client).await.unwrap();
    let inbox = PostgresInbox::new(InboxConfig { policy, ..InboxConfig::named("orders") });
    InSession { session: Session::new(client), inbox }
}

impl InboxUnderTest for InSession {
    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict {
        let admission = self.session.begin(&self.inbox, received, now).await.unwrap();
        if succeeds { admission.commit().await.unwrap() } else { admission.verdict() }
    }

    async fn applied(&mut self, line: &LineId) -> Option<Seq> {
        self.inbox.applied(self.session.client(), line).await.unwrap()
    }
}

impl InSession {
    async fn text(&mut self, sql: &str) -> String {
        self.session.client().query_one(sql, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn a_session_follows_the_rules() {
    follows_the_rules(in_session).await;
    remembers_a_gap_without_a_commit(in_session(Policy::default()).await).await;
}

#[tokio::test]
async fn a_request_that_is_dropped_half_way_leaves_nothing() {
    let mut tested = in_session(Policy::default()).await;
    tested.take(&event("1", None)).await;
    let received = event("2", Some(("A", 1)));
    {
        let begin = pin!(tested.session.begin(&tested.inbox, &received, NOW));
        let polled = begin.poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "both statements are under way");
    }
    assert_eq!(tested.text("select string_agg(event_id, ' ') from railpost_inbox").await, "1");
    assert_eq!(tested.take(&received).await, Verdict::Fresh);
}

#[tokio::test]
async fn a_transaction_that_somebody_left_broken_fails_once() {
    let mut tested = in_session(Policy::default()).await;
    let received = event("1", Some(("A", 1)));
    tested.take(&event("0", None)).await;
    tested.session.client().batch_execute("begin; select 1 / 0").await.unwrap_err();
    assert!(tested.session.begin(&tested.inbox, &received, NOW).await.is_err());
    assert_eq!(tested.take(&received).await, Verdict::Fresh);
}

/// The inbox is query only where this setting is on: an event is not noted by itself if `begin` failed.
#[tokio::test]
async fn the_transaction_has_its_mark_and_nothing_else_has() {
    const MARK: &str = "select current_setting('transaction_deferrable')";
    let mut tested = in_session(Policy::default()).await;
    let admission = tested.session.begin(&tested.inbox, &event("1", None), NOW).await.unwrap();
    let row = admission.client().query_one(MARK, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "on");
    admission.commit().await.unwrap();
    assert_eq!(tested.text(MARK).await, "off");
}

#[tokio::test]
async fn a_last_statement_commits_with_the_event_or_not_at_all() {
    let mut tested = in_session(Policy::default()).await;
    let sql = "create table applied (id text not null check (id <> 'refused'))";
    tested.session.client().batch_execute(sql).await.unwrap();
    let insert = "insert into applied values ($1)";
    let (good, refused, unreadable) = (Some("good"), Some("refused"), 7i32);
    let received = event("1", Some(("A", 1)));
    let values: [(&(dyn ToSql + Sync), bool); 4] =
        [(&unreadable, false), (&refused, false), (&None::<&str>, false), (&good, true)];
    for (value, succeeds) in values {
        let admission = tested.session.begin(&tested.inbox, &received, NOW).await.unwrap();
        assert_eq!(admission.verdict(), Verdict::Fresh, "{value:?}");
        let committed = admission.commit_with(insert, &[(value, Type::TEXT)]).await;
        assert_eq!(committed.ok(), succeeds.then_some(1), "{value:?}");
    }
    assert_eq!(tested.text("select string_agg(id, ' ') from applied").await, "good");
    assert_eq!(tested.take(&received).await, Verdict::Duplicate);
}
