//! How single values look: times, states, ids, keys.

use maud::{Markup, html};
use railpost_engine::{Span, Time, Timestamp};
use serde_json::Value;

use super::visit::PageVisit;

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

/// An instant, and how long ago it was. The server writes UTC; the script shows the reader's zone, and the tooltip
/// keeps UTC. The text does not depend on when it is drawn: what did not change is not sent to live pages.
pub(super) fn time(value: &Value) -> Markup {
    html! {
        @if instant(value).is_some() {
            time datetime=(value.as_str().unwrap_or_default()) title=(utc(value)) data-ago { (utc_seconds(value)) }
        } @else { span.muted { "–" } }
    }
}

/// An instant within a sentence.
pub(super) fn moment(value: &Value) -> Markup {
    html! {
        @if instant(value).is_some() {
            time datetime=(value.as_str().unwrap_or_default()) title=(utc(value)) { (utc_seconds(value)) }
        } @else { span.muted { "–" } }
    }
}

/// A sentence of the API in which instants are shown as times, and words in backticks as code.
pub(super) fn sentence(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } }
            @else { @for word in part.split_inclusive(' ') { (word_or_time(word)) } }
        }
    }
}

fn word_or_time(word: &str) -> Markup {
    let rest = word.trim_start_matches('(');
    let core = rest.trim_end_matches([' ', '.', ',', ';', ':', ')']);
    let at = Value::from(core);
    html! {
        @if instant(&at).is_some() {
            (word[..word.len() - rest.len()]) (moment(&at)) (rest[core.len()..])
        } @else { (word) }
    }
}

/// An instant with all its digits.
fn utc(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    format!("{} UTC", text.trim_end_matches('Z').replacen('T', " ", 1))
}

/// An instant without fractions of a second.
pub(super) fn utc_seconds(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    format!("{} UTC", text.get(..19).unwrap_or(text).replacen('T', " ", 1))
}

/// The time of day of an instant.
pub(super) fn clock(value: &Value) -> &str {
    value.as_str().and_then(|text| text.get(11..19)).unwrap_or("–")
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

/// So many of something, by its words for one and for several.
pub(super) fn counted(number: u64, one: &str, several: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {several}", count(number)) }
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
    let (mark, tone) = mark(word);
    html! { span class={ "badge " (tone) } { span aria-hidden="true" { (mark) " " } (words(word)) } }
}

/// How many are in a state.
pub(super) fn counted_badge(number: u64, word: &str) -> Markup {
    let (mark, tone) = mark(word);
    html! {
        span class={ "badge " (tone) } { span aria-hidden="true" { (mark) " " } (count(number)) " " (words(word)) }
    }
}

/// The mark and the tone of a state.
fn mark(word: &str) -> (&'static str, &'static str) {
    match word {
        "delivered" | "active" | "acknowledged" | "done" | "finished" | "closed" | "reading"
        | "good" | "met" | "resolved" => ("✓", "good"),
        "pending" | "in_flight" | "running" | "ramping" | "probing" | "starting"
        | "handed_over_again" => ("●", "calm"),
        "waiting" | "retryable" | "paused" | "warning" => ("◷", "wait"),
        "dead" | "permanent" | "failed" | "quarantined" | "gone" | "failing" | "open" | "held"
        | "blocked" | "not_read" | "not_configured" | "lost" | "bad" | "missed" | "error"
        | "critical" => ("✕", "bad"),
        _ => ("○", "plain"),
    }
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

/// An id, key or URL with a button that copies it.
pub(super) fn copyable(text: &str) -> Markup {
    html! { code { (text) } (copy_button(text)) }
}

/// A button that copies this text. Without script it is not shown.
pub(super) fn copy_button(text: &str) -> Markup {
    let named: String = text.chars().take(COPY_LABEL_CHARS).collect();
    html! { button.copy type="button" data-copy=(text) aria-label={ "copy " (named) } { "copy" } }
}

/// Characters of what a button copies that are in its name for screen readers.
const COPY_LABEL_CHARS: usize = 40;

/// The last answer of a delivery, in words.
pub(super) fn last_answer(answer: &Value) -> Markup {
    html! {
        @if answer.is_null() { span.muted { "none yet" } }
        @else if let Some(status) = answer["status"].as_u64() {
            span title=[answer["message"].as_str()] { "HTTP " (status) }
        } @else {
            span title=[answer["message"].as_str()] { (words(text(answer, "failure"))) }
        }
    }
}

/// Where a delivery goes: the URL, as a link to the endpoint.
pub(super) fn endpoint_link(visit: &PageVisit, of: &Value) -> Markup {
    let (id, url) = (text(of, "endpoint"), text(of, "endpoint_url"));
    html! {
        @if url.is_empty() { (self::id(id)) }
        @else { a.url href=(visit.path(&format!("/endpoints/{id}"))) title=(url) { (url) } }
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
    fn a_sentence_keeps_its_words_and_shows_its_instants_as_times() {
        let drawn = sentence(
            "One attempt goes at 2026-01-31T12:00:05.250Z; then (2026-01-31T12:01:00Z) more.",
        );
        let time = |at: &str, utc: &str, shown: &str| {
            format!("<time datetime=\"{at}\" title=\"{utc} UTC\">{shown} UTC</time>")
        };
        let first =
            time("2026-01-31T12:00:05.250Z", "2026-01-31 12:00:05.250", "2026-01-31 12:00:05");
        let second = time("2026-01-31T12:01:00Z", "2026-01-31 12:01:00", "2026-01-31 12:01:00");
        assert_eq!(
            drawn.into_string(),
            format!("One attempt goes at {first}; then ({second}) more.")
        );
    }
}
