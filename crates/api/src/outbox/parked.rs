//! Parked rows: those that were refused, and the later ones of their keys behind them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use railpost_engine::Time;
use railpost_store::limits::{PARKED_COMMAND_HEADS_MAX, TEXT_LEN_MAX};
use railpost_store::{
    ParkedAction, ParkedCommand, ParkedQuery, ParkedRow, ParkedTarget, RowRefusal, SourceFields,
    SourceName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::find;
use crate::answer::Json;
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::NoBody;
use crate::call::{AuditAction, Ctx};
use crate::limits::RETRY_ALL_ROUNDS_MAX;
use crate::path::{OfParkedRow, OfSource};
use crate::problem::{Code, Problem};
use crate::query::{ListPage, NoQuery, PagedQuery};
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let acting = |action| move |ctx, path, _: NoQuery, _: NoBody| act(ctx, path, action);
    vec![
        Route::new(
            Method::GET,
            "/v1/outbox/{source}/parked",
            Needs::Admin,
            "List the parked rows of a source, the earliest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/outbox/{source}/parked/{number}",
            Needs::Admin,
            "Show a parked row with its payload",
            show,
        ),
        Route::new(
            Method::POST,
            "/v1/outbox/{source}/parked/{number}/retry",
            Needs::Admin,
            "Hand a refused row over again, and the rows behind it",
            acting(ParkedAction::Retry),
        ),
        Route::new(
            Method::POST,
            "/v1/outbox/{source}/parked/{number}/skip",
            Needs::Admin,
            "Drop a refused row, and hand the rows behind it over",
            acting(ParkedAction::Skip),
        ),
        Route::new(
            Method::POST,
            "/v1/outbox/{source}/parked/{number}/discard",
            Needs::Admin,
            "Drop a refused row and all rows behind it",
            acting(ParkedAction::Discard),
        ),
        Route::new(
            Method::POST,
            "/v1/outbox/{source}/parked/retry-all",
            Needs::Admin,
            "Hand all refused rows of a source over again, and the rows behind them",
            retry_all,
        ),
    ]
}

/// A parked row. What it says of its event was not checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ParkedRow")]
pub(crate) struct ParkedRowView {
    /// Its number. Later rows have higher ones.
    number: u64,
    /// When it was parked.
    parked_at: Time,
    /// Why it was refused; `null` if it only waits behind another row of its key.
    refusal: Option<RefusalView>,
    /// Whether it is to be handed over again.
    released: bool,
    /// How many bytes it has.
    bytes: u64,
    /// The event's id.
    id: Option<String>,
    /// The row's tenant.
    tenant: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// Its key.
    key: Option<String>,
    /// The content type of its payload.
    content_type: Option<String>,
    /// The version of its type's schema.
    schema_version: Option<i64>,
    /// When it happened, in milliseconds since 1970.
    time_ms: Option<i64>,
    /// The trace it belongs to.
    traceparent: Option<String>,
}

/// Why a row was refused.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RowRefusal")]
pub(crate) struct RefusalView {
    /// In a word: the field, or `schema`, `conflict`.
    code: String,
    /// What is wrong and what is allowed.
    reason: String,
}

/// A parked row with its payload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WholeParkedRow {
    /// All but its payload.
    #[serde(flatten)]
    row: ParkedRowView,
    /// Its payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// Its payload in base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Which parked rows a list shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ParkedFilter {
    /// Only those that were refused, without those that wait behind them.
    refused: bool,
    /// Only those that were refused for this, such as `schema`.
    #[schemars(schema_with = "crate::bounds::optional_text")]
    reason: Option<String>,
    /// Only those of this tenant.
    #[schemars(schema_with = "crate::bounds::optional_text")]
    tenant: Option<String>,
}

/// What a command did.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ParkedCommand")]
pub(crate) struct CommandView {
    /// How many rows were released or dropped.
    rows: u64,
}

async fn list(
    ctx: Ctx,
    path: OfSource,
    query: PagedQuery<ParkedFilter>,
    _: NoBody,
) -> Result<Json<ListPage<ParkedRowView>>, Problem> {
    find(&ctx, &path.source.0).await?;
    let PagedQuery { filter, page } = query;
    filter.check()?;
    let ParkedFilter { refused, reason, tenant } = filter;
    let source = path.source.0;
    let query = ParkedQuery { source, refused_only: refused, code: reason, tenant, page };
    let listing = ctx.app.store.parked_rows(query).await?;
    Ok(Json(ListPage::of(listing, ParkedRowView::from)))
}

