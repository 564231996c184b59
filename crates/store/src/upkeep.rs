//! What keeps a store in shape.

use std::path::Path;

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::TenantId;

use crate::listing::ListKind;
use crate::{Cursor, Result};

/// Retention, erasure, backup and health.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// One small step of retention: looks at a bounded number of events, oldest first, and deletes
    /// those that nothing needs any more, with their deliveries and attempts.
    ///
    /// An event is needed while one of its deliveries is open, or is a dead letter that is younger
    /// than `dead_before`. Lanes keep their last seq: numbers are never given out twice. Call it
    /// with the cursor it answered until that is none; then start anew.
    async fn prune(&self, step: PruneStep) -> Result<Pruned>;

    /// One step of erasing a tenant and all that is its own. From the first step on the tenant is
    /// unknown. Call it until it answers true: nothing is left.
    async fn erase_tenant(&self, tenant: &TenantId) -> Result<bool>;

    /// Writes all that is stored to a file that does not exist yet, as of one moment, while accepts
    /// go on. Secrets in it are encrypted under the same master key.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Whether the store can be written and read right now, and how large it is.
    async fn check(&self) -> Result<Health>;
}

/// How far a step of retention goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneStep {
    /// Events accepted before this are deleted once all their deliveries are closed. Audit entries
    /// older than this are deleted too.
    pub closed_before: Timestamp,
    /// Events with dead letters that hold no lane are deleted if they were accepted before this.
    pub dead_before: Timestamp,
    /// Where the step before ended.
    pub after: Option<Cursor>,
    /// Most events to look at: 1 to [`UPKEEP_STEP_MAX`](crate::limits::UPKEEP_STEP_MAX).
    pub limit: u32,
}

impl PruneStep {
    /// The number of the last event that the step before looked at.
    pub(crate) fn position(&self) -> Result<i64> {
        let position = |cursor: &Cursor| cursor.position(ListKind::Events);
        self.after.as_ref().map_or(Ok(0), position)
    }
}

/// What a step of retention did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events deleted.
    pub events: u64,
    /// Deliveries deleted.
    pub deliveries: u64,
    /// Idempotency records and audit entries deleted.
    pub others: u64,
    /// Where the next step starts; nothing when this one came to the end.
    pub next: Option<Cursor>,
}

/// How a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What kind of backend it is: `memory`, `sqlite` or `postgres`.
    pub backend: &'static str,
    /// The version of its schema.
    pub schema: u32,
    /// How many bytes it takes, as far as the backend knows.
    pub size_bytes: u64,
}
