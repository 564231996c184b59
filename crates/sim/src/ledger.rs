//! What is written down about a delivery has to follow from what happened to it: the meaning of
//! results, attempts, waits and TTL, worked out from the policies' description.

use railpost_engine::{
    AttemptResult, Backoff, Command, DeadReason, Delivery, DeliveryState, Failure, Guarantee,
    Jitter, OnDeadLetter, Outcome, Policy, Progress, RetryPolicy, Span, Timestamp, Transition,
};

use crate::fact::InFlightAttempt;
use crate::model::{BrokenPromise, rule};

/// One record, and what led to it.
pub(crate) struct Entry<'a> {
    pub(crate) old: &'a Delivery,
    pub(crate) new: &'a Transition,
    pub(crate) ended: Option<(InFlightAttempt, AttemptResult)>,
    pub(crate) told: Option<Command>,
    pub(crate) policy: &'a Policy,
    /// Since when its endpoint is served.
    pub(crate) appeared: Timestamp,
    pub(crate) now: Timestamp,
}

impl Entry<'_> {
    pub(crate) fn judge(&self) -> Result<(), BrokenPromise> {
        const PROMISE: BrokenPromise = "a delivery's state follows from what happened to it";
        let Some((flight, result)) = &self.ended else {
            return rule(self.follows_command(), PROMISE);
        };
        let progress = self.progress_after(flight);
        rule(self.follows_attempt(*result, &progress), PROMISE)?;
        rule(progress == self.new.progress, "every attempt is counted")
    }

    fn progress_after(&self, flight: &InFlightAttempt) -> Progress {
        let mut progress = self.old.progress;
        progress.attempts = flight.attempt.number;
        // An at-most-once attempt is counted when it is recorded as sent.
        progress.round_attempts += u32::from(self.old.state != DeliveryState::InFlight);
        progress.round_started_at = self.round_started_at().or(Some(flight.since));
        if let DeliveryState::Waiting { until } = self.new.state {
            progress.last_delay = until.since(self.now);
        }
        progress
    }

    /// An instant on record that lies ahead when it is loaded was written by a clock that was wrong: the
    /// round started no later than that.
    fn round_started_at(&self) -> Option<Timestamp> {
        let recorded = self.old.progress.round_started_at?;
        let kept = self.new.progress.round_started_at.unwrap_or(recorded);
        Some(if (self.appeared..=recorded).contains(&kept) { kept } else { recorded })
    }

    fn follows_attempt(&self, result: AttemptResult, progress: &Progress) -> bool {
        use {DeadReason::*, DeliveryState::*};
        match (meaning(result, self.policy), self.new.state) {
            (Outcome::Acknowledged, state) => state == Delivered,
            (_, state) if self.told == Some(Command::Discard) => state == DeliveryState::DISCARDED,
            (_, Dead { holds, .. }) if holds != self.dead_letter_holds() => false,
            (Outcome::Permanent, state) => matches!(state, Dead { reason: Permanent, .. }),
            (_, state) if self.is_at_most_once() => {
                matches!(state, Dead { reason: SingleAttemptFailed, .. })
            }
            (_, _) => self.retries_in_time(result, progress),
        }
    }

    fn follows_command(&self) -> bool {
        use {Command::*, DeadReason::*, DeliveryState::*};
        let moves_on = |reason| Dead { reason, holds: false };
        match (self.told, self.old.state) {
            (Some(Discard), _) => self.new.state == DeliveryState::DISCARDED,
            (Some(Replay), Dead { .. }) => self.new.state == Pending,
            (Some(Skip), Dead { reason, holds: true }) => self.new.state == moves_on(reason),
            (None, InFlight) => self.new.state == moves_on(OutcomeUnknown),
            (None, _) if self.is_at_most_once() => self.new.state == moves_on(SingleAttemptFailed),
            _ => false,
        }
    }

    fn is_at_most_once(&self) -> bool {
        self.policy.guarantee == Guarantee::AtMostOnce
    }

    fn dead_letter_holds(&self) -> bool {
        let holds = self.policy.on_dead_letter == OnDeadLetter::Hold && !self.is_at_most_once();
        holds && self.old.place.is_some()
    }

    /// After a failure that may pass: a wait that is neither too short nor too long, or giving up for
    /// a reason.
    fn retries_in_time(&self, result: AttemptResult, progress: &Progress) -> bool {
        let policy = &self.policy.retry;
        let given_up =
            |why| matches!(self.new.state, DeliveryState::Dead { reason, .. } if reason == why);
        let waits =
            waits(policy, progress).filter(|_| progress.round_attempts < policy.max_attempts);
        let Some((mut shortest, mut longest)) = waits else {
            return given_up(DeadReason::AttemptsExhausted);
        };
        if let AttemptResult::Response { retry_after: Some(wish), .. } = result {
            (shortest, longest) = (honoured(wish, policy), honoured(wish, policy));
        }
        let expires = progress.round_started_at.unwrap_or(self.now) + policy.ttl;
        let (soonest, latest) = (self.now + shortest, self.now + longest);
        match self.new.state {
            DeliveryState::Waiting { until } => soonest <= until && until <= latest.min(expires),
            _ => given_up(DeadReason::Expired) && latest > expires,
        }
    }
}

/// The shortest and the longest wait after the last attempt in `progress`; nothing when the strategy
/// has no further attempt.
fn waits(policy: &RetryPolicy, progress: &Progress) -> Option<(Span, Span)> {
    let tried = progress.round_attempts;
    let (shortest, longest) = match &policy.backoff {
        Backoff::Fixed { delay } => (*delay, *delay),
        Backoff::Schedule { delays, repeat_last } => {
            let last = delays.last().filter(|_| *repeat_last);
            let delay = delays.get(tried as usize - 1).or(last)?;
            (*delay, *delay)
        }
        Backoff::Exponential { base, jitter } => {
            let whole = (1..tried).fold(*base, |wait, _| wait.times(2)).min(policy.max_delay);
            match jitter {
                Jitter::None => (whole, whole),
                Jitter::Full => (Span::ZERO, whole),
                Jitter::Equal => (Span::from_millis(whole.as_millis() / 2), whole),
                Jitter::Decorrelated => (*base, progress.last_delay.times(3).max(*base)),
            }
        }
    };
    Some((shortest.min(policy.max_delay), longest.min(policy.max_delay)))
}

/// Whether a result says anything about the endpoint: what failed on this side does not, and 409 and 425
/// are about a lane.
pub(crate) fn is_about_endpoint(result: AttemptResult) -> bool {
    !matches!(
        result,
        AttemptResult::Failed(Failure::PayloadMissing | Failure::NotSent)
            | AttemptResult::Response { status: 409 | 425, .. }
    )
}

pub(crate) fn meaning(result: AttemptResult, policy: &Policy) -> Outcome {
    match result {
        AttemptResult::Failed(Failure::PayloadMissing) => Outcome::Permanent,
        AttemptResult::Failed(_) => Outcome::Retryable,
        AttemptResult::Response { status, .. } => match (policy.outcomes.get(&status), status) {
            (Some(outcome), _) => *outcome,
            (None, 200..=299) => Outcome::Acknowledged,
            (None, 408 | 409 | 425 | 429) => Outcome::Retryable,
            (None, 400..=499 | 501) => Outcome::Permanent,
            (None, _) => Outcome::Retryable,
        },
    }
}

/// How long a receiver's wish is honoured.
pub(crate) fn honoured(wish: Span, policy: &RetryPolicy) -> Span {
    wish.max(Span::from_secs(1)).min(policy.max_delay)
}
