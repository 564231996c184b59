//! The people who look after it all: they replay, skip and discard, and switch endpoints on again.

use railpost_engine::{Command, Delivery, DeliveryState, EndpointStatus, Input};
use railpost_wire::{DeliveryId, EndpointId};

use super::{SimEvent, World};
use crate::limits::ROUND;
use crate::model::BrokenPromise;
use crate::planted_defect::PlantedDefect;
use crate::scenario::Disturbance;
use crate::store::Row;

const COMMANDS: [Command; 3] = [Command::Replay, Command::Skip, Command::Discard];

impl World {
    /// During the faults: a few commands, not all of them sensible.
    pub(super) fn operate(&mut self) -> Result<(), BrokenPromise> {
        if self.calm {
            return self.make_round();
        }
        for id in self.switched_off() {
            if self.rng.percent(50) {
                self.resume(id)?;
            }
        }
        for id in self.ids(|row| is_dead(&row.delivery)) {
            if self.rng.percent(60) {
                self.decide(id);
            }
        }
        self.meddle();
        if self.plant == PlantedDefect::ReplayUntold { self.replay_untold() } else { Ok(()) }
    }

    /// A command about any delivery whatsoever.
    fn meddle(&mut self) {
        let all = self.ids(|_| true);
        if !all.is_empty() {
            let id = self.rng.pick(&all);
            self.decide(id);
        }
    }

    /// A person looks at a delivery, thinks for a moment, and says what is to be done.
    fn decide(&mut self, id: DeliveryId) {
        let (command, delivery) = (self.rng.pick(&COMMANDS), self.store.rows()[&id].delivery);
        let delay = self.rng.millis(0..=1_000);
        self.plan_in(delay, SimEvent::Told(command, delivery));
    }

    /// The engine hears of commands that no person gave.
    fn replay_untold(&mut self) -> Result<(), BrokenPromise> {
        for id in self.ids(|row| is_dead(&row.delivery)) {
            let (command, delivery) = (Command::Replay, self.store.rows()[&id].delivery);
            self.feed(Input::Command { command, delivery })?;
        }
        Ok(())
    }

    /// After the faults: everything is switched on again, and every held lane is decided about.
    pub(super) fn make_round(&mut self) -> Result<(), BrokenPromise> {
        for id in self.switched_off() {
            self.resume(id)?;
        }
        if !self.scenario.lanes_left_held {
            for id in self.ids(|row| is_held(&row.delivery)) {
                self.decide(id);
            }
        }
        self.plan_in(ROUND, SimEvent::Disturbed(Box::new(Disturbance::Operate)));
        Ok(())
    }

    /// Whether nothing is left to be done.
    pub(super) fn is_settled(&self) -> bool {
        let busy = !self.under_way.is_empty() || !self.store.is_durable() || self.process.is_none();
        self.calm && !busy && self.store.rows().values().all(|row| self.is_done(row))
    }

    fn is_done(&self, row: &Row) -> bool {
        let Delivery { endpoint, place, state, .. } = row.delivery;
        let mut open = self.store.open(endpoint, place.map(|place| place.lane));
        let behind_dead_letter = place.is_some() && open.next().is_some_and(is_held);
        !state.is_open() || (self.scenario.lanes_left_held && behind_dead_letter)
    }

    fn switched_off(&self) -> Vec<EndpointId> {
        let all = self.store.endpoints().values();
        let off = all.filter(|endpoint| endpoint.status != EndpointStatus::Active);
        off.map(|endpoint| endpoint.id).collect()
    }

    fn ids(&self, wanted: impl Fn(&Row) -> bool) -> Vec<DeliveryId> {
        self.store.rows().values().filter(|row| wanted(row)).map(|row| row.delivery.id).collect()
    }
}

fn is_dead(delivery: &Delivery) -> bool {
    matches!(delivery.state, DeliveryState::Dead { .. })
}

fn is_held(delivery: &Delivery) -> bool {
    matches!(delivery.state, DeliveryState::Dead { holds: true, .. })
}
