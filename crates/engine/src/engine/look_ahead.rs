//! Looks ahead, so that payloads can be read early: an attempt whose payload is there when it starts holds
//! its place for the request alone.

use railpost_wire::{DeliveryId, EndpointId};

use super::Engine;
use crate::AttemptToken;

impl Engine {
    /// What is ready to start at an endpoint, in the order in which its gates will let it: the next
    /// thousand and more exactly, who comes after them about so. Nothing of it is certain: it may leave
    /// memory before its turn.
    pub fn ready(&self, endpoint: EndpointId) -> impl Iterator<Item = DeliveryId> {
        let key = self.endpoint_keys.get(&endpoint);
        let ready = key.into_iter().flat_map(|key| self.endpoints[*key].ready.keys());
        ready.filter_map(|key| Some(self.deliveries.get(key)?.id))
    }

    /// What stands behind an attempt's delivery in its lane, as far as it is in memory.
    pub fn behind(&self, attempt: AttemptToken) -> impl Iterator<Item = DeliveryId> {
        let first = self.deliveries.get(attempt.delivery).and_then(|tracked| tracked.next);
        let keys = std::iter::successors(first, |key| self.deliveries[*key].next);
        keys.map(|key| self.deliveries[key].id)
    }
}
