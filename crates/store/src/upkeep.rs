//! What keeps a store in shape.

use std::path::Path;

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::TenantId;

use crate::listing::ListKind;
use crate::{AuditEntry, Cursor, Figures, FiguresScope, Result};

/// Retention, erasure, backup, health, and the keeping of figures.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// One small step of retention: looks at a bounded number of events, oldest first, and deletes
    /// those that nothing needs any more, with their deliveries and attempts.
    ///
    /// An event is needed while one of its deliveries is open, or is a dead letter that is younger
    /// than `dead_before`. An event that was accepted in the future, by a clock that was wrong, keeps
    /// nothing behind it. Call it with the cursor it answered until that is none; then start again.
    ///
    /// Lanes that stood empty since `lanes_before` go too: the next event of their key begins a new line.
    ///
    /// Each step also deletes some of what else is old: audit entries, expired idempotency records,
    /// finished replays, settled alerts, silences that ended, and figures past their time by the store's
    /// clock.
    async fn prune(&self, step: PruneStep) -> Result<Pruned>;

    /// One small step of erasing a tenant that is marked for it
    /// ([`Write::EraseTenant`](crate::Write::EraseTenant)). Call it until it answers true: nothing is
    /// left, and `ended` was written with the last step. Of an unknown tenant nothing is left; one
    /// that is not marked is refused.
    async fn erase_tenant(&self, tenant: &TenantId, ended: &AuditEntry) -> Result<bool>;

    /// One step of closing what removed endpoints still have open: discarded, because the
    /// endpoint was removed. Answers how many were closed; call it until that is 0.
    async fn close_removed(&self, limit: u32) -> Result<u64>;

    /// Begins a new era: the store may have lost commits, because it was restored from a copy or its
    /// database failed over. From here on every lane begins a new line with its next delivery, so that no
    /// number is used twice. Durable when it answers. PostgreSQL does so by itself when its server's
    /// timeline changed.
    async fn begin_era(&self) -> Result<()>;

    /// Looks through all that is stored for damage, which takes its time. What it finds is a
    /// [`Corrupt`](crate::StoreError::Corrupt) error: nothing else says that a store is damaged.
    async fn verify(&self) -> Result<()>;

    /// Writes all that is stored to a file that does not exist yet, as of one moment, while accepts
    /// go on. Secrets in it are encrypted under the same master key.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Adds to the figures of the minute and of the hour in which each entry happened. When it
    /// answers they are seen, but a crash may lose them. Entries of tenants and endpoints that are
    /// not there any more are left out. At most
    /// [`FIGURES_BATCH_MAX`](crate::limits::FIGURES_BATCH_MAX) entries at once.
    ///
    /// After [`StoreError::Unavailable`](crate::StoreError::Unavailable) it is not known whether
    /// they were added: adding them again may count them twice.
    async fn add_figures(&self, batch: Vec<(FiguresScope, Timestamp, Figures)>) -> Result<()>;

    /// Whether the store can be written and read right now, and how large it is.
    async fn check(&self) -> Result<Health>;
}

/// How far a step of retention goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneStep {
    /// Events accepted before this are deleted once all their deliveries are closed. Audit entries
    /// older than this are deleted too, and replays that finished before it.
    pub closed_before: Timestamp,
    /// Events with dead letters that hold no lane are deleted if they were accepted before this.
    pub dead_before: Timestamp,
    /// Lanes with nothing open whose last delivery was made before this are deleted.
    pub lanes_before: Timestamp,
    /// Settled alerts that were resolved before this are deleted, and silences that ended before it.
    pub alerts_before: Timestamp,
    /// Where the step before ended.
    pub after: Option<Cursor>,
    /// Most events to look at: 1 to [`UPKEEP_STEP_MAX`](crate::limits::UPKEEP_STEP_MAX).
    pub limit: u32,
}

impl PruneStep {
    /// The first step towards keeping nothing from before `at` that nothing needs.
    pub fn of_all_before(at: Timestamp, limit: u32) -> Self {
        Self {
            closed_before: at,
            dead_before: at,
            lanes_before: at,
            alerts_before: at,
            after: None,
            limit,
        }
    }

    /// The number of the last event that the step before looked at.
    pub fn position(&self) -> Result<i64> {
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
    /// Lanes deleted.
    pub lanes: u64,
    /// Idempotency records, audit entries, replays, alerts, silences and figures deleted.
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
