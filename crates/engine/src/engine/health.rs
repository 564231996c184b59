//! How endpoints are doing, as the gates of the engine have it.

use railpost_wire::{EndpointId, TenantId};

use super::{EndpointKey, Engine, ServedEndpoint};
use crate::breaker::BreakerPermit;
use crate::{
    BreakerState, Concerns, EndpointConcern, EndpointStatus, Health, HealthState, HealthSurvey,
    HeldLaneHead, Timestamp, Wait, WaitReason,
};

impl Engine {
    /// How an endpoint is doing, at the latest instant heard of; nothing if it is not served here.
    pub fn health(&self, endpoint: EndpointId) -> Option<Health> {
        let served = &self.endpoints[*self.endpoint_keys.get(&endpoint)?];
        Some(served.health(self.now))
    }

    /// The states of all endpoints, or of a tenant's, with at most `named_max` that need attention, and as many that
    /// are paused.
    pub fn survey(&self, tenant: Option<&TenantId>, named_max: usize) -> HealthSurvey {
        let mut survey = HealthSurvey::default();
        let tenant = tenant.map(|id| self.schedule.find_tenant(id));
        let own = |served: &&ServedEndpoint| tenant.is_none_or(|own| own == Some(served.tenant));
        for served in self.endpoints.values().filter(own) {
            let state = served.state(self.now);
            survey.counts[state as usize] += 1;
            survey.in_flight += u64::from(served.in_flight);
            let named = match state {
                HealthState::Active => continue,
                HealthState::Paused => &mut survey.paused,
                _ => &mut survey.attention,
            };
            if named.len() < named_max {
                named.push(served.id);
            }
        }
        survey
    }

    /// All endpoints that are not well, and at most `lanes_max` of the lanes that are held.
    pub fn concerns(&self, lanes_max: usize) -> Concerns {
        let mut concerns = Concerns::default();
        for served in self.endpoints.values() {
            let health = served.health(self.now);
            if health.state == HealthState::Paused {
                concerns.paused.push(served.id);
            } else if health.state != HealthState::Active
                || health.failing_since.is_some()
                || health.breaker != BreakerState::Closed
            {
                let disable_after = served.policy.disable_after;
                concerns.endpoints.push(EndpointConcern { id: served.id, health, disable_after });
            }
            let held = served.heads.held();
            concerns.held_lanes_count += held.len() as u64;
            let room = lanes_max.saturating_sub(concerns.held_lanes.len());
            let heads = held.iter().take(room);
            concerns
                .held_lanes
                .extend(heads.map(|lane| HeldLaneHead { lane: *lane, endpoint: served.id }));
        }
        concerns
    }

    /// Changes an endpoint, and notes if that changed its state.
    pub(super) fn change_endpoint<T>(
        &mut self,
        key: EndpointKey,
        change: impl FnOnce(&mut ServedEndpoint, Timestamp) -> T,
    ) -> T {
        let (served, now) = (&mut self.endpoints[key], self.now);
        let before = served.state(now);
        let done = change(served, now);
        if served.state(now) != before {
            served.since = Some(now);
        }
        done
    }
}

impl ServedEndpoint {
    fn health(&self, now: Timestamp) -> Health {
        let state = self.state(now);
        Health {
            state,
            since: self.since(state),
            wait: self.wait(now).filter(|_| state == HealthState::Waiting),
            last_error: self.last_error,
            last_success_at: self.last_success_at,
            status: self.status,
            failing_since: self.failing_since(),
            blocked: self.blocked,
            breaker: self.breaker_state(),
            held_until: Some(self.held_until).filter(|until| *until > now),
            in_flight: self.in_flight,
            ready: self.ready.len(),
            lanes: self.lanes.len(),
            unkeyed: self.unkeyed.len(),
        }
    }

    fn state(&self, now: Timestamp) -> HealthState {
        match self.status {
            EndpointStatus::Active if self.blocked => HealthState::Blocked,
            EndpointStatus::Active if self.wait(now).is_some() => HealthState::Waiting,
            status => status.into(),
        }
    }

    /// The end of a `Retry-After` comes without an input, and with it the endpoint is active again.
    fn since(&self, state: HealthState) -> Option<Timestamp> {
        match state {
            HealthState::Active if self.held_until > Timestamp::default() => {
                self.since.max(Some(self.held_until))
            }
            _ => self.since,
        }
    }

    /// Which gate is closed for a while, if one is; of two, the one that opens later.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Wait> {
        let held_until = Some(self.held_until).filter(|until| *until > now);
        let held = held_until.map(|_| Wait { reason: WaitReason::RetryAfter, until: held_until });
        let breaker = self.breaker_wait(now);
        match (held, breaker) {
            (Some(held), Some(breaker))
                if breaker.until.is_some_and(|at| Some(at) < held.until) =>
            {
                Some(held)
            }
            (held, breaker) => breaker.or(held),
        }
    }

    fn breaker_wait(&self, now: Timestamp) -> Option<Wait> {
        let until = match self.breaker_state() {
            BreakerState::Open { until } => Some(until),
            _ => None,
        };
        let reason = match self.breaker_permit(now) {
            BreakerPermit::UpTo(_) => return None,
            BreakerPermit::NotBefore(_) => WaitReason::Breaker,
            BreakerPermit::Probe | BreakerPermit::AwaitingProbe => WaitReason::Probe,
        };
        Some(Wait { reason, until })
    }
}
