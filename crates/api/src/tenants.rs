//! Tenants: the owners of events and endpoints.

use http::Method;
use railpost_engine::{RateLimit, Time};
use railpost_store::{ErasingTenant, Tenant, TenantSettings, Write, is_reserved_tenant};
use railpost_wire::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::{Accepted, Created, Json};
use super::audit::{Action, Changes};
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::members::{FromMembers, Members};
use super::merge::{self, MergePatch};
use super::path::{NoPath, OfTenant};
use super::problem::{Code, Problem};
use super::query::{ListPage, NoFilter, NoQuery, PagedQuery};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/v1/tenants", Needs::Admin, "List tenants", list),
        Route::new(Method::POST, "/v1/tenants", Needs::Admin, "Create a tenant", create),
        Route::new(Method::GET, "/v1/tenants/{tenant}", Needs::Read, "Show a tenant", show),
        Route::new(Method::PATCH, "/v1/tenants/{tenant}", Needs::Admin, "Change a tenant", change),
        Route::new(
            Method::DELETE,
            "/v1/tenants/{tenant}",
            Needs::Admin,
            "Delete a tenant and all its data, as a job",
            erase,
        ),
    ]
}

/// A tenant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub(crate) struct TenantView {
    /// Its id.
    pub(crate) id: TenantId,
    /// Its name, for people.
    pub(crate) name: String,
    /// Most attempts per period over all its endpoints.
    pub(crate) rate_limit: Option<RateLimit>,
    /// Most open deliveries; `null` means the server's own bound.
    pub(crate) backlog_max: Option<u64>,
    /// Whether it is the tenant of the server's own notices.
    pub(crate) reserved: bool,
    /// When it was created.
    pub(crate) created_at: Time,
    /// When it last changed.
    pub(crate) updated_at: Time,
    /// How far its erasing has come, if it is being erased. Only admins see such a tenant, and only by its
    /// id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) erasing: Option<Erasing>,
}

/// How far the erasing of a tenant has come. Once it is done, the tenant is not found.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Erasing {
    /// Since when.
    pub(crate) since: Time,
    /// How many events, lanes and other entries are erased so far.
    pub(crate) erased: u64,
}

impl From<ErasingTenant> for TenantView {
    fn from(tenant: ErasingTenant) -> Self {
        let ErasingTenant { id, created_at, since, erased } = tenant;
        Self {
            reserved: is_reserved_tenant(&id),
            id,
            name: String::new(),
            rate_limit: None,
            backlog_max: None,
            created_at: created_at.into(),
            updated_at: since.into(),
            erasing: Some(Erasing { since: since.into(), erased }),
        }
    }
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        let TenantSettings { name, rate_limit, backlog_max } = tenant.settings;
        Self {
            reserved: is_reserved_tenant(&tenant.id),
            id: tenant.id,
            name,
            rate_limit,
            backlog_max,
            created_at: tenant.created_at.into(),
            updated_at: tenant.updated_at.into(),
            erasing: None,
        }
    }
}

/// A new tenant.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = json!({ "id": "acme", "name": "Acme", "backlog_max": 100_000 }))]
pub(crate) struct NewTenant {
    /// Its id: lowercase letters, digits, `_` and `-`.
    pub(crate) id: TenantId,
    /// Its name, for people.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::text")]
    pub(crate) name: String,
    /// Most attempts per period over all its endpoints.
    #[serde(default)]
    pub(crate) rate_limit: Option<RateLimit>,
    /// Most open deliveries.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::backlog_max")]
    pub(crate) backlog_max: Option<u64>,
}

/// What can be chosen about a tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantFields {
    /// Its name, for people.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::text")]
    name: String,
    /// Most attempts per period over all its endpoints.
    #[serde(default)]
    rate_limit: Option<RateLimit>,
    /// Most open deliveries.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::backlog_max")]
    backlog_max: Option<u64>,
}

impl FromMembers for TenantFields {
    fn from_members(members: Members) -> Result<Self, Problem> {
        members.parse()
    }
}

impl merge::Settings for TenantFields {
    const CHANGE: (&'static str, &'static str) = (
        "TenantChange",
        "Changes of a tenant: a JSON merge patch. Fields that are left out stay as they are; `null` removes a \
         limit.",
    );

    fn example() -> serde_json::Value {
        json!({ "name": "Acme", "backlog_max": null })
    }
}

impl From<TenantSettings> for TenantFields {
    fn from(settings: TenantSettings) -> Self {
        let TenantSettings { name, rate_limit, backlog_max } = settings;
        Self { name, rate_limit, backlog_max }
    }
}

impl From<TenantFields> for TenantSettings {
    fn from(fields: TenantFields) -> Self {
        let TenantFields { name, rate_limit, backlog_max } = fields;
        Self { name, rate_limit, backlog_max }
    }
}

