//! Deliveries: one event for one endpoint each.

use http::Method;
use railpost_engine::{
    Command, DeadReason, DeliveryStage, DeliveryState, DiscardReason, LaneId, Time,
};
use railpost_store::{self as store, DeliveryQuery, DeliveryView as Stored, Period};
use railpost_wire::{DeliveryId, EndpointId, EventId, EventType, Key, LineId, Seq, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
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
    /// Its state.
    pub(crate) state: DeliveryStage,
    /// When the next attempt is due, while it waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Time>,
    /// Why it is dead or discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// Whether it is a dead letter that holds its lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holds_lane: Option<bool>,
    /// Attempts made.
    pub(crate) attempts: u32,
    /// When it was made.
    pub(crate) created_at: Time,
    /// When its state last changed.
    pub(crate) changed_at: Time,
}

/// Why a delivery is dead or discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ClosedReason")]
pub(crate) enum Reason {
    /// Why it is dead.
    Dead(DeadReason),
    /// Why it was discarded.
    Discarded(DiscardReason),
}

impl From<Stored> for DeliveryView {
    fn from(stored: Stored) -> Self {
        let delivery = stored.delivery;
        let (until, reason, holds_lane) = match delivery.state {
            DeliveryState::Waiting { until } => (Some(until.into()), None, None),
            DeliveryState::Dead { reason, holds } => {
                (None, Some(Reason::Dead(reason)), Some(holds))
            }
            DeliveryState::Discarded { reason } => (None, Some(Reason::Discarded(reason)), None),
            _ => (None, None, None),
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
            state: delivery.state.stage(),
            until,
            reason,
            holds_lane,
            attempts: delivery.progress.attempts,
            created_at: stored.created_at.into(),
            changed_at: stored.changed_at.into(),
        }
    }
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
    /// Only those made at or after this time.
    pub(crate) created_after: Option<Time>,
    /// Only those made before this time.
    pub(crate) created_before: Option<Time>,
}

impl From<DeliveryFilter> for store::DeliveryFilter {
    fn from(filter: DeliveryFilter) -> Self {
        let DeliveryFilter { endpoint, state, event_type, key, created_after, created_before } =
            filter;
        let created = period(created_after, created_before);
        Self { stage: state, endpoint, event_type, key, created }
    }
}

impl From<store::DeliveryFilter> for DeliveryFilter {
    fn from(filter: store::DeliveryFilter) -> Self {
        let store::DeliveryFilter { stage, endpoint, event_type, key, created } = filter;
        let Period { from, before } = created;
        let (created_after, created_before) = (from.map(Time::from), before.map(Time::from));
        Self { endpoint, state: stage, event_type, key, created_after, created_before }
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
    Ok(Json(ListPage::of(ctx.app.store.deliveries(query).await?, DeliveryView::from)))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfDelivery,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<DeliveryView>, Problem> {
    Ok(Json(find_of(&ctx, &path.tenant, path.delivery).await?.into()))
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
