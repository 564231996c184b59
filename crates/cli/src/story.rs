//! `railpost events story`: what happened to an event, in order.

use serde_json::Value;

use super::Session;
use super::attempts::{advice, answer, took};
use super::deliveries::short_url;
use super::failure::Outcome;
use super::health::with_relative_times;
use super::out::{Out, field, with_age};
use crate::limits::ANSWER_EXCERPT_CHARS;

/// Spaces before what belongs to an entry: its time stands there.
const INDENT: usize = 14;

/// The story of the event with this id. Where there is none, the id may be of something else.
pub(super) fn read(session: &Session, id: &str) -> Outcome<Value> {
    let client = &session.client;
    let story = client.get(&client.of_tenant(&["events", id, "story"]));
    story.map_err(|failure| match failure.is_missing("event") {
        true => failure.next(what_it_may_be(id)),
        false => failure,
    })
}

fn what_it_may_be(id: &str) -> String {
    let kind = [("dlv_", "a delivery"), ("ep_", "an endpoint")]
        .into_iter()
        .find(|(beginning, _)| id.starts_with(beginning));
    match kind {
        Some((_, kind)) => format!("this is the id of {kind}: `railpost find {id}` finds it"),
        None => {
            format!("`railpost find {id}` looks for it among everything that has an id or a key")
        }
    }
}

