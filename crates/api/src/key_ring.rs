//! A cache of API keys: a request need not wait for the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use railpost_engine::Timestamp;
use railpost_store::{ApiKey, Change, Digest, Write};
use railpost_wire::{ApiKeyId, TenantId};
use rustc_hash::FxHashMap;

use super::auth::{KEY_PREFIX, hash_of, unauthorized};
use super::problem::Problem;
use super::unknown_keys::UnknownKeys;
use crate::app::App;
use crate::client_address::ClientAddress;
use crate::limits::{API_KEY_LEN_MAX, KEY_BELIEVED_FOR, KEY_TOUCH_EVERY, KEYS_REMEMBERED_MAX};

/// A cache of valid and of unknown API keys.
#[derive(Debug, Default)]
pub struct KeyRing {
    known: Mutex<FxHashMap<Digest, CachedKey>>,
    unknown: UnknownKeys,
}

#[derive(Clone, Debug)]
struct CachedKey {
    key: Arc<ApiKey>,
    until: Timestamp,
}

impl KeyRing {
    /// The key with this text, if it opens anything now.
    pub async fn find(
        &self,
        app: &App,
        text: &str,
        client: ClientAddress,
    ) -> Result<Arc<ApiKey>, Problem> {
        if !text.starts_with(KEY_PREFIX) || text.len() > API_KEY_LEN_MAX {
            return Err(unauthorized("an API key begins with `rp_`"));
        }
        self.find_hashed(app, hash_of(text), Some(client)).await
    }

    /// The key with this hash, if it opens anything now. A client shows it for the first time; without one it is a key
    /// that was known before.
    pub async fn find_hashed(
        &self,
        app: &App,
        hash: Digest,
        client: Option<ClientAddress>,
    ) -> Result<Arc<ApiKey>, Problem> {
        let now = app.source.now();
        match self.cached(&hash, now) {
            Some(key) => Ok(key),
            // Boxed, so that every request need not have room for a look-up.
            None => Box::pin(self.look_up(app, hash, client)).await,
        }
    }

    fn cached(&self, hash: &Digest, now: Timestamp) -> Option<Arc<ApiKey>> {
        let known = self.lock();
        let cached = known.get(hash).filter(|found| now < found.until)?;
        is_valid(&cached.key, now).then(|| cached.key.clone())
    }

    /// Keys that were valid lately are looked up at once. Unknown ones wait for a permit, so that many of
    /// them cannot keep the store from its work.
    async fn look_up(
        &self,
        app: &App,
        hash: Digest,
        client: Option<ClientAddress>,
    ) -> Result<Arc<ApiKey>, Problem> {
        let was_known = self.lock().contains_key(&hash);
        let permit = match client.filter(|_| !was_known) {
            Some(client) => Some(self.unknown.begin_look_up(app, &hash, client).await?),
            None => None,
        };
        let found = app.store.api_key_by_hash(&hash).await?;
        let now = app.source.now();
        match found.filter(|key| is_valid(key, now)) {
            Some(key) => Ok(self.remember(app, key, now).await),
            None => {
                self.lock().remove(&hash);
                if let Some(permit) = permit {
                    permit.cache_unknown(now);
                }
                Err(unknown())
            }
        }
    }

    /// A key was made: it is cached at once, so that its first request waits for no permit. The store still has to
    /// say that it is valid.
    pub(crate) fn add_new(&self, key: ApiKey, now: Timestamp) {
        self.unknown.forget(&key.hash);
        self.keep(Arc::new(key), now, now);
    }

    /// Forgets a key, so that its change counts at once.
    pub(crate) fn forget(&self, id: ApiKeyId) {
        self.lock().retain(|_, cached| cached.key.id != id);
    }

    /// Forgets the keys of a tenant that is being erased.
    pub(crate) fn forget_tenant(&self, tenant: &TenantId) {
        self.lock().retain(|_, cached| cached.key.tenant.as_ref() != Some(tenant));
    }

    async fn remember(&self, app: &App, key: ApiKey, now: Timestamp) -> Arc<ApiKey> {
        if key.last_used_at.is_none_or(|at| now.since(at) >= KEY_TOUCH_EVERY) {
            // For people only: a store in trouble must not keep a valid key out.
            let _ = app.store.commit(Change::from(Write::TouchApiKey(key.id, now))).await;
        }
        let key = Arc::new(key);
        self.keep(key.clone(), now, now + KEY_BELIEVED_FOR);
        key
    }

    fn keep(&self, key: Arc<ApiKey>, now: Timestamp, until: Timestamp) {
        let mut known = self.lock();
        if known.len() >= KEYS_REMEMBERED_MAX {
            known.retain(|_, cached| now < cached.until);
        }
        if known.len() < KEYS_REMEMBERED_MAX {
            known.insert(key.hash, CachedKey { key, until });
        }
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Digest, CachedKey>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of a key that opens nothing.
pub(super) fn unknown() -> Problem {
    unauthorized("this API key is unknown, expired or revoked")
}

/// Whether a key opens anything now.
pub fn is_valid(key: &ApiKey, now: Timestamp) -> bool {
    key.revoked_at.is_none_or(|at| now < at) && key.expires_at.is_none_or(|at| now < at)
}
