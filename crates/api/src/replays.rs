//! Replays: jobs that do the same to every delivery that a filter finds.

use futures_util::future::try_join_all;
use http::Method;
use railpost_engine::{HealthState, Time};
use railpost_store::{Replay, ReplayAction, ReplayProgress, ReplayState, Write};
use railpost_wire::{DeliveryId, EndpointId, ReplayId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::{Accepted, Json};
use super::audit::Action;
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::deliveries::DeliveryFilter;
use super::events::check_target;
use super::path::{OfReplay, OfTenant};
use super::problem::{Code, Problem};
use super::query::{ListPage, NoFilter, NoQuery, PagedQuery};
use super::route::Route;
use crate::endpoint_health::HealthView;
use crate::limits::{REPLAY_RATE_MAX, REPLAY_WAITS_MAX};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/replays",
            Needs::Manage,
            "Replay, skip, discard or redeliver all deliveries that match a filter, as a job",
            create,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/replays",
            Needs::Read,
            "List replays, the latest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/replays/{replay}",
            Needs::Read,
            "Show a replay",
            show,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/replays/{replay}/cancel",
            Needs::Manage,
            "Cancel a replay; its finished work stays",
            cancel,
        ),
    ]
}

/// What is done to each delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ReplayAction")]
pub(crate) enum ActionView {
    /// A dead letter is sent again, in its lane.
    Replay,
    /// A held lane continues; the dead letter stays.
    Skip,
    /// The delivery is discarded.
    Discard,
    /// Its event is redelivered, to the endpoint `to`.
    Redeliver,
}

/// The state of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ReplayState")]
pub(crate) enum StateView {
    /// It runs, or waits for earlier replays of the tenant.
    Running,
    /// All matching deliveries were handled.
    Done,
    /// A person stopped it.
    Cancelled,
    /// It failed; `problem` says why.
    Failed,
}

/// A replay that is asked for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReplay {
    /// What is done to each delivery.
    pub(crate) action: ActionView,
    /// The endpoint of `redeliver`.
    #[serde(default)]
    pub(crate) to: Option<EndpointId>,
    /// Which deliveries, of those made before this request. If it names no state: the dead letters, or all
    /// deliveries for `redeliver`.
    #[serde(default)]
    pub(crate) filter: DeliveryFilter,
    /// Most deliveries per second; `null` for as fast as it goes.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::rate_per_s")]
    pub(crate) rate_per_s: Option<u32>,
    /// Whether it is a dry run: it counts the deliveries and shows the first ones.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A job that does the same to many deliveries, the oldest first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Replay")]
pub(crate) struct ReplayView {
    /// Its id.
    pub(crate) id: ReplayId,
    /// What is done to each delivery.
    pub(crate) action: ActionView,
    /// The endpoint of `redeliver`.
    pub(crate) to: Option<EndpointId>,
    /// To which deliveries.
    pub(crate) filter: DeliveryFilter,
    /// Most deliveries per second.
    pub(crate) rate_per_s: Option<u32>,
    /// Whether it only counts what it would do.
    pub(crate) dry_run: bool,
    /// Where it stands.
    pub(crate) state: StateView,
    /// Deliveries that the filter found so far.
    pub(crate) matched: u64,
    /// Deliveries that the action was done to.
    pub(crate) done: u64,
    /// Deliveries whose state did not allow the action.
    pub(crate) refused: u64,
    /// Deliveries that were read to find the matching ones: the cost of the filter.
    pub(crate) looked_at: u64,
    /// How long it has worked so far, in milliseconds.
    pub(crate) took_ms: u64,
    /// Why it failed.
    pub(crate) problem: Option<String>,
    /// When it was asked for.
    pub(crate) created_at: Time,
    /// When it ended.
    pub(crate) finished_at: Option<Time>,
    /// Of a dry run: the first 20 deliveries in the order in which they would go, as far as it has found
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preview: Option<Vec<DeliveryId>>,
    /// Endpoints that its deliveries may go to and to which nothing is sent just now: up to 10. What was replayed waits
    /// there. None of a dry run, and of what sends nothing.
    pub(crate) waits_for: Vec<NotSentTo>,
}

