//! Publishing notices: through the lanes, or straight to the endpoints of the file while the store cannot be written.

use std::sync::Arc;

use railpost_api::App;
use railpost_dispatch::Probe;
use railpost_engine::{AttemptResult, Time};
use railpost_store::{
    AcceptBatch, AcceptedBy, Event, Replay, StoreError, is_reserved_tenant, wants,
};
use railpost_telemetry::{Level, Value};
use railpost_wire::{ContentType, TenantId};
use serde_json::json;

use super::managed::{ManagedEndpoint, reserved_tenant};
use super::types::{REPLAY_FINISHED, SCHEMA_VERSION};

/// Publishes notices.
pub(crate) struct Notices {
    pub(super) app: Arc<App>,
    endpoints: Vec<ManagedEndpoint>,
    /// The URL by which people reach this server.
    public_url: String,
}

impl Notices {
    /// With the endpoints of the file.
    pub(crate) fn new(app: Arc<App>, endpoints: Vec<ManagedEndpoint>, public_url: &str) -> Self {
        Self { app, endpoints, public_url: public_url.to_owned() }
    }

    /// Publishes that a replay has ended. A dry run changes nothing, and a replay of notices is nobody's news.
    pub(crate) async fn replay_finished(&self, replay: &Replay) -> Result<(), StoreError> {
        if replay.dry_run || is_reserved_tenant(&replay.tenant) {
            return Ok(());
        }
        let event = replay_finished(replay, &self.public_url);
        let published = self.publish(&event, Some((&replay.tenant, event.clone()))).await;
        match published {
            // It ended before, was published, and a crash came before that was saved.
            Err(StoreError::Conflict { .. }) => Ok(()),
            other => other,
        }
    }

    /// Publishes an event to the reserved tenant and, if it concerns one, to that tenant as well. The same event
    /// again is a duplicate, which changes nothing.
    pub(crate) async fn publish(
        &self,
        event: &Event,
        of_tenant: Option<(&TenantId, Event)>,
    ) -> Result<(), StoreError> {
        self.accept(reserved_tenant(), event.clone()).await?;
        match of_tenant {
            Some((tenant, event)) => match self.accept(tenant.clone(), event).await {
                // The tenant may have been erased meanwhile: then nobody there wants to know.
                Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
                Err(error) => Err(error),
            },
            None => Ok(()),
        }
    }

    async fn accept(&self, tenant: TenantId, event: Event) -> Result<(), StoreError> {
        let (events, accepted_by) = (vec![event], Some(AcceptedBy::Server));
        let batch = AcceptBatch { tenant, events, accepted_by, idempotency: None };
        self.app.dispatcher.accept(batch).await.map(drop)
    }

    /// Sends a notice straight to the endpoints of the file that want it, once each: what cannot be stored cannot
    /// wait in a lane. Failures are logged.
    pub(crate) async fn send_directly(&self, event: &Event) {
        let wanting = |endpoint: &&ManagedEndpoint| wants(&endpoint.filters, &event.event_type);
        for endpoint in self.endpoints.iter().filter(wanting) {
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
}

fn replay_finished(replay: &Replay, public_url: &str) -> Event {
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
        "dedup_key": format!("railpost/{}/replay_finished/{tenant}/{id}", host_of(public_url)),
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
            "href": format!("{public_url}/dashboard/t/{tenant}/replays/{id}"),
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

/// The name of this server in keys of notices: the host by which it is reached.
fn host_of(public_url: &str) -> &str {
    let rest = public_url.split_once("://").map_or(public_url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}
