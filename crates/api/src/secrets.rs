//! Secrets of endpoints: what attempts are signed with.
//!
//! An endpoint may have several active secrets, and all of them sign. A value is shown when it is created,
//! and after that only by the reveal route, which adds an audit entry.

mod schedule;

use http::Method;
use railpost_engine::{Span, Time, Timestamp};
use railpost_store::limits::SECRETS_MAX;
use railpost_store::{Endpoint, EndpointSecret, NewSecret, SecretValue, Write};
use railpost_wire::{BadSecret, EndpointId, Secret, SecretId, SigningKey, VerifyingKey};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::json;

use super::answer::{Created, Json, NoContent};
use super::audit::Action;
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::endpoints;
use super::path::{OfEndpoint, OfSecret};
use super::problem::{Code, Problem};
use super::query::NoQuery;
use super::route::Route;
use crate::app::App;
use crate::limits::{SECRET_OVERLAP_DEFAULT, SECRET_OVERLAP_MAX};

pub(crate) use schedule::next_rotation;
pub use schedule::{SecretRotations, rotate_due_secrets};

const ALL: &str = "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets";
const ONE: &str = "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/{secret}";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            ALL,
            Needs::Read,
            "List the secrets of an endpoint, without values",
            list,
        ),
        Route::new(Method::POST, ALL, Needs::Manage, "Add a secret to an endpoint", create),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/rotate",
            Needs::Manage,
            "Create a new secret and let the others of its kind expire",
            rotate,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/{secret}/reveal",
            Needs::Manage,
            "Reveal the value of a secret; this adds an audit entry",
            reveal,
        ),
        Route::new(Method::DELETE, ONE, Needs::Manage, "Remove a secret", remove),
    ]
}

/// What kind of secret it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SecretKind {
    /// Both sides know it: HMAC-SHA256, `whsec_…`.
    #[default]
    Shared,
    /// A private key, whose public key is all that the receiver needs: Ed25519, `whsk_…`.
    Signing,
}

/// A secret, without its value.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Secret")]
pub(crate) struct SecretView {
    /// Its id.
    pub(crate) id: SecretId,
    /// What kind it is.
    pub(crate) kind: SecretKind,
    /// When it was made.
    pub(crate) created_at: Time,
    /// When it expires and does not sign any more.
    pub(crate) expires_at: Option<Time>,
    /// Whether it signs.
    pub(crate) active: bool,
    /// What receivers verify with, if it is a private key: `whpk_…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_key: Option<VerifyingKey>,
}

/// The secrets of an endpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Secrets {
    /// All of them, the earliest first.
    pub(crate) items: Vec<SecretView>,
    /// When the server rotates them next. Nothing if it does not.
    pub(crate) next_rotation_at: Option<Time>,
}

/// A secret that was created, with its value. `reveal` shows the value again.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SecretCreated {
    #[serde(flatten)]
    pub(crate) secret: SecretView,
    /// The secret itself: `whsec_…` or `whsk_…`.
    pub(crate) value: SecretPlaintext,
}

/// The value of a secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SecretRevealed {
    /// Its id.
    pub(crate) id: SecretId,
    /// The secret itself: `whsec_…` or `whsk_…`.
    pub(crate) value: SecretPlaintext,
    /// What receivers verify with, if it is a private key: `whpk_…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_key: Option<VerifyingKey>,
}

/// The text of a secret in an answer. It stays out of debug output.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct SecretPlaintext(String);

impl std::fmt::Debug for SecretPlaintext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretPlaintext(…)")
    }
}

/// A secret that a client chose. An invalid secret is rejected without echoing it.
pub(crate) struct SecretText<T>(pub(crate) T);

impl<'de, T: std::str::FromStr<Err = BadSecret>> Deserialize<'de> for SecretText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = zeroize::Zeroizing::new(String::deserialize(deserializer)?);
        text.parse().map(SecretText).map_err(de::Error::custom)
    }
}

impl<T> JsonSchema for SecretText<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretText".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// A new secret.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "NewSecret",
    example = json!({ "kind": "signing" }),
    extend("oneOf" = super::bounds::secret_of_its_kind())
)]
pub(crate) struct NewSecretBody {
    /// What kind; `shared` if not given.
    kind: SecretKind,
    /// The secret itself, `whsec_…` or `whsk_…` as the kind is; one is made if none is given.
    #[schemars(schema_with = "crate::bounds::secret")]
    value: Option<String>,
}

