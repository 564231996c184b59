//! Attempts: who may start, and what follows when one ends.

use railpost_wire::EndpointId;

use super::schedule::Turn;
use super::served::{Ended, Gate, Verdict};
use super::{Alarm, DeliveryKey, EndpointKey, Engine, Flight, Held, Phase, Served, TenantKey};
use crate::retry::Retry;
use crate::{
    Attempt, AttemptResult, AttemptToken, Because, DeadReason, DeliveryState, Effect, Guarantee,
    NoticeKind, Outcome, Place, Span, Timestamp, Transition, classify,
};

/// An attempt under way whose endpoint was removed: it still takes a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) endpoint: EndpointId,
    tenant: TenantKey,
}

impl Engine {
    /// Starts attempts until nothing is ready or no gate is open.
    pub(super) fn start_what_may(&mut self) {
        loop {
            match self.schedule.next(self.now) {
                Turn::Endpoint(key) => self.take_turn(key),
                Turn::TenantLimited(key, at) => self.timers.set(at, Alarm::Tenant(key)),
                Turn::Nobody => return,
            }
        }
    }

    /// An endpoint's turn has come: it starts one attempt, if its gates are open.
    fn take_turn(&mut self, key: EndpointKey) {
        let Some(served) = self.endpoints.get_mut(key) else { return };
        served.queued = false;
        if served.ready.first(&self.deliveries).is_none() {
            return;
        }
        match served.gate(self.now) {
            Gate::Open { probe } => self.start_first_ready(key, probe),
            Gate::ShutUntil(at) => self.wake_endpoint(key, at),
            Gate::Shut => {}
        }
    }

    fn wake_endpoint(&mut self, key: EndpointKey, at: Timestamp) {
        let served = &mut self.endpoints[key];
        if served.wake_at.is_none_or(|earlier| at < earlier) {
            served.wake_at = Some(at);
            self.timers.set(at, Alarm::Endpoint(key));
        }
    }

    pub(super) fn gates_may_open(&mut self, key: EndpointKey) {
        if let Some(served) = self.endpoints.get_mut(key) {
            served.wake_at = None;
            self.enqueue_endpoint(key);
        }
    }

    /// Puts an endpoint in line if it has something to start.
    pub(super) fn enqueue_endpoint(&mut self, key: EndpointKey) {
        let served = &mut self.endpoints[key];
        if !served.queued && !served.ready.is_empty() {
            served.queued = true;
            self.schedule.enqueue(served.tenant, key);
        }
    }

    /// A delivery is at the head of its lane, or has none: it starts as soon as it may.
    pub(super) fn its_turn(&mut self, key: DeliveryKey) {
        match self.deliveries[key].phase {
            Phase::Pending => self.make_ready(key),
            Phase::Waiting { until } if until <= self.now => self.make_ready(key),
            Phase::Waiting { until } => self.timers.set(until, Alarm::Delivery(key)),
            Phase::InFlight(_) | Phase::Dead(_) => {}
        }
    }

    pub(super) fn delivery_due(&mut self, key: DeliveryKey) {
        if let Some(held) = self.deliveries.get(key)
            && matches!(held.phase, Phase::Waiting { until } if until <= self.now)
        {
            self.make_ready(key);
        }
    }

    fn make_ready(&mut self, key: DeliveryKey) {
        let held = &mut self.deliveries[key];
        if !held.queued {
            held.queued = true;
            let endpoint = held.endpoint;
            self.endpoints[endpoint].ready.push(key);
            self.enqueue_endpoint(endpoint);
        }
    }

    fn start_first_ready(&mut self, endpoint: EndpointKey, probe: bool) {
        let served = &mut self.endpoints[endpoint];
        let key = served.ready.pop(&self.deliveries).expect("the caller saw one");
        let at_most_once = served.policy.guarantee == Guarantee::AtMostOnce;
        self.deliveries[key].queued = false;
        if at_most_once && self.deliveries[key].progress.attempts > 0 {
            self.dead_letter(key, DeadReason::SingleAttemptFailed, None);
        } else {
            self.start(key, probe, at_most_once);
        }
        self.enqueue_endpoint(endpoint);
    }

