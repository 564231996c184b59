//! The words of an alert: what happened, why, what happens next and what to do.

use railpost_engine::{Span, Time, Timestamp};
use railpost_store::limits::ALERT_SUMMARY_LEN_MAX;

use crate::condition::{Condition, EndpointName, Facts};
use crate::limits::{PROBLEM_CHARS_MAX, URL_CHARS_MAX};
use crate::{BurnWindows, Rule};

/// The summary of a condition that holds.
pub(crate) fn of(condition: &Condition) -> String {
    let mut text = sentences(condition);
    if let (Some(tenant), true) = (&condition.tenant, condition.subject.is_empty()) {
        text = format!("Tenant {tenant}: {text}");
    }
    cut(text, ALERT_SUMMARY_LEN_MAX)
}

/// The summary of what is above the bound of a rule.
pub(crate) fn of_others(rule: Rule, count: u64) -> String {
    let things = match rule {
        Rule::LaneHeld => "lanes",
        Rule::SourceTrouble => "sources",
        Rule::BreakerOpen
        | Rule::EndpointFailing
        | Rule::SwitchOffSoon
        | Rule::EndpointOff
        | Rule::EndpointBlocked
        | Rule::SecretExpiring => "endpoints",
        _ => "tenants",
    };
    format!(
        "{rule} holds for {count} more {things} than have an alert of their own. Their notices are left out. \
         Look for one cause: the network, DNS, or this server."
    )
}

/// The summary of an alert that is over.
pub(crate) fn resolved(fired: &str, lasted: Span) -> String {
    cut(format!("Resolved after {}. It was: {fired}", rounded(lasted)), ALERT_SUMMARY_LEN_MAX)
}

fn sentences(condition: &Condition) -> String {
    match &condition.facts {
        Facts::Exhausted { exhausted, dispatched, window } => format!(
            "{exhausted} deliveries ran out of attempts or time within {window}, {} of the {dispatched} first sent \
             in it. They are dead letters: fix the receivers, then replay them.",
            percent(*exhausted, *dispatched)
        ),
        Facts::DeadLetters { count } => format!(
            "There are {count} dead letters. Nothing more is sent of them: find what they have in common, then \
             replay or discard them."
        ),
        Facts::Slow { p95, interval } => format!(
            "Attempts are slow: 95 % took up to {} in the last {interval}, and it was no better in the {} intervals \
             before. Slow receivers keep attempts in flight and delay others.",
            p95.first().copied().unwrap_or_default(),
            p95.len().saturating_sub(1)
        ),
        Facts::Burn { windows, late, judged, factor_tenths } => {
            burn_sentences(*windows, (*late, *judged), *factor_tenths)
        }
        Facts::OldestOpen { made_at } => format!(
            "The oldest open delivery waits since {}, and its endpoint is not paused. Look which endpoint it is for \
             and why it does not take it.",
            clock(*made_at)
        ),
        Facts::BreakersOpen { count } => format!(
            "The breakers of {count} endpoints are open at once: nothing is sent to them. Look for one cause: the \
             network, DNS, or a receiver that they share."
        ),
        Facts::StoreTrouble { since, problem } => format!(
            "The store could not be written or read since {}: {}. Events are refused until it works. What is under \
             way is recorded again.",
            clock(*since),
            cut_chars(problem, PROBLEM_CHARS_MAX)
        ),
        Facts::Disk { path, free_bytes, size_bytes } => format!(
            "The disk of {path} has {} free, {} of it. When it is full, events are refused: make room, or shorten \
             the retention.",
            bytes(*free_bytes),
            percent(*free_bytes, *size_bytes)
        ),
        Facts::Endpoint { endpoint, failing_since, last_error, reason, until } => {
            let words = EndpointWords {
                url: url(endpoint),
                since: failing_since.map(clock),
                last: last_error.as_deref(),
                reason: reason.as_deref().unwrap_or_default(),
                until: until.map(clock),
            };
            words.sentences(condition.rule)
        }
        Facts::Lane { endpoint, key, delivery, reason, behind, .. } => {
            let lane = key.as_ref().map_or_else(
                || "The lane for everything".to_owned(),
                |key| format!("The lane of key {}", cut_chars(key, URL_CHARS_MAX)),
            );
            format!(
                "{lane} of {} is held by the dead letter {delivery} ({reason}); up to {behind} deliveries wait \
                 behind it. Replay it, skip it or discard it.",
                url(endpoint)
            )
        }
        Facts::Source { name, since, problem } => format!(
            "Events of source {name} are not read since {}: {}. Reading is tried again; nothing is lost while the \
             source keeps its rows.",
            clock(*since),
            cut_chars(problem, PROBLEM_CHARS_MAX)
        ),
    }
}

