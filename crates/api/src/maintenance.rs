//! Keeping the store in shape, on request: backup, retention, verification, new lines after a restore.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use http::Method;
use railpost_engine::Time;
use railpost_store::{Pruned, Store, StoreError};
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
use crate::backup_series;
use crate::limits::{
    BACKUP_FOLDERS_MAX, BACKUP_NAME_LEN_MAX, BACKUP_PATH_LEN_MAX, BACKUPS_KEPT_MAX,
};
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

/// Where a backup is to be written: `path`, or `keep` for one of the series. Exactly one of them is given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([
    { "required": ["path"], "properties": { "path": { "type": "string" }, "keep": { "type": "null" } } },
    { "required": ["keep"], "properties": { "keep": { "type": "integer" }, "path": { "type": "null" } } },
])))]
pub(crate) struct NewBackup {
    /// A file that does not exist yet, in the folder `backups` of the server's data folder.
    #[schemars(schema_with = "crate::bounds::backup_path")]
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Write the next backup of the series, in `backups/scheduled`, named by the time. Then delete the oldest of
    /// the series, so that this many are left.
    #[schemars(range(min = 1, max = BACKUPS_KEPT_MAX))]
    #[serde(default)]
    pub(crate) keep: Option<u32>,
}

/// A backup that was written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Backup {
    /// Its file, in the server's data folder.
    pub(crate) path: String,
    /// Its size.
    pub(crate) size_bytes: u64,
    /// The files of older backups of the series that were deleted.
    pub(crate) deleted: Vec<String>,
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
    let inside = match (&new.path, new.keep) {
        (Some(path), None) => inside_backups(path)?,
        (None, Some(1..=BACKUPS_KEPT_MAX)) => backup_series::next_name(ctx.now().into()),
        (None, Some(_)) => {
            return Err(Problem::field("keep", format!("expected 1 to {BACKUPS_KEPT_MAX}")));
        }
        _ => return Err(Problem::field("path", "expected either `path` or `keep`")),
    };
    let backups = ctx.app.settings.data_dir.join("backups");
    let shown = Path::new("backups").join(&inside);
    let size_bytes = write_backup(&*ctx.app.store, &backups.join(&inside), &shown).await?;
    let deleted = new.keep.map_or_else(Vec::new, |keep| backup_series::prune(&backups, keep));
    let path = shown.display().to_string();
    let detail = json!({ "size_bytes": size_bytes, "deleted": deleted.len() });
    let audit_action = audit_action(Action::StoreBackup, &path, detail);
    ctx.commit(Vec::new(), audit_action, Json(Backup { path, size_bytes, deleted })).await
}

/// Writes a backup to a new file, which has its name only once it is whole. Answers its size.
async fn write_backup(store: &dyn Store, file: &Path, shown: &Path) -> Result<u64, Problem> {
    make_folder(file).map_err(|error| no_folder(shown, &error))?;
    // An empty file keeps the name from other backups.
    File::create_new(file).map_err(|error| taken(shown, &error))?;
    let partial = backup_series::partial(file);
    // One that a crash left behind.
    let _ = fs::remove_file(&partial);
    let written = store.backup(&partial).await.map_err(Problem::from).and_then(|()| {
        let renamed = fs::rename(&partial, file).and_then(|()| fs::metadata(file));
        Ok(renamed.map_err(|error| unwritten(shown, &error))?.len())
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
        let _ = fs::remove_file(file);
    }
    written
}

fn taken(path: &Path, error: &io::Error) -> Problem {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return unwritten(path, error);
    }
    let detail = format!("`{}` exists already: choose another name", path.display());
    Problem { field: Some("path".to_owned()), ..Problem::new(Code::Conflict, detail) }
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

fn make_folder(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Why a backup's folder cannot be made: a file may stand there.
fn no_folder(path: &Path, error: &io::Error) -> Problem {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | NotADirectory) {
        return unwritten(path, error);
    }
    let detail = format!("a part of `{}` is a file, not a folder", path.display());
    Problem { field: Some("path".to_owned()), ..Problem::new(Code::Conflict, detail) }
}

fn unwritten(path: &Path, error: &io::Error) -> Problem {
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
