//! Replays: jobs over many dead letters, previewed, started, watched and cancelled.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::dead_letters::filter_of;
use super::filters::OF_DEAD_LETTERS;
use super::form::{button, form};
use super::health;
use super::layout::Tab;
use super::live::live_part;
use super::shown::{self, badge, count, items, number, sentence, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let part = live_list(visit.clone()).await?;
    let body = html! { h1 { "Replays" } (live_part(&visit, "/replays", &part)) };
    Reply::page("Replays", Tab::Replays, body)
}

/// The part of the list that changes.
pub(super) async fn live_list(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let page = visit.get(&format!("/replays?{}", page_query(&visit, &[], TABLE_ROWS_MAX))).await?;
    let row = |replay: &Value| {
        let id = text(replay, "id");
        vec![
            html! { a href=(visit.path(&format!("/replays/{id}"))) { (shown::id(id)) } },
            html! { (text(replay, "action")) },
            badge(state(replay)),
            html! { (progress(replay)) },
            time(&replay["created_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    Ok(html! {
        @if rows.is_empty() {
            (empty("No replay yet. Start one from the dead letters, or with:", Some("railpost replay --dry-run")))
        } @else { (table("Replays", &["Replay", "Action", "State", "Progress", "Begun"], &rows)) }
        (pager(&visit, &[], &page))
    })
}

/// The state of a job. One that is finished has handed its deliveries over: whether they landed, the deliveries say.
fn state(replay: &Value) -> &str {
    match text(replay, "state") {
        "done" => "finished",
        other => other,
    }
}

/// How far a job is, in words.
fn progress(replay: &Value) -> String {
    let (matched, done) = (count(number(replay, "matched")), count(number(replay, "done")));
    let (would, did) = match text(replay, "action") {
        "discard" => ("discarded", "discarded"),
        _ => ("replayed", "handed over"),
    };
    match replay["dry_run"] == true {
        true => format!("dry run: {matched} would be {would}"),
        false => format!("{did} {done} of {matched}"),
    }
}

/// Endpoints to which nothing is sent just now: what was handed over to them waits.
fn waits_for(visit: &PageVisit, replay: &Value) -> Markup {
    let endpoints = replay["waits_for"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !endpoints.is_empty() {
            div.flash.warning role="alert" {
                p { "Nothing is sent to these endpoints just now. What is handed over to them waits:" }
                ul {
                    @for endpoint in endpoints {
                        @let id = text(endpoint, "endpoint");
                        li {
                            a href=(visit.path(&format!("/endpoints/{id}"))) { (shown::id(id)) } " "
                            (health::badge(&endpoint["health"]))
                            @if let Some(next) = endpoint["health"]["next"].as_str() { " " (sentence(next)) }
                        }
                    }
                }
            }
        }
    }
}

/// Starts a job, or its preview.
pub(super) async fn start(visit: PageVisit) -> PageResult {
    let body = json!({
        "action": visit.field("action"),
        "filter": filter_of(&visit),
        "dry_run": visit.field("dry_run") == "true",
    });
    let answered = visit.post("/replays", Some(&body)).await;
    Ok(match visit.or_redirect("/dead-letters", answered)? {
        Ok(replay) => Reply::Goto(visit.path(&format!("/replays/{}", text(&replay, "id")))),
        Err(back) => back,
    })
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let part = live(visit.clone()).await?;
    let path = format!("/replays/{}", visit.param("id"));
    let body = html! {
        h1 { "Replay " (shown::id(visit.param("id"))) }
        (live_part(&visit, &path, &part))
    };
    Reply::page("Replay", Tab::Replays, body)
}

/// The part of the page that changes.
pub(super) async fn live(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let replay = visit.get(&format!("/replays/{}", visit.param("id"))).await?;
    let (matched, done) = (number(&replay, "matched"), number(&replay, "done"));
    let is_dry = replay["dry_run"] == true;
    let is_over = text(&replay, "state") != "running";
    Ok(html! {
        p.summary data-announce { (badge(state(&replay))) " " (progress(&replay)) }
        (waits_for(&visit, &replay))
        dl.facts {
            dt { "Match" } dd { (count(matched)) }
            @if !is_dry {
                dt { "Handed over" } dd { (count(done)) }
                dt { "Refused" } dd { (count(number(&replay, "refused"))) }
            }
            dt { "Looked at" } dd { (count(number(&replay, "looked_at"))) " deliveries" }
            dt { "Took" } dd { (count(number(&replay, "took_ms"))) " ms" }
            @if let Some(problem) = replay["problem"].as_str() { dt { "Problem" } dd { (problem) } }
        }
        @if !is_dry {
            progress max=(matched.max(1)) value=(done) aria-label="Progress" {}
        }
        (preview(&visit, &replay))
        @if visit.may(Needs::Manage) {
            @if is_dry && is_over { (start_form(&visit, &replay)) }
            @if !is_over {
                (button(&visit, &visit.path(&format!("/replays/{}/cancel", text(&replay, "id"))), "Cancel", "danger"))
            }
        }
    })
}

fn preview(visit: &PageVisit, replay: &Value) -> Markup {
    let ids: Vec<&str> =
        replay["preview"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        @if !ids.is_empty() {
            h2 { "The first deliveries, in order" }
            ol.order {
                @for id in ids {
                    li { a href=(visit.path(&format!("/deliveries/{id}"))) { code { (id) } } }
                }
            }
        }
    }
}

/// The job that a preview was for.
fn start_form(visit: &PageVisit, replay: &Value) -> Markup {
    let (action, matched) = (text(replay, "action"), number(replay, "matched"));
    let body = html! {
        @for name in OF_DEAD_LETTERS.map(|filter| filter.name) {
            @match &replay["filter"][name] {
                Value::Null => {}
                Value::String(value) => { input type="hidden" name=(name) value=(value); }
                value => { input type="hidden" name=(name) value=(value); }
            }
        }
        input type="hidden" name="action" value=(action);
        div.actions {
            button.primary type="submit" disabled[matched == 0] { "Now " (action) " " (count(matched)) }
            a href=(visit.path("/dead-letters")) { "Back" }
        }
    };
    form(visit, &visit.path("/replays"), &body)
}

pub(super) async fn cancel(visit: PageVisit) -> PageResult {
    let page = format!("/replays/{}", visit.param("id"));
    let answered = visit.post(&format!("{page}/cancel"), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(_) => visit.redirect(&page, "The replay is cancelled; what was done stays done."),
        Err(back) => back,
    })
}
