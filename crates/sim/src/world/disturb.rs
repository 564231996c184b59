//! What the scenario does to the world, and how it stops.

use railpost_engine::{Accepted, Endpoint, EndpointStatus, Input, Policy, Span, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use super::outage::ProcessEnd;
use super::{SimEvent, World};
use crate::fact::Fact;
use crate::limits::CHANGE_UNREAD_MAX;
use crate::model::BrokenPromise;
use crate::network::FaultRates;
use crate::planted_defect::PlantedDefect;
use crate::receiver::{Receiver, ReceiverNo, ReceiverPlan};
use crate::scenario::{ClockOf, Disturbance};
use crate::store::{Event, EventNo};

impl World {
    pub(super) fn disturb(&mut self, disturbance: Disturbance) -> Result<(), BrokenPromise> {
        match disturbance {
            Disturbance::Limit(tenant, rate_limit) => {
                self.store.put_tenant(tenant.clone(), rate_limit);
                self.note(&Fact::Limited(tenant.clone(), rate_limit))?;
                self.feed(Input::TenantChanged { tenant, rate_limit })
            }
            Disturbance::Create(endpoint, receiver, plan) => self.create(endpoint, receiver, plan),
            Disturbance::Change(id, policy) => self.change(id, policy),
            Disturbance::Pause(id) => self.pause(id),
            Disturbance::Resume(id) => self.resume(id),
            Disturbance::HandOver(id, span) => self.hand_over(id, span),
            Disturbance::Vanish(id) => self.vanish(id),
            Disturbance::Publish(tenant, count) => {
                (0..count).try_for_each(|_| self.publish(&tenant))
            }
            Disturbance::Redeliver(tenant) => self.redeliver(&tenant),
            Disturbance::Operate => self.operate(),
            // What was planned to follow something else may be late.
            _ if self.calm => Ok(()),
            Disturbance::Restore(down_for) => self.restore(down_for),
            trouble => {
                self.trouble(&trouble);
                Ok(())
            }
        }
    }

    /// What happens beside the engine.
    fn trouble(&mut self, disturbance: &Disturbance) {
        match *disturbance {
            Disturbance::Behave(number, behaviour) => {
                if let Some(receiver) = self.receivers.get_mut(&number) {
                    receiver.behaviour = behaviour;
                    self.remark(behaviour.name(), format_args!("receiver {number}"));
                }
            }
            Disturbance::CrashReceiver(number, point, down_for) => {
                if let Some(receiver) = self.receivers.get_mut(&number) {
                    receiver.crash = Some((point, down_for));
                }
            }
            Disturbance::CopyReceiver(number) => {
                if let Some(receiver) = self.receivers.get_mut(&number) {
                    receiver.back_up();
                    self.remark("world: receiver copied", number);
                }
            }
            Disturbance::RestoreReceiver(number) => {
                if let Some(receiver) = self.receivers.get_mut(&number) {
                    let name = receiver.restore();
                    self.remark(name, number);
                }
            }
            Disturbance::SetClock(whose, millis, drift) => self.set_clock(whose, millis, drift),
            Disturbance::PruneLanes(idle_for) => {
                let empty_since = self.now.as_millis() - idle_for.as_millis();
                let count = self.store.prune_lanes(Timestamp::from_millis(empty_since));
                (0..count).for_each(|_| self.tally.count("world: lane pruned"));
            }
            Disturbance::Copy => self.copy_store(),
            Disturbance::Crash(down_for) => self.end_soon(ProcessEnd::Crash(down_for)),
            Disturbance::Stop(down_for) => self.end_soon(ProcessEnd::Stop(down_for)),
            _ => unreachable!("it concerns the engine"),
        }
    }

    fn create(
        &mut self,
        endpoint: Endpoint,
        receiver: ReceiverNo,
        plan: ReceiverPlan,
    ) -> Result<(), BrokenPromise> {
        let (id, plant) = (endpoint.id, self.plant);
        self.receivers.entry(receiver).or_insert_with(|| Receiver::new(plan, plant));
        self.behind.insert(id, receiver);
        self.store.put_endpoint(endpoint);
        self.serve(id)
    }

    fn set_clock(&mut self, whose: ClockOf, millis: i64, drift: i64) {
        let name = if millis < 0 { "fault: clock set back" } else { "fault: clock set ahead" };
        self.remark(name, format_args!("by {millis} ms, of {whose:?}"));
        match whose {
            ClockOf::Node => {
                self.read_clock();
                self.wall.step(self.now, millis, drift);
                self.wall_set_at = self.now;
            }
            ClockOf::Receiver(number) => {
                if let Some(receiver) = self.receivers.get_mut(&number) {
                    receiver.clock.step(self.now, millis, drift);
                }
            }
        }
    }

    fn change(&mut self, id: EndpointId, policy: Policy) -> Result<(), BrokenPromise> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        self.store.put_endpoint(Endpoint { policy, ..endpoint });
        self.announce_change(id)
    }

    fn pause(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        self.store.put_endpoint(Endpoint { status: EndpointStatus::Paused, ..endpoint });
        self.announce_change(id)
    }

    /// An endpoint was changed. The process reads it, or fails to and tries again later.
    fn announce_change(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        if self.calm || !self.rng.percent(40) {
            return self.read_change(id);
        }
        self.tally.count("fault: change unread");
        let delay = self.rng.millis(1..=CHANGE_UNREAD_MAX.as_millis());
        self.plan_in(delay, SimEvent::ChangeRead(id));
        Ok(())
    }

    /// The process reads an endpoint that was changed, and tells the engine.
    pub(super) fn read_change(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let (Some(stored), Some(served)) =
            (self.store.endpoints().get(&id).cloned(), self.served.get(&id).cloned())
        else {
            return Ok(());
        };
        if served.policy != stored.policy {
            self.read_policy(served, stored.policy)?;
        }
        match stored.status {
            EndpointStatus::Paused => self.read_pause(id),
            _ => Ok(()),
        }
    }

    fn read_policy(&mut self, old: Endpoint, policy: Policy) -> Result<(), BrokenPromise> {
        let id = old.id;
        self.served.entry(id).and_modify(|served| served.policy = policy.clone());
        self.note(&Fact::Changed(old, policy.clone()))?;
        let policy = self.plant.policy(policy);
        self.feed(Input::EndpointChanged { endpoint: id, policy, rotation: None })
    }

    fn read_pause(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let status = EndpointStatus::Paused;
        self.served.entry(id).and_modify(|served| served.status = status);
        self.note(&Fact::Paused(id))?;
        if self.plant == PlantedDefect::IgnorePause {
            return Ok(());
        }
        self.feed(Input::EndpointPaused(id))
    }

    pub(super) fn resume(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        let status = EndpointStatus::Active;
        self.store.put_endpoint(Endpoint { status, failing_since: None, ..endpoint });
        self.served
            .entry(id)
            .and_modify(|served| (served.status, served.failing_since) = (status, None));
        self.note(&Fact::Resumed(id))?;
        self.feed(Input::EndpointResumed(id))
    }

    fn hand_over(&mut self, id: EndpointId, span: Span) -> Result<(), BrokenPromise> {
        if !self.store.endpoints().contains_key(&id) || !self.away.insert(id) {
            return Ok(());
        }
        self.tally.count("fault: handed over");
        self.leave(id)?;
        self.plan_in(span, SimEvent::Returned(id));
        Ok(())
    }

    pub(super) fn take_back(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        self.away.remove(&id);
        self.serve(id)
    }

    fn vanish(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        if self.store.endpoints().contains_key(&id) {
            self.store.remove_endpoint(id);
            self.tally.count("fault: vanished");
            self.leave(id)?;
        }
        Ok(())
    }

    /// The engine gives an endpoint up; what is under way there goes on.
    fn leave(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let there = self.under_way.values_mut().filter(|flight| flight.attempt.endpoint == id);
        there.for_each(|flight| flight.orphaned = true);
        self.doubt(|endpoint| endpoint == id);
        self.served.remove(&id);
        self.note(&Fact::Left(id))?;
        self.feed(Input::EndpointRemoved(id))
    }

    fn publish(&mut self, tenant: &TenantId) -> Result<(), BrokenPromise> {
        self.events += 1;
        let number = self.rng.number(1..=self.scenario.keys);
        let key = self.rng.percent(75).then(|| format!("key-{number}"));
        let (number, event) = (self.events, Event { tenant: tenant.clone(), key });
        self.tally.count("total: events");
        let key = &event.key;
        self.trace.line(self.now, format_args!("{tenant} publishes event {number}, {key:?}"));
        let answered = self.calm || !self.rng.percent(5);
        if !answered {
            self.tally.count("fault: commit answer lost");
            let delay = self.rng.secs(1..=120);
            self.plan_in(delay, SimEvent::PublishedAgain(number, event.clone()));
        }
        self.accept_event(number, event, answered)
    }

    /// A producer that got no answer tries again: a duplicate, unless the store lost the first one.
    pub(super) fn publish_again(
        &mut self,
        number: EventNo,
        event: Event,
    ) -> Result<(), BrokenPromise> {
        let known = self.store.events().contains_key(&number);
        let name = if known { "world: published twice" } else { "world: published late" };
        self.remark(name, format_args!("event {number}"));
        if known { Ok(()) } else { self.accept_event(number, event, true) }
    }

    /// Commits an event with its deliveries. If its answer is lost, the engine is not told.
    fn accept_event(
        &mut self,
        number: EventNo,
        event: Event,
        answered: bool,
    ) -> Result<(), BrokenPromise> {
        let theirs = self.endpoints_of(&event.tenant);
        self.store.add_event(number, event);
        for endpoint in theirs {
            let accepted = self.accept(endpoint, number, false)?;
            if answered {
                self.hint(accepted);
            } else {
                self.news_takes(self.sweep_takes());
            }
        }
        Ok(())
    }

    /// An old event goes to one of its tenant's endpoints again, at the end of its lane.
    fn redeliver(&mut self, tenant: &TenantId) -> Result<(), BrokenPromise> {
        let theirs = self.endpoints_of(tenant);
        let events = self.store.events().iter().filter(|(_, event)| event.tenant == *tenant);
        let events: Vec<EventNo> = events.map(|(number, _)| *number).collect();
        if theirs.is_empty() || events.is_empty() {
            return Ok(());
        }
        let (endpoint, event) = (self.rng.pick(&theirs), self.rng.pick(&events));
        let accepted = self.accept(endpoint, event, true)?;
        self.tally.count("command: Redeliver");
        self.hint(Accepted { replay: self.plant != PlantedDefect::RedeliverUnmarked, ..accepted });
        Ok(())
    }

    fn endpoints_of(&self, tenant: &TenantId) -> Vec<EndpointId> {
        let all = self.store.endpoints().values();
        all.filter(|it| it.tenant == *tenant).map(|it| it.id).collect()
    }

    fn accept(
        &mut self,
        endpoint: EndpointId,
        event: EventNo,
        replay: bool,
    ) -> Result<Accepted, BrokenPromise> {
        let (id, lane) = (self.delivery_id(), self.store.lane_key(endpoint, event));
        let accepted = self.store.accept(id, endpoint, event, replay, self.now);
        self.note(&Fact::Accepted(accepted, event, lane))?;
        Ok(accepted)
    }

    /// Ids sort by when they were made, and that is not quite the order in which they are committed.
    fn delivery_id(&mut self) -> DeliveryId {
        self.deliveries += 1;
        let wall = self.wall.at(self.now).as_millis();
        let made = wall - self.rng.millis(0..=2_000).as_millis();
        DeliveryId::from_u128(u128::from(made) << 80 | u128::from(self.deliveries))
    }

    /// Tells the engine of an accepted delivery: late, twice or never.
    fn hint(&mut self, accepted: Accepted) {
        if self.plant.loses(accepted.id) {
            return;
        }
        let (lost, late, twice) = if self.calm { (0, 0, 0) } else { (5, 10, 10) };
        if self.rng.percent(lost) {
            self.tally.count("fault: hint lost");
            return self.news_takes(self.sweep_takes());
        }
        if self.rng.percent(twice) {
            self.tally.count("fault: hint twice");
            let delay = self.rng.secs(0..=60);
            self.plan_in(delay, SimEvent::Hinted(accepted, self.now));
        }
        let mut delay = self.rng.millis(0..=10);
        if self.rng.percent(late) {
            self.tally.count("fault: hint late");
            delay = self.rng.secs(1..=60);
        }
        self.news_takes(delay);
        self.plan_in(delay, SimEvent::Hinted(accepted, self.now));
    }

    /// A hint reaches the engine. One of these it cannot tell from a new one: made before the endpoint
    /// appeared, under an id of a clock that was ahead of the engine's. Taken at its word, it would cost a
    /// duplicate; it is dropped here and counted, because no promise is to be broken by a known limit.
    pub(super) fn hear(
        &mut self,
        accepted: Accepted,
        made_at: Timestamp,
    ) -> Result<(), BrokenPromise> {
        let seems_new = |(since, engine_time): &(Timestamp, Timestamp)| {
            made_at < *since && accepted.id.unix_ms() >= engine_time.as_millis()
        };
        if self.appeared.get(&accepted.endpoint).is_some_and(seems_new) {
            self.tally.count("clock: old hint seems new");
            return Ok(());
        }
        self.feed(Input::Accepted(vec![accepted]))
    }

    /// The faults stop: what is up stays up, and receivers take everything that can be digested.
    pub(super) fn calm_down(&mut self) -> Result<(), BrokenPromise> {
        (self.calm, self.fuse) = (true, None);
        self.odds = FaultRates::default();
        self.read_clock();
        self.wall.correct();
        self.wall_set_at = self.now;
        self.receivers.values_mut().for_each(Receiver::calm_down);
        self.trace.line(self.now, "the faults stop");
        self.make_round()
    }
}
