//! Replacing the master key while the server runs.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use http::Method;
use railpost_engine::Time;
use railpost_store::MasterKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::Json;
use super::audit::Action;
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::path::NoPath;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;

const PATH: &str = "/v1/master-key/rotation";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            PATH,
            Needs::Admin,
            "Show whether the master key is being rotated",
            show,
        ),
        Route::new(
            Method::POST,
            PATH,
            Needs::Admin,
            "Begin to re-encrypt everything under a new master key",
            begin,
        ),
    ]
}

/// Keeps the master key where the next start finds it, and re-encrypts in the background.
#[async_trait]
pub trait MasterKeyRotator: fmt::Debug + Send + Sync {
    /// The key to rotate to: of this file, or a new one. When it answers, the next start finds both keys. While a
    /// rotation is under way it answers that one's key.
    async fn prepare(&self, new_key_file: Option<&Path>) -> Result<MasterKey, Problem>;

    /// The store has begun: re-encryption begins.
    fn begun(&self);

    /// How far it is.
    fn progress(&self) -> RotationProgress;
}

/// How far a rotation of the master key is. Counts are of this server, since its start.
#[derive(Clone, Debug, Default)]
pub struct RotationProgress {
    /// Values that were re-encrypted.
    pub reencrypted: u64,
    /// When the last rotation ended.
    pub ended_at: Option<Time>,
    /// Why it does not go on. It is tried again.
    pub trouble: Option<String>,
}

/// Where the new master key comes from.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = json!({}))]
pub(crate) struct NewMasterKey {
    /// A file on the server's machine with the new key: 32 bytes that only their owner may read. A new key is
    /// generated if none is named.
    #[schemars(schema_with = "crate::bounds::key_file")]
    pub(crate) new_key_file: Option<String>,
}

/// Whether the master key is being rotated.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct MasterKeyRotation {
    /// Whether there are two keys: stored values are being re-encrypted.
    pub(crate) running: bool,
    /// Values that were re-encrypted since the server's start.
    pub(crate) reencrypted: u64,
    /// When the last rotation ended, since the server's start.
    pub(crate) ended_at: Option<Time>,
    /// Why it does not go on. It is tried again.
    pub(crate) trouble: Option<String>,
}

pub(crate) async fn show(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<MasterKeyRotation>, Problem> {
    Ok(Json(status(&ctx)))
}

/// To begin again while it is under way changes nothing.
pub(crate) async fn begin(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewMasterKey>,
) -> Result<Json<MasterKeyRotation>, Problem> {
    let file = new.new_key_file.as_deref().map(Path::new);
    let key = ctx.app.key_rotation.prepare(file).await?;
    ctx.app.store.begin_key_rotation(&key).await?;
    ctx.app.key_rotation.begun();
    let audit_action = AuditAction {
        action: Action::MasterKeyRotate,
        tenant: None,
        target: "store".to_owned(),
        detail: json!({ "given": new.new_key_file.is_some() }),
    };
    ctx.commit(Vec::new(), audit_action, Json(status(&ctx))).await
}

fn status(ctx: &Ctx) -> MasterKeyRotation {
    let RotationProgress { reencrypted, ended_at, trouble } = ctx.app.key_rotation.progress();
    MasterKeyRotation { running: ctx.app.master_key.is_rotating(), reencrypted, ended_at, trouble }
}
