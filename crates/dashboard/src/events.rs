//! Events: the list, and one with its payload, where it went and its story.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::deliveries::rows as delivery_rows;
use super::filters::{OF_EVENTS, filter_form, set_filters};
use super::form::form;
use super::layout::Tab;
use super::live::live_part;
use super::shown::{self, bytes, copyable, counted_badge, items, number, text, time};
use super::story;
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let part = live_list(visit.clone()).await?;
    let body = html! {
        h1 { "Events" }
        (filter_form(&visit, &OF_EVENTS).await?)
        (live_part(&visit, "/events", &part))
    };
    Reply::page("Events", Tab::Events, body)
}

/// The part of the list that changes.
pub(super) async fn live_list(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let set = set_filters(&visit, &OF_EVENTS);
    let page = visit.get(&format!("/events?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let row = |event: &Value| {
        let id = text(event, "id");
        vec![
            html! { a href=(visit.path(&format!("/events/{id}"))) { (shown::id(id)) } },
            html! { code { (text(event, "type")) } },
            shown::key(&event["key"]),
            states(&event["deliveries"]),
            html! { (bytes(number(event, "payload_bytes"))) },
            time(&event["accepted_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    Ok(html! {
        @if rows.is_empty() { (nothing(!set.is_empty())) }
        @else { (table("Events", &["Event", "Type", "Key", "Deliveries", "Size", "Accepted"], &rows)) }
        (pager(&visit, &set, &page))
    })
}

/// How many deliveries of an event are in which state.
fn states(counts: &Value) -> Markup {
    const STATES: [&str; 7] =
        ["held", "dead", "waiting", "in_flight", "pending", "delivered", "discarded"];
    let there: Vec<_> = STATES.into_iter().filter(|state| number(counts, state) > 0).collect();
    html! {
        div.states {
            @if there.is_empty() { span.muted { "no endpoint wanted it" } }
            @for state in there {
                (counted_badge(number(counts, state), state)) " "
            }
        }
    }
}

fn nothing(filtered: bool) -> Markup {
    match filtered {
        true => empty("No event matches. Clear a filter to see more.", None),
        false => empty(
            "No event yet. Publish one:",
            Some("railpost send order.created --key order-1 --data '{\"total\": 42}'"),
        ),
    }
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let path = format!("/events/{}", visit.param("id"));
    let event = visit.get(&path).await?;
    let part = live_detail(visit.clone()).await?;
    let body = html! {
        h1 { "Event " (shown::id(text(&event, "id"))) }
        (facts(&event))
        (live_part(&visit, &path, &part))
        @if visit.may(Needs::Manage) { (redeliver_form(&visit).await?) }
        section { h2 { "Payload" } (payload(&event)) }
    };
    Reply::page("Event", Tab::Events, body)
}

/// The part of an event's page that changes: its deliveries, and its story.
pub(super) async fn live_detail(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let path = format!("/events/{}", visit.param("id"));
    let deliveries = visit.get(&format!("{path}/deliveries")).await?;
    let story = visit.get(&format!("{path}/story")).await?;
    let rows = delivery_rows(&visit, items(&deliveries));
    Ok(html! {
        section {
            h2 { "Deliveries" }
            @if rows.is_empty() { (empty("No endpoint wanted this event when it was accepted.", None)) }
            @else { (table("Deliveries", &super::deliveries::COLUMNS, &rows)) }
            (story::not_matched(&visit, &story))
        }
        (story::timeline(&visit, &story))
    })
}

fn facts(event: &Value) -> Markup {
    html! {
        dl.facts {
            dt { "Id" } dd { (copyable(text(event, "id"))) }
            dt { "Type" } dd { code { (text(event, "type")) } }
            dt { "Key" } dd {
                (shown::key(&event["key"]))
                @if let Some(key) = event["key"].as_str() { (shown::copy_button(key)) }
            }
            dt { "Accepted" } dd { (time(&event["accepted_at"])) (accepted_by(&event["accepted_by"])) }
            dt { "Happened" } dd { (time(&event["time"])) }
            dt { "Content type" } dd { code { (text(event, "content_type")) } }
            dt { "Size" } dd { (bytes(number(event, "payload_bytes"))) }
            @if let Some(id) = event["cloudevent"]["id"].as_str() {
                dt { "CloudEvent" }
                dd { (copyable(id)) " of " code { (text(&event["cloudevent"], "source")) } }
            }
            @if let Some(parent) = event["traceparent"].as_str() {
                dt { "Trace" } dd { (copyable(parent)) }
            }
        }
    }
}

/// Who published the event.
fn accepted_by(by: &Value) -> Markup {
    html! {
        @match text(by, "kind") {
            "key" => { ", published with the key " code { (by["name"].as_str().unwrap_or(text(by, "id"))) } }
            "source" => { ", relayed from the source " code { (text(by, "name")) } }
            "server" => { ", published by the server itself" }
            _ => {}
        }
    }
}

fn payload(event: &Value) -> Markup {
    match event["payload_base64"].as_str() {
        Some(text) => html! { p.hint { "Base64:" } pre tabindex="0" { code { (text) } } },
        None => shown::json(&event["payload"]),
    }
}

async fn redeliver_form(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let endpoints = visit.get("/endpoints?limit=500").await?;
    let body = html! {
        div.inline {
            label for="endpoint" { "Send it to" }
            select id="endpoint" name="endpoint" {
                @for endpoint in items(&endpoints) {
                    option value=(text(endpoint, "id")) { (text(endpoint, "url")) }
                }
            }
            button type="submit" { "Redeliver" }
        }
    };
    let action = visit.path(&format!("/events/{}/redeliver", visit.param("id")));
    Ok(html! { @if !items(&endpoints).is_empty() { (form(visit, &action, &body)) } })
}

pub(super) async fn redeliver(visit: PageVisit) -> PageResult {
    let page = format!("/events/{}", visit.param("id"));
    let body = json!({ "endpoint": visit.field("endpoint") });
    let answered = visit.post(&format!("{page}/redeliver"), Some(&body)).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(_) => visit.redirect(&page, "The event is sent again, at the end of its lane."),
        Err(back) => back,
    })
}
