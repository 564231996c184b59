//! The states of a delivery and the legal edges between them: the one place that knows them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeliveryState {
    /// It waits for its turn.
    Pending,
    /// An attempt is under way. Written down only for at-most-once deliveries, before they leave.
    InFlight,
    /// The last attempt failed; the next one is not due before `until`.
    Waiting {
        /// The earliest instant of the next attempt.
        until: Timestamp,
    },
    /// A receiver acknowledged it.
    Delivered,
    /// It was given up on: a dead letter.
    Dead {
        /// Why.
        reason: DeadReason,
        /// Whether its lane stands still until someone acts. A dead letter that does not hold its
        /// lane has left it for good: a replay sends it outside of any lane.
        holds: bool,
    },
    /// It need not arrive.
    Discarded {
        /// Why.
        reason: DiscardReason,
    },
}

/// Why a delivery need not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// A person discarded it.
    Person,
    /// Its endpoint was removed.
    EndpointRemoved,
}

/// Why a delivery was given up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The receiver refused it in a way that no retry mends.
    Permanent,
    /// It failed as often as its policy allows.
    AttemptsExhausted,
    /// The next attempt would have come after its time to live.
    Expired,
    /// An at-most-once delivery failed; it may not be sent a second time.
    SingleAttemptFailed,
    /// An at-most-once delivery was recorded as sent and its outcome was lost in a crash.
    OutcomeUnknown,
}

/// A delivery's state without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// See [`DeliveryState::Pending`].
    Pending,
    /// See [`DeliveryState::InFlight`].
    InFlight,
    /// See [`DeliveryState::Waiting`].
    Waiting,
    /// See [`DeliveryState::Delivered`].
    Delivered,
    /// See [`DeliveryState::Dead`].
    Dead,
    /// See [`DeliveryState::Discarded`].
    Discarded,
}

/// Every legal edge and what takes a delivery along it. `docs/lifecycle.md` draws this table, and a
/// test keeps the drawing true.
pub const EDGES: [(Stage, Stage, &str); 13] = [
    (Stage::Pending, Stage::InFlight, "its turn came"),
    (Stage::Pending, Stage::Dead, "sent before, and its endpoint became at-most-once"),
    (Stage::Pending, Stage::Discarded, "a person discarded it"),
    (Stage::InFlight, Stage::Delivered, "acknowledged"),
    (Stage::InFlight, Stage::Waiting, "failed, to be retried"),
    (Stage::InFlight, Stage::Dead, "failed for good"),
    (Stage::InFlight, Stage::Discarded, "discarded meanwhile, and it failed"),
    (Stage::Waiting, Stage::InFlight, "the retry is due"),
    (Stage::Waiting, Stage::Dead, "sent before, and its endpoint became at-most-once"),
    (Stage::Waiting, Stage::Discarded, "a person discarded it"),
    (Stage::Dead, Stage::Pending, "a person replayed it"),
    (Stage::Dead, Stage::Dead, "a person skipped it: it stays dead, its lane moves on"),
    (Stage::Dead, Stage::Discarded, "a person discarded it"),
];

impl Stage {
    /// Whether a delivery may go from here to `next` in one step.
    pub fn may_become(self, next: Stage) -> bool {
        EDGES.iter().any(|(from, to, _)| (*from, *to) == (self, next))
    }

    /// Whether a store that has `self` on record may write `next`. An attempt's start is not
    /// written down (but for at-most-once), so what follows an attempt may follow its start's
    /// predecessor.
    pub fn may_be_recorded_as(self, next: Stage) -> bool {
        self.may_become(next)
            || (self.may_become(Stage::InFlight) && Stage::InFlight.may_become(next))
    }

    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        EDGES.iter().all(|(from, _, _)| *from != self)
    }
}

impl DeliveryState {
    /// Discarded by a person.
    pub const DISCARDED: Self = DeliveryState::Discarded { reason: DiscardReason::Person };

    /// Whether the delivery is closed without having been delivered: the next one in its lane follows
    /// an earlier one then.
    pub fn is_skipped(&self) -> bool {
        !self.is_open() && !matches!(self, DeliveryState::Delivered)
    }

    /// The state without its details.
    pub fn stage(&self) -> Stage {
        match self {
            DeliveryState::Pending => Stage::Pending,
            DeliveryState::InFlight => Stage::InFlight,
            DeliveryState::Waiting { .. } => Stage::Waiting,
            DeliveryState::Delivered => Stage::Delivered,
            DeliveryState::Dead { .. } => Stage::Dead,
            DeliveryState::Discarded { .. } => Stage::Discarded,
        }
    }

    /// Whether the delivery still stands in the way of the next one in its lane.
    pub fn is_open(&self) -> bool {
        match self {
            DeliveryState::Pending | DeliveryState::InFlight | DeliveryState::Waiting { .. } => {
                true
            }
            DeliveryState::Dead { holds, .. } => *holds,
            DeliveryState::Delivered | DeliveryState::Discarded { .. } => false,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Pending => "pending",
            Stage::InFlight => "in_flight",
            Stage::Waiting => "waiting",
            Stage::Delivered => "delivered",
            Stage::Dead => "dead",
            Stage::Discarded => "discarded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delivered_and_discarded_are_final() {
        use Stage::*;
        let all = [Pending, InFlight, Waiting, Delivered, Dead, Discarded];
        let ends: Vec<_> = all.into_iter().filter(|stage| stage.is_final()).collect();
        assert_eq!(ends, [Delivered, Discarded]);
    }

    #[test]
    fn a_store_accepts_what_an_unrecorded_attempt_led_to() {
        use Stage::*;
        for (from, to, legal) in [
            (Pending, Delivered, true),
            (Pending, Waiting, true),
            (Pending, Dead, true),
            (Waiting, Delivered, true),
            (Waiting, Waiting, true),
            (InFlight, Delivered, true),
            (Dead, Pending, true),
            (Dead, Delivered, false),
            (Dead, Waiting, false),
            (Delivered, Pending, false),
            (Delivered, Discarded, false),
            (Discarded, Pending, false),
            (Waiting, Pending, false),
        ] {
            assert_eq!(from.may_be_recorded_as(to), legal, "{from} → {to}");
        }
    }

    #[test]
    fn the_drawing_in_the_docs_has_exactly_the_legal_edges() {
        let drawn = include_str!("../../../docs/lifecycle.md");
        let mut edges: Vec<String> =
            EDGES.iter().map(|(from, to, why)| format!("    {from} --> {to}: {why}")).collect();
        let mut lines: Vec<String> = drawn
            .lines()
            .filter(|line| line.contains("-->") && !line.contains("[*]"))
            .map(str::to_owned)
            .collect();
        edges.sort();
        lines.sort();
        assert_eq!(lines, edges);
    }
}