    fn start(&mut self, key: DeliveryKey, probe: bool, at_most_once: bool) {
        let held = &mut self.deliveries[key];
        let served = &mut self.endpoints[held.endpoint];
        served.attempt_started(probe);
        self.schedule.attempt_started(served.tenant);
        let progress = &mut held.progress;
        progress.attempts = progress.attempts.saturating_add(1);
        progress.round_attempts = progress.round_attempts.saturating_add(1);
        progress.round_started_at.get_or_insert(self.now);
        let (from, to) = (held.phase.stage(), DeliveryState::InFlight);
        assert!(from.may_become(to.stage()), "no attempt starts from {from}");
        held.phase = Phase::InFlight(Flight { started: !at_most_once, probe, discarded: false });
        self.counters.started += 1;
        self.effects.push_back(match at_most_once {
            true => record_first(key, held, served, self.now),
            false => start_effect(key, held, served),
        });
    }

    /// An at-most-once delivery is recorded as sent: it may leave.
    pub(super) fn recorded(&mut self, token: AttemptToken) {
        match self.flight(token) {
            Some(flight) if !flight.started => {
                let held = &mut self.deliveries[token.delivery];
                held.phase = Phase::InFlight(Flight { started: true, ..flight });
                let served = &self.endpoints[held.endpoint];
                self.effects.push_back(start_effect(token.delivery, held, served));
            }
            // Its endpoint went between record and confirmation: it is recorded as sent, so it may
            // not leave any more, and nothing is under way.
            None if self.orphans.contains_key(&token) => self.orphan_ended(token),
            _ => self.ignore(Because::AttemptUnknown, None, None),
        }
    }

    /// The store knows better: it was sent or closed before. It is forgotten, not sent.
    pub(super) fn record_refused(&mut self, token: AttemptToken) {
        match self.flight(token) {
            Some(flight) if !flight.started => {
                let endpoint = self.release(token.delivery);
                self.endpoints[endpoint].attempt_abandoned(flight.probe, self.now);
                self.forget(token.delivery);
                self.enqueue_endpoint(endpoint);
            }
            None if self.orphans.contains_key(&token) => self.orphan_ended(token),
            _ => self.ignore(Because::AttemptUnknown, None, None),
        }
    }

    pub(super) fn attempt_ended(&mut self, token: AttemptToken, result: AttemptResult) {
        match self.flight(token) {
            Some(flight) if flight.started => self.flight_ended(token, flight, result),
            None if self.orphans.contains_key(&token) => {
                let orphan = self.orphans[&token];
                self.orphan_ended(token);
                self.ignore(Because::EndpointUnknown, Some(orphan.endpoint), None);
            }
            _ => self.ignore(Because::AttemptUnknown, None, None),
        }
    }

    fn flight_ended(&mut self, token: AttemptToken, flight: Flight, result: AttemptResult) {
        let key = token.delivery;
        let endpoint = self.release(key);
        let served = &mut self.endpoints[endpoint];
        let outcome = classify(result, &served.policy.outcomes);
        let Held { id: delivery, place, .. } = self.deliveries[key];
        let ended = Ended { result, delivery, place, probe: flight.probe };
        let verdict = served.attempt_ended(&ended, outcome, self.now);
        self.announce(endpoint, &verdict);
        self.decide(token, flight, result, outcome);
        self.enqueue_endpoint(endpoint);
    }

    fn announce(&mut self, endpoint: EndpointKey, verdict: &Verdict) {
        if let Some(notice) = verdict.notice {
            self.tell(endpoint, notice);
        }
        match verdict.switch_off {
            Some(status) => self.switch_off(endpoint, status),
            None if verdict.record => {
                self.record_endpoint(endpoint, self.endpoints[endpoint].status);
            }
            None => {}
        }
    }

    /// What happens next to a delivery whose attempt ended.
    fn decide(
        &mut self,
        token: AttemptToken,
        flight: Flight,
        result: AttemptResult,
        outcome: Outcome,
    ) {
        let (key, attempt) = (token.delivery, Some(token));
        match outcome {
            Outcome::Acknowledged => {
                self.counters.acknowledged += 1;
                self.close(key, DeliveryState::Delivered, attempt);
            }
            _ if flight.discarded => self.close(key, DeliveryState::DISCARDED, attempt),
            Outcome::Permanent => self.dead_letter(key, DeadReason::Permanent, attempt),
            Outcome::Retryable => match self.retry(key, result) {
                Retry::After(delay) => self.wait(key, delay, attempt),
                Retry::GiveUp(reason) => self.dead_letter(key, reason, attempt),
            },
        }
    }

    fn retry(&mut self, key: DeliveryKey, result: AttemptResult) -> Retry {
        let held = &self.deliveries[key];
        let policy = &self.endpoints[held.endpoint].policy;
        if policy.guarantee == Guarantee::AtMostOnce {
            return Retry::GiveUp(DeadReason::SingleAttemptFailed);
        }
        let retry_after = match result {
            AttemptResult::Response { retry_after, .. } => retry_after,
            AttemptResult::Failed(_) => None,
        };
        policy.retry.after_failure(&held.progress, retry_after, self.now, &mut self.rng)
    }

