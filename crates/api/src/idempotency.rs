//! Requests with an `Idempotency-Key`: a repeated request gets the same answer, and the work is done once.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use railpost_rest::limits::{IDEMPOTENCY_KEY_LEN_MAX, RETRY_AFTER_DEFAULT};
use railpost_store::{
    Digest, IdempotencyKey, IdempotencyLookup, IdempotencyRecord, StoredResponse,
};
use railpost_wire::TenantId;
use ring::digest::{Context, SHA256};

use super::answer::response;
use super::auth::Caller;
use super::problem::{Code, Problem};
use crate::app::App;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The keys of requests that this process is working on.
#[derive(Debug, Default)]
pub(crate) struct RequestsInProgress(Mutex<HashSet<IdempotencyKey>>);

/// A request that may come again. While it lives, the same key is refused as in progress.
#[derive(Debug)]
pub(crate) struct IdempotentRequest {
    app: Arc<App>,
    key: IdempotencyKey,
    fingerprint: Digest,
    tenant: Option<TenantId>,
}

/// What to do with a request.
pub(crate) enum IdempotencyCheck {
    /// The client does not say that it may come again.
    Once,
    /// It may come again, and comes for the first time.
    First(Arc<IdempotentRequest>),
    /// It was answered before, with this.
    Answered(Response),
}

/// Looks whether a request was answered before, and reserves its key if not.
pub(crate) async fn begin(
    app: &Arc<App>,
    caller: &Caller,
    parts: &Parts,
    body: Option<&Bytes>,
    tenant: Option<&str>,
) -> Result<IdempotencyCheck, Problem> {
    match chosen_key(parts)? {
        None => Ok(IdempotencyCheck::Once),
        // Boxed, so that every request need not have room for it.
        Some(key) => Box::pin(reserve(app, caller, key, parts, body, tenant)).await,
    }
}

async fn reserve(
    app: &Arc<App>,
    caller: &Caller,
    key: String,
    parts: &Parts,
    body: Option<&Bytes>,
    tenant: Option<&str>,
) -> Result<IdempotencyCheck, Problem> {
    let Some(body) = body else {
        return Err(Problem::header(
            "idempotency-key",
            "not supported for a stream: give its events ids instead",
        ));
    };
    let route = format!("{} {}", parts.method, decoded_path(parts));
    let key = IdempotencyKey { owner: caller.owner(), route, key };
    let fingerprint = fingerprint(parts, body);
    let reserved = app.in_progress.lock().insert(key.clone());
    if !reserved {
        return Err(in_progress());
    }
    let tenant = tenant.and_then(|tenant| tenant.parse().ok());
    let request = IdempotentRequest { app: app.clone(), key, fingerprint, tenant };
    match request.recall().await? {
        Some(response) => Ok(IdempotencyCheck::Answered(response)),
        None => Ok(IdempotencyCheck::First(Arc::new(request))),
    }
}

impl IdempotentRequest {
    /// The answer given before, if there was one.
    pub(crate) async fn recall(&self) -> Result<Option<Response>, Problem> {
        match self.app.store.lookup_idempotency(&self.key, &self.fingerprint).await? {
            IdempotencyLookup::Absent => Ok(None),
            IdempotencyLookup::Match(stored) => Ok(Some(replayed(&self.app, &stored)?)),
            IdempotencyLookup::Mismatch => {
                let detail = "this idempotency key was used for another request: choose a new one";
                Err(Problem::new(Code::IdempotencyKeyReused, detail))
            }
        }
    }

    /// What is stored with the work, so that the request can be answered again. Answers may show
    /// secrets, so they are encrypted, unless they are known to show none.
    pub(crate) fn record(
        &self,
        status: StatusCode,
        body: Bytes,
        secret: bool,
    ) -> IdempotencyRecord {
        let body = if secret {
            self.app.master_key.seal_answer(&*self.app.source, &body).into()
        } else {
            body
        };
        IdempotencyRecord {
            key: self.key.clone(),
            fingerprint: self.fingerprint,
            response: StoredResponse { status: status.as_u16(), body },
            tenant: self.tenant.clone(),
            expires_at: self.app.source.now() + self.app.settings.retention.idempotency,
        }
    }
}

impl Drop for IdempotentRequest {
    fn drop(&mut self) {
        self.app.in_progress.lock().remove(&self.key);
    }
}

impl RequestsInProgress {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<IdempotencyKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_progress() -> Problem {
    let detail = "the first request with this idempotency key is still in progress";
    Problem::new(Code::IdempotencyInProgress, detail).retry_after(RETRY_AFTER_DEFAULT)
}

fn replayed(app: &App, stored: &StoredResponse) -> Result<Response, Problem> {
    let body = app.master_key.open_answer(&stored.body);
    let body =
        body.ok_or_else(|| Problem::new(Code::Internal, "a stored answer does not decrypt"))?;
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let mut response = response(status, body);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// The key that the client chose, if it chose one.
fn chosen_key(parts: &Parts) -> Result<Option<String>, Problem> {
    let Some(value) = parts.headers.get(HEADER) else { return Ok(None) };
    let visible = value.to_str().ok().filter(|text| text.bytes().all(|c| c.is_ascii_graphic()));
    match visible.filter(|text| (1..=IDEMPOTENCY_KEY_LEN_MAX).contains(&text.len())) {
        Some(text) => Ok(Some(text.to_owned())),
        None => {
            let expected =
                format!("expected 1 to {IDEMPOTENCY_KEY_LEN_MAX} visible ASCII characters");
            Err(Problem::header("idempotency-key", expected))
        }
    }
}

/// A path may be written in several ways; what it names is one.
fn decoded_path(parts: &Parts) -> Cow<'_, str> {
    percent_decode_str(parts.uri.path()).decode_utf8_lossy()
}

/// A hash of all that makes it the same request: what it is done to, and all that says what is to be done.
fn fingerprint(parts: &Parts, body: &Bytes) -> Digest {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        // With its length, so that no other parts make the same bytes.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(parts.method.as_str().as_bytes());
    add(decoded_path(parts).as_bytes());
    add(parts.uri.query().unwrap_or_default().as_bytes());
    for (name, value) in telling_headers(&parts.headers) {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    add(body);
    context.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// The headers that say what is to be done, by name: what kind of body it is, and the attributes of a
/// CloudEvent. `traceparent` is not among them: a client that tries again does so in another span.
fn telling_headers(headers: &HeaderMap) -> Vec<(&str, &HeaderValue)> {
    let tells = |name: &str| name == CONTENT_TYPE.as_str() || name.starts_with("ce-");
    let named = headers.iter().map(|(name, value)| (name.as_str(), value));
    let mut telling: Vec<_> = named.filter(|(name, _)| tells(name)).collect();
    telling.sort_by_key(|(name, _)| *name);
    telling
}