fn burn_sentences(windows: BurnWindows, (late, judged): (u64, u64), factor_tenths: u64) -> String {
    format!(
        "{late} of {judged} deliveries were late within {}: the budget of the objective burns {}.{} times as fast as \
         it comes in, and did so in the last {} as well. Look which endpoints are behind.",
        windows.long,
        factor_tenths / 10,
        factor_tenths % 10,
        windows.short
    )
}

struct EndpointWords<'a> {
    url: String,
    since: Option<String>,
    last: Option<&'a str>,
    reason: &'a str,
    until: Option<String>,
}

impl EndpointWords<'_> {
    fn sentences(&self, rule: Rule) -> String {
        let url = &self.url;
        let last = self.last.map(|last| format!(", the last one with {last}")).unwrap_or_default();
        let since = self.since.as_deref().unwrap_or("a while ago");
        match (rule, &self.until) {
            (Rule::BreakerOpen, Some(until)) => format!(
                "Breaker of {url} opened: too many attempts failed{last}. Nothing is sent until {until}, then one \
                 probe decides."
            ),
            (Rule::BreakerOpen, None) => format!(
                "Breaker of {url} is open: too many attempts failed{last}. A probe is under way and decides."
            ),
            (Rule::EndpointFailing, _) => format!(
                "{url} answers nothing but failures since {since}{last}. Deliveries are retried by its policy."
            ),
            (Rule::SwitchOffSoon, until) => format!(
                "{url} will be switched off at {}: nothing but failures since {since}{last}. One acknowledged \
                 delivery averts it.",
                until.as_deref().unwrap_or("once")
            ),
            (Rule::SecretExpiring, until) => format!(
                "The last secret of {url} ends at {}. Nothing is sent to it from then on: rotate its secret.",
                until.as_deref().unwrap_or("once")
            ),
            (Rule::EndpointOff, _) => self.off(&last),
            _ => format!(
                "Nothing can be sent to {url}: {}. Its deliveries wait until that is fixed.",
                cut_chars(self.reason, PROBLEM_CHARS_MAX)
            ),
        }
    }

    fn off(&self, last: &str) -> String {
        let why = match self.reason {
            "quarantined" => format!("too many lanes in a row failed for good{last}"),
            "gone" => "its receiver says that it is gone".to_owned(),
            _ => format!("it answered nothing but failures for too long{last}"),
        };
        format!(
            "{} was switched off: {why}. Its deliveries wait. Fix the receiver, then switch the endpoint on.",
            self.url
        )
    }
}

fn url(endpoint: &EndpointName) -> String {
    cut_chars(&endpoint.url, URL_CHARS_MAX)
}

/// As RFC 3339 has it, to the second.
fn clock(at: Timestamp) -> String {
    let whole = Timestamp::from_millis(at.as_millis() / 1_000 * 1_000);
    Time(whole).to_string()
}

fn rounded(span: Span) -> Span {
    Span::from_millis(span.as_millis() / 1_000 * 1_000)
}

/// With one digit behind the point.
fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or_default();
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, size)| count >= *size);
    let Some((name, size)) = unit else { return format!("{count} bytes") };
    format!("{}.{} {name}", count / size, count % size * 10 / size)
}

fn cut_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// At most so many bytes of it.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}
