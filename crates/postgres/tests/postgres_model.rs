//! The PostgreSQL store beside the memory store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use async_trait::async_trait;
use railpost_conformance::model::{self, Backend, Choices};
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_store::{Setup, Store};
use support::postgres::fresh_address;
use support::store::client;

const SEEDS: u64 = 10;

/// Ends the session that has the store's lock.
const END_LOCK_SESSION: &str = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l \
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
    AND ((l.classid::bigint << 32) | l.objid::bigint) = railpost_lock_key('server')";

struct Postgres {
    /// Nothing only while it is opened again.
    store: Option<PostgresStore>,
    address: PostgresAddress,
}

#[async_trait]
impl Backend for Postgres {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    /// Calls of different kinds have connections of their own, open deliveries are counted again only
    /// after a while, and skipped transitions are looked up when all others are written.
    fn choices(&self) -> Choices {
        Choices {
            keeps_order: false,
            exact_backlog: false,
            refusals_in_turn: false,
            first_refusal: false,
        }
    }

    async fn restart(&mut self, setup: Setup) {
        // One server at a time has the schema.
        self.store = None;
        self.store = Some(PostgresStore::connect(&self.address, setup).await.unwrap());
    }

    /// The database ends the session of a killed process.
    async fn crash(&mut self, setup: Setup) {
        client(&self.address).await.execute(END_LOCK_SESSION, &[]).await.unwrap();
        self.restart(setup).await;
    }
}

#[test]
fn the_postgres_store_answers_as_the_memory_store_does() {
    model::run(SEEDS, async |setup| {
        let address = fresh_address().await;
        let store = Some(PostgresStore::connect(&address, setup).await.unwrap());
        Box::new(Postgres { store, address }) as Box<dyn Backend>
    });
}
