//! The receivers' side of the bargain: with an inbox, every event ends applied once, in order per key.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{Accepted, DeliveryState};
use railpost_receiver::Replays;
use railpost_wire::{DeliveryId, EndpointId, LineId, Seq};

use crate::fact::Fact;
use crate::model::{BrokenPromise, rule};
use crate::receiver::{AppliedEvent, Receiver, ReceiverNo};
use crate::store::{EventNo, LaneKey, Row, Store};

/// Who stands behind which endpoint.
pub(crate) struct Receivers<'a> {
    pub(crate) all: &'a BTreeMap<ReceiverNo, Receiver>,
    pub(crate) behind: &'a BTreeMap<EndpointId, ReceiverNo>,
}

#[derive(Default)]
pub(crate) struct Applied {
    /// What was accepted and not lost by the sender's own restore.
    accepted: BTreeMap<DeliveryId, Acceptance>,
    count: u64,
    /// What let its lane move on without having arrived: a person's or an owner's choice, after
    /// which its order is promised no more. It stays so, even if a restore forgets the choice.
    let_go: BTreeSet<DeliveryId>,
}

struct Acceptance {
    /// How many were accepted before it.
    order: u64,
    endpoint: EndpointId,
    lane: Option<LaneKey>,
}

impl Applied {
    /// Takes note of a fact; a restore has already taken place.
    pub(crate) fn note(&mut self, store: &Store, fact: &Fact) {
        match fact {
            Fact::Accepted(Accepted { id, endpoint, .. }, _, lane) => {
                self.count += 1;
                let (order, endpoint, lane) = (self.count, *endpoint, lane.clone());
                self.accepted.insert(*id, Acceptance { order, endpoint, lane });
            }
            Fact::Recorded(transition) if transition.state.is_skipped() => {
                self.let_go.insert(transition.delivery);
            }
            Fact::Restored => self.accepted.retain(|id, _| store.delivery(*id).is_some()),
            _ => {}
        }
    }

    pub(crate) fn judge(
        &self,
        store: &Store,
        receivers: &Receivers<'_>,
    ) -> Result<(), BrokenPromise> {
        let exists = |it: &Acceptance| store.endpoints().contains_key(&it.endpoint);
        let mut kept = self.accepted.iter().filter(|(_, it)| exists(it));
        rule(kept.all(|(id, _)| store.delivery(*id).is_some()), "no accepted event is lost")?;
        let mut rows = store.rows().values();
        rows.try_for_each(|row| self.judge_delivered(row, receivers))?;
        receivers.all.values().try_for_each(|receiver| self.judge_receiver(receiver))
    }

    /// What is acknowledged was applied: now, before, or by another endpoint with the same receiver.
    fn judge_delivered(&self, row: &Row, receivers: &Receivers<'_>) -> Result<(), BrokenPromise> {
        let delivery = &row.delivery;
        let receiver = &receivers.all[&receivers.behind[&delivery.endpoint]];
        let arrived = delivery.state == DeliveryState::Delivered;
        let let_go = self.let_go.contains(&delivery.id);
        let applied = receiver.has_applied(row.event);
        rule(!arrived || let_go || applied, "what is delivered was applied")
    }

    fn judge_receiver(&self, receiver: &Receiver) -> Result<(), BrokenPromise> {
        let effects = receiver.effects();
        let events: BTreeSet<EventNo> = effects.iter().map(|effect| effect.body.event).collect();
        rule(events.len() == effects.len(), "every event is applied once")?;
        let keeps_order = receiver.policy().replays == Replays::KeepOrder;
        let in_order = effects.iter().filter(|effect| keeps_order || !effect.replay);
        rule(lines_ascend(in_order), "a line is applied in the order of its numbers")?;
        let first = &receiver.history;
        rule(self.lanes_ascend(first), "events are applied in order per key")
    }

    /// Whether what was applied for the first time is in the order in which it was accepted, for each
    /// endpoint and key, across lines.
    fn lanes_ascend(&self, history: &[AppliedEvent]) -> bool {
        let mut lanes: BTreeMap<(EndpointId, &LaneKey), Vec<u64>> = BTreeMap::new();
        for AppliedEvent { body, .. } in history {
            let kept = self.accepted.get(&body.delivery);
            let kept = kept.filter(|_| !self.let_go.contains(&body.delivery));
            let Some(Acceptance { order, endpoint, lane: Some(lane) }) = kept else { continue };
            lanes.entry((*endpoint, lane)).or_default().push(*order);
        }
        lanes.values().all(|lane| lane.is_sorted())
    }
}

fn lines_ascend<'a>(effects: impl Iterator<Item = &'a AppliedEvent>) -> bool {
    let mut lines: BTreeMap<&LineId, Vec<Seq>> = BTreeMap::new();
    for (line, seq) in effects.filter_map(|effect| effect.place.as_ref()) {
        lines.entry(line).or_default().push(*seq);
    }
    lines.values().all(|seqs| seqs.is_sorted_by(|one, next| one < next))
}
