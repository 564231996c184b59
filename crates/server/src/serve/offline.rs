//! Work on a store whose server is stopped: restoring it and looking through it. Nothing is made where
//! no store is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use railpost_store::{
    PostgresAddress, PostgresStore, Source, SqliteStore, Store, StoreError, SystemSource,
};

use super::opening::{self, advised, setup};
use super::{StartError, failed};
use crate::config::{Config, is_postgres_url, show_url};
use crate::data_dir;

/// A store that a backup was put into.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    /// Where it is, without a password.
    pub(crate) store: String,
    /// The file in which the store that was there is kept.
    pub(crate) old_store: Option<PathBuf>,
}

/// Puts a backup in the place of the configured store, which no process may have open.
pub(crate) async fn restore(config: &Config, backup: &Path) -> Result<Restored, StartError> {
    let (url, source) = (config.store.url.as_str(), &(Arc::new(SystemSource) as Arc<dyn Source>));
    if url == "memory:" {
        return Err(failed("store.url", "a store in memory holds nothing to restore"));
    }
    data_dir::prepare(&config.server.data_dir).map_err(StartError)?;
    let master = data_dir::existing_master_key(config).map_err(StartError)?;
    let setup = setup(&master, source);
    if is_postgres_url(url) {
        let restored = PostgresStore::restore(&PostgresAddress::from(url), backup, setup).await;
        restored.map_err(|error| failed("store.url", not_restored(&error)))?;
        return Ok(Restored { store: show_url(url), old_store: None });
    }
    let path = data_dir::database(config);
    let old_store = SqliteStore::restore(&path, backup, &setup);
    let old_store =
        old_store.map_err(|error| failed(&path.display().to_string(), not_restored(&error)))?;
    Ok(Restored { store: path.display().to_string(), old_store })
}

/// What to do about a store that cannot be restored.
fn not_restored(error: &StoreError) -> String {
    match error {
        StoreError::Locked(_) => in_use(error),
        StoreError::Corrupt(damage) => format!("the backup is damaged: {damage}; take another one"),
        error => advised(error),
    }
}

fn in_use(error: &StoreError) -> String {
    format!("{error}; stop the server and wait until its process has ended")
}

/// Looks through the configured store for damage: says what is damaged, if anything is.
pub(crate) async fn verify(config: &Config) -> Result<Option<String>, StartError> {
    let verified =
        async { open_existing(config).await?.verify().await.map_err(Trouble::of("store")) };
    match verified.await {
        Ok(()) => Ok(None),
        Err(Trouble::Damage(damage)) => Ok(Some(damage)),
        Err(Trouble::Other(error)) => Err(error),
    }
}

/// Why work on a store failed.
enum Trouble {
    /// The store is damaged.
    Damage(String),
    Other(StartError),
}

impl Trouble {
    fn of(store: &str) -> impl Fn(StoreError) -> Self {
        move |error| match error {
            StoreError::Corrupt(damage) => Self::Damage(damage),
            StoreError::Locked(_) => Self::Other(failed(store, in_use(&error))),
            error => Self::Other(failed(store, advised(&error))),
        }
    }
}

impl From<StartError> for Trouble {
    fn from(error: StartError) -> Self {
        Self::Other(error)
    }
}

/// Opens the configured store. Makes none, and no folder or master key.
async fn open_existing(config: &Config) -> Result<Arc<dyn Store>, Trouble> {
    let url = config.store.url.as_str();
    if url == "memory:" {
        return Err(failed("store.url", "a store in memory ends with its server").into());
    }
    let source: Arc<dyn Source> = Arc::new(SystemSource);
    let setup = || -> Result<_, StartError> {
        let master = data_dir::existing_master_key(config).map_err(StartError)?;
        Ok(opening::setup(&master, &source))
    };
    if is_postgres_url(url) {
        let (address, trouble) = (PostgresAddress::from(url), Trouble::of("store.url"));
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
    Ok(Arc::new(SqliteStore::open(&path, setup()?).map_err(Trouble::of(&name))?))
}

fn no_store(place: &str) -> StartError {
    StartError(format!("there is no store at {place}; see --data-dir, --store and --config"))
}
