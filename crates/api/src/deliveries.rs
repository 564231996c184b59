//! Deliveries: one event for one endpoint each.

use http::Method;
use railpost_engine::{Command, DeliveryStage, DeliveryState, Failure, LaneId, Time};
use railpost_store::{self as store, ClosedReason, DeliveryQuery, DeliveryView as Stored, Period};
use railpost_wire::{DeliveryId, EndpointId, EventId, EventType, Key, LineId, Seq, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::attempts::{LastAnswer, PageDetails};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::commands::carry_out;
use super::path::{OfDelivery, OfTenant};
use super::problem::Problem;
use super::query::{ListPage, NoQuery, PagedQuery};
use super::route::Route;
use crate::app::App;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/deliveries",
            Needs::Read,
            "List deliveries, the latest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/deliveries/{delivery}",
            Needs::Read,
            "Show a delivery",
            show,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/deliveries/{delivery}/discard",
            Needs::Manage,
            "Discard a delivery",
            discard,
        ),
    ]
}

/// One event for one endpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub(crate) struct DeliveryView {
    /// Its id.
    pub(crate) id: DeliveryId,
    /// The event.
    pub(crate) event: EventId,
    /// The event's type.
    #[serde(rename = "type")]
    pub(crate) event_type: EventType,
    /// The event's key.
    pub(crate) key: Option<Key>,
    /// The number of its lane.
    pub(crate) lane: Option<LaneId>,
    /// The line of its lane, as `X-Lane` names it, even if it has left its lane.
    pub(crate) line: Option<LineId>,
    /// Its number in the line, as `X-Seq` says it.
    pub(crate) seq: Option<Seq>,
    /// Where it goes.
    pub(crate) endpoint: EndpointId,
    /// The endpoint's URL.
    pub(crate) endpoint_url: Option<String>,
    /// Its state.
    pub(crate) state: DeliveryStage,
    /// When the next attempt is due, while it waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Time>,
    /// Why it is dead or discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<ClosedReason>,
    /// Whether it is a dead letter that holds its lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holds_lane: Option<bool>,
    /// Attempts made.
    pub(crate) attempts: u32,
    /// What came of the last attempt; nothing if there was none.
    pub(crate) last_answer: Option<LastAnswer>,
    /// When it was made.
    pub(crate) created_at: Time,
    /// When its state last changed.
    pub(crate) changed_at: Time,
}

impl DeliveryView {
    /// The delivery as it is shown on a page with these details.
    pub(super) fn of(stored: Stored, details: &PageDetails) -> Self {
        let delivery = stored.delivery;
        let until = match delivery.state {
            DeliveryState::Waiting { until } => Some(until.into()),
            _ => None,
        };
        let holds_lane = match delivery.state {
            DeliveryState::Dead { holds, .. } => Some(holds),
            _ => None,
        };
        let (line, seq) = stored.line.map(|place| (place.line, place.seq)).unzip();
        Self {
            id: delivery.id,
            event: stored.event,
            event_type: stored.event_type,
            key: stored.key,
            lane: delivery.place.map(|place| place.lane),
            line,
            seq,
            endpoint: delivery.endpoint,
            endpoint_url: details.url(delivery.endpoint),
            state: delivery.state.stage(),
            until,
            reason: ClosedReason::of(delivery.state),
            holds_lane,
            attempts: delivery.progress.attempts,
            last_answer: details.last_answer(
                delivery.id,
                delivery.endpoint,
                delivery.state.stage(),
            ),
            created_at: stored.created_at.into(),
            changed_at: stored.changed_at.into(),
        }
    }
}

/// These deliveries as they are shown.
pub(crate) async fn views(ctx: &Ctx, stored: Vec<Stored>) -> Result<Vec<DeliveryView>, Problem> {
    let details = details_of(ctx, &stored).await?;
    Ok(stored.into_iter().map(|stored| DeliveryView::of(stored, &details)).collect())
}

/// One delivery as it is shown.
pub(crate) async fn view(ctx: &Ctx, stored: Stored) -> Result<DeliveryView, Problem> {
    let details = details_of(ctx, std::slice::from_ref(&stored)).await?;
    Ok(DeliveryView::of(stored, &details))
}

/// What a page with these deliveries shows beside them.
pub(super) async fn details_of(ctx: &Ctx, stored: &[Stored]) -> Result<PageDetails, Problem> {
    let named = stored.iter().map(|stored| (stored.delivery.id, stored.delivery.endpoint));
    PageDetails::of(ctx, named).await
}

