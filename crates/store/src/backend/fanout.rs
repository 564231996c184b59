//! Which endpoints of a tenant want an event.

use railpost_engine::{LaneChoice, Ordering};
use railpost_wire::{EndpointId, EventType, EventTypeFilter, Key};

use crate::{EndpointSettings, is_reserved_type};

/// The type of test events. No filter wants it or what lies below it, such as
/// `railpost.test.order`: a test event goes where [`Intake::redeliver`](crate::Intake::redeliver) is
/// told to send it, and nowhere else.
pub const TEST_EVENT_TYPE: &str = "railpost.test";

/// Whether events of this type are test events.
pub fn is_test_type(event_type: &EventType) -> bool {
    let below = event_type.as_str().strip_prefix(TEST_EVENT_TYPE);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether an endpoint with these filters gets events of this type. A notice goes to endpoints that name notices:
/// `*` is for the producers' events.
pub fn wants(filters: &[EventTypeFilter], event_type: &EventType) -> bool {
    if is_test_type(event_type) {
        return false;
    }
    let is_reserved = is_reserved_type(event_type);
    let names =
        |filter: &&EventTypeFilter| !is_reserved || filter.as_str().starts_with("railpost.");
    filters.iter().filter(names).any(|filter| filter.matches(event_type))
}

/// An endpoint as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// The backend's own number for it.
    pub num: i64,
    /// Its id.
    pub id: EndpointId,
    ordering: Ordering,
    filters: Vec<EventTypeFilter>,
}

impl Subscriber {
    /// The endpoint with these settings.
    pub fn new(num: i64, id: EndpointId, settings: &EndpointSettings) -> Self {
        Self { num, id, ordering: settings.policy.ordering, filters: settings.filters.clone() }
    }

    /// The lane of an event with this key: none, the endpoint's one lane for everything (which has no
    /// key), or the key's.
    pub fn lane_for<'k>(&self, key: Option<&'k Key>) -> Option<Option<&'k Key>> {
        match self.ordering.lane_for(key.map(Key::as_str)) {
            LaneChoice::NoLane => None,
            LaneChoice::OfKey(_) => Some(key),
            LaneChoice::OfEndpoint => Some(None),
        }
    }

    /// Whether events of this type are delivered to it.
    pub fn wants(&self, event_type: &EventType) -> bool {
        wants(&self.filters, event_type)
    }
}
