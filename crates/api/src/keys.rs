//! API keys and their scopes.

use http::{Method, StatusCode};
use railpost_engine::Time;
use railpost_store::{ApiKey, PageRequest, Scope, StoreError, Write};
use railpost_wire::{ApiKeyId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::{Created, Json, NoContent};
use super::audit::{Action, Changes};
use super::auth::{KEY_PREFIX, Needs, hash_of, scope_name};
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::path::{NoPath, OfKey, OfTenant, OfTenantKey};
use super::problem::{Code, Problem};
use super::query::{ListPage, NoFilter, NoQuery, PagedQuery};
use super::route::Route;
use super::tenants;
use crate::app::App;
use crate::limits::API_KEY_RANDOM_LEN;

/// What the key of `server.admin_key` is called. No other key is called so.
pub const CONFIGURED_KEY_NAME: &str = "server.admin_key";

pub(super) fn routes() -> Vec<Route> {
    const OF_TENANT: &str = "/v1/tenants/{tenant}/keys";
    const ALL: &str = "/v1/keys";
    use Needs::{Admin, Manage};
    vec![
        Route::new(
            Method::GET,
            "/v1/whoami",
            Needs::AnyKey,
            "Show the API key of the request",
            whoami,
        ),
        Route::new(Method::GET, OF_TENANT, Manage, "List the API keys of a tenant", list_own),
        Route::new(Method::POST, OF_TENANT, Manage, "Create an API key for a tenant", create_own),
        Route::new(
            Method::DELETE,
            "/v1/tenants/{tenant}/keys/{key}",
            Manage,
            "Revoke an API key of a tenant",
            revoke_own,
        ),
        Route::new(Method::GET, ALL, Admin, "List all API keys", list),
        Route::new(
            Method::POST,
            ALL,
            Admin,
            "Create an API key, for a tenant or for admins",
            create,
        )
        .also_refuses(&[StatusCode::NOT_FOUND]),
        Route::new(Method::DELETE, "/v1/keys/{key}", Admin, "Revoke an API key", revoke),
    ]
}

/// The scope of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Scope")]
pub(crate) enum ScopeView {
    /// Everything.
    Admin,
    /// Everything of one tenant.
    Tenant,
    /// Publishing events of one tenant.
    PublishOnly,
    /// Reading everything of one tenant, except its keys and its audit trail.
    ReadOnly,
}

impl From<Scope> for ScopeView {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Admin => ScopeView::Admin,
            Scope::Tenant => ScopeView::Tenant,
            Scope::PublishOnly => ScopeView::PublishOnly,
            Scope::ReadOnly => ScopeView::ReadOnly,
        }
    }
}

impl From<ScopeView> for Scope {
    fn from(scope: ScopeView) -> Self {
        match scope {
            ScopeView::Admin => Scope::Admin,
            ScopeView::Tenant => Scope::Tenant,
            ScopeView::PublishOnly => Scope::PublishOnly,
            ScopeView::ReadOnly => Scope::ReadOnly,
        }
    }
}

/// An API key. The key itself is stored nowhere.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKey")]
pub(crate) struct KeyView {
    /// Its id.
    pub(crate) id: ApiKeyId,
    /// Its tenant; `null` for an admin key.
    pub(crate) tenant: Option<TenantId>,
    /// What people call it.
    pub(crate) name: String,
    /// Its scope.
    pub(crate) scope: ScopeView,
    /// When it was made.
    pub(crate) created_at: Time,
    /// When it expires, if ever.
    pub(crate) expires_at: Option<Time>,
    /// When it was revoked, if it was.
    pub(crate) revoked_at: Option<Time>,
    /// When it was last used, to ten minutes.
    pub(crate) last_used_at: Option<Time>,
}

impl From<&ApiKey> for KeyView {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id,
            tenant: key.tenant.clone(),
            name: key.name.clone(),
            scope: key.scope.into(),
            created_at: key.created_at.into(),
            expires_at: key.expires_at.map(Time::from),
            revoked_at: key.revoked_at.map(Time::from),
            last_used_at: key.last_used_at.map(Time::from),
        }
    }
}

/// An API key that was made.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct KeyCreated {
    #[serde(flatten)]
    pub(crate) view: KeyView,
    /// The key itself: `rp_…`. Shown here and never again.
    pub(crate) key: String,
}