/// Which deliveries a list shows, or a replay is for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DeliveryFilter {
    /// Only those to this endpoint.
    pub(crate) endpoint: Option<EndpointId>,
    /// Only those in this state.
    pub(crate) state: Option<DeliveryStage>,
    /// Of events of this type only.
    #[serde(rename = "type")]
    pub(crate) event_type: Option<EventType>,
    /// Of events with this key only.
    pub(crate) key: Option<Key>,
    /// Only those that are dead or discarded for this reason.
    pub(crate) reason: Option<ClosedReason>,
    /// Only those whose last attempt was answered with this status.
    #[schemars(schema_with = "crate::bounds::answer_status")]
    pub(crate) status: Option<AnswerStatus>,
    /// Only those whose last attempt had no answer, for this cause.
    pub(crate) failure: Option<Failure>,
    /// Only those made at or after this time.
    pub(crate) created_after: Option<Time>,
    /// Only those made before this time.
    pub(crate) created_before: Option<Time>,
}

/// A status that an attempt can be answered with: 100 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub(crate) struct AnswerStatus(u16);

impl TryFrom<u16> for AnswerStatus {
    type Error = String;

    fn try_from(status: u16) -> Result<Self, String> {
        match status {
            100..=599 => Ok(Self(status)),
            _ => Err(format!("expected a status from 100 to 599; got {status}")),
        }
    }
}

impl From<DeliveryFilter> for store::DeliveryFilter {
    fn from(filter: DeliveryFilter) -> Self {
        Self {
            stage: filter.state,
            endpoint: filter.endpoint,
            event_type: filter.event_type,
            key: filter.key,
            reason: filter.reason,
            status: filter.status.map(|AnswerStatus(status)| status),
            failure: filter.failure,
            created: period(filter.created_after, filter.created_before),
        }
    }
}

impl From<store::DeliveryFilter> for DeliveryFilter {
    fn from(filter: store::DeliveryFilter) -> Self {
        let Period { from, before } = filter.created;
        Self {
            endpoint: filter.endpoint,
            state: filter.stage,
            event_type: filter.event_type,
            key: filter.key,
            reason: filter.reason,
            status: filter.status.map(AnswerStatus),
            failure: filter.failure,
            created_after: from.map(Time::from),
            created_before: before.map(Time::from),
        }
    }
}

impl DeliveryFilter {
    /// The same for dead letters alone; `None` if it asks for another state.
    pub(super) fn of_dead_letters(self) -> Option<Self> {
        let dead = Some(DeliveryStage::Dead);
        (self.state.is_none() || self.state == dead).then_some(Self { state: dead, ..self })
    }
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<DeliveryFilter>,
    _: NoBody,
) -> Result<Json<ListPage<DeliveryView>>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let query =
        DeliveryQuery { tenant: path.tenant, filter: query.filter.into(), page: query.page };
    let listing = ctx.app.store.deliveries(query).await?;
    let details = details_of(&ctx, &listing.items).await?;
    Ok(Json(ListPage::of(listing, |stored| DeliveryView::of(stored, &details))))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfDelivery,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<DeliveryView>, Problem> {
    let stored = find_of(&ctx, &path.tenant, path.delivery).await?;
    Ok(Json(view(&ctx, stored).await?))
}

pub(crate) async fn discard(
    ctx: Ctx,
    path: OfDelivery,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<DeliveryView>, Problem> {
    let stored = find_of(&ctx, &path.tenant, path.delivery).await?;
    carry_out(&ctx, Command::Discard, stored, Json).await
}

/// A stretch of time as a query gives it.
pub(super) fn period(after: Option<Time>, before: Option<Time>) -> Period {
    Period { from: after.map(|time| time.0), before: before.map(|time| time.0) }
}

/// The delivery, if it is the tenant's.
pub(crate) async fn find_of(
    ctx: &Ctx,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Stored, Problem> {
    let found = find(&ctx.app, id).await?;
    if found.tenant == *tenant { Ok(found) } else { Err(Problem::not_found("delivery", id)) }
}

/// The delivery, of any tenant.
pub(super) async fn find(app: &App, id: DeliveryId) -> Result<Stored, Problem> {
    app.store.delivery(id).await?.ok_or_else(|| Problem::not_found("delivery", id))
}
