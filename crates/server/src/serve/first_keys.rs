//! The admin keys of the start: the first one, and the configured one.
//!
//! The configured key is one key. A changed value replaces it and revokes the old one. Removing it from the
//! configuration revokes it too, unless no other admin key without an expiry is valid.

use railpost_api::{Action, App, CONFIGURED_KEY_NAME, generate, hash_of};
use railpost_store::{
    ApiKey, AuditEntry, Change, PageRequest, Scope, StoreError, TenantSettings, Write,
};
use railpost_wire::{ApiKeyId, AuditId, TenantId};
use serde_json::json;

use super::{StartError, failed};

/// The tenant that exists from the first start on.
pub const DEFAULT_TENANT: &str = "default";

/// The actor in the audit trail.
const ACTOR: &str = "configuration";

/// What a start has made and found.
#[derive(Debug, Default)]
pub(super) struct StartReport {
    /// The admin key that was created, if any: it is shown once.
    pub(super) made_key: Option<String>,
    /// What an operator should know.
    pub(super) warnings: Vec<String>,
}

/// On the first start there is nobody yet: makes the default tenant, and an admin key unless one is configured. On every
/// start the configured key is made the one that counts.
pub(super) async fn prepare(app: &App, configured: &str) -> Result<StartReport, StartError> {
    follow(app, configured).await.map_err(|error| failed("store", error))
}

async fn follow(app: &App, text: &str) -> Result<StartReport, StoreError> {
    let mut opened = StartReport::default();
    let none_yet = app.store.api_keys(None, PageRequest::first(1)).await?.items.is_empty();
    if none_yet {
        opened.made_key = begin(app, text.is_empty()).await?;
    }
    let old = configured_before(app).await?;
    let warning = match text {
        "" => retire(app, old).await?,
        text => replace(app, text, old).await?,
    };
    opened.warnings.extend(warning);
    Ok(opened)
}

/// The first start: the default tenant, and an admin key if one is wanted.
async fn begin(app: &App, wants_key: bool) -> Result<Option<String>, StoreError> {
    let mut writes = Vec::new();
    let tenant: TenantId = DEFAULT_TENANT.parse().expect("it is a tenant id");
    if app.store.tenant(&tenant).await?.is_none() {
        writes.push(Write::CreateTenant(tenant, TenantSettings::default()));
    }
    let made = wants_key.then(|| generate(app));
    if let Some(key) = &made {
        writes.push(Write::CreateApiKey(admin_key(app, key, "first admin key")));
    }
    app.dispatcher.commit(Change { writes, ..Change::default() }).await?;
    Ok(made)
}

/// The valid keys that were configured on an earlier start: one, unless a restore brought others back.
async fn configured_before(app: &App) -> Result<Vec<ApiKey>, StoreError> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(PAGE));
    loop {
        let listing = app.store.api_keys(None, page).await?;
        let valid = listing.items.into_iter().filter(|key| is_valid(app, key));
        found.extend(valid.filter(|key| key.name == CONFIGURED_KEY_NAME));
        match listing.next {
            Some(next) => page = PageRequest::after(PAGE, next),
            None => return Ok(found),
        }
    }
}

/// Keys that are looked at in one go.
const PAGE: u32 = 500;

/// Makes the key with this text the configured one, and revokes those that were it before.
async fn replace(app: &App, text: &str, old: Vec<ApiKey>) -> Result<Option<String>, StoreError> {
    let (mut writes, key) = match app.store.api_key_by_hash(&hash_of(text)).await? {
        None => {
            let key = admin_key(app, text, CONFIGURED_KEY_NAME);
            (vec![Write::CreateApiKey(key.clone())], key)
        }
        Some(key) if !is_valid(app, &key) || key.scope != Scope::Admin => {
            return Ok(Some(format!(
                "server.admin_key is the key {}, which is revoked, expired or no admin key: it does \
                 not become one again. Choose another text",
                key.id
            )));
        }
        Some(key) if key.name == CONFIGURED_KEY_NAME => (Vec::new(), key),
        Some(key) => (vec![Write::RenameApiKey(key.id, CONFIGURED_KEY_NAME.to_owned())], key),
    };
    let old: Vec<_> = old.iter().map(|old| old.id).filter(|old| *old != key.id).collect();
    let action = if old.is_empty() { Action::KeyCreate } else { Action::KeyReplace };
    writes.extend(old.iter().map(|id| Write::RevokeApiKey(*id, app.source.now())));
    if !writes.is_empty() {
        let detail = json!({ "scope": "admin", "revoked": old });
        commit(app, writes, action, key.id, detail).await?;
    }
    Ok(None)
}

/// Revokes keys that were removed from the configuration, unless no other admin key would stay valid.
async fn retire(app: &App, old: Vec<ApiKey>) -> Result<Option<String>, StoreError> {
    for key in old {
        let revoke = vec![Write::RevokeApiKey(key.id, app.source.now())];
        match commit(app, revoke, Action::KeyRevoke, key.id, json!({ "scope": "admin" })).await {
            Ok(()) => {}
            Err(StoreError::LastAdminKey) => {
                return Ok(Some(format!(
                    "server.admin_key is not configured any more, but the key that was ({}) stays \
                     valid, because no other admin key is valid without an end: make one, then \
                     revoke it or start again",
                    key.id
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

async fn commit(
    app: &App,
    writes: Vec<Write>,
    action: Action,
    target: ApiKeyId,
    detail: serde_json::Value,
) -> Result<(), StoreError> {
    let at = app.source.now();
    let audit = AuditEntry {
        id: AuditId::generate(at.as_millis(), app.random()),
        at,
        tenant: None,
        actor: ACTOR.to_owned(),
        address: None,
        action: action.name().to_owned(),
        target: target.to_string(),
        detail,
    };
    app.dispatcher.commit(Change { writes, audit: Some(audit), idempotency: None }).await
}

fn is_valid(app: &App, key: &ApiKey) -> bool {
    railpost_api::is_valid(key, app.source.now())
}

fn admin_key(app: &App, key: &str, name: &str) -> ApiKey {
    ApiKey {
        id: ApiKeyId::generate(app.source.now().as_millis(), app.random()),
        tenant: None,
        name: name.to_owned(),
        scope: Scope::Admin,
        hash: hash_of(key),
        created_at: app.source.now(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}
