//! Publishing notices: through the lanes, or straight to the endpoints of the file while the store cannot be written.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use railpost_alerts::{
    Notice, NoticeContext, NoticeStatus, dedup_key, notice, notice_key, notice_type,
};
use railpost_api::App;
use railpost_dispatch::Probe;
use railpost_engine::{AttemptResult, Time};
use railpost_store::{
    AcceptBatch, AcceptedBy, Alert, Event, Replay, StoreError, is_reserved_tenant, wants,
};
use railpost_telemetry::{Level, Value};
use railpost_wire::limits::KEY_LEN_MAX;
use railpost_wire::{ContentType, EventId, Key, TenantId};
use serde_json::json;
use tokio::sync::Mutex;

use crate::alerts::Publish;

use super::managed::{ManagedEndpoint, reserved_tenant};
use super::types::{REPLAY_FINISHED, SCHEMA_VERSION};

/// Publishes notices.
pub(crate) struct Notices {
    pub(super) app: Arc<App>,
    endpoints: Vec<ManagedEndpoint>,
    pub(super) context: NoticeContext,
    /// The notice that was last sent past the lanes: each is sent so once.
    sent_directly: Mutex<Option<EventId>>,
}

impl Notices {
    /// With the endpoints of the file.
    pub(crate) fn new(
        app: Arc<App>,
        endpoints: Vec<ManagedEndpoint>,
        context: NoticeContext,
    ) -> Self {
        Self { app, endpoints, context, sent_directly: Mutex::default() }
    }

    /// Publishes that a replay has ended. A dry run changes nothing, and nobody needs to hear of a replay of notices.
    pub(crate) async fn replay_finished(&self, replay: &Replay) -> Result<(), StoreError> {
        if replay.dry_run || is_reserved_tenant(&replay.tenant) {
            return Ok(());
        }
        let event = replay_finished(replay, &self.context);
        self.accept(reserved_tenant(), event.clone()).await?;
        self.accept(replay.tenant.clone(), event).await
    }

