//! Searching in a file with many events.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;

use railpost_conformance::many::each_kind_is_found_among;
use railpost_sqlite::SqliteStore;
use railpost_store::{MasterKey, Setup, SystemSource};
use tempfile::TempDir;

#[tokio::test]
async fn each_kind_of_thing_is_found_among_100_000_events() {
    let dir = TempDir::new().unwrap();
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) };
    let store = SqliteStore::open(&dir.path().join("store.db"), setup).unwrap();
    each_kind_is_found_among(&store, 100_000).await;
}
