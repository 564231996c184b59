//! What contains a failing receiver, worked out from its description: rates and the breaker.

use railpost_engine::{AttemptToken, BreakerPolicy, Policy, RateLimit, Span, Timestamp};

/// A token bucket by when it will be full again, in milliseconds times its count.
#[derive(Clone, Copy, Default)]
pub(crate) struct BucketModel(u64);

impl BucketModel {
    /// The bucket once a token is spent; nothing when there is none.
    pub(crate) fn spend(self, limit: Option<RateLimit>, now: Timestamp) -> Option<Self> {
        let Some(RateLimit { count, per, burst }) = limit else { return Some(self) };
        let (now, token) = (now.as_millis() * u64::from(count), per.as_millis());
        let full_at = self.0.max(now) + token;
        (full_at <= now + token * u64::from(burst)).then_some(Self(full_at))
    }

    /// The bucket under another limit: whole tokens that were saved up are kept.
    pub(crate) fn under(
        self,
        old: Option<RateLimit>,
        new: Option<RateLimit>,
        now: Timestamp,
    ) -> Self {
        let (Some(old), Some(new)) = (old, new) else { return Self::default() };
        let units = |limit: RateLimit| now.as_millis() * u64::from(limit.count);
        let missing = self.0.saturating_sub(units(old)).div_ceil(old.per.as_millis());
        let saved = u64::from(old.burst).saturating_sub(missing);
        Self(units(new) + u64::from(new.burst).saturating_sub(saved) * new.per.as_millis())
    }
}

/// The breaker of one endpoint.
#[derive(Default)]
pub(crate) struct BreakerModel {
    /// The latest outcomes, newest first: whether they failed.
    failures: Vec<bool>,
    open: Option<Open>,
    /// As many may be under way while sending ramps up.
    ramp: Option<u32>,
}

struct Open {
    until: Timestamp,
    lasts: Span,
    probe: Option<AttemptToken>,
}

impl BreakerModel {
    /// One that ramps up again.
    pub(crate) fn ramping() -> Self {
        Self { ramp: Some(1), ..Self::default() }
    }

    /// The breaker under another policy. Switched off, it forgets.
    pub(crate) fn under(self, policy: Option<BreakerPolicy>) -> Self {
        if policy.is_some() { self } else { Self::default() }
    }

    /// How many attempts it allows to be under way.
    pub(crate) fn most(&self, now: Timestamp, is_under_way: impl Fn(AttemptToken) -> bool) -> u32 {
        match &self.open {
            Some(open) if open.until > now || open.probe.is_some_and(is_under_way) => 0,
            Some(_) => u32::MAX,
            None => self.ramp.unwrap_or(u32::MAX),
        }
    }

    /// Notes a start; says whether it is a probe.
    pub(crate) fn started(&mut self, token: AttemptToken) -> bool {
        if let Some(open) = &mut self.open {
            open.probe = Some(token);
        }
        self.open.is_some()
    }

    pub(crate) fn ended(
        &mut self,
        token: AttemptToken,
        failed: bool,
        policy: &Policy,
        now: Timestamp,
    ) {
        let Some(breaker) = &policy.breaker else { return };
        match &self.open {
            Some(open) if open.probe != Some(token) => {}
            Some(open) if failed => self.open(open.lasts.times(2).min(breaker.open_for_max), now),
            Some(_) => *self = Self::ramping(),
            None => self.judge(failed, breaker, now),
        }
        self.ramp = self.ramp.filter(|most| *most < policy.in_flight_max);
    }

    fn judge(&mut self, failed: bool, policy: &BreakerPolicy, now: Timestamp) {
        self.ramp = self.ramp.map(|most| if failed { 1 } else { most + 1 });
        self.failures.insert(0, failed);
        self.failures.truncate(policy.window as usize);
        let (seen, bad) = (self.failures.len(), self.failures.iter().filter(|bad| **bad).count());
        let enough = seen >= policy.min_attempts as usize;
        if enough && bad * 100 >= seen * usize::from(policy.failure_percent) {
            self.open(policy.open_for, now);
        }
    }

    fn open(&mut self, lasts: Span, now: Timestamp) {
        self.open = Some(Open { until: now + lasts, lasts, probe: None });
    }
}
