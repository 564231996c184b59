//! Looks ahead, so that payloads can be read early: an attempt whose payload is there when it starts holds
//! its place for the request alone.

use railpost_wire::{DeliveryId, EndpointId};

use super::Engine;
use crate::{AttemptToken, DeliveryState, Transition};

impl Engine {
    /// What is ready to start at an endpoint, in the order in which its gates will let it: the next
    /// thousand and more exactly, who comes after them about so. Nothing of it is certain: it may leave
    /// memory before its turn.
    pub fn ready(&self, endpoint: EndpointId) -> impl Iterator<Item = DeliveryId> {
        let key = self.endpoint_keys.get(&endpoint);
        let ready = key.into_iter().flat_map(|key| self.endpoints[*key].ready.keys());
        ready.filter_map(|key| Some(self.deliveries.get(key)?.id))
    }

    /// Whether the delivery of a transition is dead, or will be if its next attempt fails.
    pub fn is_near_death(&self, transition: &Transition) -> bool {
        let until = match transition.state {
            DeliveryState::Dead { .. } => return true,
            DeliveryState::Waiting { until } => until,
            _ => return false,
        };
        let key = self.endpoint_keys.get(&transition.endpoint);
        let policy = key.map(|key| &self.endpoints[*key].policy);
        policy
            .is_some_and(|policy| policy.retry.ends_with_next_failure(&transition.progress, until))
    }

    /// What stands behind an attempt's delivery in its lane, as far as it is in memory.
    pub fn behind(&self, attempt: AttemptToken) -> impl Iterator<Item = DeliveryId> {
        let first = self.deliveries.get(attempt.delivery).and_then(|tracked| tracked.next);
        let keys = std::iter::successors(first, |key| self.deliveries[*key].next);
        keys.map(|key| self.deliveries[key].id)
    }
}
