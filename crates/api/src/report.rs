//! The report of a period: the objective, what was achieved, whose part the rest was, and the incidents.

use http::Method;
use railpost_engine::{Span, Time, Timestamp};
use railpost_store::limits::{FIGURES_HOURS_KEPT, LIST_LIMIT_MAX};
use railpost_store::{
    Alert, AlertQuery, Figures, FiguresScope, Listing, PageRequest, Period, Resolution, Severity,
};
use railpost_wire::{AlertId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::figures::{Sums, sum};
use super::path::{NoPath, OfTenant};
use super::problem::Problem;
use super::query::Query;
use super::route::Route;
use crate::limits::{REPORT_INCIDENTS_MAX, REPORT_PARTS_MAX};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/report",
            Needs::Admin,
            "How the objective was met, by tenant",
            of_all,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/report",
            Needs::Read,
            "How the objective was met for a tenant, by endpoint",
            of_tenant,
        ),
    ]
}

/// Which period.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReportQuery {
    /// When it begins: the hour of this time is the first one. If not given: as long before `to` as the objective's
    /// period. Figures are kept for 40 days.
    pub(crate) from: Option<Time>,
    /// When it ends: this hour is not part of it, unless it has begun. If not given: now.
    pub(crate) to: Option<Time>,
}

/// How the objective was met in a period.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    /// Whose deliveries; `null` for all.
    pub(crate) tenant: Option<TenantId>,
    /// When the period begins: the beginning of an hour.
    pub(crate) from: Time,
    /// When it ends.
    pub(crate) to: Time,
    /// What deliveries are judged by.
    pub(crate) objective: Objective,
    /// How it was met.
    pub(crate) achieved: Achieved,
    /// What happened in the period.
    pub(crate) total: Sums,
    /// Alerts that were open in the period, the latest first.
    pub(crate) incidents: Vec<Incident>,
    /// Whether there were more incidents than are listed.
    pub(crate) more_incidents: bool,
    /// The same by endpoint, or by tenant in a report of all: those with most late deliveries first. Deleted ones are
    /// in the total alone.
    pub(crate) parts: Vec<ReportPart>,
    /// Whether there were more endpoints or tenants than are listed.
    pub(crate) more_parts: bool,
}

/// What deliveries are judged by.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Objective {
    /// The share of deliveries that should be on time.
    pub(crate) share: f64,
    /// Deliveries that are acknowledged within this time are on time.
    pub(crate) within: Span,
}

/// How the objective was met. Each delivery is judged once: when it is acknowledged, or when it passes the objective
/// while its endpoint is not paused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Achieved {
    /// Deliveries that were judged.
    pub(crate) judged: u64,
    /// Those acknowledged within the objective.
    pub(crate) on_time: u64,
    /// Those that passed it before anything was sent to their receiver: the operator's part.
    pub(crate) late_operator: u64,
    /// Those that passed it because of their receiver.
    pub(crate) late_receiver: u64,
    /// The share that was on time, 0 to 1; `null` if none was judged.
    pub(crate) share: Option<f64>,
    /// The share that was not late by the operator's part.
    pub(crate) operator_share: Option<f64>,
    /// Whether the objective was met; `null` if none was judged.
    pub(crate) met: Option<bool>,
    /// How many deliveries may be late by the objective.
    pub(crate) budget: f64,
    /// The share of that which is spent: 1 is all of it.
    pub(crate) budget_spent: Option<f64>,
}

/// An alert that was open in the period.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Incident {
    /// The alert's id.
    pub(crate) id: AlertId,
    /// Its rule.
    pub(crate) rule: String,
    /// How bad it was.
    pub(crate) severity: Severity,
    /// Whose it was; `null` for what concerned the server.
    pub(crate) tenant: Option<TenantId>,
    /// What it was about.
    pub(crate) subject: String,
    /// What happened. `null` for what concerned the server, unless the key may see all tenants.
    pub(crate) summary: Option<String>,
    /// When it fired.
    pub(crate) from: Time,
    /// When it was over; `null` if it is not.
    pub(crate) to: Option<Time>,
}

/// How the objective was met at an endpoint, or for a tenant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReportPart {
    /// The id of the endpoint or tenant.
    pub(crate) id: String,
    /// The endpoint's URL or the tenant's name.
    pub(crate) name: String,
    /// How the objective was met.
    pub(crate) achieved: Achieved,
    /// Attempts that ended.
    pub(crate) attempts: u64,
    /// Attempts that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Dead letters made.
    pub(crate) dead: u64,
}

