//! The inbox's rule: what an authentic event is to a receiver that has seen others.
//!
//! Every store asks the same question here, so that all of them answer alike. An inbox keeps its place by
//! line (`X-Lane`): the last seq that was applied of each. The cases are in `vectors/inbox.json`.

use crate::limits::{
    GAP_TIMEOUT_DEFAULT, LINE_RETENTION_FACTOR, RETENTION_DEFAULT, RETENTION_MARGIN,
};
use railpost_wire::{LineId, Received, Seq};
use std::time::Duration;

/// What an event is to this receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was never applied, and it is its turn: apply it.
    Fresh,
    /// Its id was applied before: acknowledge it, do nothing. Its line moves on to its seq, so that what
    /// follows an event that was sent again under a new seq is no gap.
    Duplicate,
    /// Its id is unknown, but its seq is at or below what was applied: acknowledge it, do nothing.
    Stale {
        /// The last seq of its line that was applied.
        applied: Seq,
    },
    /// What must be applied before it is not known here: this receiver forgot it, or joined late.
    Gap {
        /// The last seq of its line that was applied, if there is one.
        applied: Option<Seq>,
        /// Whether the policy takes it all the same: then apply it. Otherwise the sender shall retry.
        accepted: bool,
    },
    /// It, or another event of its line, is being applied right now: the sender shall retry.
    Busy,
}

impl Verdict {
    /// Whether the effect is to happen.
    pub fn applies(self) -> bool {
        matches!(self, Self::Fresh | Self::Gap { accepted: true, .. })
    }

    /// Whether the place of its line moves on to its seq, unless it is further already.
    pub(crate) fn moves_line(self) -> bool {
        self.applies() || self == Self::Duplicate
    }
}

/// What a receiver does about order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where a line begins.
    pub start: Start,
    /// What happens to an event if what must be applied before it is not known here.
    pub on_gap: OnGap,
    /// What happens to an old event that a person sends again.
    pub replays: Replays,
}

/// Where the seqs of a line begin for this receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// With 1. Anything else in an unknown line is a gap, unless the sender says that nothing has to be
    /// applied before it (`X-After: 0`). This keeps an update from being applied before its creation. A
    /// receiver that lost its memory, or that joins lines which are under way, sees gaps at first;
    /// [`OnGap`] says what it does about them.
    #[default]
    AtOne,
    /// With whatever comes first: for inboxes that forget, and receivers that join late.
    Anywhere,
}

/// What happens to an event whose predecessor is not known here.
///
/// The sender starts an event only after the one before it is acknowledged, and says which one that is
/// where events between were skipped. So a gap means that this receiver forgot something or joined late,
/// and no event closes it: what is missing was acknowledged already, and does not come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnGap {
    /// It is answered 425, so that the sender tries again, until its line's gap has been seen for this
    /// long; then it is accepted and noted. That is time for people to see the 425s and restore a
    /// database, and for a network that reorders requests to deliver them.
    Wait {
        /// How long, in whole seconds.
        timeout: Duration,
    },
    /// It is answered 425 for ever: the sender makes it a dead letter in the end, and a person decides.
    Hold,
    /// It is accepted at once, and noted.
    Accept,
}

impl Default for OnGap {
    fn default() -> Self {
        Self::Wait { timeout: GAP_TIMEOUT_DEFAULT }
    }
}

/// What happens to a replay (`X-Replay: true`) whose seq is at or below what was applied, and whose id
/// was never applied: a dead letter that was skipped, and that a person sends after all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replays {
    /// It is stale, as any other: later events of its line were applied on top of its absence, and an
    /// old state must not overwrite a newer one.
    #[default]
    KeepOrder,
    /// It is fresh, out of order, because a person asked for it: for effects that add up.
    Apply,
}

/// Where an event stands in its line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinePosition<'r> {
    pub(crate) line: &'r LineId,
    pub(crate) seq: Seq,
    /// The seq that must have been applied before; 0 for none.
    pub(crate) follows: u64,
}

impl<'r> LinePosition<'r> {
    /// Nothing for an event that stands in no line: that one is only deduplicated.
    pub(crate) fn of(received: &'r Received) -> Option<Self> {
        let (line, seq) = (received.line.as_ref()?, received.seq?);
        Some(Self { line, seq, follows: received.follows()? })
    }
}

/// What an inbox knows of an event and its line before it is judged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PriorState {
    /// Whether the event's id was applied before.
    pub(crate) id: bool,
    /// The last seq of the line that was applied, if the line is known.
    pub(crate) applied: Option<Seq>,
    /// When a gap after that seq was first seen, in seconds since 1970.
    pub(crate) gap_since: Option<i64>,
}

impl Policy {
    /// The rule.
    pub(crate) fn judge(&self, received: &Received, known: PriorState, now: i64) -> Verdict {
        if known.id {
            return Verdict::Duplicate;
        }
        let Some(place) = LinePosition::of(received) else { return Verdict::Fresh };
        match known.applied {
            Some(applied) if place.seq <= applied => match self.replays {
                Replays::Apply if received.replay => Verdict::Fresh,
                _ => Verdict::Stale { applied },
            },
            None if self.start == Start::Anywhere => Verdict::Fresh,
            applied if applied.map_or(0, Seq::get) >= place.follows => Verdict::Fresh,
            applied => Verdict::Gap { applied, accepted: self.accepts_gap(known.gap_since, now) },
        }
    }

    fn accepts_gap(&self, since: Option<i64>, now: i64) -> bool {
        match self.on_gap {
            OnGap::Accept => true,
            OnGap::Hold => false,
            OnGap::Wait { timeout } => {
                let waited = now.saturating_sub(since.unwrap_or(now));
                waited >= i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX)
            }
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

    /// The instant before which the places of lines are forgotten.
    pub(crate) fn lines_since(self, now: i64) -> i64 {
        now.saturating_sub_unsigned(self.line_secs())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn id_secs(self) -> u64 {
        self.0.as_secs()
    }

    pub(crate) fn line_secs(self) -> u64 {
        self.0.as_secs().saturating_mul(u64::from(LINE_RETENTION_FACTOR))
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
    /// The line.
    pub line: String,
    /// The key of the event that was accepted, if it has one.
    pub key: Option<String>,
    /// The last seq of the line that had been applied; 0 if none had.
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
