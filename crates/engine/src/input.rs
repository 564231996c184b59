//! What the engine is told.

use railpost_wire::{DeliveryId, EndpointId, Seq, TenantId};
use serde::{Deserialize, Serialize};

use crate::engine::DeliveryKey;
use crate::limits::ROTATION_LENIENCY;
use crate::{AttemptResult, DeliveryState, Policy, Progress, RateLimit, Timestamp};

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An endpoint is this engine's to serve from here on. The engine asks for its backlog.
    EndpointAppeared(Endpoint),
    /// Its owner changed the policy. Waits already planned stay as they are.
    EndpointChanged {
        /// Which one.
        endpoint: EndpointId,
        /// The policy from here on.
        policy: Policy,
        /// The latest rotation of its secrets.
        rotation: Option<Rotation>,
    },
    /// A person paused it, and that is recorded. Nothing starts; the backlog is kept.
    EndpointPaused(EndpointId),
    /// A person switched it on again, whatever had switched it off, and that is recorded.
    EndpointResumed(EndpointId),
    /// A person ends its wait: an open breaker lets its probe go at once, `Retry-After` is lifted, and what waits in
    /// memory for a retry is due. Of one that does not wait nothing changes, and of one that is switched off only
    /// `Retry-After` is lifted.
    EndpointWaitEnded(EndpointId),
    /// Nothing can be sent to it as it is: it must sign and has no secret, or its settings cannot be
    /// read. Nothing starts until it is unblocked; its status stays as it is and the backlog is kept.
    EndpointBlocked {
        /// Which one.
        endpoint: EndpointId,
        /// Whether it is.
        blocked: bool,
    },
    /// It is not this engine's any more. All that is known of it is forgotten; attempts under way
    /// still have to be reported.
    EndpointRemoved(EndpointId),
    /// A tenant's rate limit is this, or none.
    TenantChanged {
        /// Which one.
        tenant: TenantId,
        /// Most attempts per period over all its endpoints.
        rate_limit: Option<RateLimit>,
    },
    /// Deliveries were durably accepted. A hint: it may come late, twice, out of order or never. One
    /// that is surely new (made since its endpoint appeared here, and its lane's next seq, or a lane
    /// or an unkeyed delivery not heard of before) is taken at its word; any other makes the engine
    /// ask the store.
    Accepted(Vec<Accepted>),
    /// The store had these open when it was swept. What is not known here is looked up: never taken
    /// at its word, because it may be closed by now.
    Swept(Vec<Accepted>),
    /// The answer to an [`Effect::Load`](crate::Effect::Load).
    Loaded {
        /// The load it answers.
        ticket: LoadTicket,
        /// What was found.
        page: LoadedPage,
    },
    /// A load could not be carried out. The engine asks again later.
    LoadFailed(LoadTicket),
    /// What an [`Effect::RecordFirst`](crate::Effect::RecordFirst) asked for is durable.
    Recorded(AttemptToken),
    /// The store will not have it: the delivery was sent or closed before. It is forgotten.
    RecordRefused(AttemptToken),
    /// An attempt ended. Every started attempt must end.
    AttemptEnded {
        /// Which one.
        attempt: AttemptToken,
        /// How.
        result: AttemptResult,
    },
    /// A person decided about a delivery.
    Command {
        /// What they decided.
        command: Command,
        /// The delivery as the store has it.
        delivery: Delivery,
    },
    /// Nothing but time passed.
    TimePassed,
}

/// An endpoint as the engine needs to know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its owner's choices.
    pub policy: Policy,
    /// Whether it is switched on, as last recorded.
    pub status: EndpointStatus,
    /// Since when its status is that, if that is known.
    pub status_since: Option<Timestamp>,
    /// Since when nothing but failures came back, as last recorded.
    pub failing_since: Option<Timestamp>,
    /// The latest rotation of its secrets.
    pub rotation: Option<Rotation>,
}

/// A rotation of an endpoint's secrets: one was added after its first, and the older ones sign for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// When the new secret was added.
    pub began_at: Timestamp,
    /// When the last of the older ones stops signing: when the rotation began, unless they overlap.
    pub ends_at: Timestamp,
}

