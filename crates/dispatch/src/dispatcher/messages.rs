//! What the run loop is asked to do, and what its tasks report to it.

use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    Accepted, Attempt, Counters, Endpoint, IgnoredReason, Input, OpenLanes, Timestamp,
};
use railpost_store::{AttemptDetail, AuditEntry, Parcel, StoreError};
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use tokio::sync::oneshot;

use super::prepared_endpoint::PreparedEndpoint;
use super::{EndpointSurvey, ServedConcerns, ServedHealth};
use crate::TraceParent;

/// What the run loop is asked to do. Small, because every accept sends one.
pub(super) enum LoopCommand {
    Accepted(Vec<(Accepted, Arc<Parcel>)>),
    /// An endpoint is new or changed. With `reload`, the engine forgets it and loads its backlog again.
    PutEndpoint {
        endpoint: Box<Endpoint>,
        prepared: Arc<PreparedEndpoint>,
        reload: bool,
    },
    RemoveEndpoint(EndpointId),
    /// A person's decision, with its audit entry.
    Decide {
        input: Box<Input>,
        audit: Option<Box<AuditEntry>>,
        answer: oneshot::Sender<Result<(), IgnoredReason>>,
    },
    /// Answers when all decisions so far are written.
    Written(oneshot::Sender<()>),
    Input(Box<Input>),
    Health(Vec<EndpointId>, oneshot::Sender<Vec<Option<ServedHealth>>>),
    /// Counts endpoints by their state.
    Survey {
        tenant: Option<Box<TenantId>>,
        named_max: usize,
        answer: oneshot::Sender<EndpointSurvey>,
    },
    /// What people should hear of.
    Concerns {
        signs_until: Timestamp,
        lanes_max: usize,
        answer: oneshot::Sender<ServedConcerns>,
    },
    /// Ends the wait of an endpoint. Answers how it was doing before.
    EndWait(EndpointId, oneshot::Sender<Option<ServedHealth>>),
    /// An endpoint as attempts use it.
    Prepared(EndpointId, oneshot::Sender<Option<Arc<PreparedEndpoint>>>),
    OpenLanes {
        tenant: Box<TenantId>,
        endpoint: Option<EndpointId>,
        limit: usize,
        answer: oneshot::Sender<OpenLanes>,
    },
    Counters(oneshot::Sender<Counters>),
    UnderWay(oneshot::Sender<usize>),
    /// Starts nothing more, and ends when all attempts have, or aborts them when the time is over. Answers whether
    /// all ended by themselves.
    Stop {
        drain_timeout: Duration,
        answer: oneshot::Sender<bool>,
    },
}

/// What the tasks around the run loop report to it.
pub(super) enum TaskReport {
    Input(Box<Input>),
    AttemptEnded(Box<AttemptReport>),
    /// The deliveries whose payloads were to be read, and those found, each with its payload or the reason why it
    /// cannot be read.
    PayloadsRead(Vec<DeliveryId>, Vec<(DeliveryId, Result<Parcel, StoreError>)>),
}

/// An attempt that ended.
pub(super) struct AttemptReport {
    pub(super) attempt: Attempt,
    /// What was sent; nothing if there was nothing to send.
    pub(super) parcel: Option<Arc<Parcel>>,
    pub(super) trace: Option<TraceParent>,
    pub(super) detail: Box<AttemptDetail>,
}
