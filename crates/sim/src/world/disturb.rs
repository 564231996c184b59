//! What the scenario does to the world, and how it stops.

use railpost_engine::{Accepted, Endpoint, EndpointStatus, Input, Policy, Span};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use super::{Happening, World};
use crate::fact::Fact;
use crate::model::Broken;
use crate::network::Odds;
use crate::plant::Plant;
use crate::receiver::{Behaviour, Receiver};
use crate::scenario::Disturbance;
use crate::trace::Shown;

impl World {
    pub(super) fn disturb(&mut self, disturbance: Disturbance) -> Result<(), Broken> {
        match disturbance {
            Disturbance::Limit(tenant, rate_limit) => {
                self.store.put_tenant(tenant.clone(), rate_limit);
                self.note(&Fact::Limited(tenant.clone(), rate_limit))?;
                self.feed(Input::TenantChanged { tenant, rate_limit })
            }
            Disturbance::Create(endpoint, poison) => {
                let id = endpoint.id;
                self.receivers.insert(id, Receiver::new(Behaviour::Up, poison));
                self.store.put_endpoint(endpoint);
                self.serve(id)
            }
            Disturbance::Change(id, policy) => self.change(id, policy),
            Disturbance::Pause(id) => self.pause(id),
            Disturbance::Resume(id) => self.resume(id),
            Disturbance::HandOver(id, span) => self.hand_over(id, span),
            Disturbance::Vanish(id) => self.vanish(id),
            Disturbance::Behave(id, behaviour) => {
                self.behave(id, behaviour);
                Ok(())
            }
            Disturbance::Publish(tenant, count) => {
                (0..count).try_for_each(|_| self.publish(&tenant))
            }
            Disturbance::Operate => self.operate(),
            Disturbance::Crash(down_for) => {
                // Not between two inputs, but in the middle of what one of them led to.
                self.fuse = Some((self.dice.number(0..=5), down_for));
                Ok(())
            }
        }
    }

    fn change(&mut self, id: EndpointId, policy: Policy) -> Result<(), Broken> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        self.note(&Fact::Changed(endpoint.clone(), policy.clone()))?;
        self.store.put_endpoint(Endpoint { policy: policy.clone(), ..endpoint });
        let policy = self.plant.policy(policy);
        self.feed(Input::EndpointChanged { endpoint: id, policy })
    }

    fn pause(&mut self, id: EndpointId) -> Result<(), Broken> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        self.store.put_endpoint(Endpoint { status: EndpointStatus::Paused, ..endpoint });
        self.note(&Fact::Paused(id))?;
        if self.plant == Plant::IgnorePause {
            return Ok(());
        }
        self.feed(Input::EndpointPaused(id))
    }

    pub(super) fn resume(&mut self, id: EndpointId) -> Result<(), Broken> {
        let Some(endpoint) = self.store.endpoints().get(&id).cloned() else { return Ok(()) };
        let status = EndpointStatus::Active;
        self.store.put_endpoint(Endpoint { status, failing_since: None, ..endpoint });
        self.note(&Fact::Resumed(id))?;
        self.feed(Input::EndpointResumed(id))
    }

    fn hand_over(&mut self, id: EndpointId, span: Span) -> Result<(), Broken> {
        if !self.store.endpoints().contains_key(&id) || !self.away.insert(id) {
            return Ok(());
        }
        self.tally.count("fault: handed over");
        self.leave(id)?;
        self.plan_in(span, Happening::Returned(id));
        Ok(())
    }

    pub(super) fn take_back(&mut self, id: EndpointId) -> Result<(), Broken> {
        self.away.remove(&id);
        self.serve(id)
    }

    fn vanish(&mut self, id: EndpointId) -> Result<(), Broken> {
        if self.store.endpoints().contains_key(&id) {
            self.store.remove_endpoint(id);
            self.tally.count("fault: vanished");
            self.leave(id)?;
        }
        Ok(())
    }

    /// The engine gives an endpoint up; what is under way there goes on.
    fn leave(&mut self, id: EndpointId) -> Result<(), Broken> {
        let there = self.under_way.values_mut().filter(|flight| flight.attempt.endpoint == id);
        there.for_each(|flight| flight.orphaned = true);
        self.note(&Fact::Left(id))?;
        self.feed(Input::EndpointRemoved(id))
    }

    fn behave(&mut self, id: EndpointId, behaviour: Behaviour) {
        let Some(receiver) = self.receivers.get_mut(&id).filter(|_| !self.calm) else { return };
        receiver.behaviour = behaviour;
        self.remark(behaviour.name(), Shown(&id));
    }

    fn publish(&mut self, tenant: &TenantId) -> Result<(), Broken> {
        self.events += 1;
        let number = self.dice.number(1..=self.scenario.keys);
        let key = self.dice.percent(75).then(|| format!("key-{number}"));
        let (event, all) = (self.events, self.store.endpoints().values());
        let theirs: Vec<_> = all.filter(|it| it.tenant == *tenant).map(|it| it.id).collect();
        self.tally.count("total: events");
        self.trace.line(self.now, format_args!("{tenant} publishes event {event}, {key:?}"));
        theirs.into_iter().try_for_each(|endpoint| self.accept(endpoint, key.as_deref()))
    }

    fn accept(&mut self, endpoint: EndpointId, key: Option<&str>) -> Result<(), Broken> {
        let id = self.delivery_id();
        let accepted = self.store.accept(id, endpoint, key, self.events);
        self.note(&Fact::Accepted(accepted))?;
        self.hint(accepted);
        Ok(())
    }

    /// Ids sort by when they were made, and that is not quite the order in which they are committed.
    fn delivery_id(&mut self) -> DeliveryId {
        self.deliveries += 1;
        let made = self.now.as_millis() - self.dice.millis(0..=2_000).as_millis();
        DeliveryId::from_u128(u128::from(made) << 80 | u128::from(self.deliveries))
    }

    /// Tells the engine of an accepted delivery: late, twice or never.
    fn hint(&mut self, accepted: Accepted) {
        if self.plant.loses(accepted.id) {
            return;
        }
        let (lost, late, twice) = if self.calm { (0, 0, 0) } else { (5, 10, 10) };
        if self.dice.percent(lost) {
            self.tally.count("fault: hint lost");
            let sweep = self.scenario.config.sweep_every.expect("hints get lost here");
            return self.news_takes(sweep.times(2));
        }
        if self.dice.percent(twice) {
            self.tally.count("fault: hint twice");
            let delay = self.dice.secs(0..=60);
            self.plan_in(delay, Happening::Hinted(accepted));
        }
        let mut delay = self.dice.millis(0..=10);
        if self.dice.percent(late) {
            self.tally.count("fault: hint late");
            delay = self.dice.secs(1..=60);
        }
        self.news_takes(delay);
        self.plan_in(delay, Happening::Hinted(accepted));
    }

    /// The faults stop: what is up stays up, and receivers take everything that can be digested.
    pub(super) fn calm_down(&mut self) -> Result<(), Broken> {
        (self.calm, self.fuse) = (true, None);
        self.odds = Odds::default();
        for receiver in self.receivers.values_mut() {
            receiver.behaviour = Behaviour::Up;
        }
        self.trace.line(self.now, "the faults stop");
        self.make_round()
    }
}
