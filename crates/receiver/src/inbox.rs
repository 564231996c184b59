//! The inbox's rule: what an authentic event is to a receiver that has seen others.
//!
//! Every store asks the same question here, so that all of them answer alike.

use crate::limits::{
    GAP_ATTEMPTS_HELD, LANE_RETENTION_FACTOR, RETENTION_DEFAULT, RETENTION_MARGIN,
};
use railpost_wire::{Received, Seq};
use std::time::Duration;

/// What an event is to this receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was never applied, and it is its turn: apply it.
    Fresh,
    /// Its id was applied before: acknowledge it, do nothing.
    Duplicate,
    /// Its id is unknown, but its seq is at or below what was applied: acknowledge it, do nothing.
    Stale {
        /// The last seq that was applied.
        applied: Seq,
    },
    /// The one before has not come yet.
    Gap {
        /// The last seq that was applied, if there is one.
        applied: Option<Seq>,
        /// Whether the policy takes it all the same: then apply it. Otherwise the sender shall retry.
        accepted: bool,
    },
    /// It, or another event of its key, is being applied right now: the sender shall retry.
    Busy,
}

impl Verdict {
    /// Whether the effect is to happen.
    pub fn applies(self) -> bool {
        matches!(self, Self::Fresh | Self::Gap { accepted: true, .. })
    }
}

/// What a receiver does about order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// What numbers are counted in.
    pub lanes: Lanes,
    /// Where a key begins.
    pub start: Start,
    /// What happens to an event that comes before the one before it.
    pub on_gap: OnGap,
    /// What happens to an old event that a person sends again.
    pub replays: Replays,
}

/// What seqs are counted in, as the endpoint's `ordering` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lanes {
    /// Each key has its own numbers: `per_key`, the sender's default.
    #[default]
    PerKey,
    /// All events of the endpoint have one row of numbers: `global`.
    Global,
}

/// Where the numbers of a lane begin for this receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// With 1. Anything else in a lane that is unknown here is a gap: this is what keeps an update from
    /// being applied before its creation. A receiver that lost its memory, or that joins lanes which
    /// are under way, sees gaps at first; [`OnGap::Hold`] lets them pass after a few attempts.
    #[default]
    AtOne,
    /// With whatever comes first: for inboxes that forget, and receivers that join late.
    Anywhere,
}

/// What happens to an event whose predecessor has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnGap {
    /// It is answered 425, so that the sender tries again, up to this attempt; from the next one on it is
    /// accepted and noted. The sender itself never starts seq n+1 before n is done with, so what it
    /// insists on is what a person there skipped or discarded: holding it for ever would only turn
    /// every later event of the key into a dead letter. `u32::MAX` holds for ever.
    Hold {
        /// The last attempt that is held off.
        attempts: u32,
    },
    /// It is accepted and noted: the last writer wins, and what was overtaken is stale when it comes.
    Accept,
}

impl Default for OnGap {
    fn default() -> Self {
        Self::Hold { attempts: GAP_ATTEMPTS_HELD }
    }
}

/// What happens to a replay (`X-Replay: true`) whose seq is at or below what was applied, and whose id
/// was never applied: a dead letter that was skipped, and that somebody sends after all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replays {
    /// It is stale, as any other: later events of its key were applied on top of its absence, and an
    /// old state must not overwrite a newer one.
    #[default]
    KeepOrder,
    /// It is fresh, out of order, because a person asked for it: for effects that add up.
    Apply,
}

impl Policy {
    /// The lane that an event stands in, and its number there. Without one it only deduplicates.
    pub(crate) fn lane<'r>(&self, received: &'r Received) -> Option<(&'r str, Seq)> {
        let seq = received.seq?;
        match self.lanes {
            Lanes::PerKey => received.key.as_ref().map(|key| (key.as_str(), seq)),
            // No key is empty, so this is nobody's.
            Lanes::Global => Some(("", seq)),
        }
    }

    /// The rule. `known`: its id was applied before; `applied`: the last seq of its lane that was.
    pub(crate) fn judge(&self, received: &Received, known: bool, applied: Option<Seq>) -> Verdict {
        if known {
            return Verdict::Duplicate;
        }
        let Some((_, seq)) = self.lane(received) else { return Verdict::Fresh };
        match applied {
            Some(applied) if seq <= applied => match self.replays {
                Replays::Apply if received.replay => Verdict::Fresh,
                _ => Verdict::Stale { applied },
            },
            _ if self.is_next(seq, applied) => Verdict::Fresh,
            _ => Verdict::Gap { applied, accepted: self.accepts_gap(received.attempt) },
        }
    }

    fn is_next(&self, seq: Seq, applied: Option<Seq>) -> bool {
        match applied {
            Some(applied) => seq == applied.next(),
            None => self.start == Start::Anywhere || seq == Seq::FIRST,
        }
    }

    /// A sender that does not count its attempts is held off: nothing tells insisting from reordering.
    fn accepts_gap(&self, attempt: Option<u32>) -> bool {
        match self.on_gap {
            OnGap::Accept => true,
            OnGap::Hold { attempts } => attempt.is_some_and(|attempt| attempt > attempts),
        }
    }
}

/// How long an inbox remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention(Duration);

impl Retention {
    /// Longer than the sender can still send an event: its delivery TTL, and however late people there
    /// replay. A margin is added.
    pub fn beyond(horizon: Duration) -> Self {
        Self(horizon.saturating_add(RETENTION_MARGIN))
    }

    /// The instant before which event ids are forgotten, in seconds since 1970.
    pub(crate) fn ids_since(self, now: i64) -> i64 {
        now.saturating_sub_unsigned(self.0.as_secs())
    }

    /// The instant before which the last seqs of lanes are forgotten.
    pub(crate) fn lanes_since(self, now: i64) -> i64 {
        now.saturating_sub_unsigned(self.lane_secs())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn id_secs(self) -> u64 {
        self.0.as_secs()
    }

    pub(crate) fn lane_secs(self) -> u64 {
        self.0.as_secs().saturating_mul(u64::from(LANE_RETENTION_FACTOR))
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self(RETENTION_DEFAULT)
    }
}

/// A gap that was accepted: what lies between was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedGap {
    /// The key; empty where all events have one lane.
    pub key: String,
    /// The last seq that had been applied; 0 if none had.
    pub applied: u64,
    /// The seq that was accepted.
    pub seq: u64,
    /// When, in seconds since 1970.
    pub noted_at: i64,
}

/// Tells the inboxes apart that share a database. Two senders, or two endpoints with secrets of their
/// own, need two: otherwise one could use up the other's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxConfig {
    /// Its name: any text.
    pub name: String,
    /// What it does about order.
    pub policy: Policy,
    /// How long it remembers.
    pub retention: Retention,
}

impl InboxConfig {
    /// With the defaults.
    pub fn named(name: &str) -> Self {
        let (policy, retention) = (Policy::default(), Retention::default());
        Self { name: name.to_owned(), policy, retention }
    }
}
