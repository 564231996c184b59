//! Events: the list, and one with its payload and where it went.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::deliveries::rows as delivery_rows;
use super::filters::{OF_EVENTS, filter_form, set_filters};
use super::form::form;
use super::layout::Tab;
use super::shown::{self, bytes, items, number, text};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let set = set_filters(&visit, &OF_EVENTS);
    let page = visit.get(&format!("/events?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let row = |event: &Value| {
        let id = text(event, "id");
        vec![
            html! { a href=(visit.path(&format!("/events/{id}"))) { (shown::id(id)) } },
            html! { code { (text(event, "type")) } },
            shown::key(&event["key"]),
            html! { (bytes(number(event, "payload_bytes"))) },
            visit.ago(&event["accepted_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    let body = html! {
        h1 { "Events" }
        (filter_form(&visit, &OF_EVENTS).await?)
        @if rows.is_empty() { (nothing(!set.is_empty())) }
        @else { (table("Events", &["Event", "Type", "Key", "Size", "Accepted"], &rows)) }
        (pager(&visit, &set, &page))
    };
    Reply::page("Events", Tab::Events, body)
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
    let deliveries = visit.get(&format!("{path}/deliveries")).await?;
    let rows = delivery_rows(&visit, items(&deliveries));
    let body = html! {
        h1 { "Event " (shown::id(text(&event, "id"))) }
        dl.facts {
            dt { "Id" } dd { code { (text(&event, "id")) } }
            dt { "Type" } dd { code { (text(&event, "type")) } }
            dt { "Key" } dd { (shown::key(&event["key"])) }
            dt { "Accepted" } dd { (visit.ago(&event["accepted_at"])) }
            dt { "Happened" } dd { (visit.ago(&event["time"])) }
            dt { "Content type" } dd { code { (text(&event, "content_type")) } }
            dt { "Size" } dd { (bytes(number(&event, "payload_bytes"))) }
            @if let Some(id) = event["cloudevent"]["id"].as_str() {
                dt { "CloudEvent" }
                dd { code { (id) } " of " code { (text(&event["cloudevent"], "source")) } }
            }
            @if let Some(parent) = event["traceparent"].as_str() {
                dt { "Trace" } dd { code { (parent) } }
            }
        }
        section {
            h2 { "Deliveries" }
            @if rows.is_empty() { (empty("No endpoint wanted this event when it was accepted.", None)) }
            @else { (table("Deliveries", &super::deliveries::COLUMNS, &rows)) }
            @if visit.may(Needs::Manage) { (redeliver_form(&visit).await?) }
        }
        section { h2 { "Payload" } (payload(&event)) }
    };
    Reply::page("Event", Tab::Events, body)
}

fn payload(event: &Value) -> Markup {
    match event["payload_base64"].as_str() {
        Some(text) => html! { p.hint { "Base64:" } pre tabindex="0" { code { (text) } } },
        None => shown::json(&event["payload"]),
    }
}

async fn redeliver_form(visit: &PageVisit) -> Result<Markup, super::visit::ApiRefusal> {
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