/// How the secrets of an endpoint are exchanged.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    example = json!({ "overlap": "24h" }),
    extend("oneOf" = super::bounds::secret_of_its_kind())
)]
pub(crate) struct Rotation {
    /// How long the others of its kind still sign: up to 30 days; a day if not given.
    #[schemars(schema_with = "crate::bounds::overlap")]
    overlap: Option<Span>,
    /// Which kind; `shared` if not given.
    kind: SecretKind,
    /// The new secret, `whsec_…` or `whsk_…` as the kind is; one is made if none is given.
    #[schemars(schema_with = "crate::bounds::secret")]
    value: Option<String>,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<Secrets>, Problem> {
    let endpoint = endpoints::find(&ctx, &path).await?;
    let secrets = ctx.app.store.secrets(endpoint.id).await?;
    let now = ctx.now();
    Ok(Json(Secrets {
        items: secrets.iter().map(|secret| SecretView::of(secret, now)).collect(),
        next_rotation_at: endpoint.rotates_at.map(Time::from),
    }))
}

pub(crate) async fn create(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    JsonBody(new): JsonBody<NewSecretBody>,
) -> Result<Created<SecretCreated>, Problem> {
    let endpoint = endpoints::find(&ctx, &path).await?;
    let new = new_secret(&ctx, endpoint.id, new.kind, new.value)?;
    let held = ctx.app.store.secrets(endpoint.id).await?;
    add(&ctx, &endpoint, &held, new, Vec::new(), Action::SecretCreate).await
}

pub(crate) async fn rotate(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    JsonBody(rotation): JsonBody<Rotation>,
) -> Result<Created<SecretCreated>, Problem> {
    let overlap = rotation.overlap.unwrap_or(SECRET_OVERLAP_DEFAULT);
    if overlap > SECRET_OVERLAP_MAX {
        let detail = format!("expected at most {SECRET_OVERLAP_MAX}, got {overlap}");
        return Err(Problem::field("overlap", detail));
    }
    // One after the other: of two rotations at once, neither would expire the other's secret.
    let _lock = ctx.app.secret_changes.lock().await;
    let endpoint = endpoints::find(&ctx, &path).await?;
    let new = new_secret(&ctx, endpoint.id, rotation.kind, rotation.value)?;
    let held = ctx.app.store.secrets(endpoint.id).await?;
    let ends_at = ctx.now() + overlap;
    let expire = expire_others(&held, rotation.kind, ends_at).collect();
    add(&ctx, &endpoint, &held, new, expire, Action::SecretRotate).await
}

/// Lets the secrets of a kind expire that sign for longer.
fn expire_others(
    held: &[EndpointSecret],
    of_kind: SecretKind,
    ends_at: Timestamp,
) -> impl Iterator<Item = Write> {
    let outlives = move |secret: &&EndpointSecret| {
        kind(&secret.value) == of_kind && secret.expires_at.is_none_or(|at| ends_at < at)
    };
    held.iter().filter(outlives).map(move |secret| Write::ExpireSecret {
        endpoint: secret.endpoint,
        id: secret.id,
        at: ends_at,
    })
}

pub(crate) async fn reveal(
    ctx: Ctx,
    path: OfSecret,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<SecretRevealed>, Problem> {
    let (endpoint, held) = of_path(&ctx, &path).await?;
    let secret = one(&held, path.secret)?;
    let answer = Json(SecretRevealed {
        id: secret.id,
        value: plaintext(&secret.value),
        public_key: public_key(&secret.value),
    });
    // The answer is not stored: a request that comes again is on record again.
    ctx.note(audit_action(Action::SecretReveal, &endpoint, secret.id, &secret.value)).await?;
    Ok(answer)
}

pub(crate) async fn remove(
    ctx: Ctx,
    path: OfSecret,
    _: NoQuery,
    _: NoBody,
) -> Result<NoContent, Problem> {
    // One after the other: of two requests at once, each would count on the other's secret.
    let _lock = ctx.app.secret_changes.lock().await;
    let (endpoint, held) = of_path(&ctx, &path).await?;
    let secret = one(&held, path.secret)?;
    let mut others = held.iter().filter(|other| other.id != secret.id);
    let signs = endpoint.settings.policy.signed && is_active(secret, ctx.now());
    if signs && !others.any(lasts) {
        let detail = "the endpoint must sign, and its other secrets expire: add another secret or rotate \
                      first, then delete this one";
        return Err(Problem::new(Code::LastSecret, detail));
    }
    let writes = vec![Write::RemoveSecret { endpoint: endpoint.id, id: secret.id }];
    let audit_action = audit_action(Action::SecretRemove, &endpoint, secret.id, &secret.value);
    ctx.commit(writes, audit_action, NoContent).await
}

/// Whether a secret signs until someone changes that.
fn lasts(secret: &EndpointSecret) -> bool {
    secret.expires_at.is_none()
}

/// Refuses to sign the attempts of an endpoint that has nothing to sign with, or will have nothing.
pub(super) async fn require_lasting(ctx: &Ctx, endpoint: EndpointId) -> Result<(), Problem> {
    let held = ctx.app.store.secrets(endpoint).await?;
    if held.iter().any(lasts) {
        return Ok(());
    }
    let detail = "the endpoint has no secret that stays valid: add one first";
    Err(Problem::field("policy.signed", detail))
}

/// Adds a secret. If there is no room for it, those that have expired go.
async fn add(
    ctx: &Ctx,
    endpoint: &Endpoint,
    held: &[EndpointSecret],
    new: NewSecret,
    mut writes: Vec<Write>,
    action: Action,
) -> Result<Created<SecretCreated>, Problem> {
    let now = ctx.now();
    let expired: Vec<&EndpointSecret> = held.iter().filter(|s| !is_active(s, now)).collect();
    if held.len() >= SECRETS_MAX && expired.is_empty() {
        let detail = format!("an endpoint may have {SECRETS_MAX} secrets: remove one first");
        return Err(Problem::new(Code::LimitReached, detail));
    }
    if held.len() >= SECRETS_MAX {
        let remove =
            |secret: &EndpointSecret| Write::RemoveSecret { endpoint: endpoint.id, id: secret.id };
        writes.extend(expired.into_iter().map(remove));
    }
    let created = Created(SecretCreated::of(&new, now));
    let mut audit_action = audit_action(action, endpoint, new.id, &new.value);
    tell_ends(&mut audit_action, &writes);
    writes.push(Write::CreateSecret(new));
    ctx.commit(writes, audit_action, created).await
}

fn new_secret(
    ctx: &Ctx,
    endpoint: EndpointId,
    kind: SecretKind,
    text: Option<String>,
) -> Result<NewSecret, Problem> {
    let Some(text) = text.map(zeroize::Zeroizing::new) else {
        return Ok(generated(&ctx.app, endpoint, kind));
    };
    let refused = |error: BadSecret| Problem::field("value", error.to_string());
    let value = match kind {
        SecretKind::Shared => SecretValue::Shared(text.parse().map_err(refused)?),
        SecretKind::Signing => SecretValue::Signing(text.parse().map_err(refused)?),
    };
    Ok(NewSecret { value, ..generated(&ctx.app, endpoint, kind) })
}

fn generated(app: &App, endpoint: EndpointId, kind: SecretKind) -> NewSecret {
    let value = match kind {
        SecretKind::Shared => SecretValue::Shared(Secret::generate(&app.random())),
        SecretKind::Signing => SecretValue::Signing(SigningKey::generate(&app.random())),
    };
    let id = SecretId::generate(app.source.now().as_millis(), app.random());
    NewSecret { id, endpoint, value, expires_at: None }
}

async fn of_path(ctx: &Ctx, path: &OfSecret) -> Result<(Endpoint, Vec<EndpointSecret>), Problem> {
    let of_endpoint = OfEndpoint { tenant: path.tenant.clone(), endpoint: path.endpoint };
    let endpoint = endpoints::find(ctx, &of_endpoint).await?;
    let held = ctx.app.store.secrets(endpoint.id).await?;
    Ok((endpoint, held))
}

fn one(held: &[EndpointSecret], id: SecretId) -> Result<&EndpointSecret, Problem> {
    held.iter().find(|secret| secret.id == id).ok_or_else(|| Problem::not_found("secret", id))
}

fn is_active(secret: &EndpointSecret, now: Timestamp) -> bool {
    secret.expires_at.is_none_or(|at| now < at)
}

fn kind(value: &SecretValue) -> SecretKind {
    match value {
        SecretValue::Shared(_) => SecretKind::Shared,
        SecretValue::Signing(_) => SecretKind::Signing,
    }
}

fn plaintext(value: &SecretValue) -> SecretPlaintext {
    SecretPlaintext(match value {
        SecretValue::Shared(secret) => secret.reveal().to_string(),
        SecretValue::Signing(key) => key.reveal().to_string(),
    })
}

fn public_key(value: &SecretValue) -> Option<VerifyingKey> {
    match value {
        SecretValue::Shared(_) => None,
        SecretValue::Signing(key) => Some(key.verifying_key()),
    }
}

impl SecretView {
    fn of(secret: &EndpointSecret, now: Timestamp) -> Self {
        Self {
            id: secret.id,
            kind: kind(&secret.value),
            created_at: secret.created_at.into(),
            expires_at: secret.expires_at.map(Time::from),
            active: is_active(secret, now),
            public_key: public_key(&secret.value),
        }
    }
}

impl SecretCreated {
    /// A secret that is being made at `now`.
    pub(super) fn of(new: &NewSecret, now: Timestamp) -> Self {
        let NewSecret { id, endpoint, value, expires_at } = new.clone();
        let value_shown = plaintext(&value);
        let stored = EndpointSecret { id, endpoint, value, created_at: now, expires_at };
        Self { secret: SecretView::of(&stored, now), value: value_shown }
    }
}

fn audit_action(
    action: Action,
    endpoint: &Endpoint,
    secret: SecretId,
    value: &SecretValue,
) -> AuditAction {
    AuditAction {
        action,
        tenant: Some(endpoint.tenant.clone()),
        target: secret.to_string(),
        detail: json!({ "endpoint": endpoint.id, "kind": kind(value) }),
    }
}

/// Names the secrets that expire or go for the sake of a new one.
fn tell_ends(audit_action: &mut AuditAction, writes: &[Write]) {
    let (mut expire, mut removed) = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::ExpireSecret { id, .. } => expire.push(*id),
            Write::RemoveSecret { id, .. } => removed.push(*id),
            _ => {}
        }
    }
    for (name, ids) in [("expire", expire), ("removed", removed)] {
        if !ids.is_empty() {
            audit_action.detail[name] = json!(ids);
        }
    }
}
