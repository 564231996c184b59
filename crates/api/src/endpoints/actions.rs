//! Actions on an endpoint.

use http::Method;
use railpost_engine::{BreakerState, EndpointStatus, Health, Plan, WaitReason};
use railpost_store::{
    AcceptBatch, Endpoint, Event, RedeliverBatch, TEST_EVENT_TYPE, Write, is_test_type,
};
use railpost_wire::{DeliveryId, EventId, EventType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{EndpointView, audit_action, changes, commit_change, find, find_served};
use crate::answer::{Accepted, Json};
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::{JsonBody, NoBody};
use crate::call::Ctx;
use crate::limits::{PLANNED_ATTEMPTS_DEFAULT, PLANNED_ATTEMPTS_MAX};
use crate::path::OfEndpoint;
use crate::problem::{Code, Problem};
use crate::query::{NoQuery, Query};
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    use Needs::{Manage, Read};
    let (get, post) = (Method::GET, Method::POST);
    vec![
        Route::new(
            post.clone(),
            "/v1/tenants/{tenant}/endpoints/{endpoint}/pause",
            Manage,
            "Pause an endpoint: its backlog is kept",
            pause,
        ),
        Route::new(
            post.clone(),
            "/v1/tenants/{tenant}/endpoints/{endpoint}/resume",
            Manage,
            "Resume an endpoint that is paused, switched off or waiting",
            resume,
        ),
        Route::new(
            post,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/test",
            Manage,
            "Send a test event to this endpoint only",
            test,
        ),
        Route::new(
            get,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/schedule",
            Read,
            "Show the planned attempts of a delivery that keeps failing",
            schedule,
        ),
    ]
}

pub(crate) async fn pause(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EndpointView>, Problem> {
    let before = find_served(&ctx, &path).await?;
    let after = switched(&ctx, &before, EndpointStatus::Paused);
    let write = Write::SetEndpointStatus(after.id, after.status);
    commit_change(&ctx, write, Action::EndpointPause, &before, after).await
}

/// An endpoint that was resumed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointResumed {
    #[serde(flatten)]
    pub(crate) endpoint: EndpointView,
    /// What that did.
    pub(crate) resumed: Resumed,
}

/// What resuming an endpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resumed {
    /// It was paused or switched off and is sent to again.
    SwitchedOn,
    /// Its breaker was open: the next delivery goes at once, and if it is acknowledged, sending goes on.
    HalfOpen,
    /// Its receiver had asked to wait: sending goes on at once.
    RetryAfterLifted,
    /// It was active, or its probe was in flight.
    NothingToDo,
}

impl Resumed {
    /// What ending a wait did to an endpoint that was doing like this before.
    fn of_wait(before: Option<&Health>) -> Self {
        let reason = before.and_then(|health| health.wait).map(|wait| wait.reason);
        let is_open = |health: &Health| matches!(health.breaker, BreakerState::Open { .. });
        match reason {
            Some(WaitReason::Breaker) => Resumed::HalfOpen,
            Some(WaitReason::RetryAfter) if before.is_some_and(is_open) => Resumed::HalfOpen,
            Some(WaitReason::RetryAfter) => Resumed::RetryAfterLifted,
            Some(WaitReason::Probe) | None => Resumed::NothingToDo,
        }
    }
}

pub(crate) async fn resume(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EndpointResumed>, Problem> {
    let before = find(&ctx, &path).await?;
    let served = ctx.app.dispatcher.health(before.id).await?;
    let is_on = |status| status == EndpointStatus::Active;
    if is_on(before.status) && served.is_none_or(|served| is_on(served.health.status)) {
        return end_wait(&ctx, before).await;
    }
    let after = switched(&ctx, &before, EndpointStatus::Active);
    let write = Write::SetEndpointStatus(after.id, after.status);
    let audit_action = audit_action(Action::EndpointResume, &after)
        .with_changes(changes::between(&before, &after));
    let answer = EndpointResumed { endpoint: after.into(), resumed: Resumed::SwitchedOn };
    ctx.commit(vec![write], audit_action, Json(answer)).await
}

/// Ends the wait of an endpoint that is switched on. Nothing of that is stored but who did it.
async fn end_wait(ctx: &Ctx, endpoint: Endpoint) -> Result<Json<EndpointResumed>, Problem> {
    let before = ctx.app.dispatcher.end_wait(endpoint.id).await?.map(|served| served.health);
    let resumed = Resumed::of_wait(before.as_ref());
    let mut audit_action = audit_action(Action::EndpointResume, &endpoint);
    audit_action.detail["resumed"] = json!(resumed);
    let failing_since = before.map_or(endpoint.failing_since, |health| health.failing_since);
    let endpoint = EndpointView::from(Endpoint { failing_since, ..endpoint });
    ctx.commit(Vec::new(), audit_action, Json(EndpointResumed { endpoint, resumed })).await
}

/// The endpoint with another status.
fn switched(ctx: &Ctx, before: &Endpoint, status: EndpointStatus) -> Endpoint {
    let failing_since = before.failing_since.filter(|_| status != EndpointStatus::Active);
    Endpoint { status, failing_since, updated_at: ctx.now(), ..before.clone() }
}

/// A test event.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = json!({ "type": "railpost.test.order", "payload": { "order": 17 } }))]
pub(crate) struct NewTest {
    /// `railpost.test`, or a type below it, such as `railpost.test.order`: a receiver must be able to
    /// tell a test from the real thing. `railpost.test` if not given.
    #[serde(default, rename = "type")]
    #[schemars(extend("pattern" = r"^railpost\.test(\.[A-Za-z0-9_-]+)*$"))]
    event_type: Option<EventType>,
    /// What the receiver gets.
    #[serde(default)]
    payload: Option<Value>,
}

/// A test event is on its way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TestSent {
    /// The event.
    pub(crate) event: EventId,
    /// Its delivery to the endpoint.
    pub(crate) delivery: DeliveryId,
}

