//! Publishing events.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use railpost_dispatch::TraceParent;
use railpost_engine::Time;
use railpost_store::limits::BATCH_EVENTS_MAX;
use railpost_store::{AcceptBatch, Event, EventOutcome};
use railpost_wire::cloudevents::{BATCHED, STRUCTURED};
use railpost_wire::{ContentType, EventId, EventType, Key, TenantId};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::cloudevents::{self, IdentityView};
use crate::answer::Accepted;
use crate::auth::Needs;
use crate::body::{BodyLimits, FromBody, media_type, parse_json, unsupported};
use crate::call::Ctx;
use crate::limits::WARNING_LEN_MAX;
use crate::path::OfTenant;
use crate::problem::Problem;
use crate::query::NoQuery;
use crate::route::Route;
use crate::{body, event_types};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/events",
            Needs::Publish,
            "Publish an event",
            publish,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/events/batch",
            Needs::Publish,
            "Publish up to 1,000 events, all or none",
            publish_batch,
        ),
    ]
}

/// An event to publish.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = serde_json::json!({
    "id": "order-17-created",
    "type": "order.created",
    "key": "17",
    "payload": { "order": 17, "total": "49.00" },
}))]
pub(crate) struct NewEvent<'a> {
    /// Its id, for deduplication; generated if it is missing.
    #[serde(default)]
    id: Option<EventId>,
    /// Its type, such as `order.created`.
    #[serde(rename = "type")]
    event_type: EventType,
    /// The key: events with the same key arrive one after the other.
    #[serde(default)]
    key: Option<Key>,
    /// What receivers get, byte for byte.
    #[serde(borrow)]
    #[schemars(with = "serde_json::Value")]
    payload: &'a RawValue,
    /// The version of its type's schema.
    #[serde(default)]
    schema_version: Option<u32>,
    /// When it happened; now if it does not say.
    #[serde(default)]
    time: Option<Time>,
    /// The trace it belongs to, as W3C Trace Context writes it. The request's own header counts for
    /// events that name none.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::traceparent")]
    traceparent: Option<String>,
}

/// Events to publish together.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvents<'a> {
    /// The events: 1 to 1,000.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = BATCH_EVENTS_MAX))]
    events: Vec<NewEvent<'a>>,
}

/// An event was accepted and is stored.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Receipt {
    /// Its id. Receivers see it as `webhook-id`.
    pub(crate) id: EventId,
    /// The `source` and `id` of a CloudEvent: the event's own id is a hash of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cloudevent: Option<IdentityView>,
    /// When it was accepted.
    pub(crate) accepted_at: Time,
    /// Whether it had been accepted before, with the same id and content.
    pub(crate) duplicate: bool,
    /// To how many endpoints it goes. A duplicate does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deliveries: Option<usize>,
    /// Where the payload does not fit its type's schema, if that is only worth a warning. Left out where there
    /// is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// What became of events that were published together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Receipts {
    /// In the order given.
    pub(crate) events: Vec<Receipt>,
}

/// How a request's body holds events.
enum BodyFormat {
    /// As this API has it.
    Json,
    /// As CloudEvents, the attributes and the data in JSON: one, or a batch.
    CloudEvents,
    /// As one CloudEvent whose attributes are these headers and whose data is the body.
    Binary(Box<HeaderMap>),
}

/// The body of a request that publishes, and the trace it belongs to.
pub(crate) struct Published<const BATCH: bool> {
    form: BodyFormat,
    bytes: Bytes,
    traceparent: Option<String>,
}

