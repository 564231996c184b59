//! Rotations that the server makes by itself, when the newest secret of an endpoint is as old as it may become.

use railpost_engine::Timestamp;
use railpost_store::limits::SECRETS_MAX;
use railpost_store::{
    AUDIT_ACTOR_SELF, AuditEntry, Change, DueRotation, Endpoint, EndpointSecret, EndpointSettings,
    StoreError, Write,
};
use railpost_telemetry::{Level, Value};
use railpost_wire::{AuditId, EndpointId};
use serde_json::json;

use super::{SecretKind, expire_others, generated, is_active, kind, lasts};
use crate::app::App;
use crate::audit::Action;

/// What a step of rotations did.
#[derive(Clone, Copy, Debug)]
pub struct SecretRotations {
    /// How many endpoints have a new secret.
    pub rotated: u64,
    /// Where the next step begins; nothing when no other endpoint is due.
    pub next: Option<DueRotation>,
}

/// Rotates the secrets of up to `limit` endpoints that are due, those after `after`. What fails is logged, stays due,
/// and is not in the way of the others.
pub async fn rotate_due_secrets(
    app: &App,
    after: Option<DueRotation>,
    limit: u32,
) -> Result<SecretRotations, StoreError> {
    let due = app.store.due_rotations(app.source.now(), after, limit).await?;
    let mut rotated = 0;
    for DueRotation { endpoint, .. } in &due {
        match rotate_if_due(app, *endpoint).await {
            Ok(done) => rotated += u64::from(done),
            Err(problem) if problem.is_environment() => return Err(problem),
            Err(problem) => log_failed(app, *endpoint, &problem),
        }
    }
    let is_full = due.len() == limit as usize;
    Ok(SecretRotations { rotated, next: due.last().filter(|_| is_full).copied() })
}

/// When the server rotates these secrets next, with these settings.
pub(crate) fn next_rotation(
    settings: &EndpointSettings,
    held: &[EndpointSecret],
) -> Option<Timestamp> {
    let newest = held.iter().filter(|secret| lasts(secret)).map(|secret| secret.created_at).max();
    Some(newest? + settings.secret_age_max()?)
}

/// New secrets, the end of the old ones and the audit entry are one commit. It moves the next rotation, so that a
/// crash neither skips one nor makes one twice. Says whether it was due.
async fn rotate_if_due(app: &App, id: EndpointId) -> Result<bool, StoreError> {
    let _lock = app.secret_changes.lock().await;
    let now = app.source.now();
    let Some(endpoint) = app.store.endpoint(id).await? else { return Ok(false) };
    if endpoint.rotates_at.is_none_or(|at| now < at) {
        return Ok(false);
    }
    let held = app.store.secrets(id).await?;
    let change = rotation(app, &endpoint, &held, now)?;
    app.dispatcher.commit(change).await?;
    Ok(true)
}

/// Each kind of secret that the endpoint signs with gets a new one.
fn rotation(
    app: &App,
    endpoint: &Endpoint,
    held: &[EndpointSecret],
    now: Timestamp,
) -> Result<Change, StoreError> {
    let ends_at = now + endpoint.settings.rotation_overlap();
    let has_kind = |of: &SecretKind| held.iter().any(|s| lasts(s) && kind(&s.value) == *of);
    let kinds = [SecretKind::Shared, SecretKind::Signing].into_iter().filter(has_kind);
    let (mut writes, mut created) = (room_for_new(endpoint.id, held, now)?, Vec::new());
    for kind in kinds {
        writes.extend(expire_others(held, kind, ends_at));
        let new = generated(app, endpoint.id, kind);
        created.push(new.id);
        writes.push(Write::CreateSecret(new));
    }
    let audit = AuditEntry {
        id: AuditId::generate(now.as_millis(), app.random()),
        at: now,
        tenant: Some(endpoint.tenant.clone()),
        actor: AUDIT_ACTOR_SELF.to_owned(),
        address: None,
        action: Action::SecretRotate.name().to_owned(),
        target: endpoint.id.to_string(),
        detail: json!({ "created": created, "others_expire_at": railpost_engine::Time::from(ends_at) }),
    };
    Ok(Change { writes, audit: Some(audit), idempotency: None })
}

/// Removes secrets that have expired if there is no room for one more of each kind.
fn room_for_new(
    endpoint: EndpointId,
    held: &[EndpointSecret],
    now: Timestamp,
) -> Result<Vec<Write>, StoreError> {
    const KINDS: usize = 2;
    if held.len() + KINDS <= SECRETS_MAX {
        return Ok(Vec::new());
    }
    let expired: Vec<_> = held.iter().filter(|secret| !is_active(secret, now)).collect();
    if held.len() - expired.len() + KINDS > SECRETS_MAX {
        let problem = format!("{} of {SECRETS_MAX} are active: remove some", held.len());
        return Err(StoreError::conflict("secrets", problem));
    }
    let remove = |secret: &EndpointSecret| Write::RemoveSecret { endpoint, id: secret.id };
    Ok(expired.into_iter().map(remove).collect())
}

fn log_failed(app: &App, endpoint: EndpointId, problem: &StoreError) {
    let endpoint = endpoint.to_string();
    let fields = [("endpoint", Value::Text(&endpoint)), ("problem", Value::Display(problem))];
    app.telemetry.log.line(Level::Warn, "secret_rotation_failed", &fields);
}
