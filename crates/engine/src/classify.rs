//! What an attempt's result means: acknowledged, retryable or permanent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DeliveryStage, Span};

/// What came of one attempt, as the sender saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// The receiver answered.
    Response {
        /// The HTTP status.
        status: u16,
        /// What its `Retry-After` asks for, counted from the answer.
        retry_after: Option<Span>,
    },
    /// No answer came.
    Failed(Failure),
}

/// Why no answer came: a taxonomy that people can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The host's name did not resolve.
    Dns,
    /// The name or address is one that the outbound guard refuses.
    BlockedAddress,
    /// The host refused the connection.
    Refused,
    /// There is no route to the host.
    Unreachable,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke before the answer's head was complete.
    Reset,
    /// No complete head of an answer within the total timeout.
    Timeout,
    /// The answer's head passed the bound or was no HTTP.
    BadResponse,
    /// The event's payload is gone from the store; there is nothing left to send.
    PayloadMissing,
    /// This server could not send: it is short of sockets, files or memory, or its settings do not
    /// fit the endpoint's.
    NotSent,
}

impl AttemptResult {
    /// Whether it says anything about the endpoint. What failed on this side does not count against
    /// a receiver that was never asked, and 409 and 425 are about a lane: the receiver wants another
    /// event first.
    pub fn concerns_endpoint(self) -> bool {
        !matches!(
            self,
            AttemptResult::Failed(Failure::PayloadMissing | Failure::NotSent)
                | AttemptResult::Response { status: 409 | 425, .. }
        )
    }
}

/// An attempt, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The receiver has it.
    Acknowledged,
    /// A retry may succeed.
    Retryable,
    /// No retry fixes it.
    Permanent,
}

/// The status by which a receiver says that it is gone for good.
pub(crate) const GONE: u16 = 410;

/// Whether a `Retry-After` with this status speaks for the whole endpoint, not for one delivery.
pub(crate) fn holds_endpoint(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Per-endpoint exceptions to [`classify`]: receivers misuse statuses.
pub type Overrides = BTreeMap<u16, Outcome>;

/// What `result` means for an endpoint with these overrides.
pub fn classify(result: AttemptResult, overrides: &Overrides) -> Outcome {
    match result {
        AttemptResult::Response { status, .. } => {
            overrides.get(&status).copied().unwrap_or_else(|| classify_status(status))
        }
        AttemptResult::Failed(Failure::PayloadMissing) => Outcome::Permanent,
        AttemptResult::Failed(_) => Outcome::Retryable,
    }
}

/// The same soon after a secret was rotated: a receiver that gets its new secret late refuses what it cannot
/// verify, and 401 and 403 are retried.
pub(crate) fn classify_after_rotation(result: AttemptResult, overrides: &Overrides) -> Outcome {
    match result {
        AttemptResult::Response { status: status @ (401 | 403), .. } => {
            overrides.get(&status).copied().unwrap_or(Outcome::Retryable)
        }
        _ => classify(result, overrides),
    }
}

/// What the result of a past attempt meant, which left its delivery in this state: a 401 or 403 that was retried
/// came soon after a rotation.
pub fn classify_past(
    result: AttemptResult,
    led_to: DeliveryStage,
    overrides: &Overrides,
) -> Outcome {
    match led_to {
        DeliveryStage::Waiting => classify_after_rotation(result, overrides),
        _ => classify(result, overrides),
    }
}

/// Redirects are not followed, so they count as failures that configuration may fix.
fn classify_status(status: u16) -> Outcome {
    match status {
        200..=299 => Outcome::Acknowledged,
        408 | 409 | 425 | 429 => Outcome::Retryable,
        400..=499 | 501 => Outcome::Permanent,
        _ => Outcome::Retryable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16) -> AttemptResult {
        AttemptResult::Response { status, retry_after: None }
    }

    #[test]
    fn each_status_has_its_class() {
        use Outcome::*;
        for (status, outcome) in [
            (100, Retryable),
            (200, Acknowledged),
            (201, Acknowledged),
            (202, Acknowledged),
            (204, Acknowledged),
            (299, Acknowledged),
            (300, Retryable),
            (301, Retryable),
            (302, Retryable),
            (307, Retryable),
            (308, Retryable),
            (399, Retryable),
            (400, Permanent),
            (401, Permanent),
            (402, Permanent),
            (403, Permanent),
            (404, Permanent),
            (405, Permanent),
            (408, Retryable),
            (409, Retryable),
            (410, Permanent),
            (413, Permanent),
            (415, Permanent),
            (422, Permanent),
            (425, Retryable),
            (429, Retryable),
            (499, Permanent),
            (500, Retryable),
            (501, Permanent),
            (502, Retryable),
            (503, Retryable),
            (504, Retryable),
            (599, Retryable),
            (600, Retryable),
            (0, Retryable),
            (u16::MAX, Retryable),
        ] {
            assert_eq!(classify(answered(status), &Overrides::new()), outcome, "{status}");
        }
    }

    #[test]
    fn every_failure_to_get_an_answer_is_retried_unless_there_is_nothing_to_send() {
        use Failure::*;
        for (failure, outcome) in [
            (Dns, Outcome::Retryable),
            (BlockedAddress, Outcome::Retryable),
            (Refused, Outcome::Retryable),
            (Unreachable, Outcome::Retryable),
            (ConnectTimeout, Outcome::Retryable),
            (Tls, Outcome::Retryable),
            (Reset, Outcome::Retryable),
            (Timeout, Outcome::Retryable),
            (BadResponse, Outcome::Retryable),
            (PayloadMissing, Outcome::Permanent),
            (NotSent, Outcome::Retryable),
        ] {
            let result = AttemptResult::Failed(failure);
            assert_eq!(classify(result, &Overrides::new()), outcome, "{failure:?}");
        }
    }

    #[test]
    fn an_override_moves_any_status_to_any_class() {
        let overrides = Overrides::from([
            (404, Outcome::Retryable),
            (200, Outcome::Permanent),
            (302, Outcome::Acknowledged),
        ]);
        assert_eq!(classify(answered(404), &overrides), Outcome::Retryable);
        assert_eq!(classify(answered(200), &overrides), Outcome::Permanent);
        assert_eq!(classify(answered(302), &overrides), Outcome::Acknowledged);
        assert_eq!(classify(answered(403), &overrides), Outcome::Permanent);
    }

    #[test]
    fn after_a_rotation_401_and_403_are_retried_unless_an_override_says_otherwise() {
        use Outcome::*;
        let overrides = Overrides::from([(403, Permanent)]);
        for (status, without, with) in [
            (401, Retryable, Retryable),
            (403, Retryable, Permanent),
            (404, Permanent, Permanent),
            (200, Acknowledged, Acknowledged),
        ] {
            let result = answered(status);
            assert_eq!(classify_after_rotation(result, &Overrides::new()), without, "{status}");
            assert_eq!(classify_after_rotation(result, &overrides), with, "{status}");
        }
    }

    #[test]
    fn a_past_refusal_that_was_retried_is_shown_as_retryable() {
        let meant = |led_to| classify_past(answered(401), led_to, &Overrides::new());
        assert_eq!(meant(DeliveryStage::Waiting), Outcome::Retryable);
        assert_eq!(meant(DeliveryStage::Dead), Outcome::Permanent);
    }
}
