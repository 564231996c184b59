//! Opening the store, and what the first start makes.

use std::sync::Arc;

use railpost_store::{
    ApiKey, Change, MasterKey, MemoryStore, PageRequest, PostgresAddress, PostgresStore, Scope,
    Setup, Source, SqliteStore, Store, StoreError, TenantSettings, Write,
};
use railpost_wire::{ApiKeyId, TenantId};

use super::{StartError, failed};
use crate::api;
use crate::app::App;
use crate::config::{Config, is_postgres_url};
use crate::data_dir;

/// The tenant that exists from the first start on.
pub const DEFAULT_TENANT: &str = "default";

/// Opens the store under its master key.
pub(super) async fn open(
    config: &Config,
    source: &Arc<dyn Source>,
) -> Result<([u8; 32], Arc<dyn Store>), StartError> {
    let url = config.store.url.as_str();
    if url == "memory:" {
        let mut master = [0; 32];
        source.fill_random(&mut master);
        return Ok((master, Arc::new(MemoryStore::new(setup(&master, source)))));
    }
    data_dir::prepare(&config.server.data_dir).map_err(StartError)?;
    if is_postgres_url(url) {
        let master = data_dir::master_key(config, None, &**source).map_err(StartError)?;
        let address = PostgresAddress::from(url);
        let store = PostgresStore::connect(&address, setup(&master, source)).await;
        let store = store.map_err(|error| failed("store.url", advised(&error)))?;
        return Ok((master, Arc::new(store)));
    }
    let path = data_dir::database(config);
    let master = data_dir::master_key(config, Some(&path), &**source).map_err(StartError)?;
    let store = SqliteStore::open(&path, setup(&master, source));
    let store = store.map_err(|error| failed(&path.display().to_string(), advised(&error)))?;
    Ok((master, Arc::new(store)))
}

pub(super) fn setup(master: &[u8; 32], source: &Arc<dyn Source>) -> Setup {
    Setup { source: source.clone(), master_key: MasterKey::new(master) }
}

/// What to do about a store that does not open, where the error does not say.
pub(super) fn advised(error: &StoreError) -> String {
    let advice = match error {
        StoreError::Unavailable(_) => "; is it running, and is store.url right?",
        StoreError::WrongMasterKey => "; see store.master_key_file",
        StoreError::Corrupt(_) => "; check the store with `railpost store verify --offline`",
        _ => "",
    };
    format!("{error}{advice}")
}

/// On the first start there is nobody yet: makes the default tenant, and an admin key, which it
/// answers. A key that the operator chose is made known on every start on which it is not.
pub(super) async fn first_start(app: &Arc<App>) -> Result<Option<String>, StartError> {
    let text = |error: StoreError| failed("store", error);
    let none_yet = app.store.api_keys(None, PageRequest::first(1)).await.map_err(text)?;
    let none_yet = none_yet.items.is_empty();
    let chosen = Some(app.config.server.admin_key.clone()).filter(|key| !key.is_empty());
    let mut writes = Vec::new();
    let tenant: TenantId = DEFAULT_TENANT.parse().expect("it is a tenant id");
    if none_yet && app.store.tenant(&tenant).await.map_err(text)?.is_none() {
        writes.push(Write::CreateTenant(tenant, TenantSettings::default()));
    }
    let made = (none_yet && chosen.is_none()).then(|| api::keys::generate(app));
    if let Some(key) = &made {
        writes.push(Write::CreateApiKey(admin_key(app, key, "first admin key")));
    }
    if let Some(key) = &chosen
        && app.store.api_key_by_hash(&api::auth::hash_of(key)).await.map_err(text)?.is_none()
    {
        writes.push(Write::CreateApiKey(admin_key(app, key, "server.admin_key")));
    }
    if !writes.is_empty() {
        app.dispatcher.commit(Change { writes, ..Change::default() }).await.map_err(text)?;
    }
    Ok(made)
}

fn admin_key(app: &App, key: &str, name: &str) -> ApiKey {
    ApiKey {
        id: ApiKeyId::generate(app.source.now().as_millis(), app.random()),
        tenant: None,
        name: name.to_owned(),
        scope: Scope::Admin,
        hash: api::auth::hash_of(key),
        created_at: app.source.now(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}
