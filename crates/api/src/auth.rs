//! Authentication and authorization of requests.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use railpost_engine::Span;
use railpost_store::{AcceptedBy, ApiKey, Digest, Scope};
use railpost_wire::{ApiKeyId, TenantId};
use ring::digest::{SHA256, digest};
use rustc_hash::FxHashMap;

pub use railpost_rest::needs::Needs;

use super::problem::{Code, Problem};
use crate::app::App;
use crate::client_address::ClientAddress;
use crate::limits::KEYS_REMEMBERED_MAX;

/// What every API key begins with.
pub const KEY_PREFIX: &str = "rp_";

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key they showed; nothing where none is needed.
    pub key: Option<Arc<ApiKey>>,
    /// Where they are, if they are not this process itself.
    pub address: Option<IpAddr>,
}

impl Caller {
    /// The actor in the audit trail.
    pub(crate) fn actor(&self) -> String {
        self.key.as_ref().map_or_else(|| "nobody".to_owned(), |key| key.id.to_string())
    }

    /// Who brings the events that they publish.
    pub(crate) fn accepted_by(&self) -> Option<AcceptedBy> {
        self.key.as_ref().map(|key| AcceptedBy::Key(key.id))
    }

    /// Whose idempotency keys are theirs: a tenant's keys share them, so that a new key may retry
    /// what the old one began.
    pub(crate) fn owner(&self) -> String {
        let tenant = self.key.as_ref().and_then(|key| key.tenant.as_ref());
        tenant.map_or_else(|| "admin".to_owned(), |tenant| format!("tenant {tenant}"))
    }

    /// Whether the caller meets these needs for this tenant, or for a route without a tenant.
    pub fn may(&self, needs: Needs, tenant: Option<&TenantId>) -> bool {
        let Some(key) = &self.key else { return needs == Needs::Nothing };
        let realm = tenant.is_none() || key.tenant.is_none() || key.tenant.as_ref() == tenant;
        realm && needs.met_by(key.scope)
    }
}

/// Authorizes a request, or returns the problem. A [`Caller`] among the request's extensions is trusted: only
/// this process can put it there, as the dashboard does for the user who has signed in.
pub(crate) async fn authorize(
    app: &App,
    parts: &Parts,
    needs: Needs,
    tenant: Option<&str>,
    client: ClientAddress,
) -> Result<Caller, Problem> {
    let address = Some(client.0);
    if needs == Needs::Nothing {
        return Ok(Caller { key: None, address });
    }
    let key = match parts.extensions.get::<Caller>().and_then(|caller| caller.key.clone()) {
        Some(key) => key,
        None => app.keys.find(app, bearer(&parts.headers)?, client).await?,
    };
    app.rate_limiter.take(app, key.id)?;
    // Whose key it is comes first: nobody learns which tenants exist by the kind of refusal.
    if let (Some(own), Some(asked)) = (&key.tenant, tenant)
        && own.as_str() != asked
    {
        return Err(Problem::not_found("tenant", asked));
    }
    if !needs.met_by(key.scope) {
        let detail =
            format!("the scope `{}` of this API key does not allow it", scope_name(key.scope));
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(Caller { key: Some(key), address })
}

/// A scope's name in the API.
pub fn scope_name(scope: Scope) -> &'static str {
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

pub(super) fn unauthorized(detail: &str) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}

/// The hash by which a key is stored and found. A key has 256 bits of chance, so a plain hash is
/// enough, and the time of a look-up by hash says nothing about the key.
pub fn hash_of(key: &str) -> Digest {
    let hash = digest(&SHA256, key.as_bytes());
    hash.as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// How fast each API key may send requests: a bucket each, kept as the instant at which it is full.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter(Mutex<FxHashMap<ApiKeyId, Instant>>);

impl RateLimiter {
    /// Takes one request's worth, or says when there is one.
    pub(crate) fn take(&self, app: &App, key: ApiKeyId) -> Result<(), Problem> {
        let limits = &app.settings.limits;
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
    rate_limited(detail, wait)
}

pub(super) fn rate_limited(detail: impl Into<String>, wait: Duration) -> Problem {
    let wait = Span::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Problem::new(Code::RateLimited, detail).retry_after(wait)
}
