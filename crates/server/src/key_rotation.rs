//! Rotating the master key while the server runs: both keys are kept where the next start finds them, everything is
//! re-encrypted in small steps, then the old key goes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use railpost_api::{
    AUDIT_MASTER_KEY_ROTATED, App, Code, MasterKeyRotator, Problem, RotationProgress,
};
use railpost_engine::Span;
use railpost_store::limits::REENCRYPT_STEP_MAX;
use railpost_store::{AUDIT_ACTOR_SELF, AuditEntry, MasterKey, SealedRows, Source};
use railpost_telemetry::{Level, Value};
use railpost_wire::AuditId;
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::limits::{REENCRYPT_PASS_REST, REENCRYPT_STEP_REST, UPKEEP_RETRY};
use crate::master_key::{self, KeyBytes, KeyPlace, StoredKeys};
use crate::upkeep::{stops_before_next, stops_within};

/// The master key in use and where it is kept.
#[derive(Debug)]
pub(crate) struct KeyRotation {
    key: MasterKey,
    place: KeyPlace,
    source: Arc<dyn Source>,
    progress: Mutex<RotationProgress>,
    begun: Notify,
}

#[async_trait]
impl MasterKeyRotator for KeyRotation {
    async fn prepare(&self, new_key_file: Option<&Path>) -> Result<MasterKey, Problem> {
        let given = new_key_file.map(master_key::read_new).transpose();
        let given = given.map_err(|problem| Problem::field("new_key_file", problem))?;
        if self.key.is_rotating() {
            return self.under_way(given);
        }
        let place = self.place.clone();
        let stored = tokio::task::spawn_blocking(move || match place {
            KeyPlace::Memory => Ok(None),
            place => place.read_keys().map(Some),
        });
        let stored = stored.await.map_err(|_| refused("the key could not be read".to_owned()))?;
        match stored.map_err(refused)? {
            None => Ok(MasterKey::new(&self.new_key(given))),
            Some(stored) => self.prepare_with(stored, given),
        }
    }

    fn begun(&self) {
        self.begun.notify_one();
    }

    fn progress(&self) -> RotationProgress {
        self.lock().clone()
    }
}

