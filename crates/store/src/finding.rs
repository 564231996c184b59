//! What a search finds: things of one tenant or of all, by an id, a key, a URL or a description.

use railpost_engine::LaneId;
use railpost_wire::{DeliveryId, EndpointId, EventId, EventType, Key, ReplayId, TenantId};

use crate::ReplayAction;

/// What a person looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindQuery {
    /// Of this tenant only.
    pub tenant: Option<TenantId>,
    /// The words: 1 to [`FIND_WORDS_LEN_MAX`](crate::limits::FIND_WORDS_LEN_MAX) bytes.
    pub words: String,
}

/// Something that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which field matched.
    pub why: MatchedField,
    /// What it is.
    pub item: FoundItem,
}

/// The field that the words matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchedField {
    /// Its id, or the beginning of it.
    Id,
    /// Its key, or the beginning of it.
    Key,
    /// A part of its URL.
    Url,
    /// A part of its description.
    Description,
    /// The `id` of the CloudEvent that it came as.
    CloudeventId,
}

/// What was found, with what a list shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundItem {
    /// An event.
    Event {
        /// Its id.
        id: EventId,
        /// Its type.
        event_type: EventType,
        /// Its key.
        key: Option<Key>,
    },
    /// A delivery.
    Delivery {
        /// Its id.
        id: DeliveryId,
        /// Its event.
        event: EventId,
        /// The event's type.
        event_type: EventType,
        /// Where it goes.
        endpoint: EndpointId,
    },
    /// An endpoint.
    Endpoint {
        /// Its id.
        id: EndpointId,
        /// Where its attempts go.
        url: String,
        /// What it is for.
        description: String,
    },
    /// A lane.
    Lane {
        /// Its number.
        lane: LaneId,
        /// Its endpoint.
        endpoint: EndpointId,
        /// Its key.
        key: Key,
    },
    /// A replay.
    Replay {
        /// Its id.
        id: ReplayId,
        /// What is done to each delivery.
        action: ReplayAction,
    },
    /// The tenant itself.
    Tenant,
}

impl FoundItem {
    /// The order of the kinds in an answer, and the id within the kind.
    pub(crate) fn place(&self) -> (u8, String) {
        match self {
            Self::Event { id, .. } => (0, id.to_string()),
            Self::Delivery { id, .. } => (1, id.to_string()),
            Self::Endpoint { id, .. } => (2, id.to_string()),
            Self::Lane { lane, endpoint, .. } => (3, format!("{endpoint} {:020}", lane.0)),
            Self::Replay { id, .. } => (4, id.to_string()),
            Self::Tenant => (5, String::new()),
        }
    }
}
