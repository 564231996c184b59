//! The machine itself: takes inputs, keeps the tables, hands out effects.
//!
//! `intake` brings deliveries into memory, `attempts` starts and ends attempts, `commands` obeys
//! people; the types below them are the tables they work on.

mod tables;
mod timers;
mod tracked_delivery;
mod seen_ids;
mod lane;
mod unkeyed;
mod ready;
mod served_endpoint;
mod schedule;
mod intake;
mod attempts;
mod commands;
mod look_ahead;
mod health;
mod open_lanes;

use std::collections::VecDeque;

use railpost_wire::{DeliveryId, EndpointId, TenantId};
use rustc_hash::FxHashMap;

pub(crate) use tables::{DeliveryKey, EndpointKey, TenantKey};

use crate::limits::{ENGINE_IN_FLIGHT_MAX, LANE_WINDOW_MAX, TIME_MAX};
use crate::policy::check_rate_limit;
use crate::{
    AttemptToken, DeliveryState, Effect, Endpoint, EndpointRecord, EndpointStatus, Ignored,
    IgnoredReason, Input, LaneId, Notice, NoticeKind, Policy, RateLimit, Rotation, Timestamp,
    Transition,
};
use attempts::Orphan;
use intake::PendingLoad;
use lane::Lane;
use ready::Ready;
use schedule::Schedule;
use served_endpoint::ServedEndpoint;
use tables::Table;
use timers::{Alarm, Timers};
use tracked_delivery::{Flight, HeadStage, Phase, TrackedDelivery};

/// How much the engine may hold and have under way. Values out of bounds are taken as the nearest
/// one within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most attempts under way at once, over all endpoints.
    pub in_flight_max: u32,
    /// Deliveries of one lane held in memory, its head included.
    pub lane_window: u32,
    /// Deliveries held in memory before lanes hold nothing but their heads.
    pub deliveries_max: usize,
    /// Deliveries without a lane held in memory, per endpoint.
    pub unkeyed_window: u32,
    /// Lanes with nothing open that are remembered, so that their next delivery needs no load.
    pub idle_lanes_max: usize,
    /// Lanes asked for at once when an endpoint's backlog is loaded.
    pub lanes_page: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            in_flight_max: 4_096,
            lane_window: 16,
            deliveries_max: 500_000,
            unkeyed_window: 1_024,
            idle_lanes_max: 200_000,
            lanes_page: 500,
        }
    }
}

impl Config {
    fn clamped(self) -> Self {
        Self {
            in_flight_max: self.in_flight_max.clamp(1, ENGINE_IN_FLIGHT_MAX),
            lane_window: self.lane_window.clamp(1, LANE_WINDOW_MAX),
            unkeyed_window: self.unkeyed_window.max(1),
            lanes_page: self.lanes_page.max(1),
            ..self
        }
    }
}

/// What the engine has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts started.
    pub started: u64,
    /// Deliveries acknowledged.
    pub acknowledged: u64,
    /// Retries planned.
    pub retried: u64,
    /// Deliveries given up on.
    pub dead: u64,
    /// Loads asked for.
    pub loads: u64,
    /// Inputs ignored, by [`IgnoredReason`] in the order of [`IgnoredReason::ALL`].
    pub ignored: [u64; IgnoredReason::ALL.len()],
}

/// The delivery engine. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    /// The latest time heard of: it never goes back, even when the clock does.
    now: Timestamp,
    rng: fastrand::Rng,
    effects: VecDeque<Effect>,
    counters: Counters,
    timers: Timers,
    deliveries: Table<DeliveryKey, TrackedDelivery>,
    endpoints: Table<EndpointKey, ServedEndpoint>,
    endpoint_keys: FxHashMap<EndpointId, EndpointKey>,
    schedule: Schedule,
    loads: FxHashMap<u64, PendingLoad>,
    next_ticket: u64,
    /// Attempts under way whose endpoint was removed.
    orphans: FxHashMap<AttemptToken, Orphan>,
    /// Lanes that had nothing open when they were put here, oldest first.
    idle_lanes: VecDeque<(EndpointKey, LaneId)>,
}