impl KeyRotation {
    pub(crate) fn new(key: MasterKey, place: KeyPlace, source: Arc<dyn Source>) -> Self {
        Self { key, place, source, progress: Mutex::default(), begun: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, RotationProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_key(&self, given: Option<KeyBytes>) -> KeyBytes {
        given.unwrap_or_else(|| master_key::random(&*self.source))
    }

    fn under_way(&self, given: Option<KeyBytes>) -> Result<MasterKey, Problem> {
        if given.is_some_and(|given| !self.key.is_current(&given)) {
            return Err(another_key());
        }
        Ok(self.key.clone())
    }

    /// Goes by what the next start would find. Two keys are there if an earlier request failed half-way, or if the
    /// operator put them there.
    fn prepare_with(
        &self,
        stored: StoredKeys,
        given: Option<KeyBytes>,
    ) -> Result<MasterKey, Problem> {
        let StoredKeys { newest, old } = stored;
        match (&old, &self.place) {
            (Some(old), _) if self.key.is_current(old) => {
                if given.is_some_and(|given| given != newest) {
                    return Err(another_key());
                }
                Ok(MasterKey::new(&newest))
            }
            (None, KeyPlace::File(_)) if self.key.is_current(&newest) => {
                let new = self.new_key(given);
                if new == newest {
                    let problem = "it is the current master key: name another one";
                    return Err(Problem::field("new_key_file", problem));
                }
                self.place.replace(&new, Some(&newest)).map_err(refused)?;
                Ok(MasterKey::new(&new))
            }
            (None, KeyPlace::Command(_)) if self.key.is_current(&newest) => Err(refused(
                "store.master_key_command must print the new key followed by the current one, 64 bytes, before \
                 a rotation can begin: a restart in the middle needs both"
                    .to_owned(),
            )),
            _ => Err(refused(
                "the master key was replaced since the server has started: put the current key back".to_owned(),
            )),
        }
    }

    /// Once the store has done with the old key, a file does not need it either.
    fn forget_old(&self) -> Result<(), String> {
        let KeyPlace::File(_) = self.place else { return Ok(()) };
        let StoredKeys { newest, old } = self.place.read_keys()?;
        match old {
            Some(_) if self.key.is_current(&newest) => self.place.replace(&newest, None),
            _ => Ok(()),
        }
    }
}

fn refused(problem: String) -> Problem {
    Problem::new(Code::Conflict, problem)
}

fn another_key() -> Problem {
    let problem = "a rotation to another key has begun: wait until it has ended";
    Problem { field: Some("new_key_file".to_owned()), ..Problem::new(Code::Conflict, problem) }
}

/// Rotates when it is begun, and at the start what was interrupted, until the server stops.
pub(crate) async fn run(
    app: Arc<App>,
    rotation: Arc<KeyRotation>,
    links_ttl: Span,
    mut stopping: watch::Receiver<bool>,
) {
    let mut may_keep_old = true;
    loop {
        may_keep_old |= rotation.key.is_rotating();
        let mut done = rotate(&app, &rotation, links_ttl, &mut stopping).await;
        if done.is_ok() && may_keep_old && !rotation.key.is_rotating() {
            done = rotation.forget_old();
            may_keep_old = done.is_err();
        }
        rotation.lock().trouble = done.as_ref().err().cloned();
        let rest = done.as_ref().map_or(UPKEEP_RETRY, |()| app.settings.retention.prune_every);
        if let Err(problem) = done {
            let fields = [("problem", Value::Text(&problem))];
            app.telemetry.log.line(Level::Warn, "master_key_rotation_failed", &fields);
        }
        if stops_before_next(Duration::from(rest), &rotation.begun, &mut stopping).await {
            return;
        }
    }
}

/// Passes go over everything until one finds nothing under the old key: what was sealed while the rotation began may
/// be committed behind a pass.
async fn rotate(
    app: &App,
    rotation: &KeyRotation,
    links_ttl: Span,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    if !rotation.key.is_rotating() {
        return Ok(());
    }
    let trouble = |error: railpost_store::StoreError| {
        app.telemetry.note_stopped(&error);
        error.to_string()
    };
    // The answer to an earlier call may have been lost.
    app.store.begin_key_rotation(&rotation.key).await.map_err(trouble)?;
    loop {
        let Some(changed) = pass(app, rotation, stopping).await.map_err(trouble)? else {
            return Ok(());
        };
        if changed == 0 {
            break;
        }
        if stops_within(Duration::from(REENCRYPT_PASS_REST), stopping).await {
            return Ok(());
        }
    }
    let links_until = app.source.now() + links_ttl;
    app.store.end_key_rotation(links_until, &ended(app, rotation)).await.map_err(trouble)?;
    rotation.lock().ended_at = Some(app.source.now().into());
    let fields = [("reencrypted", Value::Number(rotation.progress().reencrypted))];
    app.telemetry.log.line(Level::Info, "master_key_rotated", &fields);
    Ok(())
}

/// Answers how many values were under the old key; nothing if the server stops.
async fn pass(
    app: &App,
    rotation: &KeyRotation,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Option<u64>, railpost_store::StoreError> {
    let (mut changed, mut next) = (0, Some(SealedRows::FIRST));
    while let Some(from) = next {
        let step = app.store.reencrypt(from, REENCRYPT_STEP_MAX).await?;
        rotation.lock().reencrypted += step.changed;
        (changed, next) = (changed + step.changed, step.next);
        if stops_within(Duration::from(REENCRYPT_STEP_REST), stopping).await {
            return Ok(None);
        }
    }
    Ok(Some(changed))
}

fn ended(app: &App, rotation: &KeyRotation) -> AuditEntry {
    let at = app.source.now();
    AuditEntry {
        id: AuditId::generate(at.as_millis(), app.random()),
        at,
        tenant: None,
        actor: AUDIT_ACTOR_SELF.to_owned(),
        address: None,
        action: AUDIT_MASTER_KEY_ROTATED.to_owned(),
        target: "store".to_owned(),
        detail: json!({ "reencrypted": rotation.progress().reencrypted }),
    }
}
