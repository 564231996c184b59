//! Who is calling, and whether they may.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use railpost_engine::{Span, Timestamp};
use railpost_store::{ApiKey, Change, Digest, Scope, Write};
use railpost_wire::{ApiKeyId, TenantId};
use ring::digest::{SHA256, digest};
use rustc_hash::FxHashMap;

use super::problem::{Code, Problem};
use crate::app::App;
use crate::limits::{API_KEY_LEN_MAX, KEY_BELIEVED_FOR, KEY_TOUCH_EVERY, KEYS_REMEMBERED_MAX};

/// What every API key begins with.
pub(crate) const KEY_PREFIX: &str = "rp_";

/// The least that a route needs of its caller. There is no default: a route without one does not
/// compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Anyone may.
    Nothing,
    /// Any valid key.
    AnyKey,
    /// A key that may publish events of the tenant.
    Publish,
    /// A key that may look at what is the tenant's.
    Read,
    /// A key that may change what is the tenant's.
    Manage,
    /// A key that may do everything.
    Admin,
}

impl Needs {
    /// Whether a key of this scope is enough.
    pub fn met_by(self, scope: Scope) -> bool {
        match self {
            Needs::Nothing | Needs::AnyKey => true,
            Needs::Publish => {
                matches!(scope, Scope::Admin | Scope::Tenant | Scope::PublishOnly)
            }
            Needs::Read => matches!(scope, Scope::Admin | Scope::Tenant | Scope::ReadOnly),
            Needs::Manage => matches!(scope, Scope::Admin | Scope::Tenant),
            Needs::Admin => scope == Scope::Admin,
        }
    }
}

/// Who is calling.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The key they showed; nothing where none is needed.
    pub(crate) key: Option<Arc<ApiKey>>,
}

impl Caller {
    /// Who they are, for the audit trail.
    pub(crate) fn actor(&self) -> String {
        self.key.as_ref().map_or_else(|| "nobody".to_owned(), |key| key.id.to_string())
    }

    /// Whose idempotency keys are theirs: a tenant's keys share them, so that a new key may retry
    /// what the old one began.
    pub(crate) fn owner(&self) -> String {
        let tenant = self.key.as_ref().and_then(|key| key.tenant.as_ref());
        tenant.map_or_else(|| "admin".to_owned(), |tenant| format!("tenant {tenant}"))
    }

    /// Whether they may do what needs that much in this tenant's realm, or in nobody's.
    pub(crate) fn may(&self, needs: Needs, tenant: Option<&TenantId>) -> bool {
        let Some(key) = &self.key else { return needs == Needs::Nothing };
        let realm = tenant.is_none() || key.tenant.is_none() || key.tenant.as_ref() == tenant;
        realm && needs.met_by(key.scope)
    }
}

/// Lets a request in, or says why not. A [`Caller`] among the request's extensions is believed: only
/// this process can put it there, as the dashboard does for whoever has signed in.
pub(crate) async fn admit(
    app: &App,
    parts: &Parts,
    needs: Needs,
    tenant: Option<&str>,
) -> Result<Caller, Problem> {
    if needs == Needs::Nothing {
        return Ok(Caller { key: None });
    }
    let key = match parts.extensions.get::<Caller>().and_then(|caller| caller.key.clone()) {
        Some(key) => key,
        None => app.keys.find(app, bearer(&parts.headers)?).await?,
    };
    app.rates.take(app, key.id)?;
    // Whose key it is comes first: nobody learns which tenants exist by the kind of refusal.
    if let (Some(own), Some(asked)) = (&key.tenant, tenant)
        && own.as_str() != asked
    {
        return Err(Problem::not_found("tenant", asked));
    }
    if !needs.met_by(key.scope) {
        let detail = format!("an API key of scope `{}` may not do that", scope_name(key.scope));
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(Caller { key: Some(key) })
}

/// A scope's name in the API.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Admin => "admin",
        Scope::Tenant => "tenant",
        Scope::PublishOnly => "publish-only",
        Scope::ReadOnly => "read-only",
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    token.ok_or_else(|| unauthorized("send the header `Authorization: Bearer rp_…`"))
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}

