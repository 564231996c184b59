//! The health of an endpoint, with counts of its deliveries.

use http::Method;
use railpost_dispatch::ServedHealth;
use railpost_engine::{BreakerState, EndpointStatus, Time, Timestamp};
use railpost_store::{Counts, Endpoint};
use schemars::JsonSchema;
use serde::Serialize;

use super::find;
use crate::answer::Json;
use crate::auth::Needs;
use crate::body::NoBody;
use crate::call::Ctx;
use crate::endpoint_health::HealthView;
use crate::path::OfEndpoint;
use crate::problem::Problem;
use crate::query::NoQuery;
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::GET,
        "/v1/tenants/{tenant}/endpoints/{endpoint}/health",
        Needs::Read,
        "Show the health of an endpoint",
        health,
    )]
}

/// How an endpoint is doing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointHealth {
    #[serde(flatten)]
    pub(crate) health: HealthView,
    /// Whether it is switched on, and if not, why.
    pub(crate) status: EndpointStatus,
    /// Why nothing can be sent to it, such as a missing secret.
    pub(crate) blocked: Option<String>,
    /// Since when nothing but failures came back.
    pub(crate) failing_since: Option<Time>,
    /// The state of its breaker; `null` while this server does not serve the endpoint.
    pub(crate) breaker: Option<BreakerView>,
    /// Until when its receiver asked for a pause, with `Retry-After`.
    pub(crate) held_until: Option<Time>,
    /// Attempts in flight.
    pub(crate) in_flight: u64,
    /// Deliveries in memory that wait only for a limit, the breaker or `Retry-After`.
    pub(crate) ready: usize,
    /// Deliveries that wait for their turn.
    pub(crate) pending: u64,
    /// Deliveries that wait for a retry.
    pub(crate) waiting: u64,
    /// Dead letters that hold a lane.
    pub(crate) held: u64,
    /// Dead letters that hold none.
    pub(crate) dead: u64,
    /// All open deliveries: pending, in flight, waiting and held.
    pub(crate) open: u64,
    /// When the oldest open delivery was made.
    pub(crate) oldest_open_at: Option<Time>,
    /// How long ago that was, in seconds.
    pub(crate) oldest_open_age_s: u64,
    /// How far sending is behind accepting, in seconds: the age of the oldest open delivery while any waits
    /// to be sent. Held dead letters wait for a person; if nothing else is open, the lag is 0.
    pub(crate) lag_s: u64,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
#[schemars(rename = "Breaker")]
pub(crate) enum BreakerView {
    /// Attempts pass.
    Closed,
    /// Nothing passes before `until`; then one probe.
    Open {
        /// The probe's instant.
        until: Time,
    },
    /// The probe is in flight.
    Probing,
    /// Attempts pass, but no more than `limit` at once.
    Ramping {
        /// Most attempts in flight.
        limit: u32,
    },
}

impl From<BreakerState> for BreakerView {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => BreakerView::Closed,
            BreakerState::Open { until } => BreakerView::Open { until: until.into() },
            BreakerState::Probing => BreakerView::Probing,
            BreakerState::Ramping { limit } => BreakerView::Ramping { limit },
        }
    }
}

pub(crate) async fn health(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EndpointHealth>, Problem> {
    let endpoint = find(&ctx, &path).await?;
    let counts = ctx.app.store.counts(endpoint.id).await?;
    let served = ctx.app.dispatcher.health(endpoint.id).await?;
    Ok(Json(health_of(&endpoint, counts, served.as_ref(), ctx.now())))
}

fn health_of(
    endpoint: &Endpoint,
    counts: Counts,
    served: Option<&ServedHealth>,
    now: Timestamp,
) -> EndpointHealth {
    let age_s = counts.oldest_open_at.map_or(0, |at| now.since(at).as_millis() / 1000);
    let health = served.map(|served| &served.health);
    let failing_since = health.map_or(endpoint.failing_since, |health| health.failing_since);
    EndpointHealth {
        health: HealthView::of(endpoint, served),
        status: health.map_or(endpoint.status, |health| health.status),
        blocked: served.and_then(|served| served.blocked.clone()),
        failing_since: failing_since.map(Time::from),
        breaker: health.map(|health| health.breaker.into()),
        held_until: health.and_then(|health| health.held_until).map(Time::from),
        in_flight: health.map_or(counts.in_flight, |health| health.in_flight.into()),
        ready: health.map_or(0, |health| health.ready),
        pending: counts.pending,
        waiting: counts.waiting,
        held: counts.held,
        dead: counts.dead,
        open: counts.open(),
        oldest_open_at: counts.oldest_open_at.map(Time::from),
        oldest_open_age_s: age_s,
        lag_s: if counts.open() > counts.held { age_s } else { 0 },
    }
}
