//! Policies from flags: the useful fields each, everything as JSON.

use std::str::FromStr;

use railpost_engine::{Policy, Span};
use serde_json::{Value, json};

use super::failure::{Failure, Outcome};
use super::input;

/// An endpoint's policy. What is not given is the default, or stays.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Policy")]
pub(super) struct PolicyFlags {
    /// The policy as JSON, or what is to change about it; the flags below go on top of it
    #[arg(long, value_name = "JSON|@FILE")]
    policy: Option<String>,
    /// What is promised: at_least_once, at_most_once or effectively_once
    #[arg(long, value_parser = ["at_least_once", "at_most_once", "effectively_once"], hide_possible_values = true)]
    guarantee: Option<String>,
    /// Which deliveries wait for each other: per_key, none or global
    #[arg(long, value_parser = ["per_key", "none", "global"], hide_possible_values = true)]
    ordering: Option<String>,
    /// What a dead letter does to its lane: hold or advance
    #[arg(long, value_parser = ["hold", "advance"], hide_possible_values = true)]
    on_dead_letter: Option<String>,
    /// Most attempts in flight
    #[arg(long, value_name = "N")]
    in_flight_max: Option<u32>,
    /// Most attempts per period, such as `100/1s`, or `none`
    #[arg(long, value_name = "COUNT/PERIOD")]
    rate_limit: Option<RateArgument>,
    /// Attempts before a delivery becomes a dead letter, including the first
    #[arg(long, value_name = "N")]
    retry_max_attempts: Option<u32>,
    /// How long after the first attempt it may be tried again
    #[arg(long, value_name = "TIME")]
    retry_ttl: Option<Span>,
    /// Longest wait between two attempts
    #[arg(long, value_name = "TIME")]
    retry_max_delay: Option<Span>,
    /// Wait that long between attempts, always the same
    #[arg(long, value_name = "TIME", conflicts_with_all = ["retry_base", "retry_jitter", "retry_schedule"])]
    retry_fixed: Option<Span>,
    /// Wait that long after the first attempt, then twice as long each time
    #[arg(long, value_name = "TIME", conflicts_with = "retry_schedule")]
    retry_base: Option<Span>,
    /// How random exponential waits are: none, full, equal or decorrelated
    #[arg(long, value_parser = ["none", "full", "equal", "decorrelated"], hide_possible_values = true, conflicts_with = "retry_schedule")]
    retry_jitter: Option<String>,
    /// The waits one by one, such as `5s,1m,1h`
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    retry_schedule: Vec<Span>,
}

/// `COUNT/PERIOD`, or `none`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateArgument(Option<(u32, Span)>);

impl FromStr for RateArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let rate = text
            .split_once('/')
            .and_then(|(count, per)| Some((count.parse().ok()?, per.parse().ok()?)));
        let expected = "expected a count and a period such as `100/1s`, or `none`";
        rate.map(|rate| Self(Some(rate))).ok_or_else(|| expected.to_owned())
    }
}

pub(super) fn rate_json(rate: &RateArgument) -> Value {
    rate.0.map_or(Value::Null, |(count, per)| json!({ "count": count, "per": per, "burst": count }))
}

impl PolicyFlags {
    /// Whether any of them was given.
    pub(super) fn any_given(&self) -> bool {
        let mut laid = json!({});
        self.lay_over(&mut laid);
        self.policy.is_some() || laid != json!({})
    }

    /// What was said, as a change to a policy: what is not given stays.
    pub(super) fn change(&self) -> Outcome<Value> {
        let mut policy = match &self.policy {
            Some(given) => input::read_json("--policy", given)?,
            None => json!({}),
        };
        if !policy.is_object() {
            return Err(Failure::usage("--policy: expected a JSON object"));
        }
        self.lay_over(&mut policy);
        Ok(policy)
    }

    /// What was said, as a policy of its own: what is not given is the default. Checked here, so that a
    /// mistake costs no request.
    pub(super) fn to_policy(&self) -> Outcome<Policy> {
        let mut policy = self.change()?;
        if self.retry_jitter.is_some() && self.retry_base.is_none() {
            policy["retry"]["backoff"]["base"] = json!(Span::from_secs(2));
        }
        serde_json::from_value(policy).map_err(|error| {
            Failure::usage(format!("policy: {error}"))
                .next("docs/engine.md lists every field with its default and bounds")
        })
    }

    fn lay_over(&self, policy: &mut Value) {
        let mut set = |path: &[&str], value: Option<Value>| {
            if let Some(value) = value {
                let mut place = &mut *policy;
                for name in path {
                    place = &mut place[*name];
                }
                *place = value;
            }
        };
        set(&["guarantee"], self.guarantee.as_ref().map(|text| json!(text)));
        set(&["ordering"], self.ordering.as_ref().map(|text| json!(text)));
        set(&["on_dead_letter"], self.on_dead_letter.as_ref().map(|text| json!(text)));
        set(&["in_flight_max"], self.in_flight_max.map(Value::from));
        set(&["rate_limit"], self.rate_limit.as_ref().map(rate_json));
        set(&["retry", "max_attempts"], self.retry_max_attempts.map(Value::from));
        set(&["retry", "ttl"], self.retry_ttl.map(|span| json!(span)));
        set(&["retry", "max_delay"], self.retry_max_delay.map(|span| json!(span)));
        set(&["retry", "backoff"], self.backoff());
    }

    fn backoff(&self) -> Option<Value> {
        if let Some(delay) = self.retry_fixed {
            return Some(json!({ "strategy": "fixed", "delay": delay }));
        }
        if !self.retry_schedule.is_empty() {
            return Some(json!({ "strategy": "schedule", "delays": self.retry_schedule }));
        }
        if self.retry_base.is_none() && self.retry_jitter.is_none() {
            return None;
        }
        let mut backoff = json!({ "strategy": "exponential" });
        if let Some(base) = self.retry_base {
            backoff["base"] = json!(base);
        }
        if let Some(jitter) = &self.retry_jitter {
            backoff["jitter"] = json!(jitter);
        }
        Some(backoff)
    }
}