impl Achieved {
    fn of(figures: &Figures, objective: Objective) -> Self {
        let judged = figures.judged();
        let of_judged = |count: u64| (judged > 0).then(|| count as f64 / judged as f64);
        let budget = judged as f64 * (1.0 - objective.share);
        let share = of_judged(figures.on_time);
        Self {
            judged,
            on_time: figures.on_time,
            late_operator: figures.late_operator,
            late_receiver: figures.late_receiver,
            share,
            operator_share: of_judged(judged - figures.late_operator.min(judged)),
            met: share.map(|share| share >= objective.share),
            budget,
            budget_spent: (budget > 0.0).then(|| figures.late() as f64 / budget),
        }
    }
}

impl Incident {
    /// What concerns the server may tell of other tenants.
    fn of(alert: Alert, sees_all: bool) -> Self {
        let is_shown = sees_all || alert.tenant.is_some();
        Self {
            id: alert.id,
            rule: alert.rule,
            severity: alert.severity,
            tenant: alert.tenant,
            subject: alert.subject,
            summary: is_shown.then_some(alert.summary),
            from: alert.fired_at.into(),
            to: alert.resolved_at.map(Time::from),
        }
    }
}

pub(crate) async fn of_all(
    ctx: Ctx,
    _: NoPath,
    Query(query): Query<ReportQuery>,
    _: NoBody,
) -> Result<Json<Report>, Problem> {
    let reporter = Reporter::new(&ctx, query, None)?;
    let mut parts = Vec::new();
    let mut page = PageRequest::first(LIST_LIMIT_MAX);
    loop {
        let Listing { items, next, .. } = ctx.app.store.tenants(page).await?;
        for tenant in items {
            let scope = FiguresScope::Tenant(tenant.id.clone());
            parts.extend(reporter.part(&scope, tenant.id.to_string(), tenant.settings.name).await?);
        }
        let Some(next) = next else { break };
        page = PageRequest::after(LIST_LIMIT_MAX, next);
    }
    reporter.report(&FiguresScope::All, parts).await.map(Json)
}

pub(crate) async fn of_tenant(
    ctx: Ctx,
    path: OfTenant,
    Query(query): Query<ReportQuery>,
    _: NoBody,
) -> Result<Json<Report>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let reporter = Reporter::new(&ctx, query, Some(path.tenant.clone()))?;
    let mut parts = Vec::new();
    let mut page = PageRequest::first(LIST_LIMIT_MAX);
    loop {
        let Listing { items, next, .. } = ctx.app.store.endpoints(Some(&path.tenant), page).await?;
        for endpoint in items {
            let scope = FiguresScope::Endpoint(endpoint.id);
            let (id, url) = (endpoint.id.to_string(), endpoint.settings.url);
            parts.extend(reporter.part(&scope, id, url).await?);
        }
        let Some(next) = next else { break };
        page = PageRequest::after(LIST_LIMIT_MAX, next);
    }
    reporter.report(&FiguresScope::Tenant(path.tenant), parts).await.map(Json)
}

/// Reads what a report is made of.
struct Reporter<'a> {
    ctx: &'a Ctx,
    tenant: Option<TenantId>,
    from: Timestamp,
    to: Timestamp,
    objective: Objective,
}

impl<'a> Reporter<'a> {
    fn new(ctx: &'a Ctx, query: ReportQuery, tenant: Option<TenantId>) -> Result<Self, Problem> {
        let configured = &ctx.app.settings.objective;
        let (from, to) = hours(query, ctx.now(), configured.period)?;
        let objective = Objective { share: configured.share, within: configured.within };
        Ok(Self { ctx, tenant, from, to, objective })
    }

    fn period(&self) -> Period {
        Period { from: Some(self.from), before: Some(self.to) }
    }

    async fn figures(&self, scope: &FiguresScope) -> Result<Figures, Problem> {
        let stored = self.ctx.app.store.figures(scope, Resolution::Hour, self.period()).await?;
        Ok(sum(stored.iter().map(|(_, figures)| figures)))
    }

    /// How it went at one endpoint or for one tenant; nothing if nothing happened there.
    async fn part(
        &self,
        scope: &FiguresScope,
        id: String,
        name: String,
    ) -> Result<Option<ReportPart>, Problem> {
        let figures = self.figures(scope).await?;
        Ok((figures != Figures::default()).then(|| ReportPart {
            id,
            name,
            achieved: Achieved::of(&figures, self.objective),
            attempts: figures.attempts,
            acknowledged: figures.acknowledged,
            dead: figures.dead,
        }))
    }

