//! What was seen at a look. What could not be seen is left out: its rules keep what they have.

use railpost_engine::{Health, Span, Timestamp};
use railpost_wire::{EndpointId, Key, TenantId};

use crate::FigureHistory;

/// What was seen at a look.
#[derive(Clone, Debug, Default)]
pub struct Observations<'a> {
    /// Figures over time; nothing if they could not be read.
    pub figures: Option<&'a FigureHistory>,
    /// How many dead letters there are.
    pub dead_letters: Option<u64>,
    /// When the oldest open delivery of an endpoint that is not paused was made; within, nothing if there
    /// is none.
    pub oldest_open_at: Option<Option<Timestamp>>,
    /// The store's trouble, if it has some.
    pub store_trouble: Option<StoreTroubleSeen>,
    /// The disk that the data lies on.
    pub disk: Option<DiskSeen>,
    /// Endpoints that are not well, or whose secret ends.
    pub endpoints: Option<Vec<EndpointSeen>>,
    /// Lanes that a dead letter holds.
    pub held_lanes: Option<HeldLanesSeen>,
    /// Sources in trouble, other than that they are read elsewhere.
    pub sources: Vec<SourceSeen>,
}

/// The store cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTroubleSeen {
    /// Since when.
    pub since: Timestamp,
    /// What it says.
    pub problem: String,
}

/// How full a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSeen {
    /// The folder that was asked about.
    pub path: String,
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Bytes that it has.
    pub size_bytes: u64,
}

/// How an endpoint is doing.
#[derive(Clone, Debug)]
pub struct EndpointSeen {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it is.
    pub url: String,
    /// As the engine has it.
    pub health: Health,
    /// Why nothing can be sent to it as it is, if that is so.
    pub blocked: Option<String>,
    /// After which time with nothing but failures it is switched off; nothing if it never is.
    pub disable_after: Option<Span>,
    /// When the last of its secrets stops signing, if it must sign and none signs for ever.
    pub signs_until: Option<Timestamp>,
}

/// Held lanes: the longest held, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct HeldLanesSeen {
    /// The longest held ones.
    pub lanes: Vec<LaneSeen>,
    /// How many there are besides.
    pub others: u64,
}

/// A lane that a dead letter holds.
#[derive(Clone, Debug)]
pub struct LaneSeen {
    /// The lane, as the API names it.
    pub lane: String,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Whose endpoint it is.
    pub tenant: TenantId,
    /// Where the endpoint is.
    pub url: String,
    /// The key; nothing for an endpoint's one lane for everything.
    pub key: Option<Key>,
    /// The delivery that holds it.
    pub held_by: String,
    /// Since when.
    pub since: Timestamp,
    /// Why the delivery was given up on.
    pub reason: String,
    /// How many deliveries wait behind it, at most.
    pub behind: u64,
}

/// A source in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSeen {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// What is wrong.
    pub problem: String,
}