/// The API key of the request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Whoami {
    /// The key.
    pub(crate) key: KeyView,
    /// Its tenant; `null` for an admin key.
    pub(crate) tenant: Option<TenantId>,
}

/// A new API key of a tenant.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = json!({ "name": "shop backend", "scope": "publish-only" }))]
pub(crate) struct NewTenantKey {
    /// What people call it.
    #[schemars(schema_with = "crate::bounds::name")]
    pub(crate) name: String,
    /// Its scope: `tenant`, `publish-only` or `read-only`.
    #[schemars(extend("enum" = ["tenant", "publish-only", "read-only"]))]
    pub(crate) scope: ScopeView,
    /// When it expires; never if not given.
    #[serde(default)]
    pub(crate) expires_at: Option<Time>,
}

/// A new API key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    example = json!({ "name": "operations", "scope": "admin" }),
    extend("oneOf" = json!([
        { "properties": { "scope": { "const": "admin" }, "tenant": { "type": "null" } } },
        {
            "properties": {
                "scope": { "enum": ["tenant", "publish-only", "read-only"] },
                "tenant": { "type": "string" },
            },
            "required": ["tenant"],
        },
    ]))
)]
pub(crate) struct NewKey {
    /// What people call it.
    #[schemars(schema_with = "crate::bounds::name")]
    pub(crate) name: String,
    /// Its scope.
    pub(crate) scope: ScopeView,
    /// Its tenant; every key except an admin key has one.
    #[serde(default)]
    pub(crate) tenant: Option<TenantId>,
    /// When it expires; never if not given.
    #[serde(default)]
    pub(crate) expires_at: Option<Time>,
}

