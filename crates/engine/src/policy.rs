//! What an endpoint's owner may choose, as plain data that is validated once.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::limits::{
    ATTEMPTS_MAX, BREAKER_OPEN_MAX, BREAKER_WINDOW_MAX, DISABLE_AFTER_MAX, ENDPOINT_IN_FLIGHT_MAX,
    OVERRIDES_MAX, QUARANTINE_AFTER_MAX, RATE_COUNT_MAX, RATE_PERIOD_MAX, RETRY_DELAY_MAX,
    SCHEDULE_LEN_MAX, TTL_MAX,
};
use crate::{Backoff, Overrides, RetryPolicy, Span};

/// An endpoint's policy, known to be valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "PolicyFields", into = "PolicyFields")]
pub struct Policy(PolicyFields);

/// The fields of a [`Policy`], before anyone has looked at them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PolicyFields {
    /// What is promised about duplicates and loss.
    pub guarantee: Guarantee,
    /// Which deliveries wait for each other.
    pub ordering: Ordering,
    /// What a dead letter does to its lane.
    pub on_dead_letter: OnDeadLetter,
    /// Whether attempts carry signatures.
    pub signed: bool,
    /// When a failed delivery is tried again.
    pub retry: RetryPolicy,
    /// Statuses that mean something else here: `{"404": "retryable"}`.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::outcomes"))]
    pub outcomes: Overrides,
    /// Most attempts under way at once.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = ENDPOINT_IN_FLIGHT_MAX)))]
    pub in_flight_max: u32,
    /// Most attempts per period; `null` means no limit.
    pub rate_limit: Option<RateLimit>,
    /// When to stop sending to an endpoint that fails; `null` means never.
    pub breaker: Option<BreakerPolicy>,
    /// The endpoint is quarantined when this many lanes in a row fail for good; `null` means never.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = QUARANTINE_AFTER_MAX)))]
    pub quarantine_after: Option<u32>,
    /// The endpoint is switched off when it has failed for this long without a success; `null` means never.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::disable_after"))]
    pub disable_after: Option<Span>,
}

impl Default for PolicyFields {
    fn default() -> Self {
        Self {
            guarantee: Guarantee::default(),
            ordering: Ordering::default(),
            on_dead_letter: OnDeadLetter::default(),
            signed: true,
            retry: RetryPolicy::default(),
            outcomes: Overrides::new(),
            in_flight_max: 64,
            rate_limit: None,
            breaker: Some(BreakerPolicy::default()),
            quarantine_after: Some(5),
            disable_after: Some(Span::from_days(5)),
        }
    }
}

/// What an endpoint is promised about duplicates and loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Sent until acknowledged; duplicates happen.
    #[default]
    AtLeastOnce,
    /// Sent once and never again, acknowledged or not. A lost one cannot be waited for, so it never
    /// holds its lane.
    AtMostOnce,
    /// At least once, with all that a receiver needs to apply each event once.
    EffectivelyOnce,
}

/// Which of an endpoint's deliveries wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// Those with the same key.
    #[default]
    PerKey,
    /// None.
    None,
    /// All.
    Global,
}

/// Which lane of its endpoint a delivery belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneChoice<'a> {
    /// No order: it waits for no other delivery.
    NoLane,
    /// The lane of this key.
    OfKey(&'a str),
    /// The endpoint's one lane for everything.
    OfEndpoint,
}

impl Ordering {
    /// The lane of a delivery whose event has `key`. Decided when an event is accepted: a change of
    /// ordering leaves what was accepted before where it is.
    pub fn lane_for(self, key: Option<&str>) -> LaneChoice<'_> {
        match (self, key) {
            (Ordering::Global, _) => LaneChoice::OfEndpoint,
            (Ordering::PerKey, Some(key)) => LaneChoice::OfKey(key),
            (Ordering::PerKey, None) | (Ordering::None, _) => LaneChoice::NoLane,
        }
    }
}

/// What a dead letter does to its lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDeadLetter {
    /// The lane stands still until someone replays, skips or discards it.
    #[default]
    Hold,
    /// The lane moves on without it.
    Advance,
}

/// A token bucket: `count` attempts per `per`, up to `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Attempts per period.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = RATE_COUNT_MAX)))]
    pub count: u32,
    /// The period.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::rate_period"))]
    pub per: Span,
    /// Most attempts at once after a pause.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = RATE_COUNT_MAX)))]
    pub burst: u32,
}

impl RateLimit {
    /// Checks its bounds; `field` is its path, for the error.
    pub fn check(&self, field: &str) -> Result<(), PolicyError> {
        check_rate_limit(field, self)
    }
}

