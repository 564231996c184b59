//! Opening the store.

use std::fmt;
use std::sync::Arc;

use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_sqlite::SqliteStore;
use railpost_store::{MasterKey, MemoryStore, Setup, Source, Store, StoreError};

use super::{StartError, failed};
use crate::config::{Config, is_postgres_url};
use crate::data_dir;
use crate::master_key::KeyPlace;

/// A store that is open, and what goes with it.
#[derive(Clone)]
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What its secrets are encrypted under.
    pub master_key: MasterKey,
    /// The time, and chance.
    pub source: Arc<dyn Source>,
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStore").finish_non_exhaustive()
    }
}

/// Opens the store under its master key, and says where the key is kept.
pub(super) async fn open(
    config: &Config,
    source: &Arc<dyn Source>,
) -> Result<(OpenStore, KeyPlace), StartError> {
    let url = config.store.url.as_str();
    let opened = |store, setup: Setup| OpenStore {
        store,
        master_key: setup.master_key,
        source: source.clone(),
    };
    if url == "memory:" {
        let key = KeyPlace::Memory.read_or_make(None, &**source).map_err(StartError)?;
        let setup = setup(key, source);
        return Ok((opened(Arc::new(MemoryStore::new(setup.clone())), setup), KeyPlace::Memory));
    }
    data_dir::prepare(&config.server.data_dir).map_err(StartError)?;
    let place = KeyPlace::of(config).map_err(StartError)?;
    if is_postgres_url(url) {
        let setup = setup(place.read_or_make(None, &**source).map_err(StartError)?, source);
        let store = PostgresStore::connect(&PostgresAddress::from(url), setup.clone()).await;
        let store = store.map_err(|error| failed("store.url", with_advice(&error)))?;
        return Ok((opened(Arc::new(store), setup), place));
    }
    let path = data_dir::database(config);
    let setup = setup(place.read_or_make(Some(&path), &**source).map_err(StartError)?, source);
    let store = SqliteStore::open(&path, setup.clone());
    let store = store.map_err(|error| failed(&path.display().to_string(), with_advice(&error)))?;
    Ok((opened(Arc::new(store), setup), place))
}

pub(super) fn setup(master_key: MasterKey, source: &Arc<dyn Source>) -> Setup {
    Setup { source: source.clone(), master_key }
}

/// The setup of the configured store, whose master key must be there.
pub(super) fn existing_setup(
    config: &Config,
    source: &Arc<dyn Source>,
) -> Result<Setup, StartError> {
    let key = KeyPlace::of(config).and_then(|place| place.read()).map_err(StartError)?;
    Ok(setup(key, source))
}

/// What to do about a store that does not open, where the error does not say.
pub(super) fn with_advice(error: &StoreError) -> String {
    let advice = match error {
        StoreError::Unavailable(_) => "; is it running, and is store.url right?",
        StoreError::WrongMasterKey | StoreError::BothMasterKeysNeeded => {
            "; see store.master_key_file"
        }
        StoreError::Corrupt(_) => "; check the store with `railpost store verify --offline`",
        _ => "",
    };
    format!("{error}{advice}")
}