/// Tells the story of an event.
pub(super) fn tell(session: &Session, story: &Value) -> Outcome {
    let out = session.out;
    if out.json {
        return out.value(story);
    }
    tell_event(out, &story["event"])?;
    tell_endpoints(out, story)?;
    let mut day = String::new();
    for entry in items(&story["entries"]) {
        tell_day(out, entry, &mut day)?;
        tell_entry(out, entry)?;
    }
    if let Some(left_off) = story["left_off"].as_u64().filter(|left_off| *left_off > 0) {
        out.hint(&format!("{left_off} entries are left off: a story has at most 1,000."));
    }
    Ok(())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn tell_event(out: Out, event: &Value) -> Outcome {
    let key = event["key"].as_str().map(|key| format!(", key {key}")).unwrap_or_default();
    out.line(&out.bold(&format!("{}  {}{key}", field(event, "id"), field(event, "type"))))?;
    let accepted = event["accepted_at"].as_str().map(with_age).unwrap_or_default();
    out.line(&format!("{} bytes, accepted {accepted}", field(event, "payload_bytes")))
}

fn tell_endpoints(out: Out, story: &Value) -> Outcome {
    let (matched, not_matched) = (items(&story["matched"]), items(&story["not_matched"]));
    if matched.is_empty() {
        out.line("\nNo endpoint matched it.")?;
    } else {
        out.line("\nMatched:")?;
    }
    for endpoint in matched {
        out.line(&format!("  {}  {}", field(endpoint, "endpoint"), url_of(endpoint)))?;
        out.line(&out.painted(&format!("      as {}", delivery_of(endpoint))))?;
    }
    if !not_matched.is_empty() {
        out.line("\nNot matched:")?;
    }
    for endpoint in not_matched {
        out.line(&format!("  {}  {}", field(endpoint, "endpoint"), url_of(endpoint)))?;
        lines(out, &field(endpoint, "why"), 6)?;
    }
    Ok(())
}

/// The delivery to an endpoint, and where it is.
fn delivery_of(endpoint: &Value) -> String {
    format!("{}: {}", field(endpoint, "delivery"), field(endpoint, "now"))
}

fn url_of(endpoint: &Value) -> String {
    endpoint["url"].as_str().map(short_url).unwrap_or("(deleted)").to_owned()
}

/// A line with the date, whenever it changes. Times are in UTC.
fn tell_day(out: Out, entry: &Value, day: &mut String) -> Outcome {
    let date = entry["at"].as_str().and_then(|at| at.get(..10)).unwrap_or_default();
    if date == day {
        return Ok(());
    }
    *day = date.to_owned();
    out.line(&out.bold(&format!("\n{date} (UTC)")))
}

fn tell_entry(out: Out, entry: &Value) -> Outcome {
    let time = entry["at"].as_str().and_then(|at| at.get(11..23)).unwrap_or("-");
    let text = with_relative_times(&field(entry, "text"));
    let wrapped = out.wrapped(&text, INDENT);
    for (at, line) in wrapped.iter().enumerate() {
        let time = if at == 0 { time } else { "" };
        out.line(&format!("{time:INDENT$}{}", line.trim_start()))?;
    }
    match &entry["attempt"] {
        Value::Null => Ok(()),
        attempt => tell_attempt(out, attempt),
    }
}

fn tell_attempt(out: Out, attempt: &Value) -> Outcome {
    for header in items(&attempt["request_headers"]) {
        lines(out, &format!("> {}", header_line(header)), INDENT)?;
    }
    let total = took(&attempt["timing"]["total_us"]);
    lines(out, &format!("< {} in {total}{}", answer(attempt), parts(&attempt["timing"])), INDENT)?;
    for header in items(&attempt["response_headers"]) {
        lines(out, &format!("< {}", header_line(header)), INDENT)?;
    }
    if let Some(message) = attempt["message"].as_str() {
        lines(out, message, INDENT)?;
    }
    let body = attempt["response_body"].as_str().map(str::trim).unwrap_or_default();
    let excerpt: String = body.chars().take(ANSWER_EXCERPT_CHARS).collect();
    if !excerpt.is_empty() {
        lines(out, &excerpt, INDENT)?;
    }
    advice(attempt).map_or(Ok(()), |advice| lines(out, &advice, INDENT))
}

fn header_line(header: &Value) -> String {
    let text = |at: usize| header[at].as_str().unwrap_or_default();
    format!("{}: {}", text(0), text(1))
}

/// What the time of an attempt was spent on.
fn parts(timing: &Value) -> String {
    let parts = [
        ("dns_us", "DNS"),
        ("connect_us", "connect"),
        ("tls_us", "TLS"),
        ("first_byte_us", "first byte"),
    ];
    let parts = parts.iter().filter(|(name, _)| timing[name].is_u64());
    let parts: Vec<String> =
        parts.map(|(name, words)| format!("{words} {}", took(&timing[name]))).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn lines(out: Out, text: &str, indent: usize) -> Outcome {
    out.wrapped(text, indent).iter().try_for_each(|line| out.line(line))
}

/// By whom something was done.
pub(super) fn actor(by: &Value) -> String {
    match (by["kind"].as_str(), by["name"].as_str()) {
        (Some("key"), Some(name)) => format!("the API key `{name}` ({})", field(by, "id")),
        (Some("source"), Some(name)) => format!("the source `{name}`"),
        (Some("server"), _) => "the server itself".to_owned(),
        _ => field(by, "id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_parts_of_an_attempt_that_happened_are_named() {
        let timing = json!({ "dns_us": null, "connect_us": 1200, "first_byte_us": 9000 });
        assert_eq!(parts(&timing), " (connect 1.2 ms, first byte 9.0 ms)");
        assert_eq!(parts(&json!({})), "");
    }

    #[test]
    fn a_matched_endpoint_shows_its_delivery_and_where_it_is() {
        let matched = json!({ "delivery": "dlv_1", "now": "waits for its turn" });
        assert_eq!(delivery_of(&matched), "dlv_1: waits for its turn");
    }

    #[test]
    fn an_id_of_no_event_points_to_find() {
        for (id, wanted) in [
            ("dlv_1", "the id of a delivery: `railpost find dlv_1`"),
            ("ep_1", "the id of an endpoint: `railpost find ep_1`"),
            ("order-7", "`railpost find order-7`"),
        ] {
            assert!(what_it_may_be(id).contains(wanted), "{}", what_it_may_be(id));
        }
    }

    #[test]
    fn an_event_is_accepted_by_a_key_a_source_or_the_server() {
        let key = json!({ "kind": "key", "id": "key_1", "name": "backend" });
        assert_eq!(actor(&key), "the API key `backend` (key_1)");
        assert_eq!(actor(&json!({ "kind": "source", "name": "orders" })), "the source `orders`");
        assert_eq!(actor(&json!({ "kind": "server" })), "the server itself");
    }
}
