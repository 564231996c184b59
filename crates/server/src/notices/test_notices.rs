//! Notices of tests: they show that people are reached.

use railpost_alerts::{NoticeContext, NoticeStatus, TEST_SUBJECT, TestNotice};
use railpost_api::TestReach;
use railpost_store::{AcceptBatch, AcceptedBy, Event, EventOutcome, StoreError};
use railpost_wire::ContentType;

use super::Notices;
use super::managed::reserved_tenant;
use super::types::SCHEMA_VERSION;

impl Notices {
    /// Publishes the notice that fires and the one that resolves it, in one commit.
    pub(crate) async fn publish_test(
        &self,
        test: &TestNotice<'_>,
    ) -> Result<TestReach, StoreError> {
        let statuses = [NoticeStatus::Fired, NoticeStatus::Resolved];
        let batch = AcceptBatch {
            tenant: reserved_tenant(),
            events: statuses.map(|status| event(test, status, &self.context)).into(),
            accepted_by: Some(AcceptedBy::Server),
            idempotency: None,
        };
        let receipts = self.app.dispatcher.accept(batch).await?;
        let reached = |index: usize| {
            let outcome = receipts.get(index).map(EventOutcome::from);
            outcome.and_then(|outcome| outcome.deliveries).unwrap_or_default()
        };
        Ok(TestReach { fired: reached(0), resolved: reached(1) })
    }
}

fn event(test: &TestNotice<'_>, status: NoticeStatus, context: &NoticeContext) -> Event {
    let notice = test.notice(status, context);
    Event {
        id: format!("{}:{}", test.id, status.as_str()).parse().expect("it is an event id"),
        event_type: test.notice_type(status).parse().expect("it is an event type"),
        key: Some(TEST_SUBJECT.parse().expect("it is a key")),
        payload: serde_json::to_vec(&notice).expect("a notice is JSON").into(),
        content_type: ContentType::JSON,
        schema_version: Some(SCHEMA_VERSION),
        time: test.at,
        traceparent: None,
        cloudevent: None,
    }
}
