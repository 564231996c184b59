//! The breaker of one endpoint: stops sending when too much fails, probes, and ramps up again.

use serde::{Deserialize, Serialize};

use crate::{BreakerPolicy, Span, Timestamp};

/// Whether the breaker lets an attempt start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerPermit {
    /// As many as this may be under way.
    UpTo(u32),
    /// One, and it decides what follows.
    Probe,
    /// Nothing before this instant.
    NotBefore(Timestamp),
    /// Nothing until the probe under way has ended.
    AwaitingProbe,
}

/// What an attempt's end did to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened { until: Timestamp },
    Closed,
}

/// What a breaker does, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "breaker", rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts pass.
    Closed,
    /// Attempts pass, but no more than `limit` at once.
    Ramping {
        /// Most attempts under way.
        limit: u32,
    },
    /// Nothing passes before `until`; then one probe.
    Open {
        /// The probe's instant.
        until: Timestamp,
    },
    /// The probe is under way.
    Probing,
}

#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    window: Window,
    state: State,
    /// Most attempts under way while sending ramps up; `u32::MAX` once it has.
    ramp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Timestamp, open_for: Span },
    Probing { open_for: Span },
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self { window: Window::default(), state: State::Closed, ramp: u32::MAX }
    }

    /// A closed one that ramps up from one attempt: for an endpoint that a person switched on again.
    pub(crate) fn ramping() -> Self {
        Self { ramp: 1, ..Self::new() }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed if self.ramp == u32::MAX => BreakerState::Closed,
            State::Closed => BreakerState::Ramping { limit: self.ramp },
            State::Open { until, .. } => BreakerState::Open { until },
            State::Probing { .. } => BreakerState::Probing,
        }
    }

    pub(crate) fn permit(&self, now: Timestamp) -> BreakerPermit {
        match self.state {
            State::Closed => BreakerPermit::UpTo(self.ramp),
            State::Open { until, .. } if until <= now => BreakerPermit::Probe,
            State::Open { until, .. } => BreakerPermit::NotBefore(until),
            State::Probing { .. } => BreakerPermit::AwaitingProbe,
        }
    }

    /// The probe that [`BreakerPermit::Probe`] allows has started.
    pub(crate) fn probe_started(&mut self) {
        if let State::Open { open_for, .. } = self.state {
            self.state = State::Probing { open_for };
        }
    }

    /// A person vouches for the endpoint: the probe may go at once.
    pub(crate) fn half_open(&mut self, now: Timestamp) {
        if let State::Open { until, .. } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The probe came to nothing that says anything about the endpoint: another may go.
    pub(crate) fn probe_abandoned(&mut self, now: Timestamp) {
        if let State::Probing { open_for } = self.state {
            self.state = State::Open { until: now, open_for };
        }
    }

    pub(crate) fn attempt_ended(
        &mut self,
        succeeded: bool,
        was_probe: bool,
        policy: &BreakerPolicy,
        now: Timestamp,
    ) -> Option<Change> {
        match self.state {
            State::Closed => self.judge(succeeded, policy, now),
            State::Probing { open_for } if was_probe => {
                Some(self.probe_ended(succeeded, open_for, policy, now))
            }
            // Started before it opened: says nothing about the endpoint as it is now.
            State::Open { .. } | State::Probing { .. } => None,
        }
    }

    fn judge(&mut self, succeeded: bool, policy: &BreakerPolicy, now: Timestamp) -> Option<Change> {
        self.ramp = if succeeded { self.ramp.saturating_add(1) } else { self.ramp_after_failure() };
        self.window.push(succeeded, policy.window);
        let (failed, seen) = (self.window.failed(), self.window.seen);
        let too_many =
            u64::from(failed) * 100 >= u64::from(policy.failure_percent) * u64::from(seen);
        (seen >= policy.min_attempts && too_many).then(|| self.open(policy.open_for, now))
    }

    /// A failure while ramping up starts the ramp again; at full speed the window judges.
    fn ramp_after_failure(&self) -> u32 {
        if self.ramp == u32::MAX { u32::MAX } else { 1 }
    }

    /// Sending ramps up from one, and each success allows one more: it doubles per round trip until
    /// `full` may be under way.
    pub(crate) fn ramp_reached(&mut self, full: u32) {
        if self.ramp >= full {
            self.ramp = u32::MAX;
        }
    }

    fn probe_ended(
        &mut self,
        succeeded: bool,
        open_for: Span,
        policy: &BreakerPolicy,
        now: Timestamp,
    ) -> Change {
        if succeeded {
            *self = Self::ramping();
            return Change::Closed;
        }
        self.open(open_for.times(2).min(policy.open_for_max), now)
    }

    fn open(&mut self, open_for: Span, now: Timestamp) -> Change {
        let until = now + open_for;
        self.state = State::Open { until, open_for };
        Change::Opened { until }
    }
}

