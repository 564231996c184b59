//! An endpoint's health in words. The engine knows it; the pages say it the same way everywhere.

use maud::{Markup, html};
use serde_json::Value;

use super::shown::{count, moment, number, sentence, text, time};

/// What the endpoint does, as a badge: never "active" while nothing is sent.
pub(super) fn badge(health: &Value) -> Markup {
    let (mark, tone) = match text(health, "state") {
        "active" => ("✓", "good"),
        "waiting" | "paused" => ("◷", "wait"),
        _ => ("✕", "bad"),
    };
    html! {
        span class={ "badge long " (tone) } data-state=(text(health, "state")) {
            span aria-hidden="true" { (mark) " " } (state(health))
        }
    }
}

/// The state in words, with the instant until which it lasts.
pub(super) fn state(health: &Value) -> Markup {
    let until = &health["until"];
    html! {
        @match (text(health, "state"), text(health, "waits_for")) {
            ("waiting", "breaker") => { "waiting for the breaker" @if !until.is_null() { " until " (moment(until)) } }
            ("waiting", "probe") if until.is_null() => { "waiting for the answer to one attempt" }
            ("waiting", "probe") => { "half-open, the next delivery goes alone" }
            ("waiting", _) => { "left alone" @if !until.is_null() { " until " (moment(until)) } " (Retry-After)" }
            ("failing", _) => { "switched off after failures" }
            (state, _) => { (state) }
        }
    }
}

/// What failed last, in words; nothing if nothing did since the last success.
pub(super) fn last_error(health: &Value) -> Markup {
    let error = &health["last_error"];
    html! { @if !error.is_null() { (text(error, "message")) ", " (time(&error["at"])) } }
}

/// The health in a table: the badge, since when, and the last error.
pub(super) fn cell(health: &Value) -> Markup {
    html! {
        div.health {
            (badge(health))
            @if !health["since"].is_null() { div.muted { "since " (moment(&health["since"])) } }
            @if !health["last_error"].is_null() { div { "Last error: " (last_error(health)) } }
        }
    }
}

/// All of it, on the endpoint's page: state, last error, what waits and how old it is, and what happens next.
pub(super) fn section(health: &Value) -> Markup {
    html! {
        section.health-panel {
            h2 { "Health" }
            dl.facts {
                dt { "State" } dd {
                    (badge(health))
                    @if !health["since"].is_null() { " since " (time(&health["since"])) }
                }
                @if let Some(next) = health["next"].as_str() { dt { "Next" } dd { (sentence(next)) } }
                dt { "Last error" } dd {
                    @if health["last_error"].is_null() { "none since the last success" } @else { (last_error(health)) }
                }
                dt { "Last success" } dd {
                    @if health["last_success_at"].is_null() { "none since the server started" }
                    @else { (time(&health["last_success_at"])) }
                }
                @if !health["failing_since"].is_null() {
                    dt { "Failing since" } dd { (time(&health["failing_since"])) }
                }
                dt { "Waiting" } dd {
                    (count(number(health, "open"))) " deliveries"
                    @if number(health, "waiting") > 0 { ", " (count(number(health, "waiting"))) " of them back off" }
                    @if !health["oldest_open_at"].is_null() { ", the oldest from " (time(&health["oldest_open_at"])) }
                }
                dt { "On the wire" } dd { (count(number(health, "in_flight"))) }
                dt { "Held lanes" } dd { (count(number(health, "held"))) }
                dt { "Dead letters" } dd { (count(number(health, "dead") + number(health, "held"))) }
            }
        }
    }
}
