//! Reading events, and redelivering them.

use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, header};
use railpost_engine::Time;
use railpost_store::{
    AcceptedBy, Event, EventDetails, EventHead, EventQuery, RedeliverBatch, StateCounts,
    StoredEvent,
};
use railpost_wire::{ApiKeyId, ContentType, EndpointId, EventId, EventType, Key, TenantId};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::cloudevents::AttributesView;
use crate::answer::{Accepted, Json, Payload, RawResponse};
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::{JsonBody, NoBody};
use crate::call::{AuditAction, Ctx};
use crate::deliveries::{self, DeliveryView, period};
use crate::path::{OfEvent, OfTenant};
use crate::problem::Problem;
use crate::query::{ListPage, NoQuery, PagedQuery};
use crate::route::Route;
use crate::tenants;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/events",
            Needs::Read,
            "List events, the latest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/events/{event}",
            Needs::Read,
            "Show an event",
            show,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/events/{event}/payload",
            Needs::Read,
            "Fetch an event's payload, byte for byte",
            payload,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/events/{event}/deliveries",
            Needs::Read,
            "List all deliveries of an event",
            deliveries,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/events/{event}/redeliver",
            Needs::Manage,
            "Redeliver an event to an endpoint",
            redeliver,
        ),
    ]
}

/// An event without its payload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "EventHead")]
pub(crate) struct EventHeadView {
    /// Its id.
    pub(crate) id: EventId,
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) event_type: EventType,
    /// Its key.
    pub(crate) key: Option<Key>,
    /// The content type of its payload.
    pub(crate) content_type: ContentType,
    /// How many bytes it is.
    pub(crate) payload_bytes: usize,
    /// The version of its type's schema.
    pub(crate) schema_version: Option<u32>,
    /// When it happened.
    pub(crate) time: Time,
    /// When it was accepted.
    pub(crate) accepted_at: Time,
    /// How many of its deliveries are in which state.
    pub(crate) deliveries: StateCountsView,
    /// Who brought it; nothing if it was accepted before that was written down.
    pub(crate) accepted_by: Option<AcceptedByView>,
}

/// How many deliveries of an event are in which state.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "StateCounts")]
pub(crate) struct StateCountsView {
    /// Waiting for their turn.
    pub(crate) pending: u64,
    /// Being sent, where that is recorded before they leave.
    pub(crate) in_flight: u64,
    /// Waiting for a retry.
    pub(crate) waiting: u64,
    /// Acknowledged.
    pub(crate) delivered: u64,
    /// Dead letters that hold a lane.
    pub(crate) held: u64,
    /// Dead letters that hold none.
    pub(crate) dead: u64,
    /// Discarded.
    pub(crate) discarded: u64,
}

impl From<StateCounts> for StateCountsView {
    fn from(counts: StateCounts) -> Self {
        let StateCounts { pending, in_flight, waiting, delivered, held, dead, discarded } = counts;
        Self { pending, in_flight, waiting, delivered, held, dead, discarded }
    }
}

/// Who brought an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "AcceptedBy")]
pub(crate) enum AcceptedByView {
    /// A request with this API key.
    Key {
        /// Its id.
        id: ApiKeyId,
        /// Its name; nothing if it is gone with its tenant.
        name: Option<String>,
    },
    /// The relay.
    Source {
        /// The source's name.
        name: String,
    },
    /// The server itself: a notice.
    Server,
}

/// What a page of events shows beside its rows.
pub(crate) struct PageDetails {
    events: FxHashMap<EventId, EventDetails>,
    /// The names of the API keys that brought them.
    keys: FxHashMap<ApiKeyId, String>,
}

impl PageDetails {
    /// The details of a page with these events: at most as many as a page may have.
    pub(crate) async fn of(
        ctx: &Ctx,
        tenant: &TenantId,
        events: Vec<EventId>,
    ) -> Result<Self, Problem> {
        let found = ctx.app.store.event_details(tenant, events).await?;
        let events: FxHashMap<EventId, EventDetails> = found.into_iter().collect();
        let mut keys = FxHashMap::default();
        for details in events.values() {
            if let Some(AcceptedBy::Key(id)) = details.accepted_by
                && !keys.contains_key(&id)
            {
                // A page has few keys: those that publish.
                let key = ctx.app.store.api_key(id).await?;
                keys.insert(id, key.map(|key| key.name).unwrap_or_default());
            }
        }
        Ok(Self { events, keys })
    }

    fn deliveries(&self, event: &EventId) -> StateCountsView {
        self.events.get(event).map(|details| details.states).unwrap_or_default().into()
    }

    fn accepted_by(&self, event: &EventId) -> Option<AcceptedByView> {
        Some(match self.events.get(event)?.accepted_by.as_ref()? {
            AcceptedBy::Key(id) => {
                let name = self.keys.get(id).filter(|name| !name.is_empty()).cloned();
                AcceptedByView::Key { id: *id, name }
            }
            AcceptedBy::Source(name) => AcceptedByView::Source { name: name.to_string() },
            AcceptedBy::Server => AcceptedByView::Server,
        })
    }
}

impl EventHeadView {
    /// The event as it is shown on a page with these details.
    pub(crate) fn of(head: EventHead, details: &PageDetails) -> Self {
        Self {
            deliveries: details.deliveries(&head.id),
            accepted_by: details.accepted_by(&head.id),
            id: head.id,
            event_type: head.event_type,
            key: head.key,
            content_type: head.content_type,
            payload_bytes: head.payload_len,
            schema_version: head.schema_version,
            time: head.time.into(),
            accepted_at: head.accepted_at.into(),
        }
    }
}