pub(crate) async fn whoami(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<Whoami>, Problem> {
    let nobody = || Problem::new(Code::Unauthorized, "the API key is missing");
    let key = ctx.caller.key.as_ref().ok_or_else(nobody)?;
    Ok(Json(Whoami { key: KeyView::from(&**key), tenant: key.tenant.clone() }))
}

pub(crate) async fn list_own(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<KeyView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let listing = ctx.app.store.api_keys(Some(&path.tenant), query.page).await?;
    Ok(Json(ListPage::of(listing, |key| KeyView::from(&key))))
}

pub(crate) async fn list(
    ctx: Ctx,
    _: NoPath,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<KeyView>>, Problem> {
    let listing = ctx.app.store.api_keys(None, query.page).await?;
    Ok(Json(ListPage::of(listing, |key| KeyView::from(&key))))
}

/// Creates a key for the tenant of the path. The caller has a key of that tenant or an admin key, so the new
/// key never has more rights than the caller's.
pub(crate) async fn create_own(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    JsonBody(new): JsonBody<NewTenantKey>,
) -> Result<Created<KeyCreated>, Problem> {
    let NewTenantKey { name, scope, expires_at } = new;
    if scope == ScopeView::Admin {
        let detail = "expected `tenant`, `publish-only` or `read-only`: \
                      create an admin key at /v1/keys";
        return Err(Problem::field("scope", detail));
    }
    make(&ctx, NewKey { name, scope, tenant: Some(path.tenant), expires_at }).await
}

pub(crate) async fn create(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewKey>,
) -> Result<Created<KeyCreated>, Problem> {
    match (&new.tenant, new.scope) {
        (Some(_), ScopeView::Admin) => {
            Err(Problem::field("tenant", "an admin key has no tenant: leave the field out"))
        }
        (None, scope) if scope != ScopeView::Admin => {
            let scope = scope_name(scope.into());
            let detail = format!("expected a tenant, as a key of scope `{scope}` needs one");
            Err(Problem::field("tenant", detail))
        }
        _ => make(&ctx, new).await,
    }
}

async fn make(ctx: &Ctx, new: NewKey) -> Result<Created<KeyCreated>, Problem> {
    if let Some(tenant) = &new.tenant {
        tenants::find(ctx, tenant).await?;
    }
    let now = ctx.now();
    if new.name.trim().is_empty() {
        return Err(Problem::field("name", "expected a name that is not empty"));
    }
    if new.name == CONFIGURED_KEY_NAME {
        let detail = "this name is reserved for the key of the configuration: choose another name";
        return Err(Problem::field("name", detail));
    }
    if new.expires_at.is_some_and(|at| at.0 <= now) {
        return Err(Problem::field("expires_at", "expected a time in the future"));
    }
    if new.scope == ScopeView::Admin && new.expires_at.is_some() {
        an_admin_stays(&ctx.app).await?;
    }
    let text = generate(&ctx.app);
    let key = ApiKey {
        id: ApiKeyId::generate(now.as_millis(), ctx.app.random()),
        tenant: new.tenant,
        name: new.name,
        scope: new.scope.into(),
        hash: hash_of(&text),
        created_at: now,
        expires_at: new.expires_at.map(|at| at.0),
        revoked_at: None,
        last_used_at: None,
    };
    let answer = Created(KeyCreated { view: KeyView::from(&key), key: text });
    let audit_action = audit_action(Action::KeyCreate, &key).with_changes(changes(None, &key));
    let made = ctx.commit(vec![Write::CreateApiKey(key.clone())], audit_action, answer).await?;
    ctx.app.keys.add_new(key, now);
    Ok(made)
}

/// Whether an admin key without an expiry is valid. Without one, the server could not be managed some day.
async fn an_admin_stays(app: &App) -> Result<(), Problem> {
    let mut page = PageRequest::first(KEYS_PAGE);
    loop {
        let listing = app.store.api_keys(None, page).await?;
        let stays = |key: &ApiKey| {
            key.scope == Scope::Admin && key.revoked_at.is_none() && key.expires_at.is_none()
        };
        match listing.next {
            _ if listing.items.iter().any(stays) => return Ok(()),
            Some(next) => page = PageRequest::after(KEYS_PAGE, next),
            None => {
                let problem = Problem::from(StoreError::LastAdminKey);
                return Err(Problem { field: Some("expires_at".to_owned()), ..problem });
            }
        }
    }
}

/// Keys that are looked at in one go.
const KEYS_PAGE: u32 = 500;

pub(crate) async fn revoke_own(
    ctx: Ctx,
    path: OfTenantKey,
    _: NoQuery,
    _: NoBody,
) -> Result<NoContent, Problem> {
    let found = ctx.app.store.api_key(path.key).await?;
    let own = found.filter(|key| key.tenant.as_ref() == Some(&path.tenant));
    end(&ctx, own.ok_or_else(|| Problem::not_found("key", path.key))?).await
}

pub(crate) async fn revoke(
    ctx: Ctx,
    path: OfKey,
    _: NoQuery,
    _: NoBody,
) -> Result<NoContent, Problem> {
    let found = ctx.app.store.api_key(path.key).await?;
    end(&ctx, found.ok_or_else(|| Problem::not_found("key", path.key))?).await
}

/// Revokes a key, effective when the answer is sent. A revoked key stays unchanged.
async fn end(ctx: &Ctx, key: ApiKey) -> Result<NoContent, Problem> {
    if key.revoked_at.is_some() {
        return Ok(NoContent);
    }
    let revoked = ApiKey { revoked_at: Some(ctx.now()), ..key.clone() };
    let mut audit_action = audit_action(Action::KeyRevoke, &key);
    audit_action.detail = json!({ "name": key.name, "scope": scope_name(key.scope) });
    let audit_action = audit_action.with_changes(changes(Some(&key), &revoked));
    let writes = vec![Write::RevokeApiKey(key.id, ctx.now())];
    let done = ctx.commit(writes, audit_action, NoContent).await?;
    ctx.app.keys.forget(key.id);
    Ok(done)
}

/// A new API key.
pub fn generate(app: &App) -> String {
    use base64::Engine;
    let random: [u8; API_KEY_RANDOM_LEN] = app.random();
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
    format!("{KEY_PREFIX}{text}")
}

/// What is to be known of a key, but for the key.
fn changes(before: Option<&ApiKey>, after: &ApiKey) -> Changes {
    let told = |key: &ApiKey| {
        let KeyView { name, scope, expires_at, revoked_at, .. } = KeyView::from(key);
        json!({ "name": name, "scope": scope, "expires_at": expires_at, "revoked_at": revoked_at })
    };
    Changes::between(&before.map_or_else(|| json!({}), told), &told(after))
}

fn audit_action(action: Action, key: &ApiKey) -> AuditAction {
    AuditAction {
        action,
        tenant: key.tenant.clone(),
        target: key.id.to_string(),
        detail: json!({}),
    }
}
