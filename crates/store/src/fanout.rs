//! Which endpoints of a tenant want an event.

use railpost_engine::Ordering;
use railpost_wire::{EndpointId, EventType, EventTypeFilter};

use crate::EndpointSettings;

/// An endpoint as far as accepting events needs to know it.
#[derive(Clone, Debug)]
pub(crate) struct Subscriber {
    /// The backend's own number for it.
    pub(crate) num: i64,
    pub(crate) id: EndpointId,
    pub(crate) ordering: Ordering,
    filters: Vec<EventTypeFilter>,
}

impl Subscriber {
    pub(crate) fn new(num: i64, id: EndpointId, settings: &EndpointSettings) -> Self {
        Self { num, id, ordering: settings.policy.ordering, filters: settings.filters.clone() }
    }

    pub(crate) fn wants(&self, event_type: &EventType) -> bool {
        self.filters.iter().any(|filter| filter.matches(event_type))
    }
}
