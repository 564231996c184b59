//! One process' side of a PostgreSQL store: its connections and its memory.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_engine::Timestamp;
use tokio_postgres::Transaction;

use super::errors::Translate;
use super::link::{Address, Link, Purpose, ServerIdentity, Session, unanswered};
use super::lock::ServerLock;
use super::tenant_cache::TenantCache;
use super::unflushed::Unflushed;
use crate::limits::POSTGRES_READERS;
use railpost_store::backend::codes::millis;
use railpost_store::backend::delivery_ids::DeliveryIds;
use railpost_store::limits::CALL_TIMEOUT;
use railpost_store::{Result, Setup, StoreError};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) setup: Setup,
    pub(super) address: Address,
    pub(super) lock: Arc<ServerLock>,
    pub(super) tenants: TenantCache,
    pub(super) ids: Mutex<DeliveryIds>,
    /// Where accepts go: they wait for the disk.
    pub(super) accepts: Link,
    /// Where records go that need not wait for the disk.
    pub(super) records: Link,
    /// Where records go that do.
    pub(super) durable_records: Link,
    /// What the disk may not have yet of those that need not wait.
    unflushed: Mutex<Unflushed>,
    readers: Vec<Link>,
    next_reader: AtomicUsize,
    /// Where changes go, one after the other.
    pub(super) changes: Transactions,
    /// Where retention and figures go, so that they hold up nothing else.
    pub(super) upkeep: Transactions,
    /// The lane that pruning last looked at.
    pub(super) lanes_pruned_to: AtomicI64,
}

impl Node {
    pub(super) fn new(address: Address, setup: Setup, lock: Arc<ServerLock>) -> Self {
        let link = |purpose| Link::new(address.clone(), purpose, lock.watch());
        let transactions = |purpose| Transactions {
            address: address.clone(),
            purpose,
            lock: lock.clone(),
            session: tokio::sync::Mutex::default(),
        };
        Self {
            setup,
            tenants: TenantCache::default(),
            ids: Mutex::default(),
            accepts: link(Purpose::Durable),
            records: link(Purpose::Visible),
            durable_records: link(Purpose::Durable),
            unflushed: Mutex::default(),
            readers: (0..POSTGRES_READERS).map(|_| link(Purpose::Visible)).collect(),
            next_reader: AtomicUsize::new(0),
            changes: transactions(Purpose::Durable),
            upkeep: transactions(Purpose::Visible),
            lanes_pruned_to: AtomicI64::new(0),
            address,
            lock,
        }
    }

    /// A connection to read with: the next one in turn.
    pub(super) fn reader(&self) -> &Link {
        let turn = self.next_reader.fetch_add(1, Ordering::Relaxed);
        &self.readers[turn % self.readers.len()]
    }

    pub(super) fn unflushed(&self) -> MutexGuard<'_, Unflushed> {
        self.unflushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server may have crashed and lost records that were answered.
    pub(super) fn may_have_lost_records(&self) -> bool {
        !self.unflushed().is_empty() && !self.records.is_open()
    }
}

/// A connection for transactions of several statements.
#[derive(Debug)]
pub(super) struct Transactions {
    address: Address,
    purpose: Purpose,
    lock: Arc<ServerLock>,
    session: tokio::sync::Mutex<Option<Session>>,
}

/// A transaction of the store's holder.
pub(super) struct HeldTransaction<'a> {
    pub(super) transaction: Transaction<'a>,
    pub(super) server: ServerIdentity,
    pub(super) holder: i64,
}

impl<'a> std::ops::Deref for HeldTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}

impl HeldTransaction<'_> {
    /// Nothing that accepts have to know of changes until the transaction ends. The first one on another
    /// server begins an era.
    pub(super) async fn enter(&self, now: Timestamp) -> Result<()> {
        let ServerIdentity { system, timeline } = self.server;
        let sql = "SELECT railpost_enter($1, $2, $3, $4)";
        self.execute(sql, &[&self.holder, &system, &timeline, &millis(now)]).await.translated()?;
        Ok(())
    }

    /// No accept commits until the transaction ends: what accepts have to know of may change.
    pub(super) async fn lock_registry(&self) -> Result<()> {
        let sql = "SELECT pg_advisory_xact_lock(railpost_lock_key('registry'))";
        self.execute(sql, &[]).await.translated()?;
        Ok(())
    }

    /// Keeps the registry as it is until the transaction ends: no tenant is erased meanwhile.
    pub(super) async fn share_registry(&self) -> Result<()> {
        let sql = "SELECT pg_advisory_xact_lock_shared(railpost_lock_key('registry'))";
        self.execute(sql, &[]).await.translated()?;
        Ok(())
    }

    pub(super) async fn begin_era(&self, now: Timestamp) -> Result<()> {
        let ServerIdentity { system, timeline } = self.server;
        self.lock_registry().await?;
        let sql = "SELECT railpost_begin_era($1, $2, $3)";
        self.execute(sql, &[&millis(now), &system, &timeline]).await.translated()?;
        Ok(())
    }
}

impl Transactions {
    /// Runs `work` in a transaction of its own. All of it is committed, or nothing. No other process becomes
    /// the store's holder meanwhile.
    pub(super) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&HeldTransaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let holder = self.lock.holder().await?;
        let turn = tokio::time::timeout(Duration::from(CALL_TIMEOUT), self.session.lock()).await;
        let mut place = turn.map_err(|_| {
            StoreError::Unavailable(format!("PostgreSQL is busy: no turn within {CALL_TIMEOUT}"))
        })?;
        let lock = self.lock.watch();
        let useful =
            |session: &Session| !session.client.is_closed() && lock.is_held_on(session.server);
        let mut session = match place.take().filter(useful) {
            Some(session) => session,
            None => Session::open(&self.address, self.purpose).await?,
        };
        if !lock.is_held_on(session.server) {
            return Err(lock.moved());
        }
        let done =
            tokio::time::timeout(Duration::from(CALL_TIMEOUT), run(&mut session, holder, work))
                .await;
        let done = done.unwrap_or_else(|_| Err(unanswered()));
        // A connection in trouble is not used again.
        if !done.as_ref().is_err_and(StoreError::is_environment) {
            *place = Some(session);
        }
        done
    }
}

async fn run<T>(
    session: &mut Session,
    holder: i64,
    work: impl AsyncFnOnce(&HeldTransaction<'_>) -> Result<T>,
) -> Result<T> {
    let server = session.server;
    let transaction = session.client.transaction().await.translated()?;
    transaction.execute("SELECT railpost_fence($1)", &[&holder]).await.translated()?;
    let held = HeldTransaction { transaction, server, holder };
    let output = work(&held).await?;
    held.transaction.commit().await.translated()?;
    Ok(output)
}
