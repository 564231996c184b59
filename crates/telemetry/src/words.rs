//! The names of the engine's states and outcomes in log lines, metrics and spans.

use railpost_engine::{DeadReason, DeliveryState, EndpointStatus, Failure, Outcome, Transition};
use serde::Serialize;

/// The name of this server among others: in log lines, spans, and as a messaging system.
pub(super) const SERVICE: &str = "railpost";

pub(super) const OUTCOMES: [Outcome; 3] =
    [Outcome::Acknowledged, Outcome::Retryable, Outcome::Permanent];

pub(super) const FAILURES: [Failure; 11] = [
    Failure::Dns,
    Failure::BlockedAddress,
    Failure::Refused,
    Failure::Unreachable,
    Failure::ConnectTimeout,
    Failure::Tls,
    Failure::Reset,
    Failure::Timeout,
    Failure::BadResponse,
    Failure::PayloadMissing,
    Failure::NotSent,
];

pub(super) const DEAD_REASONS: [DeadReason; 5] = [
    DeadReason::Permanent,
    DeadReason::AttemptsExhausted,
    DeadReason::Expired,
    DeadReason::SingleAttemptFailed,
    DeadReason::OutcomeUnknown,
];

/// The outcome of an attempt, from the transition of its delivery.
pub(super) fn outcome(transition: &Transition) -> Outcome {
    match transition.state {
        DeliveryState::Delivered => Outcome::Acknowledged,
        DeliveryState::Dead { reason: DeadReason::Permanent, .. } => Outcome::Permanent,
        _ => Outcome::Retryable,
    }
}

pub(super) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Acknowledged => "acknowledged",
        Outcome::Retryable => "retryable",
        Outcome::Permanent => "permanent",
    }
}

pub(super) fn failure_name(failure: Failure) -> &'static str {
    match failure {
        Failure::Dns => "dns",
        Failure::BlockedAddress => "blocked_address",
        Failure::Refused => "refused",
        Failure::Unreachable => "unreachable",
        Failure::ConnectTimeout => "connect_timeout",
        Failure::Tls => "tls",
        Failure::Reset => "reset",
        Failure::Timeout => "timeout",
        Failure::BadResponse => "bad_response",
        Failure::PayloadMissing => "payload_missing",
        Failure::NotSent => "not_sent",
    }
}

pub(super) fn dead_reason_name(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Permanent => "permanent",
        DeadReason::AttemptsExhausted => "attempts_exhausted",
        DeadReason::Expired => "expired",
        DeadReason::SingleAttemptFailed => "single_attempt_failed",
        DeadReason::OutcomeUnknown => "outcome_unknown",
    }
}

pub(super) fn status_name(status: EndpointStatus) -> &'static str {
    match status {
        EndpointStatus::Active => "active",
        EndpointStatus::Paused => "paused",
        EndpointStatus::Quarantined => "quarantined",
        EndpointStatus::Gone => "gone",
        EndpointStatus::Failing => "failing",
    }
}

/// The name by which the API knows a word.
pub(super) fn serde_name(word: &impl Serialize) -> String {
    let json = serde_json::to_value(word).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api() {
        for failure in FAILURES {
            assert_eq!(failure_name(failure), serde_name(&failure));
        }
        for reason in DEAD_REASONS {
            assert_eq!(dead_reason_name(reason), serde_name(&reason));
        }
        for outcome in OUTCOMES {
            assert_eq!(outcome_name(outcome), serde_name(&outcome));
        }
    }
}
