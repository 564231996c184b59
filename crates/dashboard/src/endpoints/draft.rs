//! The form of an endpoint, and its differences from the stored endpoint.

use railpost_engine::Policy;
use serde_json::{Map, Value, json};

use crate::visit::PageVisit;

/// What is in the form: as it was typed, or as the endpoint is. Two drafts that are equal look
/// the same in the form, whatever a browser does to lines and spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) url: String,
    pub(super) description: String,
    pub(super) types: String,
    pub(super) envelope: String,
    pub(super) thin_above: String,
    pub(super) timeout: String,
    pub(super) guarantee: String,
    pub(super) ordering: String,
    pub(super) on_dead_letter: String,
    pub(super) backoff: BackoffDraft,
    pub(super) max_delay: String,
    pub(super) max_attempts: String,
    pub(super) in_flight_max: String,
}

/// The fields of all strategies; those of the chosen one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackoffDraft {
    pub(super) strategy: String,
    pub(super) base: String,
    pub(super) jitter: String,
    pub(super) delay: String,
    pub(super) delays: String,
    pub(super) repeat_last: String,
}

impl Draft {
    /// What was typed.
    pub(super) fn typed(visit: &PageVisit) -> Self {
        let text = |name: &str| one_line(visit.field(name));
        Self {
            url: text("url"),
            description: lines(visit.field_as_typed("description")),
            types: words(visit.field("types").split_whitespace(), "\n"),
            envelope: text("envelope"),
            thin_above: text("thin_above"),
            timeout: text("timeout"),
            guarantee: text("guarantee"),
            ordering: text("ordering"),
            on_dead_letter: text("on_dead_letter"),
            backoff: BackoffDraft {
                strategy: text("strategy"),
                base: text("base"),
                jitter: text("jitter"),
                delay: text("delay"),
                delays: words(visit.field("delays").split_whitespace(), " "),
                repeat_last: text("repeat_last"),
            },
            max_delay: text("max_delay"),
            max_attempts: text("max_attempts"),
            in_flight_max: text("in_flight_max"),
        }
    }

    /// The endpoint as it is.
    pub(super) fn of(endpoint: &Value) -> Self {
        let (policy, retry) = (&endpoint["policy"], &endpoint["policy"]["retry"]);
        Self {
            url: own(endpoint, "url"),
            description: lines(endpoint["description"].as_str().unwrap_or_default()),
            types: words(texts(&endpoint["types"]), "\n"),
            envelope: own(endpoint, "envelope"),
            thin_above: own(endpoint, "thin_above"),
            timeout: own(endpoint, "timeout"),
            guarantee: own(policy, "guarantee"),
            ordering: own(policy, "ordering"),
            on_dead_letter: own(policy, "on_dead_letter"),
            backoff: BackoffDraft::of(&retry["backoff"]),
            max_delay: own(retry, "max_delay"),
            max_attempts: own(retry, "max_attempts"),
            in_flight_max: own(policy, "in_flight_max"),
        }
    }

    /// An endpoint of which nothing was said yet.
    pub(super) fn new() -> Self {
        let policy = serde_json::to_value(Policy::default()).unwrap_or_default();
        Self::of(&json!({ "types": ["*"], "envelope": "raw", "policy": policy }))
    }

    /// What the API is sent so that what was `was` becomes this: the fields that differ.
    pub(super) fn changes(&self, was: &Self) -> Map<String, Value> {
        let mut body = Map::new();
        let mut put = |name: &str, value: &str, was: &str| {
            if value != was {
                body.insert(name.to_owned(), value.into());
            }
        };
        put("url", &self.url, &was.url);
        put("description", &self.description, &was.description);
        put("envelope", &self.envelope, &was.envelope);
        put("timeout", &self.timeout, &was.timeout);
        if body.get("timeout").is_some_and(|timeout| timeout == "") {
            body.insert("timeout".to_owned(), Value::Null);
        }
        if self.thin_above != was.thin_above {
            body.insert("thin_above".to_owned(), number(&self.thin_above));
        }
        if self.types != was.types {
            let types: Vec<&str> = self.types.split_whitespace().collect();
            body.insert("types".to_owned(), types.into());
        }
        let policy = self.policy(was);
        if policy != json!({}) {
            body.insert("policy".to_owned(), policy);
        }
        body
    }

    /// What differs of the policy.
    fn policy(&self, was: &Self) -> Value {
        let (mut policy, mut retry) = (json!({}), json!({}));
        put(&mut policy, "guarantee", &self.guarantee, &was.guarantee);
        put(&mut policy, "ordering", &self.ordering, &was.ordering);
        put(&mut policy, "on_dead_letter", &self.on_dead_letter, &was.on_dead_letter);
        put(&mut policy, "in_flight_max", &self.in_flight_max, &was.in_flight_max);
        put(&mut retry, "max_delay", &self.max_delay, &was.max_delay);
        put(&mut retry, "max_attempts", &self.max_attempts, &was.max_attempts);
        if self.backoff != was.backoff {
            retry["backoff"] = self.backoff.body();
        }
        if retry != json!({}) {
            policy["retry"] = retry;
        }
        policy
    }
}

impl BackoffDraft {
    fn of(backoff: &Value) -> Self {
        // What another strategy would begin with, for people who change to it.
        let Self { base, jitter, .. } = Self::usual();
        let own = |field: &str, other: String| match backoff[field].is_null() {
            true => other,
            false => own(backoff, field),
        };
        Self {
            strategy: own("strategy", String::new()),
            base: own("base", base),
            jitter: own("jitter", jitter),
            delay: own("delay", String::new()),
            delays: words(texts(&backoff["delays"]), " "),
            repeat_last: (backoff["repeat_last"] == true).to_string(),
        }
    }

    fn usual() -> Self {
        let backoff = serde_json::to_value(railpost_engine::Backoff::default()).unwrap_or_default();
        let (base, jitter) = (own(&backoff, "base"), own(&backoff, "jitter"));
        Self { base, jitter, ..Self::default() }
    }

    fn body(&self) -> Value {
        let Self { strategy, base, jitter, delay, delays, repeat_last } = self;
        match strategy.as_str() {
            "fixed" => json!({ "strategy": strategy, "delay": delay }),
            "schedule" => {
                let delays: Vec<&str> = delays.split_whitespace().collect();
                let repeat_last = repeat_last == "true";
                json!({ "strategy": strategy, "delays": delays, "repeat_last": repeat_last })
            }
            _ => json!({ "strategy": strategy, "base": base, "jitter": jitter }),
        }
    }
}

/// Sets a field that differs: as a number if it is one, so that the API says what is wrong if it should
/// be one and is not.
fn put(fields: &mut Value, name: &str, typed: &str, was: &str) {
    if typed != was {
        fields[name] = typed.parse::<u64>().map_or_else(|_| typed.into(), Value::from);
    }
}

/// What was typed where a number belongs that may be absent.
fn number(typed: &str) -> Value {
    match typed.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) if typed.is_empty() => Value::Null,
        Err(_) => typed.into(),
    }
}

fn own(of: &Value, field: &str) -> String {
    match &of[field] {
        Value::Number(number) => number.to_string(),
        other => one_line(other.as_str().unwrap_or_default()),
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn words<'a>(words: impl Iterator<Item = &'a str>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}

/// As a field of one line holds it.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], "").trim().to_owned()
}

/// As a field of several lines holds it: browsers send every end of a line as CR LF.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}