    /// Only a store in trouble is an error. A tenant that does not take the notice must not keep others from theirs.
    async fn accept(&self, tenant: TenantId, event: Event) -> Result<(), StoreError> {
        let (id, accepted_by) = (event.id.clone(), Some(AcceptedBy::Server));
        let batch = AcceptBatch {
            tenant: tenant.clone(),
            events: vec![event],
            accepted_by,
            idempotency: None,
        };
        match self.app.dispatcher.accept(batch).await {
            Ok(_) => Ok(()),
            Err(
                problem @ (StoreError::NotFound(_)
                | StoreError::Conflict { .. }
                | StoreError::BacklogFull { .. }
                | StoreError::Invalid { .. }),
            ) => {
                let fields = [
                    ("event_id", Value::Display(&id)),
                    ("tenant", Value::Display(&tenant)),
                    ("problem", Value::Display(&problem)),
                ];
                self.app.telemetry.log.line(Level::Warn, "notice_dropped", &fields);
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    async fn send_to(&self, endpoint: &ManagedEndpoint, event: &Event) {
        let probe =
            Probe { endpoint: endpoint.id, tenant: reserved_tenant(), event: event.clone() };
        let result = match self.app.dispatcher.probe(probe).await {
            Ok(detail) => match detail.result {
                AttemptResult::Response { status, .. } => format!("status {status}"),
                AttemptResult::Failed(failure) => format!("{failure:?}"),
            },
            Err(refused) => refused.to_string(),
        };
        let fields = [
            ("event_id", Value::Display(&event.id)),
            ("endpoint", Value::Display(&endpoint.id)),
            ("section", Value::Text(&endpoint.section)),
            ("result", Value::Text(&result)),
        ];
        self.app.telemetry.log.line(Level::Warn, "notice_sent_directly", &fields);
    }
}

#[async_trait]
impl Publish for Notices {
    /// Publishes that an alert fired, or that it was resolved: to the reserved tenant and, if it concerns one, to its
    /// tenant. Every byte comes from the record, so the same notice again is a duplicate, which changes nothing.
    async fn publish(&self, alert: &Alert, status: NoticeStatus) -> Result<(), StoreError> {
        let Some(notice) = notice(alert, status, &self.context) else { return Ok(()) };
        let Some(event) = alert_event(alert, &notice) else { return Ok(()) };
        self.accept(reserved_tenant(), event).await?;
        let Some(tenant) = alert.tenant.clone().filter(|tenant| !is_reserved_tenant(tenant)) else {
            return Ok(());
        };
        // Where to look is the operator's.
        let notice = Notice { links: Vec::new(), ..notice };
        match alert_event(alert, &notice) {
            Some(event) => self.accept(tenant, event).await,
            None => Ok(()),
        }
    }

    /// Sends the notice of an alert straight to the endpoints of the file that want it, once each: what cannot be
    /// stored cannot wait in a lane. Failures are logged.
    async fn send_directly(&self, alert: &Alert, status: NoticeStatus) {
        let notice = notice(alert, status, &self.context);
        let Some(event) = notice.and_then(|notice| alert_event(alert, &notice)) else { return };
        let last = self.sent_directly.lock().await.replace(event.id.clone());
        if last.as_ref() == Some(&event.id) {
            return;
        }
        let wanting = |endpoint: &&ManagedEndpoint| wants(&endpoint.filters, &event.event_type);
        let sending = self.endpoints.iter().filter(wanting);
        join_all(sending.map(|endpoint| self.send_to(endpoint, &event))).await;
    }
}

/// The event that a notice of an alert is; nothing if its rule is not known here.
fn alert_event(alert: &Alert, notice: &Notice) -> Option<Event> {
    let id = format!("{}:{}", alert.id, notice.status.as_str());
    Some(Event {
        id: id.parse().expect("it is an event id"),
        event_type: notice_type(alert, notice.status)?.parse().expect("it is an event type"),
        key: key(notice_key(alert)),
        payload: serde_json::to_vec(notice).expect("a notice is JSON").into(),
        content_type: ContentType::JSON,
        schema_version: Some(SCHEMA_VERSION),
        time: notice.at.0,
        traceparent: None,
        cloudevent: None,
    })
}

/// The beginning of the text that a key can hold.
fn key(text: &str) -> Option<Key> {
    text[..text.floor_char_boundary(KEY_LEN_MAX)].parse().ok()
}

fn replay_finished(replay: &Replay, context: &NoticeContext) -> Event {
    let Replay { id, tenant, progress, .. } = replay;
    let at = replay.finished_at.unwrap_or(replay.created_at);
    let outcome = match &replay.problem {
        Some(problem) => format!("failed: {problem}. Before that"),
        None => "finished".to_owned(),
    };
    let payload = json!({
        "notice": "replay_finished",
        "status": "told",
        "severity": if replay.problem.is_some() { "warning" } else { "info" },
        "summary": format!(
            "Replay {id} of tenant {tenant} {outcome}: {} done, {} refused, of {} found.",
            progress.done, progress.refused, progress.matched,
        ),
        "dedup_key": dedup_key(context, "replay_finished", Some(tenant), &id.to_string()),
        "tenant": tenant,
        "subject": id,
        "since": Time::from(replay.created_at),
        "at": Time::from(at),
        "details": {
            "matched": progress.matched,
            "done": progress.done,
            "refused": progress.refused,
            "problem": replay.problem,
        },
        "links": [{
            "href": format!("{}/dashboard/t/{tenant}/replays/{id}", context.public_url),
            "text": "Open",
        }],
        "test": false,
    });
    Event {
        id: format!("{id}:finished").parse().expect("it is an event id"),
        event_type: REPLAY_FINISHED.parse().expect("it is an event type"),
        key: Some(id.to_string().parse().expect("it is a key")),
        payload: payload.to_string().into(),
        content_type: ContentType::JSON,
        schema_version: Some(SCHEMA_VERSION),
        time: at,
        traceparent: None,
        cloudevent: None,
    }
}