    fn wait(&mut self, key: DeliveryKey, delay: Span, attempt: Option<AttemptToken>) {
        let until = self.now + delay;
        self.counters.retried += 1;
        self.deliveries[key].progress.last_delay = delay;
        self.record(key, DeliveryState::Waiting { until }, attempt);
        let held = &mut self.deliveries[key];
        held.phase = Phase::Waiting { until };
        if held.place.is_none() && self.should_set_aside(key, until) {
            self.set_aside(key, until);
        } else {
            self.its_turn(key);
        }
    }

    pub(super) fn dead_letter(
        &mut self,
        key: DeliveryKey,
        reason: DeadReason,
        attempt: Option<AttemptToken>,
    ) {
        self.counters.dead += 1;
        let held = &self.deliveries[key];
        let (id, endpoint) = (held.id, held.endpoint);
        match held.place {
            Some(place) if self.endpoints[endpoint].policy.dead_letters_hold() => {
                self.record(key, DeliveryState::Dead { reason, holds: true }, attempt);
                self.deliveries[key].phase = Phase::Dead(reason);
                self.tell(endpoint, NoticeKind::LaneHeld { lane: place.lane, delivery: id });
            }
            _ => self.close(key, DeliveryState::Dead { reason, holds: false }, attempt),
        }
    }

    /// A delivery is done with here; its lane moves on.
    pub(super) fn close(
        &mut self,
        key: DeliveryKey,
        state: DeliveryState,
        attempt: Option<AttemptToken>,
    ) {
        self.record(key, state, attempt);
        let held = &self.deliveries[key];
        if let Some(Place { lane, seq }) = held.place
            && let Some(lane) = self.endpoints[held.endpoint].lanes.get_mut(&lane)
        {
            match state {
                DeliveryState::Delivered => lane.delivered(seq.get()),
                _ => lane.skipped(seq.get()),
            }
        }
        self.forget(key);
    }

    /// Gives back the place that an attempt took; says whose it was.
    fn release(&mut self, key: DeliveryKey) -> EndpointKey {
        let endpoint = self.deliveries[key].endpoint;
        let served = &mut self.endpoints[endpoint];
        served.in_flight -= 1;
        self.schedule.attempt_ended(served.tenant);
        endpoint
    }

    /// Forgets a delivery of an endpoint that was removed. An attempt under way keeps its place.
    pub(super) fn forget_with_endpoint(&mut self, key: DeliveryKey, served: &Served) {
        let Some(held) = self.deliveries.remove(key) else { return };
        if let Phase::InFlight(_) = held.phase {
            let token = AttemptToken { delivery: key, number: held.progress.attempts };
            self.orphans.insert(token, Orphan { endpoint: served.id, tenant: served.tenant });
        }
    }

    fn orphan_ended(&mut self, token: AttemptToken) {
        let Some(orphan) = self.orphans.remove(&token) else { return };
        self.schedule.attempt_ended(orphan.tenant);
        if let Some(key) = self.endpoint_keys.get(&orphan.endpoint).copied() {
            self.endpoints[key].in_flight -= 1;
            self.enqueue_endpoint(key);
        }
    }

    fn flight(&self, token: AttemptToken) -> Option<Flight> {
        let held = self.deliveries.get(token.delivery)?;
        match held.phase {
            Phase::InFlight(flight) if held.progress.attempts == token.number => Some(flight),
            _ => None,
        }
    }
}

fn token_of(key: DeliveryKey, held: &Held) -> AttemptToken {
    AttemptToken { delivery: key, number: held.progress.attempts }
}

fn start_effect(key: DeliveryKey, held: &Held, served: &Served) -> Effect {
    Effect::Start(Attempt {
        token: token_of(key, held),
        delivery: held.id,
        endpoint: served.id,
        place: held.place,
        // What has left its lane waits for nobody, whatever number it had.
        follows: held
            .place
            .map_or(Some(0), |Place { lane, seq }| served.lanes[&lane].follows(seq.get())),
        number: held.progress.attempts,
        replay: held.progress.replay,
    })
}

fn record_first(key: DeliveryKey, held: &Held, served: &Served, now: Timestamp) -> Effect {
    let token = token_of(key, held);
    let transition = Transition {
        delivery: held.id,
        endpoint: served.id,
        place: held.place,
        state: DeliveryState::InFlight,
        progress: held.progress,
        attempt: Some(token),
        at: now,
    };
    Effect::RecordFirst(transition, token)
}
