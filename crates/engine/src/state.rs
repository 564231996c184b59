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
    /// It is closed, and is not sent any more.
    Discarded {
        /// Why.
        reason: DiscardReason,
    },
}

/// Why a delivery was discarded.
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
    /// The receiver refused it in a way that no retry fixes.
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
pub enum DeliveryStage {
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
pub const EDGES: [(DeliveryStage, DeliveryStage, &str); 13] = [
    (DeliveryStage::Pending, DeliveryStage::InFlight, "its turn came"),
    (
        DeliveryStage::Pending,
        DeliveryStage::Dead,
        "sent before, and its endpoint became at-most-once",
    ),
    (DeliveryStage::Pending, DeliveryStage::Discarded, "a person discarded it"),
    (DeliveryStage::InFlight, DeliveryStage::Delivered, "acknowledged"),
    (DeliveryStage::InFlight, DeliveryStage::Waiting, "failed, to be retried"),
    (DeliveryStage::InFlight, DeliveryStage::Dead, "failed for good"),
    (DeliveryStage::InFlight, DeliveryStage::Discarded, "discarded meanwhile, and it failed"),
    (DeliveryStage::Waiting, DeliveryStage::InFlight, "the retry is due"),
    (
        DeliveryStage::Waiting,
        DeliveryStage::Dead,
        "sent before, and its endpoint became at-most-once",
    ),
    (DeliveryStage::Waiting, DeliveryStage::Discarded, "a person discarded it"),
    (DeliveryStage::Dead, DeliveryStage::Pending, "a person replayed it"),
    (
        DeliveryStage::Dead,
        DeliveryStage::Dead,
        "a person skipped it: it stays dead, its lane moves on",
    ),
    (DeliveryStage::Dead, DeliveryStage::Discarded, "a person discarded it"),
];

impl DeliveryStage {
    /// Whether a delivery may go from here to `next` in one step.
    pub fn may_become(self, next: DeliveryStage) -> bool {
        EDGES.iter().any(|(from, to, _)| (*from, *to) == (self, next))
    }

    /// Whether a store that has `self` on record may write `next`. An attempt's start is not
    /// written down (but for at-most-once), so what follows an attempt may follow its start's
    /// predecessor.
    pub fn may_be_recorded_as(self, next: DeliveryStage) -> bool {
        self.may_become(next)
            || (self.may_become(DeliveryStage::InFlight)
                && DeliveryStage::InFlight.may_become(next))
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
    pub fn stage(&self) -> DeliveryStage {
        match self {
            DeliveryState::Pending => DeliveryStage::Pending,
            DeliveryState::InFlight => DeliveryStage::InFlight,
            DeliveryState::Waiting { .. } => DeliveryStage::Waiting,
            DeliveryState::Delivered => DeliveryStage::Delivered,
            DeliveryState::Dead { .. } => DeliveryStage::Dead,
            DeliveryState::Discarded { .. } => DeliveryStage::Discarded,
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

impl fmt::Display for DeliveryStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeliveryStage::Pending => "pending",
            DeliveryStage::InFlight => "in_flight",
            DeliveryStage::Waiting => "waiting",
            DeliveryStage::Delivered => "delivered",
            DeliveryStage::Dead => "dead",
            DeliveryStage::Discarded => "discarded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delivered_and_discarded_are_final() {
        use DeliveryStage::*;
        let all = [Pending, InFlight, Waiting, Delivered, Dead, Discarded];
        let ends: Vec<_> = all.into_iter().filter(|stage| stage.is_final()).collect();
        assert_eq!(ends, [Delivered, Discarded]);
    }

    #[test]
    fn a_store_accepts_what_an_unrecorded_attempt_led_to() {
        use DeliveryStage::*;
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
