//! Which roles of the store's own database may emit events, each for one tenant.

use std::convert::Infallible;
use std::str::FromStr;

use http::{Method, StatusCode};
use railpost_wire::TenantId;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::{Json, NoContent};
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::{JsonBody, NoBody};
use crate::call::{AuditAction, Ctx};
use crate::path::{NoPath, OfRole};
use crate::problem::Problem;
use crate::query::{ListPage, NoQuery};
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    const ONE: &str = "/v1/outbox/grants/{role}";
    vec![
        Route::new(
            Method::GET,
            "/v1/outbox/grants",
            Needs::Admin,
            "List the database roles that may call `railpost_emit`",
            list,
        ),
        Route::new(Method::GET, ONE, Needs::Admin, "Show the tenant that a role emits for", show),
        Route::new(
            Method::PUT,
            ONE,
            Needs::Admin,
            "Let a database role call `railpost_emit` for a tenant",
            put,
        )
        .also_refuses(&[StatusCode::NOT_FOUND]),
        Route::new(
            Method::DELETE,
            ONE,
            Needs::Admin,
            "Take the right to call `railpost_emit` from a role",
            remove,
        ),
    ]
}

/// A role of the store's database that may emit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "EmitGrant")]
pub(crate) struct GrantView {
    /// The role.
    role: String,
    /// The tenant whose events it emits.
    tenant: TenantId,
}

/// For whom a role may emit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = json!({ "tenant": "acme" }))]
pub(crate) struct NewGrant {
    /// The tenant whose events it emits, in place of any other.
    tenant: TenantId,
}

/// The name of a role in a path.
#[derive(Clone, Debug)]
pub(crate) struct RoleParam(String);

impl FromStr for RoleParam {
    type Err = Infallible;

    /// The database says which roles it has.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl JsonSchema for RoleParam {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RoleName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

async fn list(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ListPage<GrantView>>, Problem> {
    let grants = ctx.app.store.emit_grants().await?.into_iter();
    let items = grants.map(|(role, tenant)| GrantView { role, tenant }).collect();
    Ok(Json(ListPage { items, next: None }))
}

async fn show(ctx: Ctx, path: OfRole, _: NoQuery, _: NoBody) -> Result<Json<GrantView>, Problem> {
    find(&ctx, path.role.0).await.map(Json)
}

async fn find(ctx: &Ctx, role: String) -> Result<GrantView, Problem> {
    let mut grants = ctx.app.store.emit_grants().await?.into_iter();
    let found = grants.find(|(granted, _)| *granted == role);
    let found = found.map(|(role, tenant)| GrantView { role, tenant });
    found.ok_or_else(|| Problem::not_found("role", role))
}

async fn put(
    ctx: Ctx,
    path: OfRole,
    _: NoQuery,
    JsonBody(new): JsonBody<NewGrant>,
) -> Result<Json<GrantView>, Problem> {
    let (role, tenant) = (path.role.0, new.tenant);
    let audit = ctx.audit_entry(audit_action(Action::OutboxGrant, &role, &tenant));
    ctx.app.store.grant_emit(&role, &tenant, Some(audit)).await?;
    ctx.remember(Json(GrantView { role, tenant })).await
}

async fn remove(ctx: Ctx, path: OfRole, _: NoQuery, _: NoBody) -> Result<NoContent, Problem> {
    let GrantView { role, tenant } = find(&ctx, path.role.0).await?;
    let audit = ctx.audit_entry(audit_action(Action::OutboxRevoke, &role, &tenant));
    ctx.app.store.revoke_emit(&role, Some(audit)).await?;
    ctx.remember(NoContent).await
}

fn audit_action(action: Action, role: &str, tenant: &TenantId) -> AuditAction {
    let (tenant, target) = (Some(tenant.clone()), role.to_owned());
    AuditAction { action, tenant, target, detail: json!({}) }
}
