//! Work on a store whose server is stopped: restoring it, verifying it, beginning new lines. It creates no store
//! where there is none.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railpost_engine::Timestamp;
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_sqlite::SqliteStore;
use railpost_store::{Source, Store, StoreError, SystemSource};

use super::opening::{existing_setup, with_advice};
use super::{StartError, failed};
use crate::config::{Config, is_postgres_url, show_url};
use crate::data_dir;

/// A store that a backup was put into.
#[derive(Clone, Debug)]
pub(crate) struct RestoredStore {
    /// Where it is, without a password.
    pub(crate) store: String,
    /// The file in which the store that was there is kept.
    pub(crate) old_store: Option<PathBuf>,
}

/// Puts a backup in the place of the configured store, which no process may have open.
pub(crate) async fn restore(config: &Config, backup: &Path) -> Result<RestoredStore, StartError> {
    let (url, source) = (config.store.url.as_str(), &(Arc::new(SystemSource) as Arc<dyn Source>));
    if url == "memory:" {
        return Err(failed("store.url", "a memory store cannot be restored"));
    }
    let is_postgres = is_postgres_url(url);
    let path = data_dir::database(config);
    check_backup(backup, (!is_postgres).then_some(&path))?;
    let setup = existing_setup(config, source)?;
    if is_postgres {
        let restored = PostgresStore::restore(&PostgresAddress::from(url), backup, setup).await;
        restored.map_err(|error| not_restored("store.url", backup, &error))?;
        return Ok(RestoredStore { store: show_url(url), old_store: None });
    }
    data_dir::prepare(&config.server.data_dir).map_err(StartError)?;
    let store = path.display().to_string();
    let old_store = SqliteStore::restore(&path, backup, &setup);
    let old_store = old_store.map_err(|error| not_restored(&store, backup, &error))?;
    Ok(RestoredStore { store, old_store })
}

/// Refuses what cannot be a backup: what cannot be read, no regular file (a pipe may never end), and the
/// file of the store itself.
pub(super) fn check_backup(backup: &Path, database: Option<&PathBuf>) -> Result<(), StartError> {
    let refuse = |problem: &dyn fmt::Display| {
        StartError(format!("cannot read the backup {}: {problem}", backup.display()))
    };
    let file = fs::metadata(backup).map_err(|error| refuse(&error))?;
    if !file.is_file() {
        return Err(refuse(&"it is not a regular file"));
    }
    File::open(backup).map_err(|error| refuse(&error))?;
    let is_same = |other: fs::Metadata| (other.dev(), other.ino()) == (file.dev(), file.ino());
    if database.is_some_and(|path| fs::metadata(path).is_ok_and(is_same)) {
        let problem = "it is the store itself; name a file that `railpost backup` wrote";
        return Err(failed(&backup.display().to_string(), problem));
    }
    Ok(())
}

/// Why a restore failed: because of the store or of the backup.
pub(super) fn not_restored(store: &str, backup: &Path, error: &StoreError) -> StartError {
    let backup = backup.display();
    match error {
        StoreError::Locked(_) => failed(store, in_use(error)),
        StoreError::Corrupt(damage) => {
            StartError(format!("the backup {backup} is damaged: {damage}; take another one"))
        }
        StoreError::NewerSchema { .. }
        | StoreError::WrongMasterKey
        | StoreError::BothMasterKeysNeeded => {
            failed(&format!("the backup {backup}"), with_advice(error))
        }
        // What is unavailable of a file is named by the error.
        error if store != "store.url" => failed(store, error),
        error => failed(store, with_advice(error)),
    }
}

fn in_use(error: &StoreError) -> String {
    format!("{error}; stop the server and wait until its process has ended")
}

/// Looks through the configured store for damage: says what is damaged, if anything is.
pub(crate) async fn verify(config: &Config) -> Result<Option<String>, StartError> {
    let verified =
        async { open_existing(config).await?.verify().await.map_err(OfflineError::of("store")) };
    match verified.await {
        Ok(()) => Ok(None),
        Err(OfflineError::Damage(damage)) => Ok(Some(damage)),
        Err(OfflineError::Other(error)) => Err(error),
    }
}

/// Begins a new era of the configured store, and with it a new line of every lane. Answers when.
pub(crate) async fn renew_lines(config: &Config) -> Result<Timestamp, StartError> {
    let renewed = open_stopped(config).await?.begin_era().await;
    renewed.map_err(|error| OfflineError::of("store")(error).into_start_error())?;
    Ok(SystemSource.now())
}

/// Opens the configured store, whose server is stopped.
pub(crate) async fn open_stopped(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    open_existing(config).await.map_err(OfflineError::into_start_error)
}

/// Why work on a store failed.
enum OfflineError {
    /// The store is damaged.
    Damage(String),
    Other(StartError),
}

impl OfflineError {
    fn into_start_error(self) -> StartError {
        match self {
            Self::Damage(damage) => {
                StartError(format!("the store is damaged: {damage}; restore a backup"))
            }
            Self::Other(error) => error,
        }
    }

    fn of(store: &str) -> impl Fn(StoreError) -> Self {
        move |error| match error {
            StoreError::Corrupt(damage) => Self::Damage(damage),
            StoreError::Locked(_) => Self::Other(failed(store, in_use(&error))),
            error => Self::Other(failed(store, with_advice(&error))),
        }
    }
}

impl From<StartError> for OfflineError {
    fn from(error: StartError) -> Self {
        Self::Other(error)
    }
}

/// Opens the configured store. Makes none, and no folder or master key.
async fn open_existing(config: &Config) -> Result<Arc<dyn Store>, OfflineError> {
    let url = config.store.url.as_str();
    if url == "memory:" {
        return Err(failed("store.url", "a memory store exists only while its server runs").into());
    }
    let source: Arc<dyn Source> = Arc::new(SystemSource);
    let setup = || existing_setup(config, &source);
    if is_postgres_url(url) {
        let (address, trouble) = (PostgresAddress::from(url), OfflineError::of("store.url"));
        if !PostgresStore::exists(&address).await.map_err(&trouble)? {
            return Err(no_store(&show_url(url)).into());
        }
        return Ok(Arc::new(PostgresStore::connect(&address, setup()?).await.map_err(trouble)?));
    }
    let path = data_dir::database(config);
    let name = path.display().to_string();
    if !data_dir::holds_database(&path) {
        return Err(no_store(&name).into());
    }
    Ok(Arc::new(SqliteStore::open(&path, setup()?).map_err(OfflineError::of(&name))?))
}

fn no_store(place: &str) -> StartError {
    StartError(format!("there is no store at {place}; see --data-dir, --store and --config"))
}
