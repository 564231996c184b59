//! One endpoint that this engine serves: its gates, its health and its lanes.

use railpost_wire::{DeliveryId, EndpointId};
use rustc_hash::FxHashMap;

use super::open_lanes::Heads;
use super::seen_ids::SeenIds;
use super::unkeyed::Unkeyed;
use super::{Lane, Ready, TenantKey};
use crate::breaker::{self, Breaker, BreakerPermit, BreakerState};
use crate::classify::{GONE, classify, classify_after_rotation, holds_endpoint};
use crate::limits::{FAILING_RECORD_AFTER, QUARANTINE_AFTER_MAX, ROTATION_LENIENCY};
use crate::token_bucket::TokenBucket;
use crate::{
    AttemptResult, Endpoint, EndpointStatus, LaneId, LastError, NoticeKind, Outcome, Place, Policy,
    Timestamp,
};

#[derive(Debug)]
pub(super) struct ServedEndpoint {
    pub(super) id: EndpointId,
    pub(super) tenant: TenantKey,
    pub(super) policy: Policy,
    pub(super) status: EndpointStatus,
    /// Whether nothing can be sent to it as it is.
    pub(super) blocked: bool,
    failing: Failing,
    /// Since when it is in its state, but for the end of a `Retry-After`.
    pub(super) since: Option<Timestamp>,
    pub(super) last_error: Option<LastError>,
    pub(super) last_success_at: Option<Timestamp>,
    /// When a secret of it was last rotated.
    rotated_at: Option<Timestamp>,
    /// Attempts under way, those included that were under way when it was last removed.
    pub(super) in_flight: u32,
    pub(super) ready: Ready,
    /// Whether it stands in its tenant's ring.
    pub(super) queued: bool,
    /// The earliest alarm set for its gates.
    pub(super) wake_at: Option<Timestamp>,
    /// Until when the receiver asked to be left alone.
    pub(super) held_until: Timestamp,
    bucket: Option<TokenBucket>,
    pub(super) breaker: Breaker,
    refusals: Refusals,
    pub(super) lanes: FxHashMap<LaneId, Lane>,
    pub(super) heads: Heads,
    /// The least id that a delivery made since its appearance here can have. What is older may have
    /// a past under another owner.
    appeared: DeliveryId,
    /// Lanes known here. A lane that is not among them has nothing in the store to load.
    pub(super) seen_lanes: SeenIds<LaneId>,
    /// Whether a page of its open lanes is under way: until it is here, no lane is forgotten.
    pub(super) lanes_loading: bool,
    pub(super) unkeyed: Unkeyed,
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPermit {
    Granted {
        probe: bool,
    },
    NotBefore(Timestamp),
    /// Not until another input asks again.
    Denied,
}

/// What an attempt's end means for the endpoint as a whole.
#[derive(Debug, Default)]
pub(super) struct EndpointVerdict {
    pub(super) notice: Option<NoticeKind>,
    pub(super) switch_off: Option<EndpointStatus>,
    /// Whether "failing since" changed enough to be written down.
    pub(super) record: bool,
}

impl ServedEndpoint {
    pub(super) fn new(
        endpoint: Endpoint,
        tenant: TenantKey,
        in_flight: u32,
        now: Timestamp,
    ) -> Self {
        let Endpoint { id, policy, status, status_since, failing_since, rotated_at, .. } = endpoint;
        let is_off = status != EndpointStatus::Active;
        Self {
            id,
            tenant,
            bucket: policy.rate_limit.map(|limit| TokenBucket::new(limit, now)),
            policy,
            status,
            blocked: false,
            failing: Failing {
                since: failing_since.map(|since| since.min(now)),
                recorded: failing_since.is_some(),
            },
            // Whether one that is on had to wait before it appeared here is not known.
            since: status_since.filter(|_| is_off).map(|since| since.min(now)),
            last_error: None,
            last_success_at: None,
            rotated_at,
            in_flight,
            ready: Ready::default(),
            queued: false,
            wake_at: None,
            held_until: Timestamp::default(),
            breaker: Breaker::new(),
            refusals: Refusals::default(),
            lanes: FxHashMap::default(),
            heads: Heads::default(),
            appeared: DeliveryId::generate(now.as_millis(), [0; 10]),
            seen_lanes: SeenIds::default(),
            lanes_loading: false,
            unkeyed: Unkeyed::default(),
        }
    }

    pub(super) fn failing_since(&self) -> Option<Timestamp> {
        self.failing.since
    }