impl Engine {
    /// An engine that serves nothing yet. `seed` is all the chance it will ever have.
    pub fn new(config: Config, seed: u64) -> Self {
        let config = config.clamped();
        Self {
            now: Timestamp::default(),
            rng: fastrand::Rng::with_seed(seed),
            effects: VecDeque::new(),
            counters: Counters::default(),
            timers: Timers::default(),
            deliveries: Table::default(),
            endpoints: Table::default(),
            endpoint_keys: FxHashMap::default(),
            schedule: Schedule::new(config.in_flight_max),
            loads: FxHashMap::default(),
            next_ticket: 0,
            orphans: FxHashMap::default(),
            idle_lanes: VecDeque::new(),
            config,
        }
    }

    /// Takes an input. The effects are there to be polled when it returns.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        self.now = self.now.max(now.min(TIME_MAX));
        self.ring_alarms();
        match input {
            Input::EndpointAppeared(endpoint) => self.endpoint_appeared(endpoint),
            Input::EndpointChanged { endpoint, policy, rotation } => {
                self.endpoint_changed(endpoint, policy, rotation);
            }
            Input::EndpointPaused(endpoint) => self.endpoint_paused(endpoint),
            Input::EndpointResumed(endpoint) => self.endpoint_resumed(endpoint),
            Input::EndpointWaitEnded(endpoint) => self.endpoint_wait_ended(endpoint),
            Input::EndpointBlocked { endpoint, blocked } => {
                self.endpoint_blocked(endpoint, blocked);
            }
            Input::EndpointRemoved(endpoint) => self.endpoint_removed(endpoint),
            Input::TenantChanged { tenant, rate_limit } => self.tenant_changed(&tenant, rate_limit),
            Input::Accepted(accepted) => self.accepted(accepted),
            Input::Swept(swept) => self.swept(swept),
            Input::Loaded { ticket, page } => self.loaded(ticket, page),
            Input::LoadFailed(ticket) => self.load_failed(ticket),
            Input::Recorded(attempt) => self.recorded(attempt),
            Input::RecordRefused(attempt) => self.record_refused(attempt),
            Input::AttemptEnded { attempt, result } => self.attempt_ended(attempt, result),
            Input::Command { command, delivery } => self.command(command, &delivery),
            Input::TimePassed => {}
        }
        self.start_what_may();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to hand in [`Input::TimePassed`] at the latest, if nothing else comes before.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// What has been done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Attempts under way.
    pub fn in_flight(&self) -> u32 {
        self.schedule.in_flight()
    }

    fn ring_alarms(&mut self) {
        while let Some(alarm) = self.timers.pop_due(self.now) {
            match alarm {
                Alarm::Delivery(key) => self.delivery_due(key),
                Alarm::Endpoint(key) => self.recheck_endpoint(key),
                Alarm::Tenant(key) => self.schedule.lift_limit(key),
                Alarm::Load(ticket) => self.load_again(ticket),
                Alarm::Unkeyed(key) => self.unkeyed_due(key),
            }
        }
    }

    fn endpoint_appeared(&mut self, endpoint: Endpoint) {
        let id = endpoint.id;
        if self.endpoint_keys.contains_key(&id) {
            return self.ignore(IgnoredReason::EndpointKnown, Some(id), None);
        }
        let tenant = self.schedule.tenant(&endpoint.tenant);
        let in_flight = self.orphans.values().filter(|orphan| orphan.endpoint == id).count() as u32;
        let key = self.endpoints.insert(ServedEndpoint::new(endpoint, tenant, in_flight, self.now));
        self.endpoint_keys.insert(id, key);
        self.load_backlog(key);
    }

    fn endpoint_changed(&mut self, id: EndpointId, policy: Policy, rotation: Option<Rotation>) {
        if let Some(key) = self.served_or_ignore(id) {
            self.change_endpoint(key, |served, now| served.change(policy, rotation, now));
            self.enqueue_endpoint(key);
        }
    }

    fn endpoint_paused(&mut self, id: EndpointId) {
        if let Some(key) = self.served_or_ignore(id) {
            self.change_endpoint(key, |served, _| served.status = EndpointStatus::Paused);
        }
    }

