//! Lanes with anything open, as the engine has them.

use futures_util::future::try_join_all;
use http::Method;
use railpost_engine::{LaneId, LaneState, OpenLane, OpenLanes, Time};
use railpost_rest::limits::PAGE_LIMIT_DEFAULT;
use railpost_store::DeliveryView as Stored;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_wire::{EndpointId, Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::attempts::PageDetails;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::deliveries::DeliveryView;
use super::path::OfTenant;
use super::problem::Problem;
use super::query::Query;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::GET,
        "/v1/tenants/{tenant}/lanes/open",
        Needs::Read,
        "List lanes with anything open: the held ones first, then those that wait longest",
        list,
    )]
}

/// Which open lanes are shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenLaneQuery {
    /// Of this endpoint only.
    endpoint: Option<EndpointId>,
    /// Most lanes: 1 to 500. 50 if not given.
    #[schemars(range(min = 1, max = LIST_LIMIT_MAX))]
    limit: Option<u32>,
}

/// Lanes with anything open, as the engine has them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OpenLanes")]
pub(crate) struct OpenLanesView {
    /// How many lanes have anything open.
    pub(crate) lanes: u64,
    /// Of these, those that a dead letter holds.
    pub(crate) held: u64,
    /// Those with an attempt in flight.
    pub(crate) in_flight: u64,
    /// Those whose head waits for its retry.
    pub(crate) backing_off: u64,
    /// Those whose head may go as soon as its endpoint lets it.
    pub(crate) ready: u64,
    /// The first of them. With more than 50,000 open lanes, the longest waiting of 50,000.
    pub(crate) items: Vec<OpenLaneView>,
}

/// A lane with anything open.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OpenLane")]
pub(crate) struct OpenLaneView {
    /// Which lane.
    pub(crate) lane: LaneId,
    /// Of which endpoint.
    pub(crate) endpoint: EndpointId,
    /// The key it is for; nothing when it is the endpoint's one lane for everything.
    pub(crate) key: Option<Key>,
    /// What it does.
    pub(crate) state: LaneState,
    /// Until when, if that is known.
    pub(crate) until: Option<Time>,
    /// The delivery at its head; nothing while the server reads it.
    pub(crate) head: Option<DeliveryView>,
    /// How many deliveries it has from its head on, including some that may have been discarded.
    pub(crate) open: u64,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    Query(query): Query<OpenLaneQuery>,
    _: NoBody,
) -> Result<Json<OpenLanesView>, Problem> {
    let limit = query.limit.unwrap_or(PAGE_LIMIT_DEFAULT);
    if !(1..=LIST_LIMIT_MAX).contains(&limit) {
        let detail = format!("expected 1 to {LIST_LIMIT_MAX}; got {limit}");
        return Err(Problem::parameter("limit", detail));
    }
    super::tenants::find(&ctx, &path.tenant).await?;
    let open = ctx.app.dispatcher.open_lanes(&path.tenant, query.endpoint, limit as usize).await?;
    let OpenLanes { counts, first } = open;
    let heads = try_join_all(first.iter().map(|lane| head(&ctx, lane))).await?;
    let named = heads.iter().flatten().map(|head| (head.delivery.id, head.delivery.endpoint));
    let details = PageDetails::of(&ctx, named).await?;
    let lanes = first.into_iter().zip(heads);
    let items = lanes.map(|(lane, head)| view(lane, head, &details)).collect();
    Ok(Json(OpenLanesView {
        lanes: counts.lanes,
        held: counts.held,
        in_flight: counts.in_flight,
        backing_off: counts.backing_off,
        ready: counts.ready,
        items,
    }))
}

/// The delivery at the head of a lane, unless the server is reading it.
async fn head(ctx: &Ctx, lane: &OpenLane) -> Result<Option<Stored>, Problem> {
    match lane.head {
        Some(id) => Ok(ctx.app.store.delivery(id).await?),
        None => Ok(None),
    }
}

fn view(lane: OpenLane, head: Option<Stored>, details: &PageDetails) -> OpenLaneView {
    let key = head.as_ref().filter(|_| lane.by_key).and_then(|head| head.key.clone());
    OpenLaneView {
        lane: lane.lane,
        endpoint: lane.endpoint,
        key,
        state: lane.state,
        until: lane.until.map(Time::from),
        head: head.map(|head| DeliveryView::of(head, details)),
        open: lane.open,
    }
}
