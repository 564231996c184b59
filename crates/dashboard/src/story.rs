//! An event's story: what happened to it, in order, and where it went and did not go.

use maud::{Markup, html};
use serde_json::Value;

use super::attempts;
use super::shown::{self, count, number, sentence, text, time};
use super::visit::PageVisit;

/// What happened, the earliest first.
pub(super) fn timeline(visit: &PageVisit, story: &Value) -> Markup {
    let entries = list(story, "entries");
    html! {
        section aria-labelledby="story" {
            h2 id="story" { "What happened" }
            ol.timeline.story {
                @for (index, entry) in entries.iter().enumerate() {
                    li id={ "entry-" (index) } class=(tone(entry)) { (line(visit, entry)) }
                }
            }
            @if number(story, "left_off") > 0 {
                p.hint { (count(number(story, "left_off"))) " more are not shown." }
            }
        }
    }
}

fn list<'a>(story: &'a Value, field: &str) -> &'a [Value] {
    story[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The mark of an entry: an attempt's is its outcome.
fn tone(entry: &Value) -> &str {
    match text(entry, "kind") {
        "attempt" => text(&entry["attempt"], "outcome"),
        "delivered" => "acknowledged",
        "waiting" => "retryable",
        "held" | "dead" => "permanent",
        other => other,
    }
}

fn line(visit: &PageVisit, entry: &Value) -> Markup {
    let (endpoint, delivery) = (text(entry, "endpoint"), text(entry, "delivery"));
    let attempt = &entry["attempt"];
    html! {
        div.heading {
            h3 { (shown::words(text(entry, "kind"))) @if !attempt.is_null() { " " (number(attempt, "number")) } }
            @if !attempt.is_null() { (attempts::outcome(attempt)) }
            (time(&entry["at"]))
        }
        p { (sentence(text(entry, "text"))) }
        @if !endpoint.is_empty() || !delivery.is_empty() {
            p.muted.about {
                @if !endpoint.is_empty() {
                    "endpoint " a href=(visit.path(&format!("/endpoints/{endpoint}"))) { (shown::id(endpoint)) } " "
                }
                @if !delivery.is_empty() {
                    "delivery " a href=(visit.path(&format!("/deliveries/{delivery}"))) { (shown::id(delivery)) }
                }
            }
        }
        @if !attempt.is_null() {
            (attempts::timing(&attempt["timing"]))
            (attempts::details("Request headers", list(attempt, "request_headers"), &html! {}))
            (attempts::response(attempt))
        }
    }
}

/// Which endpoints the event did not go to, and why.
pub(super) fn not_matched(visit: &PageVisit, story: &Value) -> Markup {
    let endpoints = list(story, "not_matched");
    html! {
        @if !endpoints.is_empty() {
            details.not-matched open[list(story, "matched").is_empty()] {
                summary { (count(endpoints.len() as u64)) " endpoints did not get it" }
                ul {
                    @for endpoint in endpoints {
                        li {
                            a href=(visit.path(&format!("/endpoints/{}", text(endpoint, "endpoint")))) {
                                (text(endpoint, "url"))
                            }
                            ": " (sentence(text(endpoint, "why")))
                        }
                    }
                }
            }
        }
    }
}
