//! What happens between the engine and its world, as plain data: the model judges it, the trace
//! prints it, the tally counts it.

use railpost_engine::{
    Accepted, Attempt, AttemptResult, Command, Delivery, DeliveryState, Endpoint, EndpointRecord,
    Policy, RateLimit, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use crate::store::{EventNo, LaneKey};

#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Limited(TenantId, Option<RateLimit>),
    /// An endpoint is served from here on; what was known of it is forgotten.
    Appeared(Endpoint),
    /// An endpoint gets another policy than it had.
    Changed(Endpoint, Policy),
    Paused(EndpointId),
    Resumed(EndpointId),
    /// An endpoint is not served any more; what is under way there goes on.
    Left(EndpointId),
    /// Durably accepted: which event, and the lane that it goes through, if it does.
    Accepted(Accepted, EventNo, Option<LaneKey>),
    /// The engine was shown an instant further ahead than the policy plans: it is due.
    Due(DeliveryId),
    /// A person's command was taken; the delivery is as they saw it.
    Commanded(Command, Delivery),
    /// An at-most-once attempt is about to leave, once that is durable.
    Reserved(Attempt),
    Started(Attempt),
    Ended(InFlightAttempt, AttemptResult),
    Recorded(Transition),
    EndpointRecorded(EndpointRecord),
    /// An endpoint's breaker opened.
    BreakerOpened(EndpointId),
    /// The process died: what was under way has no outcome, what was not durable never was.
    Crashed,
    /// The process ended in good order.
    Stopped,
    /// The process died, and its store went back to an old copy.
    Restored,
}

/// An attempt under way.
#[derive(Clone, Debug)]
pub(crate) struct InFlightAttempt {
    pub(crate) attempt: Attempt,
    pub(crate) tenant: TenantId,
    pub(crate) since: Timestamp,
    /// Its endpoint left meanwhile: it takes a place, and its result is ignored.
    pub(crate) orphaned: bool,
}

impl Fact {
    /// The topic and kind it is counted under.
    pub(crate) fn name(&self) -> String {
        let name = match self {
            Fact::Limited(..) => "world: tenant limited",
            Fact::Appeared(_) => "world: endpoint appeared",
            Fact::Changed(..) => "world: endpoint changed",
            Fact::Paused(_) => "world: endpoint paused",
            Fact::Resumed(_) => "world: endpoint resumed",
            Fact::Left(_) => "world: endpoint left",
            Fact::Accepted(..) => "total: deliveries",
            Fact::Due(_) => "clock: instant cut",
            Fact::Commanded(command, _) => return format!("command: {command:?}"),
            Fact::Reserved(_) => "effect: record first",
            Fact::Started(_) => "total: attempts",
            Fact::Ended(_, AttemptResult::Response { status, .. }) => {
                return format!("result: {status}");
            }
            Fact::Ended(_, AttemptResult::Failed(failure)) => {
                return format!("result: {failure:?}");
            }
            Fact::Recorded(transition) => return decision(transition.state),
            Fact::EndpointRecorded(record) => return format!("endpoint: {:?}", record.status),
            Fact::BreakerOpened(_) => "notice: breaker opened",
            Fact::Crashed => "fault: crash",
            Fact::Stopped => "fault: graceful stop",
            Fact::Restored => "fault: store restored",
        };
        name.to_owned()
    }
}

fn decision(state: DeliveryState) -> String {
    match state {
        DeliveryState::Dead { reason, holds: true } => format!("decision: {reason:?} holds"),
        DeliveryState::Dead { reason, holds: false } => format!("decision: {reason:?} moves on"),
        state => format!("decision: {}", state.stage()),
    }
}
