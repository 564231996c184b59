//! A data folder with an endpoint in it, made before the server starts and looked into after it ended.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use railpost_sqlite::SqliteStore;
use railpost_store::{
    EndpointPrivate, EndpointSettings, MasterKey, NewEndpoint, NewSecret, SecretValue, Setup,
    SystemSource, TenantSettings, Write,
};
use railpost_wire::{EndpointId, Secret, SecretId, TenantId};
use serde_json::json;

const MASTER: [u8; 32] = [5; 32];

/// A static header of the endpoint: a token that nobody else may see.
pub(crate) const TOKEN: &str = "token-that-must-stay-secret";

pub(crate) fn tenant() -> TenantId {
    "default".parse().unwrap()
}

pub(crate) fn endpoint() -> EndpointId {
    EndpointId::from_u128(7)
}

/// The endpoint's secret.
pub(crate) fn secret() -> Secret {
    Secret::generate(&[9; 32])
}

/// Makes `railpost-data` with an endpoint that sends to this URL and retries at once.
pub(crate) fn seed(folder: &Path, url: &str) {
    let data = folder.join("railpost-data");
    std::fs::create_dir(&data).unwrap();
    let key = data.join("master.key");
    std::fs::write(&key, MASTER).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = EndpointSettings::all_events(&format!("{url}/hooks"));
    let policy = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "1ms"}}});
    settings.policy = serde_json::from_value(policy).unwrap();
    let headers = [("x-token".to_owned(), TOKEN.to_owned())].into();
    let private = EndpointPrivate { headers, ..EndpointPrivate::default() };
    let new = NewEndpoint { id: endpoint(), tenant: tenant(), settings, private };
    let value = SecretValue::Shared(secret());
    let id = SecretId::from_u128(8);
    let secret = NewSecret { id, endpoint: endpoint(), value, expires_at: None };
    look(folder, async |store| {
        for write in [
            Write::CreateTenant(tenant(), TenantSettings::default()),
            Write::CreateEndpoint(new),
            Write::CreateSecret(secret),
        ] {
            store.commit(write.into()).await.unwrap();
        }
    });
}

/// Looks into the store while no server has it.
pub(crate) fn look<T>(folder: &Path, work: impl AsyncFnOnce(&dyn railpost_store::Store) -> T) -> T {
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&MASTER) };
    let path = folder.join("railpost-data/railpost.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&path, setup).unwrap();
        work(&store).await
    })
}