    pub(super) fn change(&mut self, policy: Policy, rotated_at: Option<Timestamp>, now: Timestamp) {
        self.rotated_at = rotated_at;
        self.bucket = match (self.bucket.take(), policy.rate_limit) {
            (Some(mut bucket), Some(limit)) => {
                bucket.set_limit(limit, now);
                Some(bucket)
            }
            (None, limit) => limit.map(|limit| TokenBucket::new(limit, now)),
            (Some(_), None) => None,
        };
        if policy.breaker.is_none() {
            self.breaker = Breaker::new();
        }
        self.policy = policy;
    }

    /// A person vouches for it: old failures are forgotten, and sending ramps up.
    pub(super) fn resume(&mut self) {
        self.status = EndpointStatus::Active;
        self.failing = Failing::default();
        self.refusals = Refusals::default();
        self.breaker = Breaker::ramping();
        self.held_until = Timestamp::default();
    }

    /// A person vouches for it while it waits: the next delivery goes at once, and decides what follows if the
    /// breaker was open.
    pub(super) fn end_wait(&mut self, now: Timestamp) {
        self.breaker.half_open(now);
        self.held_until = self.held_until.min(now);
    }

    /// What a result means for it, as it is set up now.
    pub(super) fn classify(&self, result: AttemptResult, now: Timestamp) -> Outcome {
        let lately = |at| now.since(at) < ROTATION_LENIENCY;
        match self.rotated_at.is_some_and(lately) {
            true => classify_after_rotation(result, &self.policy.outcomes),
            false => classify(result, &self.policy.outcomes),
        }
    }

    /// Whether a delivery was made since the endpoint appeared here.
    pub(super) fn is_fresh(&self, id: DeliveryId) -> bool {
        id >= self.appeared
    }

    /// Whether an attempt may start now; its ready queue aside.
    pub(super) fn start_permit(&mut self, now: Timestamp) -> StartPermit {
        if self.status != EndpointStatus::Active || self.blocked {
            return StartPermit::Denied;
        }
        if self.held_until > now {
            return StartPermit::NotBefore(self.held_until);
        }
        let (most, probe) = match self.breaker_permit(now) {
            BreakerPermit::UpTo(most) => (most, false),
            BreakerPermit::Probe => (u32::MAX, true),
            BreakerPermit::NotBefore(until) => return StartPermit::NotBefore(until),
            BreakerPermit::AwaitingProbe => return StartPermit::Denied,
        };
        if self.in_flight >= most.min(self.policy.in_flight_max) {
            return StartPermit::Denied;
        }
        match self.bucket.as_mut().map(|bucket| bucket.ready_at(now)) {
            Some(at) if at > now => StartPermit::NotBefore(at),
            _ => StartPermit::Granted { probe },
        }
    }

    pub(super) fn breaker_permit(&self, now: Timestamp) -> BreakerPermit {
        match self.policy.breaker {
            Some(_) => self.breaker.permit(now),
            None => BreakerPermit::UpTo(u32::MAX),
        }
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.policy.breaker.map_or(BreakerState::Closed, |_| self.breaker.state())
    }

    /// An attempt starts that the gate allowed.
    pub(super) fn attempt_started(&mut self, probe: bool) {
        self.in_flight += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take();
        }
        if probe {
            self.breaker.probe_started();
        }
    }

    /// An attempt ended that says nothing about the endpoint.
    pub(super) fn attempt_abandoned(&mut self, probe: bool, now: Timestamp) {
        if probe {
            self.breaker.probe_abandoned(now);
        }
    }

    pub(super) fn attempt_ended(
        &mut self,
        ended: &EndedAttempt,
        outcome: Outcome,
        now: Timestamp,
    ) -> EndpointVerdict {
        self.note_result(ended.result, outcome, now);
        if !ended.result.concerns_endpoint() {
            return EndpointVerdict {
                notice: self.probe_without_verdict(ended, now),
                ..EndpointVerdict::default()
            };
        }
        self.honour_retry_after(ended.result, outcome, now);
        let notice = self.feed_breaker(ended.probe, outcome, now);
        match outcome {
            Outcome::Acknowledged => {
                self.refusals = Refusals::default();
                EndpointVerdict { notice, record: self.failing.succeeded(), switch_off: None }
            }
            Outcome::Permanent | Outcome::Retryable => {
                let record = self.failing.failed(now);
                EndpointVerdict {
                    notice,
                    record,
                    switch_off: self.why_switch_off(ended, outcome, now),
                }
            }
        }
    }

