//! Alerts: conditions that hold or held, what was published of them, and the rules behind them.

mod open_count;
mod rules;
mod silences;

use std::fmt;

use async_trait::async_trait;
use http::Method;
use railpost_alerts::{AlertSettings, NoticeStatus, Rule};
use railpost_engine::{Time, Timestamp};
use railpost_store::{
    Alert, AlertQuery, RESERVED_TENANT, Severity, Silence, StoreError, Told, is_reserved_tenant,
};
use railpost_wire::{AlertId, EndpointId, EventId, EventType, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::deliveries::period;
use super::path::{NoPath, OfAlert, OfTenant, OfTenantAlert};
use super::problem::Problem;
use super::query::{ListPage, NoQuery, PagedQuery};
use super::route::Route;
use super::tenants;

pub(crate) use open_count::OpenAlertsCache;

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/alerts",
            Needs::Read,
            "List the alerts of a tenant, the latest first",
            list_own,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/alerts/{alert}",
            Needs::Read,
            "Show an alert of a tenant with its notices",
            show_own,
        ),
        Route::new(
            Method::GET,
            "/v1/alerts",
            Needs::Admin,
            "List all alerts, the latest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/alerts/{alert}",
            Needs::Admin,
            "Show an alert with its notices",
            show,
        ),
    ];
    [own, open_count::routes(), rules::routes(), silences::routes()].concat()
}

/// What only the server knows of alerts.
#[async_trait]
pub trait RunningAlerts: fmt::Debug + Send + Sync {
    /// The settings in use.
    fn settings(&self) -> &AlertSettings;

    /// The URL of a rule's runbook, if the configuration says where runbooks are.
    fn runbook(&self, rule: Rule) -> Option<String>;

    /// Publishes a notice that fires and one that resolves it, whose ids begin with `id`. Says how many endpoints
    /// each of them goes to.
    async fn publish_test(
        &self,
        id: AlertId,
        rule: Option<Rule>,
        at: Timestamp,
    ) -> Result<TestReach, StoreError>;
}

/// To how many endpoints the notices of a test go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestReach {
    /// The notice that fires.
    pub fired: usize,
    /// The notice that resolves it.
    pub resolved: usize,
}

/// An alert: a condition that holds or held.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
pub(crate) struct AlertView {
    /// Its id.
    id: AlertId,
    /// The rule, such as `breaker_open`.
    rule: String,
    /// Whose it is; `null` for what concerns the server.
    tenant: Option<TenantId>,
    /// What it is about: an endpoint's id, `<endpoint>/<lane>`, a source. Empty if the rule says it all.
    subject: String,
    /// The endpoint that it is about, if it is about one.
    endpoint: Option<EndpointId>,
    /// How bad it is.
    severity: Severity,
    /// What happened, why, what happens next and what to do.
    summary: String,
    /// Figures and names.
    details: serde_json::Value,
    /// Whether the condition holds.
    open: bool,
    /// When it fired.
    fired_at: Time,
    /// When it was over.
    resolved_at: Option<Time>,
    /// What was published of it.
    published: Told,
    /// Until when nothing of it is published; `null` if it is not silenced.
    silenced_until: Option<Time>,
    /// The page that says what to do, if the configuration says where those pages are.
    runbook: Option<String>,
}

/// An alert by itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AlertDetail {
    /// What a list shows of it too.
    #[serde(flatten)]
    alert: AlertView,
    /// The events by which people were told, as far as they are kept.
    notices: Vec<NoticeView>,
}

/// An event by which people were told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AlertNotice")]
pub(crate) struct NoticeView {
    /// The event's id.
    event: EventId,
    /// Whose event it is.
    tenant: TenantId,
    /// Its type.
    #[serde(rename = "type")]
    event_type: EventType,
    /// When it was published.
    accepted_at: Time,
    /// The path of its story: where it went, and each attempt.
    story: String,
}

/// Which alerts a list shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlertFilter {
    /// Only those of this rule.
    #[schemars(schema_with = "crate::bounds::optional_rule")]
    rule: Option<String>,
    /// Only open ones, or only resolved ones.
    open: Option<bool>,
    /// Only those that were open at this time or later.
    from: Option<Time>,
    /// Only those that fired before this time.
    before: Option<Time>,
}

/// The same for all tenants.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlertFilterOfAll {
    /// Only those of this tenant.
    tenant: Option<TenantId>,
    /// Only those of this rule.
    #[schemars(schema_with = "crate::bounds::optional_rule")]
    rule: Option<String>,
    /// Only open ones, or only resolved ones.
    open: Option<bool>,
    /// Only those that were open at this time or later.
    from: Option<Time>,
    /// Only those that fired before this time.
    before: Option<Time>,
}

