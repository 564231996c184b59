//! The receivers' side of the bargain: a receiver that deduplicates by event id ends with every
//! event applied once, in order per key.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{DeliveryState, LaneId};
use railpost_wire::{DeliveryId, EndpointId, Seq};

use crate::fact::Fact;
use crate::model::{Broken, rule};
use crate::receiver::Receiver;
use crate::store::{EventNo, Row, Store};

#[derive(Default)]
pub(crate) struct Applied {
    accepted: BTreeMap<DeliveryId, EndpointId>,
    /// What let its lane move on without having arrived: a person's or an owner's choice, after
    /// which its order is promised no more.
    let_go: BTreeSet<DeliveryId>,
}

impl Applied {
    pub(crate) fn note(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted(accepted) => drop(self.accepted.insert(accepted.id, accepted.endpoint)),
            Fact::Recorded(transition) => match transition.state {
                DeliveryState::Discarded | DeliveryState::Dead { holds: false, .. } => {
                    self.let_go.insert(transition.delivery);
                }
                _ => {}
            },
            _ => {}
        }
    }

    pub(crate) fn judge(
        &self,
        store: &Store,
        receivers: &BTreeMap<EndpointId, Receiver>,
    ) -> Result<(), Broken> {
        let mut kept = self.accepted.iter().filter(|(_, id)| store.endpoints().contains_key(id));
        rule(kept.all(|(id, _)| store.delivery(*id).is_some()), "no accepted event is lost")?;
        let mut ids = store.endpoints().keys();
        ids.try_for_each(|id| self.judge_receiver(store, *id, &receivers[id].applied))
    }

    fn judge_receiver(
        &self,
        store: &Store,
        id: EndpointId,
        applied: &[EventNo],
    ) -> Result<(), Broken> {
        let positions: BTreeMap<EventNo, usize> = applied.iter().copied().zip(0..).collect();
        rule(positions.len() == applied.len(), "every event is applied once")?;
        let mut lanes: BTreeMap<LaneId, BTreeMap<Seq, usize>> = BTreeMap::new();
        for Row { delivery, event } in store.rows().values() {
            if delivery.endpoint != id || delivery.state != DeliveryState::Delivered {
                continue;
            }
            let position = *positions.get(event).ok_or("what is delivered was applied")?;
            if let Some(place) = delivery.place.filter(|_| !self.let_go.contains(&delivery.id)) {
                lanes.entry(place.lane).or_default().insert(place.seq, position);
            }
        }
        let in_order = lanes.values().all(|lane| lane.values().is_sorted());
        rule(in_order, "events are applied in order per key")
    }
}
