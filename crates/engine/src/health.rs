//! How an endpoint is doing: one answer for everyone who asks.

use railpost_wire::EndpointId;
use serde::{Deserialize, Serialize};

use crate::{AttemptResult, BreakerState, EndpointStatus, Failure, LaneId, Span, Timestamp};

/// Whether an endpoint is sent to, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Deliveries are sent.
    Active,
    /// Nothing is sent for a while: the breaker is open, or the receiver asked to wait.
    Waiting,
    /// A person paused it.
    Paused,
    /// Nothing can be sent to it as it is: it must sign and has no secret, or its settings cannot be read.
    Blocked,
    /// Too many lanes in a row failed for good.
    Quarantined,
    /// It was switched off after days of nothing but failures.
    Failing,
    /// The receiver said that it is gone.
    Gone,
}

impl HealthState {
    /// All of them, in order.
    pub const ALL: [HealthState; 7] = [
        HealthState::Active,
        HealthState::Waiting,
        HealthState::Paused,
        HealthState::Blocked,
        HealthState::Quarantined,
        HealthState::Failing,
        HealthState::Gone,
    ];
}

/// The state of an endpoint that is switched on or off, as far as that goes.
impl From<EndpointStatus> for HealthState {
    fn from(status: EndpointStatus) -> Self {
        match status {
            EndpointStatus::Active => HealthState::Active,
            EndpointStatus::Paused => HealthState::Paused,
            EndpointStatus::Quarantined => HealthState::Quarantined,
            EndpointStatus::Gone => HealthState::Gone,
            EndpointStatus::Failing => HealthState::Failing,
        }
    }
}

/// What an endpoint in [`HealthState::Waiting`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What.
    pub reason: WaitReason,
    /// When the next attempt may go; nothing while the probe is in flight. One in the past means that the
    /// next delivery goes at once.
    pub until: Option<Timestamp>,
}

/// Why nothing is sent for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The breaker is open.
    Breaker,
    /// The breaker is half-open: one attempt, the probe, decides what follows.
    Probe,
    /// The receiver asked to wait, with `Retry-After`.
    RetryAfter,
}

/// The latest attempt that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When it ended.
    pub at: Timestamp,
    /// How.
    pub cause: ErrorCause,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCause {
    /// The receiver answered this status.
    Status(u16),
    /// No answer came.
    Failure(Failure),
}

impl From<AttemptResult> for ErrorCause {
    fn from(result: AttemptResult) -> Self {
        match result {
            AttemptResult::Response { status, .. } => ErrorCause::Status(status),
            AttemptResult::Failed(failure) => ErrorCause::Failure(failure),
        }
    }
}

/// How an endpoint is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it is sent to.
    pub state: HealthState,
    /// Since when it is in this state. Nothing for an endpoint that has been active since it appeared here.
    pub since: Option<Timestamp>,
    /// What it waits for, in [`HealthState::Waiting`] only.
    pub wait: Option<Wait>,
    /// The latest failure, if nothing was acknowledged since. Known from the endpoint's appearance here on.
    pub last_error: Option<LastError>,
    /// The latest acknowledgement since the endpoint appeared here.
    pub last_success_at: Option<Timestamp>,
    /// Whether it is switched on.
    pub status: EndpointStatus,
    /// Since when nothing but failures came back.
    pub failing_since: Option<Timestamp>,
    /// Whether nothing can be sent to it as it is: it must sign and cannot.
    pub blocked: bool,
    /// What its breaker does.
    pub breaker: BreakerState,
    /// Until when its receiver asked to be left alone, if that lies ahead.
    pub held_until: Option<Timestamp>,
    /// Attempts under way.
    pub in_flight: u32,
    /// Deliveries in memory that only wait for a gate to open.
    pub ready: usize,
    /// Lanes in memory, those included that have nothing open.
    pub lanes: usize,
    /// Deliveries without a lane in memory.
    pub unkeyed: usize,
}

/// How many endpoints are in which state, and which of them someone should look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthSurvey {
    /// How many endpoints, by [`HealthState`] in the order of [`HealthState::ALL`].
    pub counts: [u64; HealthState::ALL.len()],
    /// Attempts under way at all of them.
    pub in_flight: u64,
    /// Those that need attention, as many as were asked for.
    pub attention: Vec<EndpointId>,
    /// Those that are paused, as many as were asked for.
    pub paused: Vec<EndpointId>,
}

/// What people should hear of: endpoints that are not well, and lanes that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerns {
    /// Endpoints that are not sent to, that fail, or whose breaker is not closed; without those that a person
    /// paused.
    pub endpoints: Vec<EndpointConcern>,
    /// Endpoints that a person paused.
    pub paused: Vec<EndpointId>,
    /// Lanes that a dead letter holds, as many as were asked for.
    pub held_lanes: Vec<HeldLaneHead>,
    /// How many lanes are held.
    pub held_lanes_count: u64,
}

/// An endpoint that is not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConcern {
    /// Which.
    pub id: EndpointId,
    /// How it is doing.
    pub health: Health,
    /// After which time with nothing but failures it is switched off.
    pub disable_after: Option<Span>,
}

/// A lane that a dead letter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLaneHead {
    /// Which lane.
    pub lane: LaneId,
    /// Of which endpoint.
    pub endpoint: EndpointId,
}
