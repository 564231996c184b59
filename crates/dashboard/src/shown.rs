//! How single values look: times, states, ids, keys.

use maud::{Markup, html};
use railpost_engine::{Span, Time, Timestamp};
use serde_json::Value;

/// A field's text; empty when it is none.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A field's number; nothing when it is none.
pub(super) fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_default()
}

/// The items of a page.
pub(super) fn items(page: &Value) -> &[Value] {
    page["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// An instant of the API.
pub(super) fn instant(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok().map(|Time(at)| at)
}

/// An instant: how long ago it was, with the instant itself beside it.
pub(super) fn time(value: &Value, now: Timestamp) -> Markup {
    let Some(at) = instant(value) else { return html! { span.muted { "–" } } };
    let exact = value.as_str().unwrap_or_default();
    html! { time datetime=(exact) title=(exact) { (relative(at, now)) } }
}

/// The time of day of an instant.
pub(super) fn clock(value: &Value) -> &str {
    value.as_str().and_then(|text| text.get(11..19)).unwrap_or("–")
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        return format!("in {}", span(at.since(now)));
    }
    match now.since(at) {
        past if past < Span::from_secs(1) => "just now".to_owned(),
        past => format!("{} ago", span(past)),
    }
}

/// A length of time in its two largest units.
pub(super) fn span(span: Span) -> String {
    let ms = span.as_millis();
    let (secs, mins, hours) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{secs} s"),
        60_000..3_600_000 => format!("{mins} min {} s", secs % 60),
        3_600_000..172_800_000 => format!("{hours} h {} min", mins % 60),
        _ => format!("{} days", hours / 24),
    }
}

/// A count with its thousands apart: 12 345.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// A length of bytes.
pub(super) fn bytes(len: u64) -> String {
    match len {
        0..1_024 => format!("{len} B"),
        1_024..1_048_576 => format!("{:.1} KiB", len as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", len as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", len as f64 / 1_073_741_824.0),
    }
}

/// A time in milliseconds.
pub(super) fn millis(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(0.0) => "0 ms".to_owned(),
        Some(ms) if ms < 10.0 => format!("{ms:.1} ms"),
        Some(ms) if ms < 1_000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.1} s", ms / 1_000.0),
    }
}

/// A state or status: a word with a mark of its own, so that nothing depends on its colour.
pub(super) fn badge(word: &str) -> Markup {
    let (mark, tone) = match word {
        "delivered" | "active" | "acknowledged" | "done" | "closed" | "reading" | "good" => {
            ("✓", "good")
        }
        "pending" | "in_flight" | "running" | "ramping" | "probing" | "starting"
        | "handed_over_again" => ("●", "calm"),
        "waiting" | "retryable" | "paused" | "warning" => ("◷", "wait"),
        "dead" | "permanent" | "failed" | "quarantined" | "gone" | "failing" | "open" | "held"
        | "blocked" | "not_read" | "not_configured" | "lost" | "bad" => ("✕", "bad"),
        _ => ("○", "plain"),
    };
    html! { span class={ "badge " (tone) } { span aria-hidden="true" { (mark) " " } (words(word)) } }
}

/// A word of the API as people read it.
pub(super) fn words(word: &str) -> String {
    word.replace(['_', '-'], " ")
}

/// Why a delivery is dead or discarded.
pub(super) fn reason(reason: &str) -> String {
    match reason {
        "permanent" => "refused for good".to_owned(),
        "attempts_exhausted" => "no attempts are left".to_owned(),
        "expired" => "its time is over".to_owned(),
        "single_attempt_failed" => "its one attempt failed".to_owned(),
        "outcome_unknown" => "its outcome was lost in a crash".to_owned(),
        "person" => "by a person".to_owned(),
        "endpoint_removed" => "its endpoint was removed".to_owned(),
        other => words(other),
    }
}

/// A key, or that there is none.
pub(super) fn key(value: &Value) -> Markup {
    match value.as_str() {
        Some(key) => html! { code.key { (key) } },
        None => html! { span.muted { "no key" } },
    }
}

/// The end of an id, where ids differ, with the whole id as a tooltip.
pub(super) fn id(id: &str) -> Markup {
    let tail = id.char_indices().rev().nth(7).map_or(0, |(index, _)| index);
    match id.split_once('_') {
        Some((prefix, rest)) if rest.len() > 8 => {
            html! { code title=(id) { (prefix) "_…" (id[tail..]) } }
        }
        _ => html! { code { (id) } },
    }
}

/// Any JSON, to be read.
pub(super) fn json(value: &Value) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    html! { pre tabindex="0" { code { (text) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_shown_in_their_largest_units() {
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (61_500, "1 min 1 s"),
            (3_600_000, "1 h 0 min"),
            (172_800_000, "2 days"),
        ] {
            assert_eq!(span(Span::from_millis(ms)), shown);
        }
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1\u{202f}000"),
            (1_234_567, "1\u{202f}234\u{202f}567"),
        ] {
            assert_eq!(count(number), shown);
        }
    }

    #[test]
    fn an_id_is_shown_by_its_end_and_a_short_one_as_it_is() {
        assert_eq!(
            id("dlv_0190aaaabbbbcccc").into_string(),
            "<code title=\"dlv_0190aaaabbbbcccc\">dlv_…bbbbcccc</code>"
        );
        assert_eq!(id("default").into_string(), "<code>default</code>");
    }

    #[test]
    fn an_instant_says_how_far_it_is() {
        let now = instant(&"2026-01-31T12:00:00.000Z".into()).unwrap();
        for (at, shown) in [
            ("2026-01-31T11:59:59.500Z", "just now"),
            ("2026-01-31T11:59:30.000Z", "30 s ago"),
            ("2026-01-31T12:01:05.000Z", "in 1 min 5 s"),
        ] {
            assert_eq!(relative(instant(&at.into()).unwrap(), now), shown);
        }
    }
}
