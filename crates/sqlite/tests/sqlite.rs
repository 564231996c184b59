//! The SQLite store keeps the contract.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use railpost_conformance::Harness;
use railpost_sqlite::SqliteStore;
use railpost_store::{Result, Setup, Store};
use tempfile::TempDir;

struct Sqlite {
    dir: TempDir,
    /// How many backups were restored, each to a file of its own.
    restored: AtomicU32,
}

#[async_trait]
impl Harness for Sqlite {
    async fn fresh(&self, setup: Setup) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.dir.path().join("store.db"), setup).expect("a new file"))
    }

    async fn restore(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>> {
        let number = self.restored.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.path().join(format!("restored-{number}.db"));
        SqliteStore::restore(&path, backup, &setup)?;
        Ok(Arc::new(SqliteStore::open(&path, setup)?))
    }
}

railpost_conformance::conformance_tests!(Sqlite {
    dir: TempDir::new().unwrap(),
    restored: AtomicU32::new(0)
});
