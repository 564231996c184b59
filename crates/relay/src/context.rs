//! What surrounds the relay: where events go, who checks them, and who hears of what happens.

use std::sync::Arc;

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_store::{
    Event, Receipt, RowRefusal, SourceFields, SourceName, Sources, StoreError, SystemSource,
};
use railpost_wire::TenantId;
use std::time::Duration;

use crate::trouble::Trouble;

/// Where events go. The server hands them to the store, and lets the engine hear of them at once.
#[async_trait]
pub trait Accept: Send + Sync {
    /// Accepts events of one tenant from a source, all or none, as
    /// [`Intake::accept`](railpost_store::Intake::accept) does.
    async fn accept(
        &self,
        source: &SourceName,
        tenant: &TenantId,
        events: Vec<Event>,
    ) -> Result<Vec<Receipt>, StoreError>;
}

/// What a tenant demands of its events.
#[async_trait]
pub trait EventCheck: Send + Sync {
    /// Why each event is refused, if it is. A tenant that does not exist refuses all of them.
    async fn check(
        &self,
        tenant: &TenantId,
        events: &[Event],
    ) -> Result<Vec<Option<RowRefusal>>, StoreError>;
}

/// Refuses nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoChecks;

#[async_trait]
impl EventCheck for NoChecks {
    async fn check(
        &self,
        _: &TenantId,
        events: &[Event],
    ) -> Result<Vec<Option<RowRefusal>>, StoreError> {
        Ok(vec![None; events.len()])
    }
}

/// Who hears of what happens: the log, metrics, notices to people.
pub trait SourceObserver: Send + Sync {
    /// Something happened at a source. Called by the source's task: it must not block.
    fn observe(&self, source: &SourceName, what: &Observation<'_>);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl SourceObserver for NoObserver {
    fn observe(&self, _: &SourceName, _: &Observation<'_>) {}
}

/// What happens at a source.
#[derive(Debug)]
pub enum Observation<'a> {
    /// It is being read, for the first time or after trouble.
    Reading,
    /// It cannot be read. It is tried again after this long.
    Trouble {
        /// What is wrong and what to do.
        trouble: &'a Trouble,
        /// After how long.
        retry_after: Duration,
    },
    /// Something is wrong that the relay could repair, at a price that people should know.
    Alarm(&'a str),
    /// Rows were taken.
    Batch {
        /// How many were accepted for the first time.
        accepted: u64,
        /// How many had been accepted before.
        duplicates: u64,
        /// How many were parked.
        parked: u64,
        /// How long it took to hand them over.
        took: Duration,
    },
    /// A row was refused.
    Refused {
        /// The row.
        fields: &'a SourceFields,
        /// Why.
        refusal: &'a RowRefusal,
        /// Whether it is gone for good: `on_refused = "skip"`.
        dropped: bool,
    },
    /// Parked rows were accepted.
    Released(u64),
}

/// All that a source's task works with.
#[derive(Clone)]
pub struct RelayContext {
    /// Where events go.
    pub accept: Arc<dyn Accept>,
    /// What tenants demand of them.
    pub checks: Arc<dyn EventCheck>,
    /// Where leases, positions and parked rows are kept.
    pub sources: Arc<dyn Sources>,
    /// Who hears of what happens.
    pub observer: Arc<dyn SourceObserver>,
    /// Who reads: told apart from every other process that may.
    pub holder: String,
    /// Where the store's own PostgreSQL is, for `url = "store"`.
    pub store_address: Option<StoreAddress>,
}

/// Where the store's own PostgreSQL is.
#[derive(Clone)]
pub struct StoreAddress {
    /// Its URL.
    pub url: String,
    /// The certificates to verify by, in PEM.
    pub root_certificates_pem: Option<Vec<u8>>,
}

/// The time of day.
pub(crate) fn now() -> Timestamp {
    railpost_store::Source::now(&SystemSource)
}
