//! When to try again: backoff strategies, their bounds, and the planned attempts for people.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{DeadReason, Span, Timestamp};

/// When a failed delivery is tried again, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// How the wait between two attempts grows.
    pub backoff: Backoff,
    /// The longest wait, whatever the strategy or `Retry-After` says.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::retry_delay"))]
    pub max_delay: Span,
    /// Most attempts of a delivery, the first included; then it becomes a dead letter.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::limits::ATTEMPTS_MAX)))]
    pub max_attempts: u32,
    /// How long after its first attempt a delivery may still be tried again.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::ttl"))]
    pub ttl: Span,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            max_delay: Span::from_mins(10),
            max_attempts: 100,
            ttl: Span::from_hours(72),
        }
    }
}

/// How the wait between two attempts grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "strategy", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// The same wait every time.
    Fixed {
        /// The wait, `max_delay` at most.
        #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::retry_delay"))]
        delay: Span,
    },
    /// The wait doubles each time, up to `max_delay`.
    Exponential {
        /// The first wait, `max_delay` at most.
        #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::retry_delay"))]
        base: Span,
        /// How random the waits are.
        #[serde(default)]
        jitter: Jitter,
    },
    /// A list of waits.
    Schedule {
        /// The wait after the first attempt, after the second, and so on, each `max_delay` at most.
        #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::retry_delays"))]
        delays: Vec<Span>,
        /// After the last entry: keep repeating it, or give up.
        #[serde(default)]
        repeat_last: bool,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { base: Span::from_secs(2), jitter: Jitter::Full }
    }
}

/// A [`Backoff`] as it is written: an object whose `strategy` says which of the other fields it has. The
/// derived reader of an enum would read it from a buffer, and errors within would not know their place.
#[derive(Deserialize)]
#[serde(rename = "Backoff", deny_unknown_fields)]
struct BackoffFields {
    strategy: StrategyName,
    #[serde(default, deserialize_with = "present")]
    delay: Option<Span>,
    #[serde(default, deserialize_with = "present")]
    base: Option<Span>,
    #[serde(default, deserialize_with = "present")]
    jitter: Option<Jitter>,
    #[serde(default, deserialize_with = "present")]
    delays: Option<Vec<Span>>,
    #[serde(default, deserialize_with = "present")]
    repeat_last: Option<bool>,
}

/// A field that is there has a value: `null` is none.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StrategyName {
    Fixed,
    Exponential,
    Schedule,
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BackoffFields::deserialize(deserializer)?.into_backoff().map_err(de::Error::custom)
    }
}

impl BackoffFields {
    fn into_backoff(self) -> Result<Backoff, String> {
        self.check_foreign()?;
        let missing = |field: &str| format!("missing field `{field}`");
        Ok(match self.strategy {
            StrategyName::Fixed => {
                Backoff::Fixed { delay: self.delay.ok_or_else(|| missing("delay"))? }
            }
            StrategyName::Exponential => Backoff::Exponential {
                base: self.base.ok_or_else(|| missing("base"))?,
                jitter: self.jitter.unwrap_or_default(),
            },
            StrategyName::Schedule => Backoff::Schedule {
                delays: self.delays.ok_or_else(|| missing("delays"))?,
                repeat_last: self.repeat_last.unwrap_or_default(),
            },
        })
    }

    /// Refuses a field that another strategy has.
    fn check_foreign(&self) -> Result<(), String> {
        let own: &[&str] = match self.strategy {
            StrategyName::Fixed => &["delay"],
            StrategyName::Exponential => &["base", "jitter"],
            StrategyName::Schedule => &["delays", "repeat_last"],
        };
        let present = [
            ("delay", self.delay.is_some()),
            ("base", self.base.is_some()),
            ("jitter", self.jitter.is_some()),
            ("delays", self.delays.is_some()),
            ("repeat_last", self.repeat_last.is_some()),
        ];
        match present.into_iter().find(|(name, is)| *is && !own.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(format!("unknown field `{name}` for this strategy")),
        }
    }
}

