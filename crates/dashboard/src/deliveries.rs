//! Deliveries: the list, and one with the timeline of its attempts.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::filters::{OF_DELIVERIES, filter_form, set_filters};
use super::form::button;
use super::layout::Tab;
use super::shown::{self, badge, items, number, text, words};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) const COLUMNS: [&str; 7] =
    ["Delivery", "State", "Type", "Key", "Seq", "Attempts", "Changed"];

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let set = set_filters(&visit, &OF_DELIVERIES);
    let page =
        visit.get(&format!("/deliveries?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let rows = rows(&visit, items(&page));
    let body = html! {
        h1 { "Deliveries" }
        (filter_form(&visit, &OF_DELIVERIES).await?)
        @if rows.is_empty() {
            @if set.is_empty() {
                (empty(
                    "No delivery yet. Each event makes one for every endpoint that wants its type:",
                    Some("railpost send order.created --key order-1 --data '{\"total\": 42}'"),
                ))
            } @else { (empty("No delivery matches. Clear a filter to see more.", None)) }
        } @else { (table("Deliveries", &COLUMNS, &rows)) }
        (pager(&visit, &set, &page))
    };
    Reply::page("Deliveries", Tab::Deliveries, body)
}

pub(super) fn rows(visit: &PageVisit, deliveries: &[Value]) -> Vec<Vec<Markup>> {
    let row = |delivery: &Value| {
        let id = text(delivery, "id");
        vec![
            html! { a href=(visit.path(&format!("/deliveries/{id}"))) { (shown::id(id)) } },
            badge(text(delivery, "state")),
            html! { code { (text(delivery, "type")) } },
            shown::key(&delivery["key"]),
            html! { @match delivery["seq"].as_u64() { Some(seq) => { (seq) }, None => { "–" } } },
            html! { (number(delivery, "attempts")) },
            visit.ago(&delivery["changed_at"]),
        ]
    };
    deliveries.iter().map(row).collect()
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let path = format!("/deliveries/{}", visit.param("id"));
    let delivery = visit.get(&path).await?;
    let attempts = visit.get(&format!("{path}/attempts?limit=100")).await?;
    let (id, state) = (text(&delivery, "id"), text(&delivery, "state"));
    let body = html! {
        div.heading { h1.breaks { "Delivery " (shown::id(id)) } (badge(state)) }
        @if visit.may(Needs::Manage) { (actions(&visit, &delivery)) }
        (facts(&visit, &delivery))
        section {
            h2 { "Attempts" }
            @if items(&attempts).is_empty() {
                p.muted { "No attempt has ended yet." }
            } @else { ol.timeline { @for one in items(&attempts) { (attempt(&visit, &delivery, one)) } } }
            @if let Some(next) = attempts["next"].as_str() {
                p.hint { "There are more; the API has them after " code { (next) } "." }
            }
        }
    };
    Reply::page("Delivery", Tab::Deliveries, body)
}

fn actions(visit: &PageVisit, delivery: &Value) -> Markup {
    let id = text(delivery, "id");
    let dead = |action: &str, label: &str, class: &str| {
        let body = html! {
            input type="hidden" name="delivery" value=(id);
            button type="submit" name="action" value=(action) class=(class) { (label) }
        };
        super::form::form(visit, &visit.path("/dead-letters"), &body)
    };
    html! {
        @match text(delivery, "state") {
            "dead" => div.actions {
                (dead("replay", "Replay", "primary"))
                @if delivery["holds_lane"] == true { (dead("skip", "Skip", "")) }
                (dead("discard", "Discard", "danger"))
            },
            "pending" | "waiting" => div.actions {
                (button(visit, &visit.path(&format!("/deliveries/{id}/discard")), "Discard", "danger"))
            },
            _ => {}
        }
    }
}

fn facts(visit: &PageVisit, delivery: &Value) -> Markup {
    let event = text(delivery, "event");
    let endpoint = text(delivery, "endpoint");
    html! {
        dl.facts {
            dt { "Id" } dd { code { (text(delivery, "id")) } }
            dt { "Event" } dd { a href=(visit.path(&format!("/events/{event}"))) { code { (event) } } }
            dt { "Endpoint" } dd {
                @if delivery["reason"] == "endpoint_removed" { code { (endpoint) } " (removed)" }
                @else { a href=(visit.path(&format!("/endpoints/{endpoint}"))) { code { (endpoint) } } }
            }
            dt { "Type" } dd { code { (text(delivery, "type")) } }
            dt { "Key" } dd { (shown::key(&delivery["key"])) }
            @if let Some(line) = delivery["line"].as_str() { dt { "Line" } dd { code { (line) } } }
            @if let Some(seq) = delivery["seq"].as_u64() { dt { "Seq" } dd { (seq) } }
            @if !delivery["until"].is_null() { dt { "Tried again" } dd { (visit.ago(&delivery["until"])) } }
            @if let Some(reason) = delivery["reason"].as_str() {
                dt { @if text(delivery, "state") == "dead" { "Given up on" } @else { "Discarded" } }
                dd {
                    (shown::reason(reason)) @if delivery["holds_lane"] == true { ", and it holds its lane" }
                }
            }
            dt { "Accepted" } dd { (visit.ago(&delivery["created_at"])) }
            dt { "Changed" } dd { (visit.ago(&delivery["changed_at"])) }
        }
    }
}

/// One attempt: what came back, how long each part took, and what followed.
fn attempt(visit: &PageVisit, delivery: &Value, attempt: &Value) -> Markup {
    html! {
        li class=(text(attempt, "outcome")) {
            div.heading {
                h3 { "Attempt " (number(attempt, "number")) }
                (badge(text(attempt, "outcome")))
                @if let Some(status) = attempt["status"].as_u64() { strong { "HTTP " (status) } }
                @if let Some(failure) = attempt["failure"].as_str() { strong { (words(failure)) } }
                (visit.ago(&attempt["started_at"]))
            }
            @if let Some(message) = attempt["message"].as_str() { p { (message) } }
            (timing(&attempt["timing"]))
            p {
                "Then: " strong { (words(text(attempt, "led_to"))) }
                @if !attempt["next_at"].is_null() { ", next attempt " (visit.ago(&attempt["next_at"])) }
                @if let Some(wait) = attempt["retry_after_s"].as_u64() {
                    ", as the receiver asked for " (wait) " s"
                }
            }
            (sent(delivery, attempt))
            (answer(attempt))
        }
    }
}

fn timing(timing: &Value) -> Markup {
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
fn sent(delivery: &Value, attempt: &Value) -> Markup {
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
    html! {
        details {
            summary { "Request headers" }
            (header_lines(&headers))
            p.hint { "Under their usual names; signatures are not kept." }
        }
    }
}

fn answer(attempt: &Value) -> Markup {
    let headers = attempt["response_headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let answered = text(attempt, "response_body");
    html! {
        @if !headers.is_empty() || !answered.is_empty() {
            details {
                summary { "Response" }
                (header_lines(headers))
                @if !answered.is_empty() { pre tabindex="0" { code { (answered) } } }
                @if attempt["response_body_truncated"] == true { p.hint { "The rest is cut off." } }
            }
        }
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

pub(super) async fn discard(visit: PageVisit) -> PageResult {
    let page = format!("/deliveries/{}", visit.param("id"));
    let answered = visit.post(&format!("{page}/discard"), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(_) => visit.redirect(&page, "The delivery is discarded."),
        Err(back) => back,
    })
}