    fn note_result(&mut self, result: AttemptResult, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Acknowledged => {
                (self.last_error, self.last_success_at) = (None, Some(now));
            }
            Outcome::Permanent | Outcome::Retryable => {
                self.last_error = Some(LastError { at: now, cause: result.into() });
            }
        }
    }

    /// A probe whose result is not about the endpoint. If the receiver answered, it is there: that is
    /// what the probe was to find out.
    fn probe_without_verdict(
        &mut self,
        ended: &EndedAttempt,
        now: Timestamp,
    ) -> Option<NoticeKind> {
        match ended.result {
            AttemptResult::Response { .. } if ended.probe => {
                self.feed_breaker(true, Outcome::Acknowledged, now)
            }
            _ => {
                self.attempt_abandoned(ended.probe, now);
                None
            }
        }
    }

    /// On 429 and 503 the receiver speaks for the whole endpoint.
    fn honour_retry_after(&mut self, result: AttemptResult, outcome: Outcome, now: Timestamp) {
        if let AttemptResult::Response { status, retry_after: Some(wish) } = result
            && holds_endpoint(status)
            && outcome == Outcome::Retryable
        {
            self.held_until = self.held_until.max(now + self.policy.retry.cap_retry_after(wish));
        }
    }

    /// A receiver that refuses a delivery for good is well; only what is retryable is a failure of
    /// the endpoint.
    fn feed_breaker(
        &mut self,
        probe: bool,
        outcome: Outcome,
        now: Timestamp,
    ) -> Option<NoticeKind> {
        let policy = self.policy.breaker?;
        let succeeded = outcome != Outcome::Retryable;
        let change = self.breaker.attempt_ended(succeeded, probe, &policy, now);
        self.breaker.ramp_reached(self.policy.in_flight_max);
        change.map(|change| match change {
            breaker::Change::Opened { until } => NoticeKind::BreakerOpened { until },
            breaker::Change::Closed => NoticeKind::BreakerClosed,
        })
    }

    /// Only an endpoint that is on can be switched off: a person's pause is not overwritten.
    fn why_switch_off(
        &mut self,
        ended: &EndedAttempt,
        outcome: Outcome,
        now: Timestamp,
    ) -> Option<EndpointStatus> {
        if outcome == Outcome::Permanent {
            let lane = ended.place.map(|place| Refused::Lane(place.lane));
            self.refusals.add(lane.unwrap_or(Refused::Unkeyed(ended.delivery)));
        }
        if self.status != EndpointStatus::Active {
            return None;
        }
        let gone = matches!(ended.result, AttemptResult::Response { status: GONE, .. });
        if gone && outcome == Outcome::Permanent {
            return Some(EndpointStatus::Gone);
        }
        if self.policy.quarantine_after.is_some_and(|most| self.refusals.count() >= most) {
            return Some(EndpointStatus::Quarantined);
        }
        let too_long =
            self.policy.disable_after.is_some_and(|after| self.failing.lasted(now, after));
        too_long.then_some(EndpointStatus::Failing)
    }
}

/// An attempt that ended, as far as its endpoint is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedAttempt {
    pub(super) result: AttemptResult,
    pub(super) delivery: DeliveryId,
    pub(super) place: Option<Place>,
    pub(super) probe: bool,
}

/// Since when nothing but failures came back.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    since: Option<Timestamp>,
    recorded: bool,
}

impl Failing {
    /// Notes a success; says whether that is worth a record.
    fn succeeded(&mut self) -> bool {
        std::mem::take(self).recorded
    }

    /// Notes a failure; says whether that is worth a record.
    fn failed(&mut self, now: Timestamp) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = !self.recorded && now.since(since) >= FAILING_RECORD_AFTER;
        self.recorded |= due;
        due
    }

    fn lasted(&self, now: Timestamp, span: crate::Span) -> bool {
        self.since.is_some_and(|since| now.since(since) >= span)
    }
}

/// What was refused for good since the last acknowledgement: each lane once, and each delivery without
/// a lane once, however often it is replayed.
#[derive(Debug, Default)]
struct Refusals(Vec<Refused>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Lane(LaneId),
    Unkeyed(DeliveryId),
}

impl Refusals {
    fn add(&mut self, refused: Refused) {
        // Beyond the highest threshold there is nothing left to count.
        if self.count() < QUARANTINE_AFTER_MAX && !self.0.contains(&refused) {
            self.0.push(refused);
        }
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }
}
