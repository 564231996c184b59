//! The SQLite store keeps the contract.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_store::conformance::Harness;
use railpost_store::{Result, Setup, SqliteStore, Store};
use tempfile::TempDir;

struct Sqlite(TempDir);

#[async_trait]
impl Harness for Sqlite {
    async fn fresh(&self, setup: Setup) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.0.path().join("store.db"), setup).expect("a new file"))
    }

    async fn restore(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(SqliteStore::open(backup, setup)?))
    }
}

railpost_store::conformance_tests!(Sqlite(TempDir::new().unwrap()));