/// How random exponential waits are, so that retries do not come all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Not at all.
    None,
    /// Random, from 0 to the whole wait.
    #[default]
    Full,
    /// Half of the wait, plus a random part of the other half.
    Equal,
    /// Random, from the base to three times the previous wait.
    Decorrelated,
}

/// A delivery's retries so far, as far as its next one depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Attempts made in all.
    pub attempts: u32,
    /// Attempts made since the delivery was accepted or last replayed: what the policy counts.
    pub round_attempts: u32,
    /// When the first of those started.
    pub round_started_at: Option<Timestamp>,
    /// The wait before the next attempt, or before the last one made.
    pub last_delay: Span,
    /// Whether a person asked for the current round.
    pub replay: bool,
}

/// What follows a retryable failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    After(Span),
    GiveUp(DeadReason),
}

impl RetryPolicy {
    /// What follows the failure, at `now`, of the last attempt in `progress`. The receiver's own
    /// wish, where it gave one, wins over the strategy but not over the longest delay.
    pub(crate) fn after_failure(
        &self,
        progress: &Progress,
        retry_after: Option<Span>,
        now: Timestamp,
        rng: &mut fastrand::Rng,
    ) -> Retry {
        if progress.round_attempts >= self.max_attempts {
            return Retry::GiveUp(DeadReason::AttemptsExhausted);
        }
        let Some(bounds) = self.delay_bounds(progress.round_attempts, progress.last_delay) else {
            return Retry::GiveUp(DeadReason::AttemptsExhausted);
        };
        let delay = match retry_after {
            Some(wish) => self.cap_retry_after(wish),
            None => bounds.draw(rng),
        };
        let started = progress.round_started_at.unwrap_or(now);
        if (now + delay).since(started) > self.ttl {
            return Retry::GiveUp(DeadReason::Expired);
        }
        Retry::After(delay)
    }

    /// Whether a failure of the next attempt, at `at`, ends the delivery for sure.
    pub(crate) fn ends_with_next_failure(&self, progress: &Progress, at: Timestamp) -> bool {
        let attempts = progress.round_attempts.saturating_add(1);
        if attempts >= self.max_attempts {
            return true;
        }
        let Some(bounds) = self.delay_bounds(attempts, progress.last_delay) else { return true };
        let started = progress.round_started_at.unwrap_or(at);
        (at + bounds.min).since(started) > self.ttl
    }

    /// How long a receiver's `Retry-After` is honoured.
    pub(crate) fn cap_retry_after(&self, wish: Span) -> Span {
        wish.max(crate::limits::RETRY_AFTER_MIN).min(self.max_delay)
    }

    /// Between what the wait after attempt number `attempt` (1, 2, …) lies; nothing when the
    /// strategy has no further attempt.
    fn delay_bounds(&self, attempt: u32, last_delay: Span) -> Option<DelayBounds> {
        let bounds = match &self.backoff {
            Backoff::Fixed { delay } => DelayBounds::exactly(*delay),
            Backoff::Exponential { base, jitter } => {
                exponential_bounds(*base, *jitter, attempt, last_delay, self.max_delay)
            }
            Backoff::Schedule { delays, repeat_last } => {
                let index = attempt.saturating_sub(1) as usize;
                let fallback = delays.last().filter(|_| *repeat_last);
                DelayBounds::exactly(*delays.get(index).or(fallback)?)
            }
        };
        Some(bounds.capped(self.max_delay))
    }

    /// The planned attempts of a delivery that keeps failing, counted from its first attempt, for
    /// people to look at: at most `limit` of them.
    pub fn plan(&self, limit: usize) -> Plan {
        let mut attempts =
            vec![PlannedAttempt { number: 1, earliest: Span::ZERO, latest: Span::ZERO }];
        let mut longest_delay = Span::ZERO;
        while attempts.len() < limit.min(self.max_attempts as usize) {
            let last = attempts[attempts.len() - 1];
            let Some(bounds) = self.delay_bounds(last.number, longest_delay) else { break };
            longest_delay = bounds.max;
            let earliest = last.earliest + bounds.min;
            if earliest > self.ttl {
                break;
            }
            let latest = (last.latest + bounds.max).min(self.ttl);
            attempts.push(PlannedAttempt { number: last.number + 1, earliest, latest });
        }
        attempts.truncate(limit);
        Plan { attempts }
    }
}