/// An event with its payload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventView {
    /// All but its payload.
    #[serde(flatten)]
    pub(crate) head: EventHeadView,
    /// Its payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Its payload in base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_base64: Option<String>,
    /// The trace it belongs to.
    pub(crate) traceparent: Option<String>,
    /// What it was as a CloudEvent, if it came as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cloudevent: Option<AttributesView>,
}

impl EventView {
    fn of(stored: StoredEvent, details: &PageDetails) -> Self {
        let head = EventHeadView::of(EventHead::from(&stored), details);
        let event = stored.event;
        let cloudevent = AttributesView::of(&event);
        let json = event.content_type.is_json().then(|| serde_json::from_slice(&event.payload));
        let payload = json.and_then(Result::ok);
        let payload_base64 = payload.is_none().then(|| STANDARD.encode(&event.payload));
        Self { head, payload, payload_base64, traceparent: event.traceparent, cloudevent }
    }
}

/// Which events a list shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventFilter {
    /// Of this type only.
    #[serde(rename = "type")]
    pub(crate) event_type: Option<EventType>,
    /// With this key only.
    pub(crate) key: Option<Key>,
    /// Only those accepted at or after this time.
    pub(crate) created_after: Option<Time>,
    /// Only those accepted before this time.
    pub(crate) created_before: Option<Time>,
}

/// All deliveries of an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EventDeliveries {
    /// The earliest first.
    pub(crate) items: Vec<DeliveryView>,
}

/// Where an event is to go once more.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redeliver {
    /// The endpoint, whether or not it got the event before.
    pub(crate) endpoint: EndpointId,
}

/// An event goes once more, at the end of its lane. `GET …/events/{event}/deliveries` shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Redelivered {
    /// The event.
    pub(crate) event: EventId,
    /// Where it goes.
    pub(crate) endpoint: EndpointId,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<EventFilter>,
    _: NoBody,
) -> Result<Json<ListPage<EventHeadView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let EventFilter { event_type, key, created_after, created_before } = query.filter;
    let accepted = period(created_after, created_before);
    let query = EventQuery { tenant: path.tenant, event_type, key, accepted, page: query.page };
    let tenant = query.tenant.clone();
    let listing = ctx.app.store.events(query).await?;
    let ids = listing.items.iter().map(|head| head.id.clone()).collect();
    let details = PageDetails::of(&ctx, &tenant, ids).await?;
    Ok(Json(ListPage::of(listing, |head| EventHeadView::of(head, &details))))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfEvent,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EventView>, Problem> {
    let stored = find(&ctx, &path.tenant, &path.event).await?;
    let details = PageDetails::of(&ctx, &path.tenant, vec![path.event]).await?;
    Ok(Json(EventView::of(stored, &details)))
}

pub(crate) async fn payload(
    ctx: Ctx,
    path: OfEvent,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<Payload>, Problem> {
    Ok(RawResponse::new(payload_response(find(&ctx, &path.tenant, &path.event).await?.event)))
}

pub(crate) async fn deliveries(
    ctx: Ctx,
    path: OfEvent,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EventDeliveries>, Problem> {
    find(&ctx, &path.tenant, &path.event).await?;
    let items = ctx.app.store.deliveries_of(&path.tenant, &path.event).await?;
    Ok(Json(EventDeliveries { items: deliveries::views(&ctx, items).await? }))
}

pub(crate) async fn redeliver(
    ctx: Ctx,
    path: OfEvent,
    _: NoQuery,
    JsonBody(Redeliver { endpoint }): JsonBody<Redeliver>,
) -> Result<Accepted<Redelivered>, Problem> {
    let OfEvent { tenant, event } = path;
    find(&ctx, &tenant, &event).await?;
    check_target(&ctx, &tenant, endpoint, "endpoint").await?;
    let answer = Accepted(Redelivered { event: event.clone(), endpoint });
    let audit = Some(ctx.audit_entry(AuditAction {
        action: Action::EventRedeliver,
        tenant: Some(tenant.clone()),
        target: event.to_string(),
        detail: json!({ "endpoint": endpoint }),
    }));
    let idempotency = ctx.record(&answer, false);
    let orders = vec![(event, endpoint)];
    ctx.app.dispatcher.redeliver(RedeliverBatch { tenant, orders, audit, idempotency }).await?;
    Ok(answer)
}

/// That events of the tenant may go to this endpoint; if not, the problem names the field.
pub(crate) async fn check_target(
    ctx: &Ctx,
    tenant: &TenantId,
    endpoint: EndpointId,
    field: &str,
) -> Result<(), Problem> {
    let found = ctx.app.store.endpoint(endpoint).await?;
    let usable = found.filter(|found| found.removed_at.is_none() && found.tenant == *tenant);
    match usable {
        Some(_) => Ok(()),
        None => {
            let problem = Problem::not_found("endpoint", endpoint);
            Err(Problem { field: Some(field.to_owned()), ..problem })
        }
    }
}

pub(crate) async fn find(
    ctx: &Ctx,
    tenant: &TenantId,
    id: &EventId,
) -> Result<StoredEvent, Problem> {
    ctx.app.store.event(tenant, id).await?.ok_or_else(|| Problem::not_found("event", id))
}

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");

/// An event's bytes with their content type. They are a producer's, and may be a page with a script in
/// it: a browser saves them and runs nothing of them.
pub(crate) fn payload_response(event: Event) -> Response {
    let mut response = event.payload.into_response();
    let headers = response.headers_mut();
    let octets = HeaderValue::from_static("application/octet-stream");
    let content_type = HeaderValue::from_str(event.content_type.as_str()).unwrap_or(octets);
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, nothing);
    if let Ok(id) = HeaderValue::from_str(&event.id.to_string()) {
        headers.insert(WEBHOOK_ID, id);
    }
    response
}
