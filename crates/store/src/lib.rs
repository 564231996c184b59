//! Where it is written: the store contract, what its backends share, and the memory store.
//!
//! The contract is in the words of the domain, in ten narrow roles:
//!
//! | role | what it is for |
//! |---|---|
//! | [`Intake`] | accept events: fan-out, seqs and idempotency in one durable commit |
//! | [`Ledger`] | record what the engine decided; load what is open; fetch what is to be sent |
//! | [`Registry`] | tenants, endpoints, secrets, event types, replays, and every change to them |
//! | [`Access`] | API keys, audit, idempotency |
//! | [`Archive`] | what people look at: lists in pages, counts, figures over time |
//! | [`Upkeep`] | retention, erasure, backup, health, keeping figures |
//! | [`KeyRotation`] | re-encrypt what is stored under a new master key |
//! | [`Judging`] | which deliveries passed the objective, and how far they were judged |
//! | [`Sources`] | where events are relayed from: leases, positions, parked rows |
//! | [`Alerts`] | what people should know: alerts, what was published of them, silences |
//!
//! A [`Store`] plays all of them. What holds for every one:
//!
//! - An accept is answered when it is durable, a change too; a record when it is visible, unless it
//!   asks for more ([`Durability`]).
//! - A call that begins after an answer sees what was answered for.
//! - A refused call has written nothing, and says which field or state was in the way.
//! - Callers at once share one commit: speed comes from batches and from many callers.
//!
//! No SQL and no driver's type is in the contract. It holds no delivery rules: which transitions are
//! legal and which lane a key belongs to, the engine says.
//!
//! Start with [`Intake`] and [`Ledger`]. The backends are [`MemoryStore`] and two crates of their own,
//! `railpost-sqlite` and `railpost-postgres`; what they share is in [`backend`]. The suite that all of them
//! pass is `railpost-conformance`.

pub mod limits;

mod error;
mod source;
mod epoch;
mod listing;
mod seal;
mod derived_keys;
mod histogram;
mod figures;
mod replays;

mod intake;
mod ledger;
mod registry;
mod reserved;
mod access;
mod archive;
mod finding;
mod upkeep;
mod key_rotation;
mod judging;
mod sources;
mod alerts;
#[cfg(feature = "schema")]
mod schema;

pub mod backend;

mod memory;

pub use access::{
    AUDIT_ACTOR_SELF, AUDIT_SWITCH_OFF, Access, ApiKey, AuditEntry, AuditQuery, Digest,
    IdempotencyKey, IdempotencyLookup, IdempotencyRecord, Scope, StoredResponse,
};
pub use alerts::{Alert, AlertQuery, Alerts, Severity, Silence, Told};
pub use archive::{
    Archive, AttemptView, ClosedReason, Counts, DeliveryFilter, DeliveryQuery, DeliveryView,
    EventDetails, EventHead, EventQuery, HeldLane, HeldLaneQuery, LastAttempt, Period, StateCounts,
    StoredEvent,
};
pub use backend::fanout::{TEST_EVENT_TYPE, is_test_type, wants};
pub use epoch::{Epoch, Partition};
pub use error::{Result, StoreError};
pub use figures::{Figures, FiguresScope, Resolution};
pub use finding::{FindQuery, Found, FoundItem, MatchedField};
pub use histogram::Histogram;
pub use intake::{
    AcceptBatch, AcceptBody, AcceptRecord, AcceptedBy, Event, EventOutcome, Intake, LinePlace,
    NewDelivery, Receipt, RedeliverBatch,
};
pub use judging::{JudgedStep, Judging, LateAtEndpoint, LatePage, LateQuery, first_delivery_id};
pub use key_rotation::{KeyRotation, Reencrypted, SealedRows};
pub use ledger::{
    AttemptDetail, Durability, Ledger, Parcel, RecordBatch, Recorded, RefusedTransition, Sweep,
    SweepPage, Timing,
};
pub use listing::{Cursor, Listing, PageRequest};
pub use memory::MemoryStore;
pub use registry::{
    Change, ClientIdentity, DueRotation, Endpoint, EndpointPrivate, EndpointSecret,
    EndpointSettings, ErasingTenant, EventTypeRecord, NewEndpoint, NewSecret, Registry,
    SecretValue, Tenant, TenantSettings, TlsVersion, Validation, Write,
};
pub use replays::{Replay, ReplayAction, ReplayProgress, ReplayState};
pub use reserved::{RESERVED_TENANT, is_reserved_tenant, is_reserved_type};
pub use seal::{KeyChecks, MasterKey};
pub use source::{Source, SystemSource};
pub use sources::{
    Hold, ParkBatch, ParkOutcome, ParkedAction, ParkedCommand, ParkedHolds, ParkedQuery, ParkedRow,
    ParkedSummary, ParkedTarget, ReleaseStep, ReleasedRow, RowRefusal, RowToPark, SourceFields,
    SourceLease, SourceName, SourcePosition, Sources, is_lease_lost, lease_lost,
};
pub use upkeep::{Health, PruneStep, Pruned, Upkeep};

use std::sync::Arc;

/// All roles in one: what a server holds.
pub trait Store:
    Intake + Ledger + Registry + Access + Archive + Upkeep + KeyRotation + Judging + Sources + Alerts
{
}

impl<S> Store for S where
    S: Intake
        + Ledger
        + Registry
        + Access
        + Archive
        + Upkeep
        + KeyRotation
        + Judging
        + Sources
        + Alerts
{
}

/// What every backend needs of its surroundings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The time and randomness.
    pub source: Arc<dyn Source>,
    /// What secrets are encrypted under.
    pub master_key: MasterKey,
}
