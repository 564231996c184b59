//! The SQLite store beside the memory store.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;

use super::{SqliteStore, durable};
use railpost_conformance::model::{self, Backend, Choices};
use railpost_store::{AcceptBatch, Result, Setup, Store, StoreError};

const SEEDS: u64 = 100;

struct Sqlite {
    /// Nothing only while it is opened again.
    store: Option<SqliteStore>,
    path: PathBuf,
    dir: TempDir,
    crashes: u32,
}

impl Sqlite {
    fn new(setup: Setup) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store.db");
        let store = Some(SqliteStore::open(&path, setup).unwrap());
        Self { store, path, dir, crashes: 0 }
    }

    fn opened(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn store(&self) -> &dyn Store {
        self.opened()
    }

    fn choices(&self) -> Choices {
        Choices {
            keeps_order: true,
            exact_backlog: true,
            refusals_in_turn: true,
            first_refusal: true,
        }
    }

    async fn restart(&mut self, setup: Setup) {
        self.store = None;
        self.store = Some(SqliteStore::open(&self.path, setup).unwrap());
    }

    /// A killed process leaves its files as they are: a copy of them is what the next one opens.
    async fn crash(&mut self, setup: Setup) {
        self.crashes += 1;
        let copy = self.dir.path().join(format!("copy-{}.db", self.crashes));
        for suffix in ["", "-wal"] {
            let name = |path: &PathBuf| PathBuf::from(format!("{}{suffix}", path.display()));
            std::fs::copy(name(&self.path), name(&copy)).unwrap();
        }
        self.path = copy;
        self.restart(setup).await;
    }

    async fn fail(&self, batch: AcceptBatch) {
        let batch = Arc::new(batch);
        let failed = self.opened().writer.write(durable(1, 0), move |session| {
            // A refusal does not fail the group.
            let _ = session.accept(&batch)?;
            Err(StoreError::Unavailable("as the model has it".to_owned()))
        });
        let failed: Result<()> = failed.await;
        assert!(failed.is_err());
    }
}

#[test]
fn the_sqlite_store_answers_as_the_memory_store_does() {
    model::run(SEEDS, async |setup| Box::new(Sqlite::new(setup)) as Box<dyn Backend>);
}