/// When to stop sending to an endpoint that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BreakerPolicy {
    /// Percentage of failures that opens it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub failure_percent: u8,
    /// The breaker may open once there were this many attempts: `window` at most.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = BREAKER_WINDOW_MAX)))]
    pub min_attempts: u32,
    /// How many of the latest attempts count.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = BREAKER_WINDOW_MAX)))]
    pub window: u32,
    /// How long it stays open before one probe is sent, `open_for_max` at most. Doubles with each probe that
    /// fails.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::breaker_open"))]
    pub open_for: Span,
    /// The longest it stays open between two probes.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::breaker_open"))]
    pub open_for_max: Span,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            failure_percent: 50,
            min_attempts: 10,
            window: 20,
            open_for: Span::from_secs(10),
            open_for_max: Span::from_mins(10),
        }
    }
}

/// A policy that cannot be: which field, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The field's path, such as `retry.max_attempts`.
    pub field: String,
    /// What is wrong with it and what is allowed.
    pub problem: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for PolicyError {}

impl Policy {
    /// Checks the fields; the error names the first one out of bounds.
    pub fn new(fields: PolicyFields) -> Result<Self, PolicyError> {
        check_retry(&fields.retry)?;
        check_outcomes(&fields.outcomes)?;
        within("in_flight_max", fields.in_flight_max, 1, ENDPOINT_IN_FLIGHT_MAX)?;
        if let Some(rate_limit) = &fields.rate_limit {
            check_rate_limit("rate_limit", rate_limit)?;
        }
        if let Some(breaker) = &fields.breaker {
            check_breaker(breaker)?;
        }
        if let Some(lanes) = fields.quarantine_after {
            within("quarantine_after", lanes, 1, QUARANTINE_AFTER_MAX)?;
        }
        if let Some(after) = fields.disable_after {
            within("disable_after", after, Span::from_mins(1), DISABLE_AFTER_MAX)?;
        }
        check_guarantee(&fields)?;
        Ok(Self(fields))
    }

    /// The fields, to change some and validate again.
    pub fn into_fields(self) -> PolicyFields {
        self.0
    }

    /// Whether a delivery given up on holds its lane.
    pub fn dead_letters_hold(&self) -> bool {
        self.guarantee != Guarantee::AtMostOnce && self.on_dead_letter == OnDeadLetter::Hold
    }
}

impl Deref for Policy {
    type Target = PolicyFields;

    fn deref(&self) -> &PolicyFields {
        &self.0
    }
}

impl TryFrom<PolicyFields> for Policy {
    type Error = PolicyError;

    fn try_from(fields: PolicyFields) -> Result<Self, PolicyError> {
        Self::new(fields)
    }
}

impl From<Policy> for PolicyFields {
    fn from(policy: Policy) -> Self {
        policy.0
    }
}

fn check_retry(retry: &RetryPolicy) -> Result<(), PolicyError> {
    let moment = Span::from_millis(1);
    within("retry.max_delay", retry.max_delay, moment, RETRY_DELAY_MAX)?;
    within("retry.max_attempts", retry.max_attempts, 1, ATTEMPTS_MAX)?;
    within("retry.ttl", retry.ttl, moment, TTL_MAX)?;
    match &retry.backoff {
        Backoff::Fixed { delay } => within("retry.backoff.delay", *delay, moment, retry.max_delay),
        Backoff::Exponential { base, .. } => {
            within("retry.backoff.base", *base, moment, retry.max_delay)
        }
        Backoff::Schedule { delays, .. } => check_schedule(delays, retry.max_delay),
    }
}

fn check_schedule(delays: &[Span], max_delay: Span) -> Result<(), PolicyError> {
    within("retry.backoff.delays (entries)", delays.len(), 1, SCHEDULE_LEN_MAX)?;
    for (index, delay) in delays.iter().enumerate() {
        within(&format!("retry.backoff.delays[{index}]"), *delay, Span::ZERO, max_delay)?;
    }
    Ok(())
}

fn check_outcomes(outcomes: &Overrides) -> Result<(), PolicyError> {
    within("outcomes (entries)", outcomes.len(), 0, OVERRIDES_MAX)?;
    for status in outcomes.keys() {
        within("outcomes (status)", *status, 100, 599)?;
    }
    Ok(())
}

/// Checks a rate limit; `field` is its path, for the error.
pub(crate) fn check_rate_limit(field: &str, limit: &RateLimit) -> Result<(), PolicyError> {
    within(&format!("{field}.count"), limit.count, 1, RATE_COUNT_MAX)?;
    within(&format!("{field}.per"), limit.per, Span::from_millis(1), RATE_PERIOD_MAX)?;
    within(&format!("{field}.burst"), limit.burst, 1, RATE_COUNT_MAX)
}

