//! How an endpoint is doing, as answers show it: the one place that puts it into words.

use railpost_dispatch::ServedHealth;
use railpost_engine::{
    BreakerState, EndpointStatus, ErrorCause, Failure, Health, HealthState, LastError, Time, Wait,
    WaitReason,
};
use railpost_store::Endpoint;
use schemars::JsonSchema;
use serde::Serialize;

/// How an endpoint is doing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(crate) struct HealthView {
    /// Whether the endpoint is sent to, and if not, why.
    pub(crate) state: HealthState,
    /// Since when it is in this state. Nothing if that is not known: an endpoint that is active and was so when the
    /// server started.
    pub(crate) since: Option<Time>,
    /// In state `waiting`: what it waits for.
    pub(crate) waits_for: Option<WaitReason>,
    /// In state `waiting`: when the next attempt may go. Nothing while the probe is in flight.
    pub(crate) until: Option<Time>,
    /// The latest failed attempt, if none was acknowledged since. Nothing is known of attempts before the server
    /// started: the list of attempts has them.
    pub(crate) last_error: Option<LastErrorView>,
    /// When an attempt was last acknowledged, since the server started.
    pub(crate) last_success_at: Option<Time>,
    /// What happens next, in one sentence.
    pub(crate) next: String,
}

/// An attempt that failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "LastError")]
pub(crate) struct LastErrorView {
    /// When it ended.
    pub(crate) at: Time,
    /// The status of the response.
    pub(crate) status: Option<u16>,
    /// Why there was no response.
    pub(crate) failure: Option<Failure>,
    /// The same in words.
    pub(crate) message: String,
}

impl From<LastError> for LastErrorView {
    fn from(error: LastError) -> Self {
        let (status, failure) = match error.cause {
            ErrorCause::Status(status) => (Some(status), None),
            ErrorCause::Failure(failure) => (None, Some(failure)),
        };
        Self { at: error.at.into(), status, failure, message: cause_in_words(error.cause) }
    }
}

impl HealthView {
    /// As the engine has it, if it serves the endpoint.
    pub(crate) fn of(endpoint: &Endpoint, served: Option<&ServedHealth>) -> Self {
        served.map_or_else(|| Self::stored(endpoint), Self::served)
    }

    /// As the engine has it.
    pub(crate) fn served(served: &ServedHealth) -> Self {
        let health = &served.health;
        Self {
            state: health.state,
            since: health.since.map(Time::from),
            waits_for: health.wait.map(|wait| wait.reason),
            until: health.wait.and_then(|wait| wait.until).map(Time::from),
            last_error: health.last_error.map(LastErrorView::from),
            last_success_at: health.last_success_at.map(Time::from),
            next: next_of_served(health, served.blocked.as_deref()),
        }
    }

    /// For an endpoint that no engine serves yet: its status is all that is known.
    fn stored(endpoint: &Endpoint) -> Self {
        let since = endpoint.status_since.filter(|_| endpoint.status != EndpointStatus::Active);
        Self { since: since.map(Time::from), ..Self::in_state(endpoint.status.into()) }
    }

    /// In a state of which nothing more is known.
    pub(crate) fn in_state(state: HealthState) -> Self {
        Self {
            state,
            since: None,
            waits_for: None,
            until: None,
            last_error: None,
            last_success_at: None,
            next: next_in(state, None),
        }
    }
}

fn next_of_served(health: &Health, blocked: Option<&str>) -> String {
    match (health.state, health.wait, health.breaker) {
        (HealthState::Waiting, Some(wait), _) => next_of_wait(wait),
        (HealthState::Active, _, BreakerState::Ramping { limit }) => {
            format!(
                "Sending ramps up: at most {limit} at once, and more with each acknowledgement."
            )
        }
        (state, _, _) => next_in(state, blocked),
    }
}

fn next_of_wait(wait: Wait) -> String {
    const THEN: &str = "if it is acknowledged, sending goes on.";
    match (wait.reason, wait.until.map(Time::from)) {
        (WaitReason::RetryAfter, Some(until)) => {
            format!("The receiver asked to wait: sending goes on at {until}.")
        }
        (WaitReason::Breaker, Some(until)) => format!("One attempt goes at {until}; {THEN}"),
        (WaitReason::Probe, Some(_)) => format!("The next delivery goes alone; {THEN}"),
        (_, None) => format!("One attempt is in flight; {THEN}"),
    }
}

fn next_in(state: HealthState, blocked: Option<&str>) -> String {
    const RESUME: &str = "Nothing is sent until someone resumes it; its deliveries are kept.";
    match state {
        HealthState::Active => "Deliveries are sent as they come.".to_owned(),
        HealthState::Waiting => "Sending goes on by itself.".to_owned(),
        HealthState::Paused => RESUME.to_owned(),
        HealthState::Blocked => {
            let reason = blocked.unwrap_or("its settings cannot be used");
            format!("Nothing is sent until this is fixed: {reason}. Its deliveries are kept.")
        }
        HealthState::Quarantined => {
            format!("Too many lanes in a row were refused for good. {RESUME}")
        }
        HealthState::Failing => format!("Nothing but failures came back for too long. {RESUME}"),
        HealthState::Gone => format!("The receiver answered 410: it is gone. {RESUME}"),
    }
}

/// How an attempt failed, in words.
pub(crate) fn cause_in_words(cause: ErrorCause) -> String {
    match cause {
        ErrorCause::Status(status) => format!("answered {status}"),
        ErrorCause::Failure(failure) => failure_in_words(failure).to_owned(),
    }
}

fn failure_in_words(failure: Failure) -> &'static str {
    match failure {
        Failure::Dns => "the host name did not resolve",
        Failure::BlockedAddress => "the address is not allowed",
        Failure::Refused => "the connection was refused",
        Failure::Unreachable => "the network is unreachable",
        Failure::ConnectTimeout => "no connection in time",
        Failure::Tls => "the TLS handshake failed",
        Failure::Reset => "the connection broke before an answer",
        Failure::Timeout => "no answer in time",
        Failure::BadResponse => "the answer was not valid HTTP",
        Failure::PayloadMissing => "the payload is gone from the store",
        Failure::NotSent => "this server could not send it",
    }
}

#[cfg(test)]
mod tests {
    use railpost_engine::Timestamp;

    use super::*;

    fn wait(reason: WaitReason, until: Option<u64>) -> String {
        next_of_wait(Wait { reason, until: until.map(Timestamp::from_millis) })
    }

    #[test]
    fn each_wait_says_what_happens_next_and_when() {
        let at = Some(1_700_000_000_000);
        assert_eq!(
            wait(WaitReason::Breaker, at),
            "One attempt goes at 2023-11-14T22:13:20.000Z; if it is acknowledged, sending goes on."
        );
        assert_eq!(
            wait(WaitReason::RetryAfter, at),
            "The receiver asked to wait: sending goes on at 2023-11-14T22:13:20.000Z."
        );
        assert!(wait(WaitReason::Probe, at).starts_with("The next delivery goes alone;"));
        assert!(wait(WaitReason::Probe, None).starts_with("One attempt is in flight;"));
    }

    #[test]
    fn each_state_that_a_person_has_to_end_says_so() {
        for state in
            [HealthState::Paused, HealthState::Quarantined, HealthState::Failing, HealthState::Gone]
        {
            assert!(next_in(state, None).contains("until someone resumes it"), "{state:?}");
        }
        let blocked = next_in(HealthState::Blocked, Some("it has no secret"));
        assert!(blocked.contains("until this is fixed: it has no secret."), "{blocked}");
    }
}