/// The hash by which a key is stored and found. A key has 256 bits of chance, so a plain hash is
/// enough, and the time of a look-up by hash says nothing about the key.
pub(crate) fn hash_of(key: &str) -> Digest {
    let hash = digest(&SHA256, key.as_bytes());
    hash.as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// API keys that were looked up lately: a request need not wait for the store.
#[derive(Debug, Default)]
pub(crate) struct KeyRing(Mutex<FxHashMap<Digest, Remembered>>);

#[derive(Clone, Debug)]
struct Remembered {
    key: Arc<ApiKey>,
    until: Timestamp,
}

impl KeyRing {
    /// The key with this text, if it opens anything now.
    pub(crate) async fn find(&self, app: &App, text: &str) -> Result<Arc<ApiKey>, Problem> {
        if !text.starts_with(KEY_PREFIX) || text.len() > API_KEY_LEN_MAX {
            return Err(unauthorized("an API key begins with `rp_`"));
        }
        self.find_hashed(app, hash_of(text)).await
    }

    /// The key with this hash, if it opens anything now.
    pub(crate) async fn find_hashed(
        &self,
        app: &App,
        hash: Digest,
    ) -> Result<Arc<ApiKey>, Problem> {
        let now = app.source.now();
        match self.remembered(&hash, now) {
            Some(key) => Ok(key),
            // Boxed, so that every request need not have room for a look-up.
            None => Box::pin(self.look_up(app, hash, now)).await,
        }
    }

    fn remembered(&self, hash: &Digest, now: Timestamp) -> Option<Arc<ApiKey>> {
        let ring = self.lock();
        let remembered = ring.get(hash).filter(|found| now < found.until)?;
        is_valid(&remembered.key, now).then(|| remembered.key.clone())
    }

    async fn look_up(
        &self,
        app: &App,
        hash: Digest,
        now: Timestamp,
    ) -> Result<Arc<ApiKey>, Problem> {
        let found = app.store.api_key_by_hash(&hash).await?;
        match found.filter(|key| is_valid(key, now)) {
            Some(key) => Ok(self.remember(app, hash, key, now).await),
            None => Err(unauthorized("this API key is unknown, expired or revoked")),
        }
    }

    /// Forgets a key, so that its change counts at once.
    pub(crate) fn forget(&self, id: ApiKeyId) {
        self.lock().retain(|_, remembered| remembered.key.id != id);
    }

    /// Forgets the keys of a tenant that is being erased.
    pub(crate) fn forget_tenant(&self, tenant: &TenantId) {
        self.lock().retain(|_, remembered| remembered.key.tenant.as_ref() != Some(tenant));
    }

    async fn remember(&self, app: &App, hash: Digest, key: ApiKey, now: Timestamp) -> Arc<ApiKey> {
        if key.last_used_at.is_none_or(|at| now.since(at) >= KEY_TOUCH_EVERY) {
            // For people only: a store in trouble must not keep a valid key out.
            let _ = app.store.commit(Change::from(Write::TouchApiKey(key.id, now))).await;
        }
        let key = Arc::new(key);
        let mut ring = self.lock();
        if ring.len() >= KEYS_REMEMBERED_MAX {
            ring.retain(|_, remembered| now < remembered.until);
        }
        if ring.len() < KEYS_REMEMBERED_MAX {
            ring.insert(hash, Remembered { key: key.clone(), until: now + KEY_BELIEVED_FOR });
        }
        key
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FxHashMap<Digest, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_valid(key: &ApiKey, now: Timestamp) -> bool {
    key.revoked_at.is_none_or(|at| now < at) && key.expires_at.is_none_or(|at| now < at)
}

/// How fast each API key may send requests: a bucket each, kept as the instant at which it is full.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<FxHashMap<ApiKeyId, Instant>>);

impl Rates {
    /// Takes one request's worth, or says when there is one.
    pub(crate) fn take(&self, app: &App, key: ApiKeyId) -> Result<(), Problem> {
        let limits = &app.config.limits;
        let per_second = limits.requests_per_second.max(1);
        let cost = Duration::from_secs(1) / per_second;
        let depth = cost * limits.requests_burst.max(1);
        let now = Instant::now();
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= KEYS_REMEMBERED_MAX {
            buckets.retain(|_, full_at| *full_at > now);
        }
        let full_at = buckets.entry(key).or_insert(now);
        let next = (*full_at).max(now) + cost;
        if next > now + depth {
            return Err(too_many(per_second, next - (now + depth)));
        }
        *full_at = next;
        Ok(())
    }
}

fn too_many(per_second: u32, wait: Duration) -> Problem {
    let detail = format!("this API key may send {per_second} requests a second");
    let wait = Span::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Problem::new(Code::RateLimited, detail).retry_after(wait)
}
