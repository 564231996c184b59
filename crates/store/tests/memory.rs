//! The memory store keeps the contract.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_conformance::Harness;
use railpost_store::{MemoryStore, Result, Setup, Store};

struct Memory;

#[async_trait]
impl Harness for Memory {
    async fn fresh(&self, setup: Setup) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(setup))
    }

    async fn restore(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(MemoryStore::restore(backup, setup)?))
    }
}

railpost_conformance::conformance_tests!(Memory);
