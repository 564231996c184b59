//! The audit trail: every change with its actor and target.

mod action;
mod changes;

use std::net::IpAddr;

use http::Method;
use railpost_engine::Time;
use railpost_store::limits::TEXT_LEN_MAX;
use railpost_store::{AuditEntry, AuditQuery};
use railpost_wire::{AuditId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::deliveries::period;
use super::path::{NoPath, OfTenant};
use super::problem::Problem;
use super::query::{ListPage, PagedQuery};
use super::route::Route;
use super::tenants;

pub use action::{AUDIT_MASTER_KEY_ROTATED, AUDIT_TENANT_ERASED, Action};
pub(crate) use changes::Changes;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/audit",
            Needs::Manage,
            "List the audit entries of a tenant, the latest first",
            list_own,
        ),
        Route::new(
            Method::GET,
            "/v1/audit",
            Needs::Admin,
            "List all audit entries, the latest first",
            list,
        ),
    ]
}

/// An entry of the audit trail.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct AuditView {
    /// Its id.
    pub(crate) id: AuditId,
    /// The time.
    pub(crate) at: Time,
    /// The tenant, if the action concerns one.
    pub(crate) tenant: Option<TenantId>,
    /// The actor: an API key's id, `railpost` for actions of the server itself, `configuration` for changes of
    /// `server.admin_key` at the start, `nobody` for a failed sign-in.
    pub(crate) actor: String,
    /// The address of the client, if the request came over the network.
    pub(crate) address: Option<IpAddr>,
    /// The action, such as `endpoint.pause`.
    pub(crate) action: String,
    /// The id of the target.
    pub(crate) target: String,
    /// Further details. `changes` has the changed fields by their paths, each with `from` and `to`. Secrets are
    /// named without their values, long values are cut. `more_changes` is the number of changes left out.
    pub(crate) detail: serde_json::Value,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, tenant, actor, address, action, target, detail } = entry;
        Self { id, at: at.into(), tenant, actor, address, action, target, detail }
    }
}

/// Which entries a list shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditFilter {
    /// Only those about the target with this id.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_text")]
    pub(crate) target: Option<String>,
    /// Only those at or after this time.
    pub(crate) created_after: Option<Time>,
    /// Only those before this time.
    pub(crate) created_before: Option<Time>,
}

pub(crate) async fn list_own(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<AuditFilter>,
    _: NoBody,
) -> Result<Json<ListPage<AuditView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    page(&ctx, Some(path.tenant), query).await
}

pub(crate) async fn list(
    ctx: Ctx,
    _: NoPath,
    query: PagedQuery<AuditFilter>,
    _: NoBody,
) -> Result<Json<ListPage<AuditView>>, Problem> {
    page(&ctx, None, query).await
}

async fn page(
    ctx: &Ctx,
    tenant: Option<TenantId>,
    query: PagedQuery<AuditFilter>,
) -> Result<Json<ListPage<AuditView>>, Problem> {
    let AuditFilter { target, created_after, created_before } = query.filter;
    if target.as_ref().is_some_and(|target| target.len() > TEXT_LEN_MAX || target.contains('\0')) {
        let detail = format!("expected at most {TEXT_LEN_MAX} bytes without NUL");
        return Err(Problem::parameter("target", detail));
    }
    let at = period(created_after, created_before);
    let query = AuditQuery { tenant, target, at, page: query.page };
    let listing = ctx.app.store.audit(query).await?;
    Ok(Json(ListPage::of(listing, AuditView::from)))
}
