//! Keeping the store in shape, on request: backup, retention, verification, new lines after a restore.

use std::path::{Path, PathBuf};

use http::Method;
use railpost_engine::Time;
use railpost_store::{Pruned, StoreError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::Json;
use super::audit::Action;
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::path::NoPath;
use super::problem::{Code, Problem};
use super::query::NoQuery;
use super::route::Route;
use crate::limits::{BACKUP_FOLDERS_MAX, BACKUP_NAME_LEN_MAX, BACKUP_PATH_LEN_MAX};
use crate::retention;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/backup", Needs::Admin, "Write a copy of the store", backup),
        Route::new(
            Method::POST,
            "/v1/prune",
            Needs::Admin,
            "Delete data past its retention",
            prune,
        ),
        Route::new(
            Method::POST,
            "/v1/store/verify",
            Needs::Admin,
            "Check all stored data for damage",
            verify,
        ),
        Route::new(
            Method::POST,
            "/v1/lines/renew",
            Needs::Admin,
            "Begin a new line for every lane, after the store was restored by other means",
            renew_lines,
        ),
    ]
}

/// Where a backup is to be written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBackup {
    /// A file that does not exist yet, in the folder `backups` of the server's data folder.
    #[schemars(schema_with = "crate::bounds::backup_path")]
    pub(crate) path: String,
}

/// A backup that was written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Backup {
    /// Its file, in the server's data folder.
    pub(crate) path: String,
    /// Its size.
    pub(crate) size_bytes: u64,
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Pruned")]
pub(crate) struct PrunedView {
    /// Events.
    pub(crate) events: u64,
    /// Their deliveries.
    pub(crate) deliveries: u64,
    /// Empty lanes: the next event of their key begins a new line.
    pub(crate) lanes: u64,
    /// Audit entries, and answers to requests that may come again.
    pub(crate) others: u64,
}

pub(crate) async fn backup(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    JsonBody(new): JsonBody<NewBackup>,
) -> Result<Json<Backup>, Problem> {
    let inside = Path::new("backups").join(inside_backups(&new.path)?);
    let file = ctx.app.settings.data_dir.join(&inside);
    if file.exists() {
        let detail = format!("`{}` exists already: choose another name", inside.display());
        return Err(Problem {
            field: Some("path".to_owned()),
            ..Problem::new(Code::Conflict, detail)
        });
    }
    make_folder(&file).map_err(|error| no_folder(&inside, &error))?;
    ctx.app.store.backup(&file).await?;
    let size_bytes = std::fs::metadata(&file).map_err(|error| unwritten(&inside, &error))?.len();
    let path = inside.display().to_string();
    let audit_action =
        audit_action(Action::StoreBackup, &path, json!({ "size_bytes": size_bytes }));
    ctx.commit(Vec::new(), audit_action, Json(Backup { path, size_bytes })).await
}

/// The path, if it stays inside the folder of backups: names that every file system takes, and that hide nothing.
fn inside_backups(path: &str) -> Result<PathBuf, Problem> {
    let is_name = |name: &str| {
        let visible = name.bytes().all(|c| c.is_ascii_graphic());
        visible && (1..=BACKUP_NAME_LEN_MAX).contains(&name.len()) && !name.starts_with('.')
    };
    let few = path.split('/').count() <= BACKUP_FOLDERS_MAX + 1;
    if few && path.len() <= BACKUP_PATH_LEN_MAX && path.split('/').all(is_name) {
        return Ok(path.into());
    }
    let detail = format!(
        "expected the name of a file inside `backups`: up to {BACKUP_FOLDERS_MAX} folders and a name, each of up to \
         {BACKUP_NAME_LEN_MAX} visible ASCII characters and without a dot at its beginning"
    );
    Err(Problem::field("path", detail))
}

fn make_folder(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Why a backup's folder cannot be made: a file may stand there.
fn no_folder(path: &Path, error: &std::io::Error) -> Problem {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | NotADirectory) {
        return unwritten(path, error);
    }
    let detail = format!("a part of `{}` is a file, not a folder", path.display());
    Problem { field: Some("path".to_owned()), ..Problem::new(Code::Conflict, detail) }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::StoreUnavailable, format!("`{}` cannot be written: {error}", path.display()))
}

pub(crate) async fn prune(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<PrunedView>, Problem> {
    let Pruned { events, deliveries, lanes, others, .. } = retention::prune(&ctx.app).await?;
    let all = PrunedView { events, deliveries, lanes, others };
    ctx.commit(Vec::new(), audit_action(Action::StorePrune, "store", json!(all)), Json(all)).await
}

/// Whether the store is whole.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoreVerified {
    /// Whether nothing is damaged.
    pub(crate) whole: bool,
    /// What is damaged. Restore a backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<String>,
}

/// Every lane begins a new line with its next delivery.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct LinesRenewed {
    /// When.
    pub(crate) renewed_at: Time,
}

pub(crate) async fn verify(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<StoreVerified>, Problem> {
    let damage = match ctx.app.store.verify().await {
        Ok(()) => None,
        Err(StoreError::Corrupt(damage)) => Some(damage),
        Err(error) => return Err(error.into()),
    };
    let found = StoreVerified { whole: damage.is_none(), damage };
    let noted = ctx
        .commit(
            Vec::new(),
            audit_action(Action::StoreVerify, "store", json!(found)),
            Json(found.clone()),
        )
        .await;
    match noted {
        // What is damaged may not take an audit entry, and must be told all the same.
        Err(_) if !found.whole => Ok(Json(found)),
        noted => noted,
    }
}

pub(crate) async fn renew_lines(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<LinesRenewed>, Problem> {
    ctx.app.store.begin_era().await?;
    let answer = Json(LinesRenewed { renewed_at: ctx.now().into() });
    ctx.commit(Vec::new(), audit_action(Action::LinesRenew, "store", json!({})), answer).await
}

fn audit_action(action: Action, target: &str, detail: serde_json::Value) -> AuditAction {
    AuditAction { action, tenant: None, target: target.to_owned(), detail }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_backup_stays_in_its_folder() {
        for path in ["a.db", "2026/monday.db"] {
            assert_eq!(inside_backups(path).unwrap(), Path::new(path));
        }
        let long = "a".repeat(101);
        let outside = ["", ".", "..", "/etc/passwd", "../master.key", "a/../../b", "a/..", "a/"];
        for path in outside.into_iter().chain([".a", "a b", "a\0", "é", "1/2/3/4/5", &long]) {
            assert_eq!(inside_backups(path).unwrap_err().field.unwrap(), "path", "{path}");
        }
    }
}
