//! A condition that holds, and what was seen of it.

use railpost_engine::{Span, Time, Timestamp};
use railpost_wire::{EndpointId, TenantId};
use serde_json::{Value, json};

use crate::settings::BurnWindows;
use crate::{Rule, summary};

/// Something that holds of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Of which rule.
    pub rule: Rule,
    /// Whose it is; nothing for what concerns the server.
    pub tenant: Option<TenantId>,
    /// What it is about; empty if the rule says it all.
    pub subject: String,
    /// What was seen.
    pub facts: Facts,
}

impl Condition {
    /// What happened, why, what happens next and what to do.
    pub fn summary(&self) -> String {
        summary::of(self)
    }

    /// What was seen, as JSON.
    pub fn details(&self) -> Value {
        self.facts.details()
    }
}

/// An endpoint, as notices name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// Its id.
    pub id: EndpointId,
    /// Where it is.
    pub url: String,
}

/// What was seen of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Of [`Rule::RetriesExhausted`].
    Exhausted {
        /// How many died.
        exhausted: u64,
        /// How many were first sent.
        dispatched: u64,
        /// Within which time.
        window: Span,
    },
    /// Of [`Rule::DeadLetters`].
    DeadLetters {
        /// How many there are.
        count: u64,
    },
    /// Of [`Rule::SlowAttempts`].
    Slow {
        /// What 95 % of the attempts took at most, by interval, the latest first.
        p95: Vec<Span>,
        /// How long an interval is.
        interval: Span,
    },
    /// Of [`Rule::SloBurnFast`] and [`Rule::SloBurnSlow`].
    Burn {
        /// In which windows.
        windows: BurnWindows,
        /// How many were late in the long one.
        late: u64,
        /// How many were judged in the long one.
        judged: u64,
        /// How many times faster the budget burns there, in tenths.
        factor_tenths: u64,
    },
    /// Of [`Rule::OldestOpen`].
    OldestOpen {
        /// When it was made.
        made_at: Timestamp,
    },
    /// Of [`Rule::BreakersOpen`].
    BreakersOpen {
        /// How many.
        count: u64,
    },
    /// Of [`Rule::StoreTrouble`].
    StoreTrouble {
        /// Since when.
        since: Timestamp,
        /// What the store says.
        problem: String,
    },
    /// Of [`Rule::Disk`].
    Disk {
        /// The folder.
        path: String,
        /// Bytes that can be written.
        free_bytes: u64,
        /// Bytes that it has.
        size_bytes: u64,
    },
    /// Of rules about an endpoint.
    Endpoint {
        /// Which.
        endpoint: EndpointName,
        /// Since when nothing but failures came back.
        failing_since: Option<Timestamp>,
        /// The latest failure.
        last_error: Option<String>,
        /// Why, in words of the engine: the status that it has, or why it is blocked.
        reason: Option<String>,
        /// When something follows: the probe, the switch-off, the secret's end.
        until: Option<Timestamp>,
    },
    /// Of [`Rule::LaneHeld`].
    Lane {
        /// Of which endpoint.
        endpoint: EndpointName,
        /// The lane.
        lane: String,
        /// Its key.
        key: Option<String>,
        /// The delivery that holds it.
        delivery: String,
        /// Since when.
        since: Timestamp,
        /// Why it was given up on.
        reason: String,
        /// How many wait behind it, at most.
        behind: u64,
    },
    /// Of [`Rule::SourceTrouble`].
    Source {
        /// Which.
        name: String,
        /// Since when.
        since: Timestamp,
        /// What is wrong.
        problem: String,
    },
}

impl Facts {
    fn details(&self) -> Value {
        let time = |at: Timestamp| Time(at).to_string();
        match self {
            Facts::Exhausted { exhausted, dispatched, window } => json!({
                "exhausted": exhausted, "dispatched": dispatched, "window": window.to_string()
            }),
            Facts::DeadLetters { count } => json!({ "dead_letters": count }),
            Facts::Slow { p95, interval } => {
                let p95: Vec<u64> = p95.iter().map(|span| span.as_millis()).collect();
                json!({ "p95_ms": p95, "interval": interval.to_string() })
            }
            Facts::Burn { windows, late, judged, factor_tenths } => json!({
                "windows": windows.to_string(), "late": late, "judged": judged,
                "burn_rate": *factor_tenths as f64 / 10.0
            }),
            Facts::OldestOpen { made_at } => json!({ "accepted_at": time(*made_at) }),
            Facts::BreakersOpen { count } => json!({ "breakers": count }),
            Facts::StoreTrouble { since, problem } => {
                json!({ "since": time(*since), "problem": problem })
            }
            Facts::Disk { path, free_bytes, size_bytes } => {
                json!({ "path": path, "free_bytes": free_bytes, "size_bytes": size_bytes })
            }
            Facts::Endpoint { endpoint, failing_since, last_error, reason, until } => json!({
                "endpoint": { "id": endpoint.id, "url": endpoint.url },
                "failing_since": failing_since.map(time), "last_error": last_error,
                "reason": reason, "until": until.map(time)
            }),
            Facts::Lane { endpoint, lane, key, delivery, since, reason, behind } => json!({
                "endpoint": { "id": endpoint.id, "url": endpoint.url },
                "lane": lane, "key": key, "delivery": delivery, "since": time(*since),
                "reason": reason, "behind": behind
            }),
            Facts::Source { name, since, problem } => {
                json!({ "source": name, "since": time(*since), "problem": problem })
            }
        }
    }
}
