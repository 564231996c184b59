//! The overview of one tenant, or of all.

use http::Method;
use railpost_engine::{BreakerState, EndpointStatus, Time};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Endpoint, PageRequest};
use railpost_wire::{EndpointId, TenantId};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::path::{NoPath, OfTenant};
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;
use crate::limits::{ATTENTION_MAX, OVERVIEW_HEALTH_MAX};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/overview",
            Needs::Admin,
            "Show the overview of all tenants",
            of_all,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/overview",
            Needs::Read,
            "Show the overview of a tenant",
            of_tenant,
        ),
    ]
}

/// The overview of a tenant, or of all.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// Deliveries that are open.
    pub(crate) open: u64,
    /// Of these, those that wait for their turn.
    pub(crate) pending: u64,
    /// Those that wait for a retry.
    pub(crate) waiting: u64,
    /// Those recorded as sent, without an outcome yet.
    pub(crate) in_flight: u64,
    /// Dead letters that hold a lane.
    pub(crate) held: u64,
    /// Dead letters that hold none.
    pub(crate) dead: u64,
    /// When the oldest open delivery was made.
    pub(crate) oldest_open_at: Option<Time>,
    /// How many endpoints there are.
    pub(crate) endpoints: EndpointCounts,
    /// Endpoints that someone should look at: up to 100.
    pub(crate) attention: Vec<Attention>,
}

/// Endpoints by status.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct EndpointCounts {
    /// Sent to.
    pub(crate) active: u64,
    /// Paused by a person.
    pub(crate) paused: u64,
    /// Paused because too many lanes failed for good.
    pub(crate) quarantined: u64,
    /// Said to be gone by the receiver.
    pub(crate) gone: u64,
    /// Disabled because nothing but failures came back for too long.
    pub(crate) failing: u64,
}

impl EndpointCounts {
    fn count(&mut self, status: EndpointStatus) {
        *match status {
            EndpointStatus::Active => &mut self.active,
            EndpointStatus::Paused => &mut self.paused,
            EndpointStatus::Quarantined => &mut self.quarantined,
            EndpointStatus::Gone => &mut self.gone,
            EndpointStatus::Failing => &mut self.failing,
        } += 1;
    }
}

/// An endpoint that someone should look at.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Attention {
    /// Which.
    pub(crate) endpoint: EndpointId,
    /// Whose.
    pub(crate) tenant: TenantId,
    /// Its URL.
    pub(crate) url: String,
    /// Why.
    pub(crate) why: AttentionReason,
}

/// Why someone should look at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttentionReason {
    /// It was paused because too many lanes failed for good.
    Quarantined,
    /// The receiver said that it is gone.
    Gone,
    /// It was disabled because nothing but failures came back for too long.
    Failing,
    /// Too much fails: hardly anything is sent to it just now.
    BreakerOpen,
}

pub(crate) async fn of_all(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<Overview>, Problem> {
    Ok(Json(of(&ctx, None).await?))
}

pub(crate) async fn of_tenant(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<Overview>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    Ok(Json(of(&ctx, Some(&path.tenant)).await?))
}

async fn of(ctx: &Ctx, tenant: Option<&TenantId>) -> Result<Overview, Problem> {
    let counts = ctx.app.store.totals(tenant).await?;
    let mut overview = Overview {
        open: counts.open(),
        pending: counts.pending,
        waiting: counts.waiting,
        in_flight: counts.in_flight,
        held: counts.held,
        dead: counts.dead,
        oldest_open_at: counts.oldest_open_at.map(Time::from),
        ..Overview::default()
    };
    look_at_endpoints(ctx, tenant, &mut overview).await?;
    Ok(overview)
}

async fn look_at_endpoints(
    ctx: &Ctx,
    tenant: Option<&TenantId>,
    overview: &mut Overview,
) -> Result<(), Problem> {
    let mut page = PageRequest::first(LIST_LIMIT_MAX);
    let mut asked = 0;
    loop {
        let listing = ctx.app.store.endpoints(tenant, page).await?;
        for endpoint in listing.items {
            overview.endpoints.count(endpoint.status);
            if overview.attention.len() < ATTENTION_MAX
                && let Some(why) = why(ctx, &endpoint, &mut asked).await?
            {
                let Endpoint { id, tenant, settings, .. } = endpoint;
                overview.attention.push(Attention { endpoint: id, tenant, url: settings.url, why });
            }
        }
        match listing.next {
            Some(next) => page = PageRequest::after(LIST_LIMIT_MAX, next),
            None => return Ok(()),
        }
    }
}

/// Why someone should look at an endpoint, if anyone should. Of breakers only the dispatcher knows, and
/// it has better things to do than to answer for everyone: it is `asked` a bounded number of times.
async fn why(
    ctx: &Ctx,
    endpoint: &Endpoint,
    asked: &mut usize,
) -> Result<Option<AttentionReason>, Problem> {
    match endpoint.status {
        EndpointStatus::Quarantined => return Ok(Some(AttentionReason::Quarantined)),
        EndpointStatus::Gone => return Ok(Some(AttentionReason::Gone)),
        EndpointStatus::Failing => return Ok(Some(AttentionReason::Failing)),
        EndpointStatus::Paused => return Ok(None),
        EndpointStatus::Active => *asked += 1,
    }
    if *asked > OVERVIEW_HEALTH_MAX {
        return Ok(None);
    }
    let health = ctx.app.dispatcher.health(endpoint.id).await?;
    let breaker = health.map(|health| health.breaker);
    let open = matches!(breaker, Some(BreakerState::Open { .. } | BreakerState::Probing));
    Ok(open.then_some(AttentionReason::BreakerOpen))
}