/// An endpoint to which nothing is sent just now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct NotSentTo {
    /// Which.
    pub(crate) endpoint: EndpointId,
    /// How it is doing.
    pub(crate) health: HealthView,
}

impl ReplayView {
    /// The replay, with the endpoints it waits for.
    async fn of(ctx: &Ctx, replay: Replay) -> Result<Self, Problem> {
        let waits_for = waits_for(ctx, &replay).await?;
        Ok(Self::new(replay, waits_for))
    }

    fn new(replay: Replay, waits_for: Vec<NotSentTo>) -> Self {
        let (action, to) = match replay.action {
            ReplayAction::Replay => (ActionView::Replay, None),
            ReplayAction::Skip => (ActionView::Skip, None),
            ReplayAction::Discard => (ActionView::Discard, None),
            ReplayAction::Redeliver { to } => (ActionView::Redeliver, Some(to)),
        };
        let ReplayProgress { matched, done, refused, looked_at, took_ms } = replay.progress;
        Self {
            id: replay.id,
            action,
            to,
            filter: replay.filter.into(),
            rate_per_s: replay.rate_per_s,
            dry_run: replay.dry_run,
            state: state_view(replay.state),
            matched,
            done,
            refused,
            looked_at,
            took_ms,
            problem: replay.problem,
            created_at: replay.created_at.into(),
            finished_at: replay.finished_at.map(Time::from),
            preview: replay.dry_run.then_some(replay.preview),
            waits_for,
        }
    }
}

/// The endpoint that a replay names, or any of the tenant's if it names none, if nothing is sent to it just now.
async fn waits_for(ctx: &Ctx, replay: &Replay) -> Result<Vec<NotSentTo>, Problem> {
    let target = match replay.action {
        ReplayAction::Replay => replay.filter.endpoint,
        ReplayAction::Redeliver { to } => Some(to),
        ReplayAction::Skip | ReplayAction::Discard => return Ok(Vec::new()),
    };
    if replay.dry_run {
        return Ok(Vec::new());
    }
    let dispatcher = &ctx.app.dispatcher;
    let found: Vec<_> = match target {
        Some(id) => dispatcher.health(id).await?.map(|served| (id, served)).into_iter().collect(),
        None => {
            let survey = dispatcher.survey(Some(&replay.tenant), REPLAY_WAITS_MAX).await?;
            survey.attention.into_iter().chain(survey.paused).collect()
        }
    };
    let waits = found.iter().filter(|(_, served)| served.health.state != HealthState::Active);
    let named = waits.map(|(endpoint, served)| NotSentTo {
        endpoint: *endpoint,
        health: HealthView::served(served),
    });
    Ok(named.take(REPLAY_WAITS_MAX).collect())
}

fn state_view(state: ReplayState) -> StateView {
    match state {
        ReplayState::Running => StateView::Running,
        ReplayState::Done => StateView::Done,
        ReplayState::Cancelled => StateView::Cancelled,
        ReplayState::Failed => StateView::Failed,
    }
}

pub(crate) async fn create(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    JsonBody(new): JsonBody<NewReplay>,
) -> Result<Accepted<ReplayView>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let replay = checked(&ctx, path.tenant, new).await?;
    let answer = Accepted(ReplayView::of(&ctx, replay.clone()).await?);
    let audit_action = audit_action(Action::ReplayCreate, &replay);
    let created =
        ctx.commit(vec![Write::PutReplay(Box::new(replay))], audit_action, answer).await?;
    ctx.app.replay_changes.notify_one();
    Ok(created)
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<ReplayView>>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let listing = ctx.app.store.replays(&path.tenant, query.page).await?;
    let views = listing.items.iter().map(|replay| waits_for(&ctx, replay));
    let mut waits = try_join_all(views).await?.into_iter();
    Ok(Json(ListPage::of(listing, |replay| {
        ReplayView::new(replay, waits.next().unwrap_or_default())
    })))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfReplay,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ReplayView>, Problem> {
    let replay = find(&ctx, &path).await?;
    Ok(Json(ReplayView::of(&ctx, replay).await?))
}