fn check_breaker(breaker: &BreakerPolicy) -> Result<(), PolicyError> {
    within("breaker.failure_percent", breaker.failure_percent, 1, 100)?;
    within("breaker.window", breaker.window, 1, BREAKER_WINDOW_MAX)?;
    within("breaker.min_attempts", breaker.min_attempts, 1, breaker.window)?;
    within("breaker.open_for_max", breaker.open_for_max, Span::from_millis(1), BREAKER_OPEN_MAX)?;
    within("breaker.open_for", breaker.open_for, Span::from_millis(1), breaker.open_for_max)
}

/// Effectively-once needs three things of the sender: a stable event id, which every event has;
/// order by key that nothing slips past; and signatures.
fn check_guarantee(fields: &PolicyFields) -> Result<(), PolicyError> {
    let refuse = |field: &str, needed: &str| {
        let problem = format!("guarantee `effectively_once` needs {needed}");
        Err(PolicyError { field: field.to_owned(), problem })
    };
    match fields.guarantee {
        Guarantee::AtLeastOnce | Guarantee::AtMostOnce => Ok(()),
        Guarantee::EffectivelyOnce if fields.ordering == Ordering::None => {
            refuse("ordering", "`per_key` or `global`")
        }
        Guarantee::EffectivelyOnce if fields.on_dead_letter == OnDeadLetter::Advance => {
            refuse("on_dead_letter", "`hold`")
        }
        Guarantee::EffectivelyOnce if !fields.signed => refuse("signed", "`true`"),
        Guarantee::EffectivelyOnce => Ok(()),
    }
}

