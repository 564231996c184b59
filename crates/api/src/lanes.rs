//! Lanes that a dead letter holds.

use http::Method;
use railpost_engine::{Command, DeadReason, DeliveryStage, LaneId, Time};
use railpost_store::{HeldLane, HeldLaneQuery};
use railpost_wire::{DeliveryId, EndpointId, Key, Seq};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::attempts::{LastAnswer, PageDetails};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::commands::carry_out;
use super::deliveries::{DeliveryView, find_of};
use super::path::{OfLane, OfTenant};
use super::problem::Problem;
use super::query::{ListPage, NoQuery, PagedQuery};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let acting = |command| move |ctx, path, _: NoQuery, _: NoBody| act(ctx, path, command);
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/lanes",
            Needs::Read,
            "List lanes that a dead letter holds, the longest held first",
            list,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/lanes/{lane}/replay",
            Needs::Manage,
            "Replay the dead letter that holds a lane",
            acting(Command::Replay),
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/lanes/{lane}/skip",
            Needs::Manage,
            "Skip the dead letter that holds a lane; the dead letter stays",
            acting(Command::Skip),
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/lanes/{lane}/discard",
            Needs::Manage,
            "Discard the dead letter that holds a lane",
            acting(Command::Discard),
        ),
    ]
}

/// A lane that a dead letter holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "HeldLane")]
pub(crate) struct HeldLaneView {
    /// Which lane.
    pub(crate) lane: LaneId,
    /// Of which endpoint.
    pub(crate) endpoint: EndpointId,
    /// The key it is for; `null` when it is the endpoint's one lane for everything.
    pub(crate) key: Option<Key>,
    /// The dead letter that holds it.
    pub(crate) held_by: DeliveryId,
    /// Its number in its line.
    pub(crate) held_at_seq: Seq,
    /// The last seq of the lane, counted in the same line.
    pub(crate) last_seq: Seq,
    /// How many deliveries are behind the dead letter, including discarded ones.
    pub(crate) waiting_behind: u64,
    /// When the delivery became a dead letter.
    pub(crate) since: Time,
    /// Why it is dead.
    pub(crate) reason: DeadReason,
    /// The endpoint's URL.
    pub(crate) endpoint_url: Option<String>,
    /// What came of the dead letter's last attempt; nothing if there was none.
    pub(crate) last_answer: Option<LastAnswer>,
}

/// Which held lanes a list shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LaneFilter {
    /// Of this endpoint only.
    pub(crate) endpoint: Option<EndpointId>,
}

/// The delivery that a lane's command acted on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Released {
    /// It.
    pub(crate) delivery: DeliveryView,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<LaneFilter>,
    _: NoBody,
) -> Result<Json<ListPage<HeldLaneView>>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let PagedQuery { filter, page } = query;
    let query = HeldLaneQuery { tenant: path.tenant, endpoint: filter.endpoint, page };
    let listing = ctx.app.store.held_lanes(query).await?;
    let named = listing.items.iter().map(|held| (held.held_by, held.endpoint));
    let details = PageDetails::of(&ctx, named).await?;
    Ok(Json(ListPage::of(listing, |held| view(held, &details))))
}

/// Acts on the dead letter that holds a lane.
pub(crate) async fn act(
    ctx: Ctx,
    path: OfLane,
    command: Command,
) -> Result<Json<Released>, Problem> {
    let held_by = holder(&ctx, &path).await?;
    let stored = find_of(&ctx, &path.tenant, held_by).await?;
    carry_out(&ctx, command, stored, |delivery| Json(Released { delivery })).await
}

/// The dead letter that holds the lane, if it is the tenant's and held.
async fn holder(ctx: &Ctx, path: &OfLane) -> Result<DeliveryId, Problem> {
    let held = ctx.app.store.held_lane(&path.tenant, LaneId(path.lane)).await?;
    held.map(|held| held.held_by).ok_or_else(|| Problem::not_found("held lane", path.lane))
}

fn view(held: HeldLane, details: &PageDetails) -> HeldLaneView {
    let before = held.line.map_or(0, |place| place.before);
    let in_line = |seq: Seq| Seq::new(seq.get().saturating_sub(before)).unwrap_or(Seq::FIRST);
    HeldLaneView {
        lane: held.lane,
        endpoint: held.endpoint,
        key: held.key,
        held_by: held.held_by,
        held_at_seq: in_line(held.held_at),
        last_seq: in_line(held.last),
        waiting_behind: held.last.get() - held.held_at.get(),
        since: held.since.into(),
        reason: held.reason,
        endpoint_url: details.url(held.endpoint),
        last_answer: details.last_answer(held.held_by, held.endpoint, DeliveryStage::Dead),
    }
}