pub(crate) async fn cancel(
    ctx: Ctx,
    path: OfReplay,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ReplayView>, Problem> {
    let mut replay = find(&ctx, &path).await?;
    if replay.state != ReplayState::Running {
        return Err(Problem::new(Code::WrongState, "the replay has already ended"));
    }
    replay.state = ReplayState::Cancelled;
    replay.finished_at = Some(ctx.now());
    let audit_action = audit_action(Action::ReplayCancel, &replay);
    let answer = Json(ReplayView::of(&ctx, replay.clone()).await?);
    let cancelled =
        ctx.commit(vec![Write::PutReplay(Box::new(replay))], audit_action, answer).await?;
    ctx.app.replay_changes.notify_one();
    Ok(cancelled)
}

/// The replay that is asked for, if it can be done.
async fn checked(ctx: &Ctx, tenant: TenantId, new: NewReplay) -> Result<Replay, Problem> {
    if !new.rate_per_s.is_none_or(|rate| (1..=REPLAY_RATE_MAX).contains(&rate)) {
        let got = new.rate_per_s.unwrap_or_default();
        let problem = format!("expected 1 to {REPLAY_RATE_MAX}, or nothing; got {got}");
        return Err(Problem::field("rate_per_s", problem));
    }
    let action = action(ctx, &tenant, &new).await?;
    let filter = filter(action, new.filter)?;
    let (created_at, actor) = (ctx.now(), ctx.caller.actor());
    Ok(Replay {
        id: ReplayId::generate(created_at.as_millis(), ctx.app.random()),
        tenant,
        created_at,
        actor,
        action,
        filter: filter.into(),
        rate_per_s: new.rate_per_s,
        dry_run: new.dry_run,
        state: ReplayState::Running,
        progress: ReplayProgress::default(),
        preview: Vec::new(),
        cursor: None,
        problem: None,
        finished_at: None,
    })
}

/// Which deliveries an action is for. Only dead letters can be replayed or skipped; they are discarded unless
/// another state is named.
fn filter(action: ReplayAction, filter: DeliveryFilter) -> Result<DeliveryFilter, Problem> {
    let dead_letters = match action {
        ReplayAction::Replay | ReplayAction::Skip => filter.of_dead_letters(),
        ReplayAction::Discard if filter.state.is_none() => filter.of_dead_letters(),
        ReplayAction::Discard | ReplayAction::Redeliver { .. } => return Ok(filter),
    };
    dead_letters.ok_or_else(|| {
        let problem = "expected `dead` or no value: only dead letters can be replayed or skipped";
        Problem::field("filter.state", problem)
    })
}

async fn action(ctx: &Ctx, tenant: &TenantId, new: &NewReplay) -> Result<ReplayAction, Problem> {
    let action = match (new.action, new.to) {
        (ActionView::Redeliver, Some(to)) => {
            check_target(ctx, tenant, to, "to").await?;
            return Ok(ReplayAction::Redeliver { to });
        }
        (ActionView::Redeliver, None) => {
            let problem = "expected the endpoint to deliver to";
            return Err(Problem::field("to", problem));
        }
        (_, Some(_)) => {
            let problem = "only `redeliver` takes an endpoint: leave the field out";
            return Err(Problem::field("to", problem));
        }
        (ActionView::Replay, None) => ReplayAction::Replay,
        (ActionView::Skip, None) => ReplayAction::Skip,
        (ActionView::Discard, None) => ReplayAction::Discard,
    };
    Ok(action)
}

async fn find(ctx: &Ctx, path: &OfReplay) -> Result<Replay, Problem> {
    let found = ctx.app.store.replay(path.replay).await?;
    let own = found.filter(|replay| replay.tenant == path.tenant);
    own.ok_or_else(|| Problem::not_found("replay", path.replay))
}

fn audit_action(action: Action, replay: &Replay) -> AuditAction {
    let filter = DeliveryFilter::from(replay.filter.clone());
    let detail = json!({ "action": replay.action, "filter": filter, "dry_run": replay.dry_run });
    AuditAction {
        action,
        tenant: Some(replay.tenant.clone()),
        target: replay.id.to_string(),
        detail,
    }
}