impl ParkedFilter {
    fn check(&self) -> Result<(), Problem> {
        for (name, text) in [("reason", &self.reason), ("tenant", &self.tenant)] {
            if text.as_ref().is_some_and(|text| text.len() > TEXT_LEN_MAX || text.contains('\0')) {
                let detail = format!("expected at most {TEXT_LEN_MAX} bytes without NUL");
                return Err(Problem::parameter(name, detail));
            }
        }
        Ok(())
    }
}

async fn show(
    ctx: Ctx,
    path: OfParkedRow,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<WholeParkedRow>, Problem> {
    let OfParkedRow { source, number } = path;
    let store = &ctx.app.store;
    let row = store.parked_row(&source.0, number).await?;
    let row = row.ok_or_else(|| Problem::not_found("parked row", number))?;
    let bytes = store.parked_payload(&source.0, number).await?;
    let payload = bytes.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
    let payload_base64 = bytes.filter(|_| payload.is_none()).map(|bytes| STANDARD.encode(bytes));
    Ok(Json(WholeParkedRow { row: row.into(), payload, payload_base64 }))
}

async fn act(
    ctx: Ctx,
    path: OfParkedRow,
    action: ParkedAction,
) -> Result<Json<CommandView>, Problem> {
    let OfParkedRow { source, number } = path;
    let rows = command(&ctx, source.0, action, ParkedTarget::Head(number)).await?;
    ctx.remember(Json(CommandView { rows })).await
}

async fn retry_all(
    ctx: Ctx,
    path: OfSource,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<CommandView>, Problem> {
    find(&ctx, &path.source.0).await?;
    let mut rows = 0;
    for _ in 0..RETRY_ALL_ROUNDS_MAX {
        let source = path.source.0.clone();
        let released = command(&ctx, source, ParkedAction::Retry, ParkedTarget::AllHeads).await?;
        rows += released;
        // Rows that were refused again meanwhile are not released once more: that could go on for ever.
        if released < u64::from(PARKED_COMMAND_HEADS_MAX) {
            break;
        }
    }
    ctx.remember(Json(CommandView { rows })).await
}

/// Carries a command out, with its audit entry in the commit, and lets the readers look.
async fn command(
    ctx: &Ctx,
    source: SourceName,
    action: ParkedAction,
    target: ParkedTarget,
) -> Result<u64, Problem> {
    let of_audit = match action {
        ParkedAction::Retry => Action::OutboxRetry,
        ParkedAction::Skip => Action::OutboxSkip,
        ParkedAction::Discard => Action::OutboxDiscard,
    };
    if action != ParkedAction::Discard {
        refuse_unread(ctx, &source)?;
    }
    let detail = match target {
        ParkedTarget::Head(number) => json!({ "number": number }),
        ParkedTarget::AllHeads => json!({ "all": true }),
    };
    let audit_action =
        AuditAction { action: of_audit, tenant: None, target: source.to_string(), detail };
    let audit = Some(ctx.audit_entry(audit_action));
    let command = ParkedCommand { source, action, target, audit };
    let rows = ctx.app.store.command_parked(command).await?;
    ctx.app.running_sources.wake();
    Ok(rows)
}

/// Refuses to release rows of a source that nobody reads: they would wait to be handed over for ever.
fn refuse_unread(ctx: &Ctx, source: &SourceName) -> Result<(), Problem> {
    let configured = ctx.app.running_sources.status();
    if configured.iter().any(|configured| configured.name == source.as_str()) {
        return Ok(());
    }
    let detail = format!(
        "source `{source}` is not in the configuration, so nobody hands its rows over: put its section back, or discard \
         its rows"
    );
    Err(Problem::new(Code::Conflict, detail))
}

impl From<ParkedRow> for ParkedRowView {
    fn from(row: ParkedRow) -> Self {
        let ParkedRow { number, parked_at, refusal, released, fields, bytes, .. } = row;
        let SourceFields { id, tenant, event_type, key, content_type, .. } = fields;
        let refusal = refusal.map(|RowRefusal { code, reason }| RefusalView { code, reason });
        Self {
            number,
            parked_at: parked_at.into(),
            refusal,
            released,
            bytes,
            id,
            tenant,
            event_type,
            key,
            content_type,
            schema_version: fields.schema_version,
            time_ms: fields.time,
            traceparent: fields.traceparent,
        }
    }
}