/// Sends a test event. No filter wants events of such a type, so accepting one makes no delivery, not
/// even for an endpoint that subscribes to everything; the one delivery is then asked for by name,
/// which no filter is asked about.
pub(crate) async fn test(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    JsonBody(new): JsonBody<NewTest>,
) -> Result<Accepted<TestSent>, Problem> {
    let endpoint = find(&ctx, &path).await?;
    let event = test_event(&ctx, new)?;
    let (tenant, id) = (path.tenant.clone(), event.id.clone());
    let accepted_by = ctx.caller.accepted_by();
    let (to, events) = (tenant.clone(), vec![event]);
    let batch = AcceptBatch { tenant: to, events, accepted_by, idempotency: None };
    ctx.app.dispatcher.accept(batch).await?;
    let orders = vec![(id.clone(), endpoint.id)];
    let audit = Some(ctx.audit_entry(audit_action(Action::EndpointTest, &endpoint)));
    let batch = RedeliverBatch { tenant: tenant.clone(), orders, audit, idempotency: None };
    ctx.app.dispatcher.redeliver(batch).await?;
    let deliveries = ctx.app.store.deliveries_of(&tenant, &id).await?;
    let made = deliveries.first().map(|view| view.delivery.id);
    let gone = || Problem::new(Code::Conflict, "the endpoint was removed in between");
    let answer = Accepted(TestSent { event: id, delivery: made.ok_or_else(gone)? });
    ctx.remember(answer).await
}

pub(super) fn test_event(ctx: &Ctx, new: NewTest) -> Result<Event, Problem> {
    let own = || TEST_EVENT_TYPE.parse().expect("it is an event type");
    let event_type = new.event_type.unwrap_or_else(own);
    if !is_test_type(&event_type) {
        let detail = format!("expected `{TEST_EVENT_TYPE}` or a type below it, got `{event_type}`");
        return Err(Problem::field("type", detail));
    }
    let now = ctx.now();
    let payload = new.payload.unwrap_or_else(|| json!({ "message": "a test from Railpost" }));
    Ok(Event {
        id: EventId::generate(now.as_millis(), ctx.app.random()),
        event_type,
        key: None,
        payload: payload.to_string().into(),
        content_type: "application/json".parse().expect("it is a content type"),
        schema_version: None,
        time: now,
        traceparent: None,
        cloudevent: None,
    })
}

/// How far a schedule is shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleQuery {
    /// Most attempts: 1 to 1,000. 20 if not given.
    #[schemars(range(min = 1, max = PLANNED_ATTEMPTS_MAX))]
    attempts: Option<usize>,
}

pub(crate) async fn schedule(
    ctx: Ctx,
    path: OfEndpoint,
    Query(query): Query<ScheduleQuery>,
    _: NoBody,
) -> Result<Json<Plan>, Problem> {
    let attempts = query.attempts.unwrap_or(PLANNED_ATTEMPTS_DEFAULT);
    if !(1..=PLANNED_ATTEMPTS_MAX).contains(&attempts) {
        let detail = format!("expected 1 to {PLANNED_ATTEMPTS_MAX}; got {attempts}");
        return Err(Problem::parameter("attempts", detail));
    }
    let endpoint = find(&ctx, &path).await?;
    Ok(Json(endpoint.settings.policy.retry.plan(attempts)))
}
