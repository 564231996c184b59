//! Deliveries: the list, and one with the timeline of its attempts.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::Value;

use super::attempts;
use super::confirm::Question;
use super::filters::{OF_DELIVERIES, filter_form, set_filters};
use super::form::{button, form};
use super::health;
use super::layout::Tab;
use super::live::live_part;
use super::session::Undo;
use super::shown::{self, badge, copyable, endpoint_link, items, number, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::{DELIVERY_ATTEMPTS_MAX, LANES_SHOWN_MAX, TABLE_ROWS_MAX};

pub(super) const COLUMNS: [&str; 9] =
    ["Delivery", "State", "Endpoint", "Last answer", "Type", "Key", "Seq", "Attempts", "Changed"];

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let part = live_list(visit.clone()).await?;
    let body = html! {
        h1 { "Deliveries" }
        (filter_form(&visit, &OF_DELIVERIES).await?)
        (live_part(&visit, "/deliveries", &part))
    };
    Reply::page("Deliveries", Tab::Deliveries, body)
}

/// The part of the list that changes.
pub(super) async fn live_list(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let set = set_filters(&visit, &OF_DELIVERIES);
    let page =
        visit.get(&format!("/deliveries?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let rows = rows(&visit, items(&page));
    Ok(html! {
        @if rows.is_empty() {
            @if set.is_empty() {
                (empty(
                    "No delivery yet. Each event makes one for every endpoint that wants its type:",
                    Some("railpost send order.created --key order-1 --data '{\"total\": 42}'"),
                ))
            } @else { (empty("No delivery matches. Clear a filter to see more.", None)) }
        } @else { (table("Deliveries", &COLUMNS, &rows)) }
        (pager(&visit, &set, &page))
    })
}

pub(super) fn rows(visit: &PageVisit, deliveries: &[Value]) -> Vec<Vec<Markup>> {
    let row = |delivery: &Value| {
        let id = text(delivery, "id");
        vec![
            html! { a href=(visit.path(&format!("/deliveries/{id}"))) { (shown::id(id)) } },
            badge(text(delivery, "state")),
            endpoint_link(visit, delivery),
            shown::last_answer(&delivery["last_answer"]),
            html! { code { (text(delivery, "type")) } },
            shown::key(&delivery["key"]),
            html! { @match delivery["seq"].as_u64() { Some(seq) => { (seq) }, None => { "–" } } },
            html! { (number(delivery, "attempts")) },
            time(&delivery["changed_at"]),
        ]
    };
    deliveries.iter().map(row).collect()
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let part = live_detail(visit.clone()).await?;
    let path = format!("/deliveries/{}", visit.param("id"));
    Reply::page("Delivery", Tab::Deliveries, live_part(&visit, &path, &part))
}

/// The page of a delivery: all of it changes.
pub(super) async fn live_detail(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let path = format!("/deliveries/{}", visit.param("id"));
    let delivery = visit.get(&path).await?;
    let attempts = visit.get(&format!("{path}/attempts?limit={DELIVERY_ATTEMPTS_MAX}")).await?;
    let next = next_attempt(&visit, &delivery).await?;
    let id = text(&delivery, "id");
    Ok(html! {
        div.heading { h1.breaks { "Delivery " (shown::id(id)) } span data-announce { (badge(text(&delivery, "state"))) } }
        @if visit.may(Needs::Manage) { (actions(&visit, &delivery)) }
        (facts(&visit, &delivery, &next))
        section {
            h2 { "Attempts" }
            @if items(&attempts).is_empty() {
                p.muted { "No attempt has ended yet." }
            } @else { ol.timeline { @for one in items(&attempts) { (attempts::entry(&delivery, one)) } } }
            @if let Some(next) = attempts["next"].as_str() {
                p.hint { "There are more; the API has them after " code { (next) } "." }
            }
        }
    })
}

/// What happens next to a delivery that is open, as the engine has it: what it waits for, or that it is on the wire.
async fn next_attempt(visit: &PageVisit, delivery: &Value) -> Result<Markup, ApiRefusal> {
    if !matches!(text(delivery, "state"), "pending" | "waiting" | "in_flight") {
        return Ok(html! {});
    }
    let endpoint = text(delivery, "endpoint");
    let health = visit.get(&format!("/endpoints/{endpoint}/health")).await?;
    let lanes =
        visit.get(&format!("/lanes/open?endpoint={endpoint}&limit={LANES_SHOWN_MAX}")).await?;
    let lane = items(&lanes).iter().find(|lane| lane["lane"] == delivery["lane"]);
    let head = lane.map(|lane| &lane["head"]).filter(|head| head["id"] != delivery["id"]);
    let due = shown::instant(&delivery["until"]).is_none_or(|until| until <= visit.now);
    Ok(html! {
        @if let Some(head) = head {
            "waits behind seq " (number(head, "seq")) ": "
            a href=(visit.path(&format!("/deliveries/{}", text(head, "id")))) { (shown::id(text(head, "id"))) }
        } @else if lane.is_some_and(|lane| text(lane, "state") == "in_flight") {
            "an attempt is on the wire"
        } @else if !due {
            "at " (time(&delivery["until"]))
        } @else if text(&health, "state") != "active" {
            "not before its endpoint is sent to again: " (health::badge(&health))
        } @else if !delivery["until"].is_null() {
            "due since " (time(&delivery["until"])) ", waits for its turn"
        } @else { "waits for its turn" }
    })
}

fn actions(visit: &PageVisit, delivery: &Value) -> Markup {
    let id = text(delivery, "id");
    let dead = |action: &str, label: &str, class: &str| {
        let body = html! {
            input type="hidden" name="delivery" value=(id);
            input type="hidden" name="back" value={ "/deliveries/" (id) };
            button type="submit" name="action" value=(action) class=(class) { (label) }
        };
        form(visit, &visit.path("/dead-letters"), &body)
    };
    html! {
        @match text(delivery, "state") {
            "dead" => div.actions {
                (dead("replay", "Replay", "primary"))
                @if delivery["holds_lane"] == true { (dead("skip", "Skip…", "")) }
                (dead("discard", "Discard…", "danger"))
            },
            "pending" | "waiting" => div.actions {
                (button(visit, &visit.path(&format!("/deliveries/{id}/discard")), "Discard…", "danger"))
            },
            _ => {}
        }
    }
}

fn facts(visit: &PageVisit, delivery: &Value, next: &Markup) -> Markup {
    let event = text(delivery, "event");
    html! {
        dl.facts {
            @if !next.0.is_empty() { dt { "Next attempt" } dd { (next) } }
            dt { "Last answer" } dd {
                (shown::last_answer(&delivery["last_answer"]))
                @if let Some(message) = delivery["last_answer"]["message"].as_str() { ": " (message) }
                @if !delivery["last_answer"].is_null() { ", " (time(&delivery["last_answer"]["at"])) }
            }
            @if let Some(reason) = delivery["reason"].as_str() {
                dt { @if text(delivery, "state") == "dead" { "Given up on" } @else { "Discarded" } }
                dd {
                    (shown::reason(reason)) @if delivery["holds_lane"] == true { ", and it holds its lane" }
                }
            }
            dt { "Id" } dd { (copyable(text(delivery, "id"))) }
            dt { "Event" } dd {
                a href=(visit.path(&format!("/events/{event}"))) { code { (event) } } (shown::copy_button(event))
            }
            dt { "Endpoint" } dd {
                @if delivery["reason"] == "endpoint_removed" { code { (text(delivery, "endpoint")) } " (removed)" }
                @else { (endpoint_link(visit, delivery)) }
            }
            dt { "Type" } dd { code { (text(delivery, "type")) } }
            dt { "Key" } dd {
                (shown::key(&delivery["key"]))
                @if let Some(key) = delivery["key"].as_str() { (shown::copy_button(key)) }
            }
            @if let Some(line) = delivery["line"].as_str() { dt { "Line" } dd { code { (line) } } }
            @if let Some(seq) = delivery["seq"].as_u64() { dt { "Seq" } dd { (seq) } }
            dt { "Accepted" } dd { (time(&delivery["created_at"])) }
            dt { "Changed" } dd { (time(&delivery["changed_at"])) }
        }
    }
}

pub(super) async fn discard(visit: PageVisit) -> PageResult {
    let page = format!("/deliveries/{}", visit.param("id"));
    if !visit.is_confirmed() {
        let delivery = visit.get(&page).await?;
        return Question {
            title: "Discard this delivery?".to_owned(),
            effect: html! {
                "Closes 1 open delivery: the event " code { (text(&delivery, "event")) } " is not sent to "
                code { (text(&delivery, "endpoint_url")) } " any more. Its lane moves on."
            },
            undo: "The event stays: it can be redelivered, at the end of its lane.",
            label: "Discard the delivery".to_owned(),
            back: page,
            tab: Tab::Deliveries,
        }
        .ask(&visit);
    }
    let answered = visit.post(&format!("{page}/discard"), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(delivery) => visit.redirect_with_undo(
            &page,
            "The delivery is discarded.",
            redelivery(&visit, &delivery),
        ),
        Err(back) => back,
    })
}

/// How a discard is undone: the event is sent again.
pub(super) fn redelivery(visit: &PageVisit, delivery: &Value) -> Undo {
    Undo {
        label: "Redeliver the event".to_owned(),
        action: visit.path(&format!("/events/{}/redeliver", text(delivery, "event"))),
        fields: vec![("endpoint", text(delivery, "endpoint").to_owned())],
    }
}

/// How a skip is undone: the dead letter stays and can be replayed.
pub(super) fn replay(visit: &PageVisit, delivery: &Value) -> Undo {
    Undo {
        label: "Replay the dead letter".to_owned(),
        action: visit.path("/dead-letters"),
        fields: vec![
            ("delivery", text(delivery, "id").to_owned()),
            ("action", "replay".to_owned()),
        ],
    }
}