async fn list_own(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<AlertFilter>,
    _: NoBody,
) -> Result<Json<ListPage<AlertView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let AlertFilter { rule, open, from, before } = query.filter;
    let (tenant, overlapping) = (Some(path.tenant), period(from, before));
    page(&ctx, AlertQuery { tenant, rule, open, overlapping, ..AlertQuery::all(query.page) }).await
}

async fn list(
    ctx: Ctx,
    _: NoPath,
    query: PagedQuery<AlertFilterOfAll>,
    _: NoBody,
) -> Result<Json<ListPage<AlertView>>, Problem> {
    let AlertFilterOfAll { tenant, rule, open, from, before } = query.filter;
    let overlapping = period(from, before);
    page(&ctx, AlertQuery { tenant, rule, open, overlapping, ..AlertQuery::all(query.page) }).await
}

async fn page(ctx: &Ctx, query: AlertQuery) -> Result<Json<ListPage<AlertView>>, Problem> {
    if let Some(rule) = &query.rule {
        rule.parse::<Rule>().map_err(|expected| Problem::parameter("rule", expected))?;
    }
    let listing = ctx.app.store.alerts(query).await?;
    let silences = ctx.app.store.silences().await?;
    Ok(Json(ListPage::of(listing, |alert| AlertView::of(ctx, alert, &silences))))
}

async fn show_own(
    ctx: Ctx,
    path: OfTenantAlert,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<AlertDetail>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let alert = ctx.app.store.alert(path.alert).await?;
    let alert = alert.filter(|alert| alert.tenant.as_ref() == Some(&path.tenant));
    let alert = alert.ok_or_else(|| Problem::not_found("alert", path.alert))?;
    detail(&ctx, alert, &[path.tenant]).await
}

async fn show(
    ctx: Ctx,
    path: OfAlert,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<AlertDetail>, Problem> {
    let alert = ctx.app.store.alert(path.alert).await?;
    let alert = alert.ok_or_else(|| Problem::not_found("alert", path.alert))?;
    let reserved = RESERVED_TENANT.parse().expect("it is a tenant's id");
    let own = alert.tenant.clone().filter(|tenant| !is_reserved_tenant(tenant));
    let tenants: Vec<TenantId> = [reserved].into_iter().chain(own).collect();
    detail(&ctx, alert, &tenants).await
}

async fn detail(
    ctx: &Ctx,
    alert: Alert,
    tenants: &[TenantId],
) -> Result<Json<AlertDetail>, Problem> {
    let notices = notices(ctx, alert.id, tenants).await?;
    let silences = ctx.app.store.silences().await?;
    Ok(Json(AlertDetail { alert: AlertView::of(ctx, alert, &silences), notices }))
}

/// The notices of an alert that these tenants have.
async fn notices(
    ctx: &Ctx,
    alert: AlertId,
    tenants: &[TenantId],
) -> Result<Vec<NoticeView>, Problem> {
    let mut notices = Vec::new();
    for status in [NoticeStatus::Fired, NoticeStatus::Resolved] {
        let id: EventId = notice_id(alert, status);
        for tenant in tenants {
            let Some(stored) = ctx.app.store.event(tenant, &id).await? else { continue };
            notices.push(NoticeView {
                event: id.clone(),
                tenant: tenant.clone(),
                event_type: stored.event.event_type,
                accepted_at: stored.accepted_at.into(),
                story: format!("/v1/tenants/{tenant}/events/{id}/story"),
            });
        }
    }
    Ok(notices)
}

fn notice_id(alert: AlertId, status: NoticeStatus) -> EventId {
    format!("{alert}:{}", status.as_str()).parse().expect("it is an event's id")
}

impl AlertView {
    fn of(ctx: &Ctx, alert: Alert, silences: &[Silence]) -> Self {
        let now = ctx.now();
        let silenced = silences.iter().filter(|silence| silence.covers(&alert, now));
        let until = silenced.map(|silence| silence.until).max().filter(|_| alert.is_open());
        let rule = alert.rule.parse::<Rule>().ok();
        Self {
            id: alert.id,
            endpoint: endpoint_of(&alert.subject),
            open: alert.is_open(),
            fired_at: alert.fired_at.into(),
            resolved_at: alert.resolved_at.map(Time::from),
            published: alert.told,
            silenced_until: until.map(Time::from),
            runbook: rule.and_then(|rule| ctx.app.running_alerts.runbook(rule)),
            rule: alert.rule,
            tenant: alert.tenant,
            subject: alert.subject,
            severity: alert.severity,
            summary: alert.summary,
            details: alert.details,
        }
    }
}

/// The endpoint of a subject: an endpoint's id, or that of a lane's endpoint before the lane.
fn endpoint_of(subject: &str) -> Option<EndpointId> {
    subject.split('/').next().and_then(|id| id.parse().ok())
}