    async fn report(
        &self,
        scope: &FiguresScope,
        mut parts: Vec<ReportPart>,
    ) -> Result<Report, Problem> {
        let figures = self.figures(scope).await?;
        let query = AlertQuery {
            tenant: self.tenant.clone(),
            with_servers_own: true,
            overlapping: self.period(),
            ..AlertQuery::all(PageRequest::first(REPORT_INCIDENTS_MAX))
        };
        let alerts = self.ctx.app.store.alerts(query).await?;
        let sees_all = self.ctx.caller.may(Needs::Admin, None);
        parts.sort_by_key(|part| {
            let Achieved { late_operator, late_receiver, judged, .. } = part.achieved;
            std::cmp::Reverse((late_operator + late_receiver, judged))
        });
        let more_parts = parts.len() > REPORT_PARTS_MAX;
        parts.truncate(REPORT_PARTS_MAX);
        Ok(Report {
            tenant: self.tenant.clone(),
            from: self.from.into(),
            to: self.to.into(),
            objective: self.objective,
            achieved: Achieved::of(&figures, self.objective),
            total: Sums::from(&figures),
            incidents: alerts.items.into_iter().map(|it| Incident::of(it, sees_all)).collect(),
            more_incidents: alerts.next.is_some(),
            parts,
            more_parts,
        })
    }
}

/// The period as whole hours, but for the last one if it is under way.
fn hours(
    query: ReportQuery,
    now: Timestamp,
    length: Span,
) -> Result<(Timestamp, Timestamp), Problem> {
    let to = query.to.map_or(now, |to| to.0.min(now));
    let earlier = Timestamp::from_millis(to.as_millis().saturating_sub(length.as_millis()));
    let from = query.from.map_or(earlier, |from| from.0);
    if from >= to {
        let detail = format!("expected a time before `to`, {}; got {}", Time(to), Time(from));
        return Err(Problem::parameter("from", detail));
    }
    let kept_from = Resolution::Hour.kept_from(now);
    if from < kept_from && query.from.is_some() {
        let detail = format!(
            "figures are kept for {FIGURES_HOURS_KEPT}: expected {} or later; got {}",
            Time(kept_from),
            Time(from)
        );
        return Err(Problem::parameter("from", detail));
    }
    Ok((Resolution::Hour.start_of(from.max(kept_from)), to))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const OBJECTIVE: Objective = Objective { share: 0.999, within: Span::from_mins(10) };
    const HOUR: u64 = 3_600_000;

    fn figures(on_time: u64, late_operator: u64, late_receiver: u64) -> Figures {
        Figures { on_time, late_operator, late_receiver, ..Figures::default() }
    }

    fn time(hours: u64, minutes: u64) -> Option<Time> {
        Some(Time(Timestamp::from_millis(hours * HOUR + minutes * 60_000)))
    }

    #[test]
    fn the_budget_is_what_the_objective_leaves() {
        let achieved = Achieved::of(&figures(9_980, 5, 15), OBJECTIVE);
        assert_eq!(achieved.judged, 10_000);
        assert_eq!(achieved.share, Some(0.998));
        assert_eq!(achieved.operator_share, Some(0.9995));
        assert_eq!(achieved.met, Some(false));
        assert!((achieved.budget - 10.0).abs() < 1e-6, "{achieved:?}");
        assert!((achieved.budget_spent.unwrap() - 2.0).abs() < 1e-6, "{achieved:?}");
    }

    #[test]
    fn nothing_judged_is_neither_met_nor_missed() {
        let achieved = Achieved::of(&figures(0, 0, 0), OBJECTIVE);
        assert_eq!((achieved.share, achieved.met, achieved.budget_spent), (None, None, None));
    }

    #[test]
    fn the_period_begins_with_an_hour_and_does_not_lie_ahead() {
        let now = time(1000, 30).unwrap().0;
        let of = |from, to| hours(ReportQuery { from, to }, now, Span::from_days(30));
        let hours_of = |from, to| of(from, to).map(|(from, to)| (Some(Time(from)), Some(Time(to))));
        assert_eq!(hours_of(time(990, 59), time(995, 1)).unwrap(), (time(990, 0), time(995, 1)));
        assert_eq!(hours_of(None, None).unwrap(), (time(280, 0), time(1000, 30)));
        assert_eq!(hours_of(time(990, 0), time(2000, 0)).unwrap(), (time(990, 0), time(1000, 30)));
        let refused = |from, to| of(from, to).unwrap_err().detail;
        assert!(refused(time(995, 0), time(995, 0)).contains("expected a time before `to`"));
        assert!(refused(time(30, 0), None).starts_with("figures are kept for 40d"));
    }
}