impl<const BATCH: bool> FromBody for Published<BATCH> {
    async fn from_body(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        let form = form_of(parts, BATCH)?;
        let bytes = body::read(limits, body, limits.events_len_max).await?;
        let published = Self { form, bytes: bytes.clone(), traceparent: trace_of(&parts.headers) };
        Ok((published, Some(bytes)))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        const JSON: &str = "application/json";
        match BATCH {
            true => vec![
                (JSON, schemas.subschema_for::<NewEvents<'static>>()),
                (BATCHED, super::schema::batch(schemas)),
            ],
            false => vec![
                (JSON, schemas.subschema_for::<NewEvent<'static>>()),
                (STRUCTURED, schemas.subschema_for::<super::schema::CloudEvent>()),
            ],
        }
    }
}

/// What the media types of all forms of CloudEvents begin with.
const CLOUDEVENTS: &str = "application/cloudevents";

/// How the body holds events, by its content type and, for binary CloudEvents, by their headers.
fn form_of(parts: &Parts, batch: bool) -> Result<BodyFormat, Problem> {
    let media_type = media_type(parts);
    let is = |wanted: &str| media_type.eq_ignore_ascii_case(wanted);
    if is(if batch { BATCHED } else { STRUCTURED }) {
        return Ok(BodyFormat::CloudEvents);
    }
    let family = media_type.get(..CLOUDEVENTS.len());
    let foreign = family.is_some_and(|family| family.eq_ignore_ascii_case(CLOUDEVENTS));
    if !batch && !foreign && parts.headers.contains_key("ce-specversion") {
        return Ok(BodyFormat::Binary(Box::new(parts.headers.clone())));
    }
    match (media_type, batch) {
        ("" | "application/json", _) => Ok(BodyFormat::Json),
        (_, true) => {
            Err(unsupported(parts, "application/json or application/cloudevents-batch+json"))
        }
        (_, false) => Err(unsupported(
            parts,
            "application/json or application/cloudevents+json, or any type with `ce-` headers",
        )),
    }
}

pub(crate) async fn publish(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    body: Published<false>,
) -> Result<Accepted<Receipt>, Problem> {
    let trace = body.traceparent.as_deref();
    let event = match &body.form {
        BodyFormat::Json => event(&ctx, parse_json(&body.bytes)?, trace)?,
        BodyFormat::CloudEvents => cloudevents::structured(&ctx, &body.bytes, trace)?,
        BodyFormat::Binary(headers) => cloudevents::binary(&ctx, headers, &body.bytes, trace)?,
    };
    drop(body);
    let warnings = vec![event_types::check(&ctx, &path.tenant, &event).await?];
    let events = (vec![event], warnings);
    accept(&ctx, path.tenant, events, |mut receipts| Accepted(receipts.swap_remove(0))).await
}

pub(crate) async fn publish_batch(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    body: Published<true>,
) -> Result<Accepted<Receipts>, Problem> {
    let trace = body.traceparent.as_deref();
    let events = match &body.form {
        BodyFormat::Json => events(&ctx, &body.bytes, trace)?,
        BodyFormat::CloudEvents | BodyFormat::Binary(_) => {
            cloudevents::batch(&ctx, &body.bytes, trace)?
        }
    };
    drop(body);
    let warnings = event_types::check_batch(&ctx, &path.tenant, &events).await?;
    accept(&ctx, path.tenant, (events, warnings), |events| Accepted(Receipts { events })).await
}

fn events(ctx: &Ctx, bytes: &[u8], trace: Option<&str>) -> Result<Vec<Event>, Problem> {
    let batch: NewEvents<'_> = parse_json(bytes)?;
    check_count(batch.events.len())?;
    let numbered = batch.events.into_iter().enumerate();
    let events = numbered.map(|(index, new)| {
        let within = |problem: Problem| problem.within(&format!("events[{index}]"));
        event(ctx, new, trace).map_err(within)
    });
    events.collect()
}

/// That a batch holds as many events as it may.
pub(super) fn check_count(got: usize) -> Result<(), Problem> {
    if (1..=BATCH_EVENTS_MAX).contains(&got) {
        return Ok(());
    }
    let problem = format!("expected 1 to {BATCH_EVENTS_MAX} events; got {got}");
    Err(Problem::field("events", problem))
}

/// The event as it is stored. Its payload is a copy: a slice would keep all that came with it, and the
/// connection's buffer, until the last delivery.
pub(super) fn event(ctx: &Ctx, new: NewEvent<'_>, trace: Option<&str>) -> Result<Event, Problem> {
    let now = ctx.now();
    let id = new.id.unwrap_or_else(|| EventId::generate(now.as_millis(), ctx.app.random()));
    Ok(Event {
        id,
        event_type: new.event_type,
        key: new.key,
        payload: Bytes::copy_from_slice(new.payload.get().as_bytes()),
        content_type: ContentType::JSON,
        schema_version: new.schema_version,
        time: new.time.map_or(now, |time| time.0),
        traceparent: traceparent(new.traceparent, trace)?,
        cloudevent: None,
    })
}

/// The trace that a request belongs to, if it names one.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    text.parse::<TraceParent>().ok().map(|_| text.to_owned())
}

/// The event's own trace, which must be one, or the request's.
pub(super) fn traceparent(
    own: Option<String>,
    of_request: Option<&str>,
) -> Result<Option<String>, Problem> {
    let Some(own) = own else { return Ok(of_request.map(str::to_owned)) };
    match own.parse::<TraceParent>() {
        Ok(_) => Ok(Some(own)),
        Err(problem) => Err(Problem::field("traceparent", problem.to_string())),
    }
}

/// Accepts events durably, and answers as `answer` makes of their receipts, with the warnings of each.
async fn accept<A: crate::answer::Answer>(
    ctx: &Ctx,
    tenant: TenantId,
    (events, warnings): (Vec<Event>, Vec<Vec<String>>),
    answer: fn(Vec<Receipt>) -> A,
) -> Result<A, Problem> {
    let drafts: Arc<[ReceiptDraft]> = events.iter().zip(warnings).map(ReceiptDraft::new).collect();
    let receipts = move |outcomes: &[EventOutcome]| {
        drafts.iter().zip(outcomes).map(|(draft, outcome)| draft.receipt(*outcome)).collect()
    };
    let stored = receipts.clone();
    let body = move |outcomes: &[EventOutcome]| answer(stored(outcomes)).to_bytes();
    let idempotency = ctx.accept_record(A::STATUS, events.len(), Arc::new(body));
    let accepted_by = ctx.caller.accepted_by();
    let batch = AcceptBatch { tenant, events, accepted_by, idempotency };
    let accepted = ctx.app.dispatcher.accept(batch).await?;
    let outcomes: Vec<EventOutcome> = accepted.iter().map(EventOutcome::from).collect();
    Ok(answer(receipts(&outcomes)))
}

/// What a receipt says before it is known what becomes of the event.
struct ReceiptDraft {
    id: EventId,
    cloudevent: Option<IdentityView>,
    warnings: Vec<String>,
}

impl ReceiptDraft {
    fn new((event, warnings): (&Event, Vec<String>)) -> Self {
        Self {
            id: event.id.clone(),
            cloudevent: IdentityView::of(event),
            warnings: bounded(warnings),
        }
    }

    fn receipt(&self, outcome: EventOutcome) -> Receipt {
        let (cloudevent, warnings) = (self.cloudevent.clone(), self.warnings.clone());
        Receipt { cloudevent, warnings, ..Receipt::of(self.id.clone(), outcome) }
    }
}

/// Warnings, each cut to what a receipt may say of one.
pub(super) fn bounded(mut warnings: Vec<String>) -> Vec<String> {
    for warning in warnings.iter_mut().filter(|warning| warning.len() > WARNING_LEN_MAX) {
        warning.truncate(warning.floor_char_boundary(WARNING_LEN_MAX - "…".len()));
        warning.push('…');
    }
    warnings
}

impl Receipt {
    /// The receipt of an event that is no CloudEvent and has no warnings.
    pub(super) fn of(id: EventId, outcome: EventOutcome) -> Self {
        let EventOutcome { accepted_at, deliveries } = outcome;
        Self {
            id,
            cloudevent: None,
            accepted_at: accepted_at.into(),
            duplicate: deliveries.is_none(),
            deliveries,
            warnings: Vec::new(),
        }
    }
}