    fn endpoint_resumed(&mut self, id: EndpointId) {
        if let Some(key) = self.served_or_ignore(id) {
            self.change_endpoint(key, |served, _| served.resume());
            self.enqueue_endpoint(key);
        }
    }

    fn endpoint_wait_ended(&mut self, id: EndpointId) {
        if let Some(key) = self.served_or_ignore(id) {
            let waited = self.endpoints[key].wait(self.now).is_some();
            self.change_endpoint(key, ServedEndpoint::end_wait);
            if waited {
                self.end_retry_waits(key);
            }
            self.enqueue_endpoint(key);
        }
    }

    fn endpoint_blocked(&mut self, id: EndpointId, blocked: bool) {
        if let Some(key) = self.served_or_ignore(id) {
            self.change_endpoint(key, |served, _| served.blocked = blocked);
            self.enqueue_endpoint(key);
        }
    }

    fn endpoint_removed(&mut self, id: EndpointId) {
        let Some(key) = self.served_or_ignore(id) else { return };
        self.endpoint_keys.remove(&id);
        let Some(served) = self.endpoints.remove(key) else { return };
        let lanes = served.lanes.values();
        let mut keys: Vec<_> = lanes.flat_map(|lane| lane.keys(&self.deliveries)).collect();
        keys.extend(served.unkeyed.keys());
        for key in keys {
            self.forget_with_endpoint(key, &served);
        }
        self.loads.retain(|_, load| load.endpoint != key);
    }

    fn tenant_changed(&mut self, tenant: &TenantId, rate_limit: Option<RateLimit>) {
        if let Some(limit) = &rate_limit
            && check_rate_limit("rate_limit", limit).is_err()
        {
            return self.ignore(IgnoredReason::RateLimitInvalid, None, None);
        }
        let key = self.schedule.tenant(tenant);
        self.schedule.set_limit(key, rate_limit, self.now);
    }

    fn served_or_ignore(&mut self, id: EndpointId) -> Option<EndpointKey> {
        let key = self.endpoint_keys.get(&id).copied();
        if key.is_none() {
            self.ignore(IgnoredReason::EndpointUnknown, Some(id), None);
        }
        key
    }

    fn switch_off(&mut self, key: EndpointKey, status: EndpointStatus) {
        let was =
            self.change_endpoint(key, |served, _| std::mem::replace(&mut served.status, status));
        self.record_endpoint(key, was);
        self.notify(key, NoticeKind::SwitchedOff(status));
    }

    /// Writes down a delivery's new state: the only way a transition leaves the engine.
    fn record(&mut self, key: DeliveryKey, state: DeliveryState, attempt: Option<AttemptToken>) {
        let tracked = &self.deliveries[key];
        let (from, to) = (tracked.phase.stage(), state.stage());
        assert!(from.may_become(to), "no delivery goes from {from} to {to}");
        let transition = Transition {
            delivery: tracked.id,
            endpoint: self.endpoints[tracked.endpoint].id,
            place: tracked.place,
            state,
            progress: tracked.progress,
            attempt,
            at: self.now,
        };
        self.effects.push_back(Effect::Record(transition));
    }

    fn record_endpoint(&mut self, key: EndpointKey, was: EndpointStatus) {
        let served = &self.endpoints[key];
        self.effects.push_back(Effect::RecordEndpoint(EndpointRecord {
            endpoint: served.id,
            status: served.status,
            was,
            failing_since: served.failing_since(),
            at: self.now,
        }));
    }

    fn notify(&mut self, key: EndpointKey, kind: NoticeKind) {
        let endpoint = self.endpoints[key].id;
        self.effects.push_back(Effect::Notify(Notice { endpoint, kind, at: self.now }));
    }

    fn ignore(
        &mut self,
        reason: IgnoredReason,
        endpoint: Option<EndpointId>,
        delivery: Option<DeliveryId>,
    ) {
        self.counters.ignored[reason as usize] += 1;
        self.effects.push_back(Effect::Ignored(Ignored { reason, endpoint, delivery }));
    }
}
