//! Opening the store.

use std::sync::Arc;

use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_sqlite::SqliteStore;
use railpost_store::{MasterKey, MemoryStore, Setup, Source, Store, StoreError};

use super::{StartError, failed};
use crate::config::{Config, is_postgres_url};
use crate::data_dir;

/// Opens the store under its master key.
pub(super) async fn open(
    config: &Config,
    source: &Arc<dyn Source>,
) -> Result<([u8; 32], Arc<dyn Store>), StartError> {
    let url = config.store.url.as_str();
    if url == "memory:" {
        let mut master = [0; 32];
        source.fill_random(&mut master);
        return Ok((master, Arc::new(MemoryStore::new(setup(&master, source)))));
    }
    data_dir::prepare(&config.server.data_dir).map_err(StartError)?;
    if is_postgres_url(url) {
        let master = data_dir::master_key(config, None, &**source).map_err(StartError)?;
        let address = PostgresAddress::from(url);
        let store = PostgresStore::connect(&address, setup(&master, source)).await;
        let store = store.map_err(|error| failed("store.url", with_advice(&error)))?;
        return Ok((master, Arc::new(store)));
    }
    let path = data_dir::database(config);
    let master = data_dir::master_key(config, Some(&path), &**source).map_err(StartError)?;
    let store = SqliteStore::open(&path, setup(&master, source));
    let store = store.map_err(|error| failed(&path.display().to_string(), with_advice(&error)))?;
    Ok((master, Arc::new(store)))
}

pub(super) fn setup(master: &[u8; 32], source: &Arc<dyn Source>) -> Setup {
    Setup { source: source.clone(), master_key: MasterKey::new(master) }
}

/// What to do about a store that does not open, where the error does not say.
pub(super) fn with_advice(error: &StoreError) -> String {
    let advice = match error {
        StoreError::Unavailable(_) => "; is it running, and is store.url right?",
        StoreError::WrongMasterKey => "; see store.master_key_file",
        StoreError::Corrupt(_) => "; check the store with `railpost store verify --offline`",
        _ => "",
    };
    format!("{error}{advice}")
}