/// The latest outcomes, a bit each: 1 is a failure. The newest is the lowest bit.
#[derive(Clone, Debug, Default)]
struct Window {
    bits: u64,
    seen: u32,
}

impl Window {
    fn push(&mut self, succeeded: bool, size: u32) {
        self.bits = (self.bits << 1) | u64::from(!succeeded);
        self.seen = self.seen.saturating_add(1).min(size);
    }

    fn failed(&self) -> u32 {
        let mask = u64::MAX.checked_shr(64 - self.seen.min(64)).unwrap_or(0);
        (self.bits & mask).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        failure_percent: 50,
        min_attempts: 4,
        window: 6,
        open_for: Span::from_secs(10),
        open_for_max: Span::from_secs(30),
    };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn feed(breaker: &mut Breaker, outcomes: &str) -> Option<Change> {
        outcomes.chars().fold(None, |_, c| breaker.attempt_ended(c == '+', false, &POLICY, at(0)))
    }

    #[test]
    fn it_opens_at_the_failure_rate_once_it_has_seen_enough() {
        for (outcomes, opens) in [
            ("---", false),
            ("----", true),
            ("++--", true),
            ("+++-", false),
            ("++++++--", false),
            ("++++++---", true),
            // What has left the window no longer counts.
            ("-++++++++", false),
        ] {
            let change = feed(&mut Breaker::new(), outcomes);
            assert_eq!(change.is_some(), opens, "{outcomes}");
        }
    }

    #[test]
    fn while_open_nothing_passes_until_one_probe() {
        let mut breaker = Breaker::new();
        assert_eq!(feed(&mut breaker, "----"), Some(Change::Opened { until: at(10) }));
        assert_eq!(breaker.permit(at(9)), BreakerPermit::NotBefore(at(10)));
        assert_eq!(breaker.permit(at(10)), BreakerPermit::Probe);
        breaker.probe_started();
        assert_eq!(breaker.permit(at(99)), BreakerPermit::AwaitingProbe);
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_its_bound() {
        let mut breaker = Breaker::new();
        feed(&mut breaker, "----");
        for seconds in [20, 30, 30] {
            breaker.probe_started();
            let change = breaker.attempt_ended(false, true, &POLICY, at(100));
            assert_eq!(change, Some(Change::Opened { until: at(100 + seconds) }));
        }
    }

    #[test]
    fn an_attempt_from_before_it_opened_decides_nothing() {
        let mut breaker = Breaker::new();
        feed(&mut breaker, "----");
        assert_eq!(breaker.attempt_ended(true, false, &POLICY, at(5)), None);
        breaker.probe_started();
        assert_eq!(breaker.attempt_ended(true, false, &POLICY, at(5)), None);
        assert_eq!(breaker.permit(at(99)), BreakerPermit::AwaitingProbe);
    }

    #[test]
    fn on_close_sending_ramps_up_and_a_failure_starts_the_ramp_anew() {
        let mut breaker = Breaker::new();
        feed(&mut breaker, "----");
        breaker.probe_started();
        assert_eq!(breaker.attempt_ended(true, true, &POLICY, at(10)), Some(Change::Closed));
        assert_eq!(breaker.permit(at(10)), BreakerPermit::UpTo(1));
        feed(&mut breaker, "++");
        assert_eq!(breaker.permit(at(10)), BreakerPermit::UpTo(3));
        feed(&mut breaker, "-");
        assert_eq!(breaker.permit(at(10)), BreakerPermit::UpTo(1));
        feed(&mut breaker, "+++");
        breaker.ramp_reached(4);
        assert_eq!(breaker.permit(at(10)), BreakerPermit::UpTo(u32::MAX));
    }
}