fn exponential_bounds(
    base: Span,
    jitter: Jitter,
    attempt: u32,
    last_delay: Span,
    max_delay: Span,
) -> DelayBounds {
    let doublings = attempt.saturating_sub(1).min(63);
    let whole = base.times(1 << doublings).min(max_delay);
    match jitter {
        Jitter::None => DelayBounds::exactly(whole),
        Jitter::Full => DelayBounds { min: Span::ZERO, max: whole },
        Jitter::Equal => DelayBounds { min: Span::from_millis(whole.as_millis() / 2), max: whole },
        Jitter::Decorrelated => DelayBounds { min: base, max: last_delay.times(3).max(base) },
    }
}

/// A wait between two lengths, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DelayBounds {
    min: Span,
    max: Span,
}

impl DelayBounds {
    fn exactly(delay: Span) -> Self {
        Self { min: delay, max: delay }
    }

    fn capped(self, longest: Span) -> Self {
        Self { min: self.min.min(longest), max: self.max.min(longest) }
    }

    fn draw(self, rng: &mut fastrand::Rng) -> Span {
        if self.min >= self.max {
            return self.max;
        }
        Span::from_millis(rng.u64(self.min.as_millis()..=self.max.as_millis()))
    }
}

/// The attempts that a policy plans for a delivery that keeps failing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// In order.
    pub attempts: Vec<PlannedAttempt>,
}

/// One planned attempt. Chance leaves a range unless the strategy has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedAttempt {
    /// 1, 2, 3 …
    pub number: u32,
    /// The earliest it can start, counted from the first attempt's start.
    pub earliest: Span,
    /// The latest it is due.
    pub latest: Span,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for attempt in &self.attempts {
            let PlannedAttempt { number, earliest, latest } = attempt;
            if earliest == latest {
                writeln!(f, "attempt {number:>3}  at {}", Clock(*earliest))?;
            } else {
                writeln!(
                    f,
                    "attempt {number:>3}  between {} and {}",
                    Clock(*earliest),
                    Clock(*latest)
                )?;
            }
        }
        Ok(())
    }
}

