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
                    li id={ "entry-" (index) } class=(tone(entry)) { (line(visit, story, entry)) }
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

fn line(visit: &PageVisit, story: &Value, entry: &Value) -> Markup {
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
                    a href=(visit.path(&format!("/endpoints/{endpoint}"))) { (url_of(story, endpoint)) }
                }
                @if !delivery.is_empty() {
                    " delivery " a href=(visit.path(&format!("/deliveries/{delivery}"))) { (shown::id(delivery)) }
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

/// The URL of an endpoint of the story, or its id once it is deleted.
fn url_of<'a>(story: &'a Value, endpoint: &'a str) -> &'a str {
    let mut endpoints = list(story, "matched").iter().chain(list(story, "not_matched"));
    let found = endpoints.find(|it| text(it, "endpoint") == endpoint);
    found.map(|it| text(it, "url")).filter(|url| !url.is_empty()).unwrap_or(endpoint)
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
