//! The PostgreSQL store keeps the contract.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_conformance::Harness;
use railpost_postgres::PostgresStore;
use railpost_store::{Result, Setup, Store};
use support::postgres::fresh_address;

struct Postgres;

#[async_trait]
impl Harness for Postgres {
    async fn fresh(&self, setup: Setup) -> Arc<dyn Store> {
        let store = PostgresStore::connect(&fresh_address().await, setup).await;
        Arc::new(store.expect("an empty schema"))
    }

    async fn restore(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(PostgresStore::restore(&fresh_address().await, backup, setup).await?))
    }
}

railpost_conformance::conformance_tests!(Postgres);