/// A length as hours, minutes and seconds, so that a column of them can be compared.
struct Clock(Span);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let (hours, minutes, seconds) =
            (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
        write!(f, "+{hours:02}:{minutes:02}:{seconds:02}")?;
        match millis % 1000 {
            0 => Ok(()),
            rest => write!(f, ".{rest:03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn policy(backoff: Backoff) -> RetryPolicy {
        RetryPolicy { backoff, max_delay: Span::from_secs(60), ..RetryPolicy::default() }
    }

    fn failed(round_attempts: u32) -> Progress {
        Progress {
            attempts: round_attempts,
            round_attempts,
            round_started_at: Some(NOW),
            ..Progress::default()
        }
    }

    fn exponential(jitter: Jitter) -> RetryPolicy {
        policy(Backoff::Exponential { base: Span::from_secs(1), jitter })
    }

    #[test]
    fn the_attempt_after_which_nothing_follows_is_known_before_it_is_made() {
        let delay = Span::from_secs(10);
        let (max_attempts, ttl) = (3, Span::from_secs(45));
        let fixed =
            RetryPolicy { backoff: Backoff::Fixed { delay }, max_delay: delay, max_attempts, ttl };
        let delays = vec![delay, delay];
        let schedule = RetryPolicy {
            backoff: Backoff::Schedule { delays, repeat_last: false },
            max_attempts: 100,
            ..fixed.clone()
        };
        let endless = RetryPolicy { max_attempts: 100, ..fixed.clone() };
        for (policy, round_attempts, at, ends) in [
            (&fixed, 1, 10, false),
            (&fixed, 2, 20, true),
            (&schedule, 1, 10, false),
            (&schedule, 2, 20, true),
            (&endless, 4, 35, false),
            (&endless, 4, 36, true),
        ] {
            let round_started_at = Some(Timestamp::from_millis(0));
            let progress = Progress { round_attempts, round_started_at, ..Progress::default() };
            let at = Timestamp::from_millis(at * 1_000);
            assert_eq!(
                policy.ends_with_next_failure(&progress, at),
                ends,
                "{policy:?} {progress:?}"
            );
        }
    }

    #[test]
    fn waits_lie_where_the_strategy_puts_them() {
        let schedule = |repeat_last| {
            policy(Backoff::Schedule {
                delays: vec![Span::from_secs(5), Span::from_secs(30)],
                repeat_last,
            })
        };
        for (policy, attempt, last_delay_ms, expected) in [
            (policy(Backoff::Fixed { delay: Span::from_secs(7) }), 1, 0, Some((7_000, 7_000))),
            (policy(Backoff::Fixed { delay: Span::from_secs(7) }), 99, 0, Some((7_000, 7_000))),
            (exponential(Jitter::None), 1, 0, Some((1_000, 1_000))),
            (exponential(Jitter::None), 2, 0, Some((2_000, 2_000))),
            (exponential(Jitter::None), 3, 0, Some((4_000, 4_000))),
            (exponential(Jitter::None), 7, 0, Some((60_000, 60_000))),
            (exponential(Jitter::None), u32::MAX, 0, Some((60_000, 60_000))),
            (exponential(Jitter::Full), 3, 0, Some((0, 4_000))),
            (exponential(Jitter::Equal), 3, 0, Some((2_000, 4_000))),
            (exponential(Jitter::Decorrelated), 1, 0, Some((1_000, 1_000))),
            (exponential(Jitter::Decorrelated), 2, 1_500, Some((1_000, 4_500))),
            (exponential(Jitter::Decorrelated), 9, 50_000, Some((1_000, 60_000))),
            (schedule(false), 1, 0, Some((5_000, 5_000))),
            (schedule(false), 2, 0, Some((30_000, 30_000))),
            (schedule(false), 3, 0, None),
            (schedule(true), 3, 0, Some((30_000, 30_000))),
        ] {
            let bounds = policy.delay_bounds(attempt, Span::from_millis(last_delay_ms));
            let bounds = bounds.map(|b| (b.min.as_millis(), b.max.as_millis()));
            assert_eq!(bounds, expected, "{:?} after attempt {attempt}", policy.backoff);
        }
    }

    #[test]
    fn a_delivery_is_given_up_on_at_its_last_attempt_or_past_its_ttl() {
        let fixed = policy(Backoff::Fixed { delay: Span::from_secs(10) });
        let bounded = RetryPolicy { max_attempts: 3, ttl: Span::from_secs(30), ..fixed };
        let rng = &mut fastrand::Rng::with_seed(1);
        for (round_attempts, seconds_in, expected) in [
            (1, 0, Retry::After(Span::from_secs(10))),
            (2, 20, Retry::After(Span::from_secs(10))),
            (2, 21, Retry::GiveUp(DeadReason::Expired)),
            (3, 0, Retry::GiveUp(DeadReason::AttemptsExhausted)),
        ] {
            let now = NOW + Span::from_secs(seconds_in);
            let retry = bounded.after_failure(&failed(round_attempts), None, now, rng);
            assert_eq!(retry, expected, "attempt {round_attempts}, {seconds_in} s in");
        }
    }

    #[test]
    fn retry_after_wins_over_the_strategy_within_its_bounds() {
        let fixed = policy(Backoff::Fixed { delay: Span::from_secs(10) });
        let rng = &mut fastrand::Rng::with_seed(1);
        for (wish, honoured) in [
            (Span::from_secs(3), Span::from_secs(3)),
            (Span::from_secs(45), Span::from_secs(45)),
            (Span::from_hours(5), Span::from_secs(60)),
            (Span::ZERO, Span::from_secs(1)),
            (Span::from_millis(u64::MAX), Span::from_secs(60)),
        ] {
            let retry = fixed.after_failure(&failed(1), Some(wish), NOW, rng);
            assert_eq!(retry, Retry::After(honoured), "asked for {wish}");
        }
    }

    #[test]
    fn the_plan_of_the_seeds_worked_example_is_one_two_four() {
        let plan = exponential(Jitter::None).plan(4);
        let starts: Vec<u64> = plan.attempts.iter().map(|a| a.earliest.as_millis()).collect();
        assert_eq!(starts, [0, 1_000, 3_000, 7_000]);
    }

    #[test]
    fn the_plan_ends_with_the_schedule_the_attempts_or_the_ttl() {
        let delays = vec![Span::from_secs(10); 3];
        let schedule = policy(Backoff::Schedule { delays, repeat_last: false });
        assert_eq!(schedule.plan(100).attempts.len(), 4);
        assert_eq!(RetryPolicy { max_attempts: 2, ..schedule.clone() }.plan(100).attempts.len(), 2);
        assert_eq!(
            RetryPolicy { ttl: Span::from_secs(20), ..schedule.clone() }.plan(100).attempts.len(),
            3
        );
        assert_eq!(schedule.plan(0).attempts.len(), 0);
    }

    #[test]
    fn the_plan_prints_a_line_an_attempt() {
        let text = exponential(Jitter::Equal).plan(3).to_string();
        assert_eq!(
            text,
            "attempt   1  at +00:00:00\n\
             attempt   2  between +00:00:00.500 and +00:00:01\n\
             attempt   3  between +00:00:01.500 and +00:00:03\n"
        );
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let span = any::<u64>().prop_map(Span::from_millis);
        let jitter = prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Equal),
            Just(Jitter::Decorrelated)
        ];
        prop_oneof![
            span.clone().prop_map(|delay| Backoff::Fixed { delay }),
            (span.clone(), jitter).prop_map(|(base, jitter)| Backoff::Exponential { base, jitter }),
            (prop::collection::vec(span, 0..5), any::<bool>())
                .prop_map(|(delays, repeat_last)| Backoff::Schedule { delays, repeat_last }),
        ]
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_the_policy_allows(
            backoff in any_backoff(),
            max_delay_ms: u64,
            attempts: u32,
            last_delay_ms: u64,
            wish_ms in prop::option::of(any::<u64>()),
            now_ms: u64,
            seed: u64,
        ) {
            let max_delay = Span::from_millis(max_delay_ms);
            let ttl = Span::from_millis(u64::MAX);
            let policy = RetryPolicy { backoff, max_delay, max_attempts: u32::MAX, ttl };
            let last_delay = Span::from_millis(last_delay_ms);
            let progress = Progress { last_delay, ..failed(attempts) };
            let wish = wish_ms.map(Span::from_millis);
            let now = Timestamp::from_millis(now_ms);
            let rng = &mut fastrand::Rng::with_seed(seed);
            if let Retry::After(delay) = policy.after_failure(&progress, wish, now, rng) {
                prop_assert!(delay <= max_delay);
            }
        }

        #[test]
        fn no_plan_panics_or_runs_backwards(backoff in any_backoff(), max_delay_ms: u64, ttl_ms: u64) {
            let policy = RetryPolicy {
                backoff,
                max_delay: Span::from_millis(max_delay_ms),
                max_attempts: u32::MAX,
                ttl: Span::from_millis(ttl_ms),
            };
            let plan = policy.plan(50);
            prop_assert!(plan.attempts.is_sorted_by_key(|attempt| attempt.earliest));
            prop_assert!(plan.attempts.iter().all(|a| a.earliest <= a.latest || a.latest == policy.ttl));
        }
    }
}
