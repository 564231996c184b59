//! Attempts, on the pages of deliveries, endpoints and events: what was sent, what came back, how long it took.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::shown::{self, badge, items, number, text, time, words};
use super::table::table;
use super::visit::PageVisit;

/// What came back, in a line: the outcome, and the status or why there was no answer.
pub(super) fn outcome(attempt: &Value) -> Markup {
    html! {
        (badge(text(attempt, "outcome")))
        @if let Some(status) = attempt["status"].as_u64() { " " strong { "HTTP " (status) } }
        @if let Some(failure) = attempt["failure"].as_str() { " " strong { (words(failure)) } }
    }
}

/// One attempt of a delivery's timeline: what came back, how long each part took, and what followed.
pub(super) fn entry(delivery: &Value, attempt: &Value) -> Markup {
    html! {
        li id={ "attempt-" (number(attempt, "number")) } class=(text(attempt, "outcome")) {
            div.heading {
                h3 { "Attempt " (number(attempt, "number")) }
                (outcome(attempt))
                (time(&attempt["started_at"]))
            }
            @if let Some(message) = attempt["message"].as_str() { p { (message) } }
            (timing(&attempt["timing"]))
            p { (what_followed(attempt)) }
            (details("Request headers", &request(delivery, attempt), &html! {
                p.hint { "Under their usual names; signatures are not kept." }
            }))
            (response(attempt))
        }
    }
}

/// Where an attempt left its delivery, and when the next one was planned for. Whether that one left is not known
/// here.
fn what_followed(attempt: &Value) -> Markup {
    html! {
        "Then: " strong { (words(text(attempt, "led_to"))) }
        @if !attempt["next_at"].is_null() { ", next attempt planned for " (shown::moment(&attempt["next_at"])) }
        @if let Some(wait) = attempt["retry_after_s"].as_u64() {
            ", as the receiver asked for " (wait) " s"
        }
    }
}

/// How long the parts of an attempt took.
pub(super) fn timing(timing: &Value) -> Markup {
    let parts = [
        ("DNS", "dns_us"),
        ("connect", "connect_us"),
        ("TLS", "tls_us"),
        ("first byte", "first_byte_us"),
    ];
    let shown = |value: &Value| value.as_f64().map(|us| shown::millis(&(us / 1000.0).into()));
    html! {
        p.timing {
            @if let Some(total) = shown(&timing["total_us"]) { strong { (total) } " in all" }
            @for (name, field) in parts {
                @if let Some(part) = shown(&timing[field]) { ", " (name) " " (part) }
            }
        }
    }
}

/// The headers of the request by which a receiver tells deliveries apart. They follow from what is on
/// record; signatures are not kept.
fn request(delivery: &Value, attempt: &Value) -> Vec<Value> {
    let event = text(delivery, "event");
    let started_at = shown::instant(&attempt["started_at"]).unwrap_or_default().as_millis() / 1000;
    let mut headers = vec![
        json!(["webhook-id", event]),
        json!(["webhook-timestamp", started_at.to_string()]),
        json!(["Idempotency-Key", event]),
        json!(["X-Attempt", number(attempt, "number").to_string()]),
    ];
    if let Some(key) = delivery["key"].as_str() {
        headers.push(json!(["X-Key", key]));
    }
    if let (Some(line), Some(seq)) = (delivery["line"].as_str(), delivery["seq"].as_u64()) {
        headers.push(json!(["X-Lane", line]));
        headers.push(json!(["X-Seq", seq.to_string()]));
    }
    headers
}

/// Headers, folded.
pub(super) fn details(summary: &str, headers: &[Value], more: &Markup) -> Markup {
    html! {
        details { summary { (summary) } (header_lines(headers)) (more) }
    }
}

/// What the receiver answered: headers and the beginning of the body.
pub(super) fn response(attempt: &Value) -> Markup {
    let headers = attempt["response_headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let body = text(attempt, "response_body");
    let more = html! {
        @if !body.is_empty() { pre tabindex="0" { code { (body) } } }
        @if attempt["response_body_truncated"] == true { p.hint { "The rest is cut off." } }
    };
    html! {
        @if !headers.is_empty() || !body.is_empty() { (details("Response", headers, &more)) }
    }
}

fn header_lines(headers: &[Value]) -> Markup {
    html! {
        dl.facts.headers {
            @for header in headers {
                dt { code { (header[0].as_str().unwrap_or_default()) } }
                dd { code { (header[1].as_str().unwrap_or_default()) } }
            }
        }
    }
}

/// The latest attempts of an endpoint.
pub(super) fn latest(visit: &PageVisit, attempts: &Value) -> Markup {
    let row = |attempt: &Value| {
        let (delivery, event) = (text(attempt, "delivery"), text(attempt, "event"));
        let path = format!("/deliveries/{delivery}#attempt-{}", number(attempt, "number"));
        vec![
            time(&attempt["started_at"]),
            html! {
                div {
                    (outcome(attempt))
                    @if let Some(message) = attempt["message"].as_str() { div.muted { (message) } }
                }
            },
            html! { a href=(visit.path(&path)) { (shown::id(delivery)) } },
            html! { a href=(visit.path(&format!("/events/{event}"))) { (shown::id(event)) } },
            shown::key(&attempt["key"]),
            html! { (number(attempt, "number")) },
        ]
    };
    let rows: Vec<_> = items(attempts).iter().map(row).collect();
    let columns = ["Started", "Outcome", "Delivery", "Event", "Key", "Attempt"];
    html! {
        section {
            h2 { "Latest attempts" }
            @if rows.is_empty() { p.muted { "Nothing was sent to this endpoint yet." } }
            @else { (table("Latest attempts", &columns, &rows)) }
        }
    }
}