fn within<T: PartialOrd + fmt::Display + Copy>(
    field: &str,
    value: T,
    min: T,
    max: T,
) -> Result<(), PolicyError> {
    if value >= min && value <= max {
        return Ok(());
    }
    let problem = format!("{value} is not within {min} to {max}");
    Err(PolicyError { field: field.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn parse(policy: Value) -> Result<Policy, String> {
        serde_json::from_value(policy).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_the_default_policy() {
        assert_eq!(parse(json!({})).unwrap(), Policy::default());
        assert_eq!(Policy::new(PolicyFields::default()).unwrap(), Policy::default());
    }

    #[test]
    fn the_policy_in_the_docs_is_the_default_policy() {
        let docs = include_str!("../../../docs/engine.md");
        let (_, block) = docs.split_once("```json\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let documented: Value = serde_json::from_str(block).unwrap();
        assert_eq!(documented, serde_json::to_value(Policy::default()).unwrap());
    }

    #[test]
    fn a_policy_reads_back_as_itself() {
        let full = parse(json!({
            "guarantee": "at_most_once",
            "ordering": "global",
            "on_dead_letter": "advance",
            "signed": false,
            "retry": {
                "backoff": {"strategy": "schedule", "delays": ["1m", "5m"], "repeat_last": true},
                "max_delay": "1h",
                "max_attempts": 7,
                "ttl": "1d",
            },
            "outcomes": {"404": "retryable"},
            "in_flight_max": 3,
            "rate_limit": {"count": 10, "per": "1m", "burst": 5},
            "breaker": null,
            "quarantine_after": null,
            "disable_after": "2h",
        }))
        .unwrap();
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), full);
    }

    #[test]
    fn a_bad_policy_is_refused_with_the_field_and_the_bound() {
        let schedule = |delays: Value| json!({"retry": {"backoff": {"strategy": "schedule", "delays": delays}}});
        let breaker = |field: &str, value: Value| json!({"breaker": {field: value}});
        let rate = |count: u32, per: &str, burst: u32| json!({"rate_limit": {"count": count, "per": per, "burst": burst}});
        let effectively_once =
            |field: &str, value: Value| json!({"guarantee": "effectively_once", field: value});
        for (policy, message) in [
            (
                json!({"retry": {"max_attempts": 0}}),
                "retry.max_attempts: 0 is not within 1 to 10000",
            ),
            (json!({"retry": {"max_delay": "0s"}}), "retry.max_delay: 0s is not within 1ms to 30d"),
            (
                json!({"retry": {"max_delay": "31d"}}),
                "retry.max_delay: 31d is not within 1ms to 30d",
            ),
            (json!({"retry": {"ttl": "91d"}}), "retry.ttl: 91d is not within 1ms to 90d"),
            (
                json!({"retry": {"backoff": {"strategy": "fixed", "delay": "11m"}}}),
                "retry.backoff.delay: 11m is not within 1ms to 10m",
            ),
            (
                json!({"retry": {"backoff": {"strategy": "exponential", "base": "0s"}}}),
                "retry.backoff.base: 0s is not within 1ms to 10m",
            ),
            (schedule(json!([])), "retry.backoff.delays (entries): 0 is not within 1 to 100"),
            (schedule(json!(["1s", "24h"])), "retry.backoff.delays[1]: 1d is not within 0s to 10m"),
            (
                json!({"outcomes": {"99": "permanent"}}),
                "outcomes (status): 99 is not within 100 to 599",
            ),
            (json!({"in_flight_max": 0}), "in_flight_max: 0 is not within 1 to 10000"),
            (rate(0, "1s", 1), "rate_limit.count: 0 is not within 1 to 1000000"),
            (rate(1, "0s", 1), "rate_limit.per: 0s is not within 1ms to 1d"),
            (rate(1, "1s", 0), "rate_limit.burst: 0 is not within 1 to 1000000"),
            (
                breaker("failure_percent", json!(0)),
                "breaker.failure_percent: 0 is not within 1 to 100",
            ),
            (
                breaker("failure_percent", json!(101)),
                "breaker.failure_percent: 101 is not within 1 to 100",
            ),
            (breaker("window", json!(65)), "breaker.window: 65 is not within 1 to 64"),
            (breaker("min_attempts", json!(21)), "breaker.min_attempts: 21 is not within 1 to 20"),
            (breaker("open_for", json!("11m")), "breaker.open_for: 11m is not within 1ms to 10m"),
            (
                breaker("open_for_max", json!("2d")),
                "breaker.open_for_max: 2d is not within 1ms to 1d",
            ),
            (json!({"quarantine_after": 0}), "quarantine_after: 0 is not within 1 to 1000"),
            (json!({"disable_after": "1s"}), "disable_after: 1s is not within 1m to 90d"),
            (
                effectively_once("ordering", json!("none")),
                "ordering: guarantee `effectively_once` needs `per_key` or `global`",
            ),
            (
                effectively_once("on_dead_letter", json!("advance")),
                "on_dead_letter: guarantee `effectively_once` needs `hold`",
            ),
            (
                effectively_once("signed", json!(false)),
                "signed: guarantee `effectively_once` needs `true`",
            ),
        ] {
            assert_eq!(parse(policy.clone()), Err(message.to_owned()), "{policy}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        for (policy, name) in [
            (json!({"in_flight": 3}), "in_flight"),
            (json!({"retry": {"attempts": 3}}), "attempts"),
            (
                json!({"retry": {"backoff": {"strategy": "fixed", "delay": "1s", "base": "1s"}}}),
                "base",
            ),
            (json!({"breaker": {"enabled": false}}), "enabled"),
            (json!({"guarantee": "exactly_once"}), "exactly_once"),
        ] {
            let error = parse(policy.clone()).expect_err("an unknown name");
            assert!(error.contains(&format!("`{name}`")), "{policy}: {error}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[0-9]{0,20}(ms|s|m|h|d|w)".prop_map(Value::from),
            prop::sample::select(vec!["fixed", "exponential", "schedule", "full", "global"])
                .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "guarantee",
            "ordering",
            "retry",
            "backoff",
            "strategy",
            "delay",
            "base",
            "delays",
            "max_delay",
            "max_attempts",
            "ttl",
            "outcomes",
            "404",
            "in_flight_max",
            "rate_limit",
            "count",
            "per",
            "burst",
            "breaker",
            "window",
            "open_for",
            "quarantine_after",
        ]);
        leaf.prop_recursive(4, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(names.clone(), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_json_makes_a_policy_panic_and_what_is_valid_reads_back(json in any_json()) {
            if let Ok(policy) = parse(json) {
                let again = parse(serde_json::to_value(&policy).unwrap());
                prop_assert_eq!(again, Ok(policy));
            }
        }
    }

    #[test]
    fn the_lane_follows_from_ordering_and_key() {
        use LaneChoice::*;
        for (ordering, key, lane) in [
            (Ordering::PerKey, Some("a"), OfKey("a")),
            (Ordering::PerKey, None, NoLane),
            (Ordering::None, Some("a"), NoLane),
            (Ordering::None, None, NoLane),
            (Ordering::Global, Some("a"), OfEndpoint),
            (Ordering::Global, None, OfEndpoint),
        ] {
            assert_eq!(ordering.lane_for(key), lane, "{ordering:?} {key:?}");
        }
    }
}
