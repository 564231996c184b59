//! Attempts: who may start, and what follows when one ends.

use railpost_wire::EndpointId;

use super::schedule::NextStart;
use super::served_endpoint::{EndedAttempt, EndpointVerdict, StartPermit};
use super::{
    Alarm, DeliveryKey, EndpointKey, Engine, Flight, Lane, Phase, ServedEndpoint, TenantKey,
    TrackedDelivery,
};
use crate::retry::Retry;
use crate::{
    Attempt, AttemptResult, AttemptToken, DeadReason, DeliveryState, Effect, EndpointStatus,
    Guarantee, IgnoredReason, NoticeKind, Outcome, Place, Span, Timestamp, Transition,
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
                NextStart::Endpoint(key) => self.take_turn(key),
                NextStart::TenantLimited(key, at) => self.timers.set(at, Alarm::Tenant(key)),
                NextStart::Nothing => return,
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
        match served.start_permit(self.now) {
            StartPermit::Granted { probe } => self.start_first_ready(key, probe),
            StartPermit::NotBefore(at) => self.wake_endpoint(key, at),
            StartPermit::Denied => {}
        }
    }

    fn wake_endpoint(&mut self, key: EndpointKey, at: Timestamp) {
        let served = &mut self.endpoints[key];
        if served.wake_at.is_none_or(|earlier| at < earlier) {
            served.wake_at = Some(at);
            self.timers.set(at, Alarm::Endpoint(key));
        }
    }

    pub(super) fn recheck_endpoint(&mut self, key: EndpointKey) {
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
    pub(super) fn start_when_due(&mut self, key: DeliveryKey) {
        match self.deliveries[key].phase {
            Phase::Pending => self.make_ready(key),
            Phase::Waiting { until } if until <= self.now => self.make_ready(key),
            Phase::Waiting { until } => self.timers.set(until, Alarm::Delivery(key)),
            Phase::InFlight(_) | Phase::Dead(_) => {}
        }
        self.count_head(key);
    }

    pub(super) fn delivery_due(&mut self, key: DeliveryKey) {
        if let Some(tracked) = self.deliveries.get(key)
            && matches!(tracked.phase, Phase::Waiting { until } if until <= self.now)
        {
            self.make_ready(key);
            self.count_head(key);
        }
    }

    /// What waits for a retry at an endpoint is due, the oldest first; what stands behind others in its lane stays
    /// there.
    pub(super) fn end_retry_waits(&mut self, endpoint: EndpointKey) {
        let served = &self.endpoints[endpoint];
        if served.status != EndpointStatus::Active {
            return;
        }
        let heads = served.lanes.values().filter_map(Lane::head);
        let waits = |key: &DeliveryKey| matches!(self.deliveries[*key].phase, Phase::Waiting { until } if until > self.now);
        let mut waiting: Vec<DeliveryKey> =
            heads.chain(served.unkeyed.keys()).filter(waits).collect();
        waiting.sort_unstable_by_key(|key| self.deliveries[*key].id);
        for key in waiting {
            self.deliveries[key].phase = Phase::Waiting { until: self.now };
            self.start_when_due(key);
        }
    }

    fn make_ready(&mut self, key: DeliveryKey) {
        let tracked = &mut self.deliveries[key];
        if !tracked.queued {
            tracked.queued = true;
            let endpoint = tracked.endpoint;
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
        let tracked = &mut self.deliveries[key];
        let served = &mut self.endpoints[tracked.endpoint];
        served.attempt_started(probe);
        self.schedule.attempt_started(served.tenant);
        let progress = &mut tracked.progress;
        progress.attempts = progress.attempts.saturating_add(1);
        progress.round_attempts = progress.round_attempts.saturating_add(1);
        progress.round_started_at.get_or_insert(self.now);
        let (from, to) = (tracked.phase.stage(), DeliveryState::InFlight);
        assert!(from.may_become(to.stage()), "no attempt starts from {from}");
        tracked.phase = Phase::InFlight(Flight { started: !at_most_once, probe, discarded: false });
        self.counters.started += 1;
        self.effects.push_back(match at_most_once {
            true => record_first(key, tracked, served, self.now),
            false => start_effect(key, tracked, served),
        });
        self.count_head(key);
    }

    /// An at-most-once delivery is recorded as sent: it may leave.
    pub(super) fn recorded(&mut self, token: AttemptToken) {
        match self.flight(token) {
            Some(flight) if !flight.started => {
                let tracked = &mut self.deliveries[token.delivery];
                tracked.phase = Phase::InFlight(Flight { started: true, ..flight });
                let served = &self.endpoints[tracked.endpoint];
                self.effects.push_back(start_effect(token.delivery, tracked, served));
            }
            // Its endpoint went between record and confirmation: it is recorded as sent, so it may
            // not leave any more, and nothing is under way.
            None if self.orphans.contains_key(&token) => self.orphan_ended(token),
            _ => self.ignore(IgnoredReason::AttemptUnknown, None, None),
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
            _ => self.ignore(IgnoredReason::AttemptUnknown, None, None),
        }
    }

    pub(super) fn attempt_ended(&mut self, token: AttemptToken, result: AttemptResult) {
        match self.flight(token) {
            Some(flight) if flight.started => self.flight_ended(token, flight, result),
            None if self.orphans.contains_key(&token) => {
                let orphan = self.orphans[&token];
                self.orphan_ended(token);
                self.ignore(IgnoredReason::EndpointUnknown, Some(orphan.endpoint), None);
            }
            _ => self.ignore(IgnoredReason::AttemptUnknown, None, None),
        }
    }

    fn flight_ended(&mut self, token: AttemptToken, flight: Flight, result: AttemptResult) {
        let key = token.delivery;
        let endpoint = self.release(key);
        let outcome = self.endpoints[endpoint].classify(result, self.now);
        let TrackedDelivery { id: delivery, place, .. } = self.deliveries[key];
        let ended = EndedAttempt { result, delivery, place, probe: flight.probe };
        let verdict = self
            .change_endpoint(endpoint, |served, now| served.attempt_ended(&ended, outcome, now));
        self.announce(endpoint, &verdict);
        self.decide(token, flight, result, outcome);
        self.enqueue_endpoint(endpoint);
    }

    fn announce(&mut self, endpoint: EndpointKey, verdict: &EndpointVerdict) {
        if let Some(notice) = verdict.notice {
            self.notify(endpoint, notice);
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
        let tracked = &self.deliveries[key];
        let policy = &self.endpoints[tracked.endpoint].policy;
        if policy.guarantee == Guarantee::AtMostOnce {
            return Retry::GiveUp(DeadReason::SingleAttemptFailed);
        }
        let retry_after = match result {
            AttemptResult::Response { retry_after, .. } => retry_after,
            AttemptResult::Failed(_) => None,
        };
        policy.retry.after_failure(&tracked.progress, retry_after, self.now, &mut self.rng)
    }

    fn wait(&mut self, key: DeliveryKey, delay: Span, attempt: Option<AttemptToken>) {
        let until = self.now + delay;
        self.counters.retried += 1;
        self.deliveries[key].progress.last_delay = delay;
        self.record(key, DeliveryState::Waiting { until }, attempt);
        let tracked = &mut self.deliveries[key];
        tracked.phase = Phase::Waiting { until };
        if tracked.place.is_none() && self.should_set_aside(key, until) {
            self.set_aside(key, until);
        } else {
            self.start_when_due(key);
        }
    }

    pub(super) fn dead_letter(
        &mut self,
        key: DeliveryKey,
        reason: DeadReason,
        attempt: Option<AttemptToken>,
    ) {
        self.counters.dead += 1;
        let tracked = &self.deliveries[key];
        let (id, endpoint) = (tracked.id, tracked.endpoint);
        match tracked.place {
            Some(place) if self.endpoints[endpoint].policy.dead_letters_hold() => {
                self.record(key, DeliveryState::Dead { reason, holds: true }, attempt);
                self.deliveries[key].phase = Phase::Dead(reason);
                self.count_head(key);
                self.notify(endpoint, NoticeKind::LaneHeld { lane: place.lane, delivery: id });
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
        let tracked = &self.deliveries[key];
        if let Some(Place { lane, seq }) = tracked.place
            && let Some(lane) = self.endpoints[tracked.endpoint].lanes.get_mut(&lane)
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
    pub(super) fn forget_with_endpoint(&mut self, key: DeliveryKey, served: &ServedEndpoint) {
        let Some(tracked) = self.deliveries.remove(key) else { return };
        if let Phase::InFlight(_) = tracked.phase {
            let token = AttemptToken { delivery: key, number: tracked.progress.attempts };
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
        let tracked = self.deliveries.get(token.delivery)?;
        match tracked.phase {
            Phase::InFlight(flight) if tracked.progress.attempts == token.number => Some(flight),
            _ => None,
        }
    }
}

fn token_of(key: DeliveryKey, tracked: &TrackedDelivery) -> AttemptToken {
    AttemptToken { delivery: key, number: tracked.progress.attempts }
}

fn start_effect(key: DeliveryKey, tracked: &TrackedDelivery, served: &ServedEndpoint) -> Effect {
    Effect::Start(Attempt {
        token: token_of(key, tracked),
        delivery: tracked.id,
        endpoint: served.id,
        place: tracked.place,
        // A delivery that has left its lane follows none, whatever its number was.
        follows: tracked
            .place
            .map_or(Some(0), |Place { lane, seq }| served.lanes[&lane].follows(seq.get())),
        number: tracked.progress.attempts,
        replay: tracked.progress.replay,
    })
}

fn record_first(
    key: DeliveryKey,
    tracked: &TrackedDelivery,
    served: &ServedEndpoint,
    now: Timestamp,
) -> Effect {
    let token = token_of(key, tracked);
    let transition = Transition {
        delivery: tracked.id,
        endpoint: served.id,
        place: tracked.place,
        state: DeliveryState::InFlight,
        progress: tracked.progress,
        attempt: Some(token),
        at: now,
    };
    Effect::RecordFirst(transition, token)
}
