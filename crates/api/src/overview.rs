//! The overview of one tenant, or of all.

use http::Method;
use railpost_dispatch::{EndpointSurvey, ServedHealth};
use railpost_engine::{HealthState, Time};
use railpost_store::Endpoint;
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
use crate::endpoint_health::HealthView;
use crate::limits::ATTENTION_MAX;

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
    /// Attempts in flight. Until one ends, its delivery is listed as it was before.
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

/// Endpoints by state.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct EndpointCounts {
    /// Sent to.
    pub(crate) active: u64,
    /// Not sent to for a while: the breaker is open, or the receiver asked to wait.
    pub(crate) waiting: u64,
    /// Paused by a person.
    pub(crate) paused: u64,
    /// Not sent to, because something is missing, such as a secret.
    pub(crate) blocked: u64,
    /// Paused because too many lanes failed for good.
    pub(crate) quarantined: u64,
    /// Disabled because nothing but failures came back for too long.
    pub(crate) failing: u64,
    /// Said to be gone by the receiver.
    pub(crate) gone: u64,
}

impl EndpointCounts {
    fn of(survey: &EndpointSurvey) -> Self {
        let of = |state: HealthState| survey.counts[state as usize];
        Self {
            active: of(HealthState::Active),
            waiting: of(HealthState::Waiting),
            paused: of(HealthState::Paused),
            blocked: of(HealthState::Blocked),
            quarantined: of(HealthState::Quarantined),
            failing: of(HealthState::Failing),
            gone: of(HealthState::Gone),
        }
    }
}

/// An endpoint that someone should look at: it is neither active nor paused.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Attention {
    /// Which.
    pub(crate) endpoint: EndpointId,
    /// Whose.
    pub(crate) tenant: TenantId,
    /// Its URL.
    pub(crate) url: String,
    /// How it is doing.
    pub(crate) health: HealthView,
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
    let survey = ctx.app.dispatcher.survey(tenant, ATTENTION_MAX).await?;
    Ok(Overview {
        open: counts.open(),
        pending: counts.pending,
        waiting: counts.waiting,
        in_flight: survey.in_flight,
        held: counts.held,
        dead: counts.dead,
        oldest_open_at: counts.oldest_open_at.map(Time::from),
        endpoints: EndpointCounts::of(&survey),
        attention: attention(ctx, survey.attention).await?,
    })
}

/// Endpoints that need attention, with their URLs. One that was removed a moment ago needs none.
async fn attention(
    ctx: &Ctx,
    found: Vec<(EndpointId, ServedHealth)>,
) -> Result<Vec<Attention>, Problem> {
    let mut attention = Vec::with_capacity(found.len());
    for (id, served) in found {
        let Some(Endpoint { tenant, settings, removed_at: None, .. }) =
            ctx.app.store.endpoint(id).await?
        else {
            continue;
        };
        let health = HealthView::served(&served);
        attention.push(Attention { endpoint: id, tenant, url: settings.url, health });
    }
    Ok(attention)
}
