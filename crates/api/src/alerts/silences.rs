//! Silences: alerts of which nothing is published for a time.

use http::{Method, StatusCode};
use railpost_alerts::Rule;
use railpost_engine::{Span, Time, Timestamp};
use railpost_store::limits::{ALERT_SUBJECT_LEN_MAX, SILENCE_REASON_LEN_MAX};
use railpost_store::{AuditEntry, Silence};
use railpost_wire::{SilenceId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::{Created, Json};
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::{JsonBody, NoBody};
use crate::call::{AuditAction, Ctx};
use crate::limits::SILENCE_MAX;
use crate::path::{NoPath, OfSilence};
use crate::problem::Problem;
use crate::query::{ListPage, NoQuery};
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/silences",
            Needs::Admin,
            "List the silences that have not ended, the earliest first",
            list,
        ),
        Route::new(Method::POST, "/v1/silences", Needs::Admin, "Silence alerts for a time", create)
            .also_refuses(&[StatusCode::NOT_FOUND]),
        Route::new(
            Method::POST,
            "/v1/silences/{silence}/end",
            Needs::Admin,
            "End a silence before its time",
            end,
        ),
    ]
}

/// Alerts of which nothing is published for a time. A field that is `null` matches every alert.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Silence")]
pub(crate) struct SilenceView {
    /// Its id.
    id: SilenceId,
    /// Only alerts of this rule.
    rule: Option<String>,
    /// Only alerts of this tenant.
    tenant: Option<TenantId>,
    /// Only alerts about this subject.
    subject: Option<String>,
    /// When it began.
    from: Time,
    /// When it ends.
    until: Time,
    /// Who made it: the id of an API key.
    by: String,
    /// Why.
    reason: String,
}

impl From<Silence> for SilenceView {
    fn from(silence: Silence) -> Self {
        let Silence { id, rule, tenant, subject, from, until, by, reason } = silence;
        Self { id, rule, tenant, subject, from: from.into(), until: until.into(), by, reason }
    }
}

/// A silence that is asked for. A field that is left out matches every alert.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = json!({ "rule": "breaker_open", "tenant": "acme", "for": "2h", "reason": "maintenance of the receiver" }))]
pub(crate) struct NewSilence {
    /// Only alerts of this rule.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_rule")]
    rule: Option<String>,
    /// Only alerts of this tenant.
    #[serde(default)]
    tenant: Option<TenantId>,
    /// Only alerts about this subject.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::alert_subject")]
    subject: Option<String>,
    /// How long it lasts.
    #[serde(rename = "for")]
    #[schemars(schema_with = "crate::bounds::silence_length")]
    lasts: Span,
    /// Why, for people.
    #[schemars(schema_with = "crate::bounds::silence_reason")]
    reason: String,
}

impl NewSilence {
    fn check(&self) -> Result<(), Problem> {
        if let Some(rule) = &self.rule {
            rule.parse::<Rule>().map_err(|expected| Problem::field("rule", expected))?;
        }
        let subject = self.subject.as_deref().unwrap_or_default();
        if subject.len() > ALERT_SUBJECT_LEN_MAX || subject.contains('\0') {
            let detail = format!("expected at most {ALERT_SUBJECT_LEN_MAX} bytes without NUL");
            return Err(Problem::field("subject", detail));
        }
        if !(Span::from_secs(1)..=SILENCE_MAX).contains(&self.lasts) {
            let detail = format!("expected 1s to {SILENCE_MAX}; got {}", self.lasts);
            return Err(Problem::field("for", detail));
        }
        let reason = &self.reason;
        let is_text = !reason.trim().is_empty() && !reason.contains('\0');
        if !is_text || reason.len() > SILENCE_REASON_LEN_MAX {
            let detail = format!(
                "expected why alerts are silenced, in 1 to {SILENCE_REASON_LEN_MAX} bytes without NUL"
            );
            return Err(Problem::field("reason", detail));
        }
        Ok(())
    }

    fn silence(self, id: SilenceId, by: String, from: Timestamp) -> Silence {
        let Self { rule, tenant, subject, lasts, reason } = self;
        Silence { id, rule, tenant, subject, from, until: from + lasts, by, reason }
    }
}

async fn list(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ListPage<SilenceView>>, Problem> {
    let silences = ctx.app.store.silences().await?;
    let items = silences.into_iter().map(SilenceView::from).collect();
    Ok(Json(ListPage { items, next: None }))
}

async fn create(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewSilence>,
) -> Result<Created<SilenceView>, Problem> {
    new.check()?;
    let now = ctx.now();
    let id = SilenceId::generate(now.as_millis(), ctx.app.random());
    let silence = new.silence(id, ctx.caller.actor(), now);
    let audit = audit(&ctx, Action::SilenceCreate, &silence);
    ctx.app.store.save_silence(silence.clone(), audit).await?;
    ctx.remember(Created(silence.into())).await
}

async fn end(
    ctx: Ctx,
    path: OfSilence,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<SilenceView>, Problem> {
    let silences = ctx.app.store.silences().await?;
    let silence = silences.into_iter().find(|silence| silence.id == path.silence);
    let silence = silence.ok_or_else(|| Problem::not_found("silence", path.silence))?;
    let audit = audit(&ctx, Action::SilenceEnd, &silence);
    let ended = ctx.app.store.end_silence(silence.id, ctx.now(), audit).await?;
    ctx.remember(Json(ended.into())).await
}

/// The entry is the operator's, whatever the silence is about: a tenant has no part in it.
fn audit(ctx: &Ctx, action: Action, silence: &Silence) -> AuditEntry {
    let detail = json!({
        "rule": silence.rule,
        "tenant": silence.tenant,
        "subject": silence.subject,
        "until": Time::from(silence.until),
        "reason": silence.reason,
    });
    ctx.audit_entry(AuditAction { action, tenant: None, target: silence.id.to_string(), detail })
}
