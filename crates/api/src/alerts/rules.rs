//! The rules with their settings in use, and tests of who is reached.

use http::Method;
use railpost_alerts::{AlertSettings, NoticeStatus, Rule, holds_when};
use railpost_engine::Span;
use railpost_store::{RESERVED_TENANT, Severity};
use railpost_wire::{AlertId, EventId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{TestReach, notice_id};
use crate::answer::{Accepted, Json};
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::{JsonBody, NoBody};
use crate::call::{AuditAction, Ctx};
use crate::path::NoPath;
use crate::problem::Problem;
use crate::query::{ListPage, NoQuery};
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/alert-rules",
            Needs::Admin,
            "List the rules of alerts with their settings in use",
            list,
        ),
        Route::new(
            Method::POST,
            "/v1/alerts/test",
            Needs::Admin,
            "Publish a test notice that fires and one that resolves it",
            test,
        ),
    ]
}

/// A rule of alerts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AlertRule")]
pub(crate) struct RuleView {
    /// Its name.
    name: &'static str,
    /// When it holds, in words, with the thresholds in use.
    holds_when: String,
    /// Whether it counts.
    enabled: bool,
    /// How bad it is.
    severity: Severity,
    /// Its other settings in use, by their names in the section `[alerts.<rule>]` of the configuration.
    settings: Map<String, Value>,
    /// How long its condition has to be gone until an alert is resolved.
    resolve_after: Span,
    /// How many alerts of it are open: it holds if there is one.
    open: u64,
    /// The event type of the notice that it fired.
    fired_type: &'static str,
    /// The event type of the notice that it was resolved.
    resolved_type: &'static str,
    /// The page that says what to do, if the configuration says where those pages are.
    runbook: Option<String>,
}

/// A test of who is reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = json!({ "rule": "breaker_open" }))]
pub(crate) struct NewTest {
    /// The rule whose notices are sent, as a test; `null` for those of type `railpost.alert.test`.
    #[schemars(schema_with = "crate::bounds::optional_rule")]
    rule: Option<String>,
}

/// Notices of a test that were published.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AlertTest")]
pub(crate) struct TestView {
    /// Whose events they are.
    tenant: TenantId,
    /// The notice that fires.
    fired: TestEvent,
    /// The notice that resolves it.
    resolved: TestEvent,
}

/// A notice of a test.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AlertTestEvent")]
pub(crate) struct TestEvent {
    /// The event's id.
    event: EventId,
    /// How many endpoints it goes to.
    endpoints: usize,
    /// The path of its story: where it went, and each attempt.
    story: String,
}

async fn list(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ListPage<RuleView>>, Problem> {
    let alerts = ctx.app.store.open_alerts().await?;
    let open = |rule: Rule| {
        let of_rule = alerts.iter().filter(|it| it.is_open() && it.rule == rule.name());
        of_rule.count() as u64
    };
    let items = Rule::ALL.into_iter().map(|rule| view(&ctx, rule, open(rule))).collect();
    Ok(Json(ListPage { items, next: None }))
}

fn view(ctx: &Ctx, rule: Rule, open: u64) -> RuleView {
    let settings = ctx.app.running_alerts.settings();
    let (fired_type, resolved_type) = rule.notice_types();
    let common = settings.rule(rule);
    RuleView {
        name: rule.name(),
        holds_when: holds_when(rule, settings),
        enabled: common.enabled,
        severity: common.severity,
        settings: own_settings(rule, settings),
        resolve_after: settings.resolve_after(rule),
        open,
        fired_type,
        resolved_type,
        runbook: ctx.app.running_alerts.runbook(rule),
    }
}

/// What only this rule has.
fn own_settings(rule: Rule, settings: &AlertSettings) -> Map<String, Value> {
    let all = serde_json::to_value(settings).unwrap_or_default();
    let mut own = all[rule.name()].as_object().cloned().unwrap_or_default();
    own.retain(|name, _| !matches!(name.as_str(), "enabled" | "severity"));
    own
}

async fn test(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewTest>,
) -> Result<Accepted<TestView>, Problem> {
    let rule = new.rule.map(|rule| rule.parse::<Rule>()).transpose();
    let rule = rule.map_err(|expected| Problem::field("rule", expected))?;
    let at = ctx.now();
    let id = AlertId::generate(at.as_millis(), ctx.app.random());
    let reach = ctx.app.running_alerts.publish_test(id, rule, at).await?;
    let answer = test_view(id, reach);
    let detail = json!({ "rule": rule.map(Rule::name), "endpoints": reach.fired });
    let audit_action =
        AuditAction { action: Action::AlertTest, tenant: None, target: id.to_string(), detail };
    ctx.commit(Vec::new(), audit_action, Accepted(answer)).await
}

fn test_view(id: AlertId, reach: TestReach) -> TestView {
    let tenant: TenantId = RESERVED_TENANT.parse().expect("it is a tenant's id");
    let event = |status, endpoints| {
        let event = notice_id(id, status);
        let story = format!("/v1/tenants/{tenant}/events/{event}/story");
        TestEvent { event, endpoints, story }
    };
    TestView {
        fired: event(NoticeStatus::Fired, reach.fired),
        resolved: event(NoticeStatus::Resolved, reach.resolved),
        tenant,
    }
}