pub(crate) async fn list(
    ctx: Ctx,
    _: NoPath,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<TenantView>>, Problem> {
    let listing = ctx.app.store.tenants(query.page).await?;
    Ok(Json(ListPage::of(listing, TenantView::from)))
}

pub(crate) async fn create(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewTenant>,
) -> Result<Created<TenantView>, Problem> {
    let NewTenant { id, name, rate_limit, backlog_max } = new;
    let settings = TenantSettings { name, rate_limit, backlog_max };
    check(&settings)?;
    refuse_reserved(&id, "exists from the start on")?;
    let now = ctx.now();
    let view = TenantView::from(Tenant {
        id: id.clone(),
        settings: settings.clone(),
        created_at: now,
        updated_at: now,
    });
    let changes = Changes::between(&TenantSettings::default(), &settings);
    let audit_action = audit_action(Action::TenantCreate, &id).with_changes(changes);
    let writes = vec![Write::CreateTenant(id, settings)];
    let made = ctx.commit(writes, audit_action, Created(view)).await;
    // Also when it failed: the answer alone may have got lost.
    ctx.app.tenant_watch.tenant_created().await;
    made
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<TenantView>, Problem> {
    let found = find(&ctx, &path.tenant).await;
    if found.is_err()
        && ctx.caller.may(Needs::Admin, None)
        && let Some(erasing) = ctx.app.store.erasing_tenant(&path.tenant).await?
    {
        return Ok(Json(erasing.into()));
    }
    Ok(Json(found?.into()))
}

pub(crate) async fn change(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    change: MergePatch<TenantFields>,
) -> Result<Json<TenantView>, Problem> {
    let mut tenant = find(&ctx, &path.tenant).await?;
    let before = tenant.settings.clone();
    tenant.settings = change.apply(&tenant.settings.into())?.into();
    check(&tenant.settings)?;
    tenant.updated_at = ctx.now();
    let changes = Changes::between(&before, &tenant.settings);
    let audit_action = audit_action(Action::TenantChange, &tenant.id).with_changes(changes);
    let writes = vec![Write::UpdateTenant(tenant.id.clone(), tenant.settings.clone())];
    ctx.commit(writes, audit_action, Json(TenantView::from(tenant))).await
}

/// Marks a tenant for erasing: from here on it is gone, for its own keys too. A job does the rest.
pub(crate) async fn erase(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    _: NoBody,
) -> Result<Accepted<TenantView>, Problem> {
    refuse_reserved(&path.tenant, "is not deleted")?;
    if let Some(erasing) = ctx.app.store.erasing_tenant(&path.tenant).await? {
        return Ok(Accepted(erasing.into()));
    }
    let tenant = find(&ctx, &path.tenant).await?;
    let endpoints = endpoints_of(&ctx, &path.tenant).await?;
    let (created_at, since) = (tenant.created_at, ctx.now());
    let erasing = ErasingTenant { id: tenant.id.clone(), created_at, since, erased: 0 };
    let writes = vec![Write::EraseTenant(tenant.id)];
    let audit_action =
        AuditAction { tenant: None, ..audit_action(Action::TenantErase, &path.tenant) };
    let marked = ctx.commit(writes, audit_action, Accepted(erasing.into())).await;
    // Even if the answer was lost: the tenant may be unknown from here on.
    for endpoint in endpoints {
        ctx.app.dispatcher.endpoint_changed(endpoint).await;
    }
    ctx.app.keys.forget_tenant(&path.tenant);
    ctx.app.catalogue.forget(&path.tenant);
    ctx.app.erasures.notify_one();
    marked
}

/// The tenant, or why the caller hears of none.
pub(crate) async fn find(ctx: &Ctx, id: &TenantId) -> Result<Tenant, Problem> {
    ctx.app.store.tenant(id).await?.ok_or_else(|| Problem::not_found("tenant", id))
}

/// Refuses what nobody does with the tenant of the server's own notices.
pub(crate) fn refuse_reserved(tenant: &TenantId, rule: &str) -> Result<(), Problem> {
    if !is_reserved_tenant(tenant) {
        return Ok(());
    }
    let detail =
        format!("the tenant `{tenant}` is reserved for the server's own notices: it {rule}");
    Err(Problem::new(Code::Reserved, detail))
}

fn check(settings: &TenantSettings) -> Result<(), Problem> {
    settings.rate_limit.map_or(Ok(()), |limit| Ok(limit.check("rate_limit")?))
}

async fn endpoints_of(
    ctx: &Ctx,
    tenant: &TenantId,
) -> Result<Vec<railpost_wire::EndpointId>, Problem> {
    let mut page = railpost_store::PageRequest::first(railpost_store::limits::LIST_LIMIT_MAX);
    let mut ids = Vec::new();
    loop {
        let listing = ctx.app.store.endpoints(Some(tenant), page.clone()).await?;
        ids.extend(listing.items.iter().map(|endpoint| endpoint.id));
        match listing.next {
            Some(next) => page.after = Some(next),
            None => return Ok(ids),
        }
    }
}

fn audit_action(action: Action, tenant: &TenantId) -> AuditAction {
    let (target, tenant) = (tenant.to_string(), Some(tenant.clone()));
    AuditAction { action, tenant, target, detail: json!({}) }
}
