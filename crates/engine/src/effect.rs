//! What the engine asks for.

use std::fmt;

use railpost_wire::{DeliveryId, EndpointId, Seq};
use serde::Serialize;

use crate::{
    AttemptToken, DeliveryState, EndpointStatus, LaneId, LoadTicket, Place, Progress, Timestamp,
};

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this, and report how it ended.
    Start(Attempt),
    /// Write this down, at leisure. It must be visible to every load asked for later.
    Record(Transition),
    /// Make this durable and say [`Input::Recorded`](crate::Input::Recorded), or, where the state on
    /// record does not allow it, [`Input::RecordRefused`](crate::Input::RecordRefused): an
    /// at-most-once delivery leaves only after that.
    RecordFirst(Transition, AttemptToken),
    /// Write down what became of an endpoint.
    RecordEndpoint(EndpointRecord),
    /// Look this up and answer with [`Input::Loaded`](crate::Input::Loaded).
    Load(LoadTicket, Load),
    /// Tell the operators.
    Notify(Notice),
    /// An input made no sense and changed nothing.
    Ignored(Ignored),
}

/// One HTTP request to be made for one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Names it.
    pub token: AttemptToken,
    /// What to send.
    pub delivery: DeliveryId,
    /// Where.
    pub endpoint: EndpointId,
    /// Its place in line, if it keeps one.
    pub place: Option<Place>,
    /// The seq of its lane that was delivered last before it, or 0, if that is not the one before it. 0 too
    /// if it has left its lane or never had one: it follows nothing.
    pub follows: Option<u64>,
    /// 1 for the first attempt of this delivery, and so on.
    pub number: u32,
    /// Whether a person asked for it.
    pub replay: bool,
}

/// A delivery's new state. A store checks the edge against the state it has on record, and never
/// lowers the count of attempts: a command may have been given on an old view of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Its place in line, if it keeps one.
    pub place: Option<Place>,
    /// Its state from here on.
    pub state: DeliveryState,
    /// Its retries from here on.
    pub progress: Progress,
    /// The attempt that led to it; none when a person or a policy did.
    pub attempt: Option<AttemptToken>,
    /// When.
    pub at: Timestamp,
}

/// An endpoint's new status. A store writes it only if `was` is still on record: otherwise a person has decided
/// meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRecord {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Its status from here on.
    pub status: EndpointStatus,
    /// Its status so far, as the engine knows it.
    pub was: EndpointStatus,
    /// Since when nothing but failures came back.
    pub failing_since: Option<Timestamp>,
    /// When.
    pub at: Timestamp,
}

/// What to look up. `limit` bounds the deliveries, or the lanes for [`Load::Lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The endpoint's open lanes with an id above `after`, each from its first open delivery on,
    /// with at most `window` deliveries each.
    Lanes {
        /// Whose.
        endpoint: EndpointId,
        /// Where the page before ended.
        after: Option<LaneId>,
        /// Most lanes.
        limit: u32,
        /// Most deliveries per lane.
        window: u32,
    },
    /// One lane's open deliveries from `from` on.
    Lane {
        /// Whose.
        endpoint: EndpointId,
        /// Which.
        lane: LaneId,
        /// From here.
        from: Seq,
        /// Most deliveries.
        limit: u32,
    },
    /// The endpoint's open deliveries without a place in line, but for those that wait beyond
    /// `due_by` and no longer than `due_beyond`.
    Unkeyed {
        /// Whose.
        endpoint: EndpointId,
        /// Where the page before ended.
        after: Option<DeliveryId>,
        /// Those waiting longer are left out.
        due_by: Timestamp,
        /// But not those waiting longer than this: no policy plans so far ahead.
        due_beyond: Timestamp,
        /// Most deliveries.
        limit: u32,
    },
}

/// Something that operators want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which endpoint it is about.
    pub endpoint: EndpointId,
    /// What happened.
    pub kind: NoticeKind,
    /// When.
    pub at: Timestamp,
}

/// What operators are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Too much failed: nothing is sent before `until`, then one probe.
    BreakerOpened {
        /// The probe's instant.
        until: Timestamp,
    },
    /// The probe succeeded: sending ramps up.
    BreakerClosed,
    /// A dead letter holds its lane.
    LaneHeld {
        /// Which lane.
        lane: LaneId,
        /// What holds it.
        delivery: DeliveryId,
    },
    /// The endpoint was switched off by the engine.
    SwitchedOff(EndpointStatus),
}

/// An input that made no sense: why, and about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Why it was ignored.
    pub reason: IgnoredReason,
    /// The endpoint it named, if it named one.
    pub endpoint: Option<EndpointId>,
    /// The delivery it named, if it named one.
    pub delivery: Option<DeliveryId>,
}

/// Why an input was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoredReason {
    /// No such endpoint is this engine's.
    EndpointUnknown,
    /// That endpoint is this engine's already.
    EndpointKnown,
    /// A rate limit out of bounds.
    RateLimitInvalid,
    /// That delivery is known already: a hint or a page came twice.
    DeliveryKnown,
    /// That lane belongs to another endpoint, or the page to another lane.
    LaneMismatch,
    /// That attempt is not under way.
    AttemptUnknown,
    /// That load was not asked for, or its endpoint is gone.
    LoadUnknown,
    /// The page is not of the kind that was asked for.
    PageMismatch,
    /// Only a dead letter can be replayed or skipped.
    NotDead,
    /// Only a dead letter that holds its lane can be skipped.
    NotHeld,
    /// It is delivered or discarded already.
    Closed,
    /// An at-most-once delivery is never sent a second time.
    SentOnce,
    /// Its lane is not loaded yet; ask again in a moment.
    NotLoaded,
}

impl IgnoredReason {
    /// All of them, in order.
    pub const ALL: [IgnoredReason; 13] = [
        IgnoredReason::EndpointUnknown,
        IgnoredReason::EndpointKnown,
        IgnoredReason::RateLimitInvalid,
        IgnoredReason::DeliveryKnown,
        IgnoredReason::LaneMismatch,
        IgnoredReason::AttemptUnknown,
        IgnoredReason::LoadUnknown,
        IgnoredReason::PageMismatch,
        IgnoredReason::NotDead,
        IgnoredReason::NotHeld,
        IgnoredReason::Closed,
        IgnoredReason::SentOnce,
        IgnoredReason::NotLoaded,
    ];
}

impl fmt::Display for IgnoredReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IgnoredReason::EndpointUnknown => "no such endpoint is served here",
            IgnoredReason::EndpointKnown => "that endpoint is served here already",
            IgnoredReason::RateLimitInvalid => "the rate limit is out of bounds",
            IgnoredReason::DeliveryKnown => "that delivery is known already",
            IgnoredReason::LaneMismatch => "that lane belongs elsewhere",
            IgnoredReason::AttemptUnknown => "that attempt is not under way",
            IgnoredReason::LoadUnknown => "that load was not asked for",
            IgnoredReason::PageMismatch => "the page is not of the kind that was asked for",
            IgnoredReason::NotDead => "only a dead letter can be replayed or skipped",
            IgnoredReason::NotHeld => "only a dead letter that holds its lane can be skipped",
            IgnoredReason::Closed => "it is delivered or discarded already",
            IgnoredReason::SentOnce => "an at-most-once delivery is never sent a second time",
            IgnoredReason::NotLoaded => "its lane is not loaded yet; ask again in a moment",
        })
    }
}