impl Rotation {
    /// Whether a receiver may not know its new secret yet: shortly after the new one was added, and shortly after
    /// the older ones stopped.
    pub(crate) fn is_recent(self, now: Timestamp) -> bool {
        [self.began_at, self.ends_at]
            .iter()
            .any(|at| *at <= now && now.since(*at) < ROTATION_LENIENCY)
    }
}

/// Whether an endpoint is switched on, and if not, who switched it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndpointStatus {
    /// It is sent to.
    #[default]
    Active,
    /// A person paused it.
    Paused,
    /// The engine paused it: too many lanes in a row failed for good.
    Quarantined,
    /// The receiver said that it is gone.
    Gone,
    /// The engine disabled it: nothing but failures for too long.
    Failing,
}

/// The number that the store gave a lane. Unique in a store, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct LaneId(pub u64);

/// A delivery's place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lane.
    pub lane: LaneId,
    /// The number in it. It goes on across the lane's lines; on the wire each line begins with 1.
    pub seq: Seq,
}

/// A delivery that was just accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// Its place in line, if it has to keep one.
    pub place: Option<Place>,
    /// Whether a person asked for it: an event that was accepted before is delivered again.
    pub replay: bool,
}

/// A delivery as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// Its place in line; none for a dead letter that has left its lane.
    pub place: Option<Place>,
    /// Its state as last recorded.
    pub state: DeliveryState,
    /// Its retries as last recorded.
    pub progress: Progress,
}

impl From<Accepted> for Delivery {
    fn from(accepted: Accepted) -> Self {
        let Accepted { id, endpoint, place, replay } = accepted;
        let progress = Progress { replay, ..Progress::default() };
        Self { id, endpoint, place, state: DeliveryState::Pending, progress }
    }
}

/// What a person can decide about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Send a dead letter again, with the same event id and a fresh budget of attempts.
    Replay,
    /// Let a held lane move on; the dead letter stays where people can see it.
    Skip,
    /// It is closed, and is not sent any more.
    Discard,
}

/// Names one attempt. Opaque: it goes out with an effect and comes back with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptToken {
    pub(crate) delivery: DeliveryKey,
    pub(crate) number: u32,
}

/// Names one load. Opaque: it goes out with an effect and comes back with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadTicket(pub(crate) u64);

/// What a load found. A load must see everything that was recorded before it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadedPage {
    /// For [`Load::Lanes`](crate::Load::Lanes): open lanes by ascending id, each from its start.
    Lanes {
        /// The lanes.
        lanes: Vec<LanePage>,
        /// Where the next page starts; nothing when this was the last.
        next: Option<LaneId>,
    },
    /// For [`Load::Lane`](crate::Load::Lane).
    Lane(LanePage),
    /// For [`Load::Unkeyed`](crate::Load::Unkeyed): open deliveries by ascending id.
    Unkeyed {
        /// The deliveries.
        deliveries: Vec<Delivery>,
        /// Where the next page starts; nothing when this was the last.
        next: Option<DeliveryId>,
        /// When the earliest one waiting beyond the asked-for instant is due.
        next_due: Option<Timestamp>,
    },
}

/// A stretch of one lane: the open deliveries from `from` through `through`. Whatever lies in
/// between and is not listed is closed.
#[derive(Clone, Debug, PartialEq)]
pub struct LanePage {
    /// Which lane.
    pub lane: LaneId,
    /// Where the stretch starts.
    pub from: Seq,
    /// Where it ends; nothing when the lane ends before `from`.
    pub through: Option<Seq>,
    /// The last seq given out in this lane; nothing when the store knows no such lane.
    pub last: Option<Seq>,
    /// The open ones, by ascending seq.
    pub deliveries: Vec<Delivery>,
    /// Seqs that do not follow the one before them, with the one that they follow instead, or 0: what
    /// lies between was closed without being delivered. Those from `from` to one beyond `through`.
    pub follows: Vec<(Seq, u64)>,
}
