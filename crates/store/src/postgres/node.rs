//! One process' side of a PostgreSQL store: its connections and its memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_postgres::{Client, Transaction};

use super::directory::Directory;
use super::link::{Address, Link, duration};
use crate::delivery_ids::DeliveryIds;
use crate::limits::{PATIENCE, POSTGRES_READERS};
use crate::{Result, Setup, StoreError};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) setup: Setup,
    pub(super) address: Address,
    pub(super) directory: Directory,
    pub(super) ids: Mutex<DeliveryIds>,
    /// Where accepts go: they wait for the disk.
    pub(super) accepts: Link,
    /// Where records go that need not wait for the disk.
    pub(super) records: Link,
    /// Where records go that do.
    pub(super) durable_records: Link,
    readers: Vec<Link>,
    next_reader: AtomicUsize,
    changes: tokio::sync::Mutex<Option<Client>>,
}

/// Whoever waits for the disk says so, whatever the server's default is.
const DURABLE: &str = "SET synchronous_commit = on";
const VISIBLE: &str = "SET synchronous_commit = off";

impl Node {
    pub(super) fn new(address: Address, setup: Setup) -> Self {
        let link = |greeting| Link::new(address.clone(), greeting);
        Self {
            setup,
            directory: Directory::default(),
            ids: Mutex::default(),
            accepts: link(DURABLE),
            records: link(VISIBLE),
            durable_records: link(DURABLE),
            readers: (0..POSTGRES_READERS).map(|_| link("")).collect(),
            next_reader: AtomicUsize::new(0),
            changes: tokio::sync::Mutex::default(),
            address,
        }
    }

    /// A connection to read with: the next one in turn.
    pub(super) fn reader(&self) -> &Link {
        let turn = self.next_reader.fetch_add(1, Ordering::Relaxed);
        &self.readers[turn % self.readers.len()]
    }

    /// Runs `work` in a durable transaction of its own. All of it is committed, or nothing.
    pub(super) async fn transact<T>(
        &self,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut place = self.changes.lock().await;
        let mut client = match place.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect().await?,
        };
        let done = tokio::time::timeout(duration(PATIENCE), transact(&mut client, work)).await;
        let done = done.unwrap_or_else(|_| {
            let problem = format!("PostgreSQL does not answer within {PATIENCE}");
            Err(StoreError::Unavailable(problem))
        });
        // A connection in trouble is not used again.
        if !done.as_ref().is_err_and(StoreError::is_environment) {
            *place = Some(client);
        }
        done
    }

    async fn connect(&self) -> Result<Client> {
        let client = self.address.connect().await?;
        client.batch_execute(DURABLE).await?;
        Ok(client)
    }
}

async fn transact<T>(
    client: &mut Client,
    work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let transaction = client.transaction().await?;
    let output = work(&transaction).await?;
    transaction.commit().await?;
    Ok(output)
}
