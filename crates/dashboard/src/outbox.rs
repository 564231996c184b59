//! Sources that events are relayed from: the list, one of them, and its check. They are the operator's, not a
//! tenant's.

mod parked;

use maud::{Markup, html};
use railpost_engine::Span;
use serde_json::Value;

use super::form::button;
use super::layout::Tab;
use super::shown::{badge, bytes, count, items, number, span, text, time};
use super::table::table;
use super::visit::PageVisit;
use super::{PageResult, Reply};

pub(super) use parked::{ACTIONS, act, retry_all, show as parked_row};

/// What a first source looks like in the configuration.
const FIRST_SECTION: &str = "\
[[outbox]]
name = \"shop\"
url = \"postgres://railpost:secret@db.example/shop\"
tenant = \"default\"";

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let sources = visit.get("/outbox").await?;
    let rows: Vec<_> = items(&sources).iter().map(|source| source_row(&visit, source)).collect();
    let columns = ["Source", "State", "Lag", "Relayed", "Waiting", "Parked", "Replication slot"];
    let body = html! {
        h1 { "Outbox" }
        p.lead { "Databases that Railpost reads events from. Counts are of this server, since its start." }
        @if rows.is_empty() { (first_source()) } @else { (table("Sources", &columns, &rows)) }
    };
    Reply::page("Outbox", Tab::Outbox, body)
}

/// How the first source is added.
fn first_source() -> Markup {
    html! {
        section.welcome {
            h2 { "There is no source" }
            p {
                "An application writes its change and the event in one transaction of its own database. Railpost
                reads the event there, so it exists if and only if the change was committed."
            }
            ol {
                li { "Add a source to the configuration:" pre tabindex="0" { code { (FIRST_SECTION) } } }
                li { "Create its table:" pre tabindex="0" { code { "railpost outbox init shop" } } }
                li { "Restart the server. This page then shows the source." }
            }
            p { "The file docs/outbox.md has the other ways, and how to write an event in your language." }
        }
    }
}

fn source_row(visit: &PageVisit, source: &Value) -> Vec<Markup> {
    let name = text(source, "name");
    vec![
        html! {
            div.source { a href=(visit.path(&format!("/outbox/{name}"))) { (name) } br; span.muted { (text(source, "url")) } }
        },
        html! {
            div {
                (state(source))
                @if let Some(problem) = source["trouble"]["problem"].as_str() { br; (problem) }
            }
        },
        html! { (lag(source)) },
        html! { (count(number(source, "relayed"))) },
        html! { (count(number(source, "pending"))) },
        html! {
            @let parked = number(source, "parked_rows");
            @if parked > 0 {
                a href=(visit.path(&format!("/outbox/{name}#parked"))) { (count(parked)) }
            } @else { "0" }
        },
        slot(&source["slot"]),
    ]
}

/// What a source is doing.
fn state(source: &Value) -> Markup {
    badge(match text(source, "state") {
        "elsewhere" => "read_by_another_server",
        "trouble" => "not_read",
        "removed" => "not_configured",
        other => other,
    })
}

/// How far the source is behind; of one that this server does not read nobody knows.
fn lag(source: &Value) -> String {
    match number(source, "lag_ms") {
        0 if text(source, "state") != "reading" => "–".to_owned(),
        0 => "none".to_owned(),
        ms => span(Span::from_millis(ms)),
    }
}

/// What a replication slot keeps, and how much more it may.
fn slot(slot: &Value) -> Markup {
    html! {
        @if slot.is_null() { span.muted { "none" } }
        @else if slot["lost"] == true { (badge("lost")) }
        @else {
            "keeps " (bytes(number(slot, "retained_bytes")))
            @match slot["safe_bytes"].as_u64() {
                Some(left) => { ", " (bytes(left)) " left" }
                None => { ", without a bound" }
            }
        }
    }
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let name = visit.param("source");
    let source = visit.get(&format!("/outbox/{name}")).await?;
    let parked = parked::section(&visit, &source).await?;
    let body = html! {
        div.heading { h1.breaks { "Source " (name) } (state(&source)) }
        @if let Some(url) = source["url"].as_str() { p.lead { (mode(text(&source, "mode"))) " " code { (url) } } }
        (trouble(&source["trouble"]))
        div.actions { (check_button(&visit, "Check this source")) }
        (facts(&source))
        (parked)
    };
    Reply::page(&format!("Source {name}"), Tab::Outbox, body)
}

fn mode(mode: &str) -> &'static str {
    match mode {
        "tail" => "Follows the database's log for new rows:",
        "messages" => "Follows the database's log for messages:",
        _ => "Asks for new rows of a table:",
    }
}

/// Why a source is not read, and what to run.
fn trouble(trouble: &Value) -> Markup {
    html! {
        @if !trouble.is_null() {
            div.flash.problem role="alert" {
                p { strong { "✕ Not read: " } (text(trouble, "problem")) }
                @if !trouble["since"].is_null() { p.hint { "It began " (time(&trouble["since"])) "." } }
                @match trouble["fix"].as_str() {
                    Some(fix) => { p { "What to do:" } pre tabindex="0" { code { (fix) } } }
                    None => { p { "Railpost tries again by itself." } }
                }
            }
        }
    }
}

fn check_button(visit: &PageVisit, label: &str) -> Markup {
    button(visit, &visit.path(&format!("/outbox/{}/check", visit.param("source"))), label, "")
}

fn facts(source: &Value) -> Markup {
    html! {
        dl.facts {
            dt { "Lag" } dd { (lag(source)) }
            dt { "Waiting rows" } dd { (count(number(source, "pending"))) }
            dt { "Last row" } dd { (time(&source["last_row_at"])) }
            dt { "Relayed" } dd { (count(number(source, "relayed"))) }
            dt { "Seen again" } dd { (count(number(source, "duplicates"))) }
            dt { "Refused" } dd { (count(number(source, "refused"))) }
            dt { "Parked rows" }
            dd { (count(number(source, "parked_rows"))) ", " (bytes(number(source, "parked_bytes"))) }
            @if let Some(position) = source["position"].as_str() { dt { "Read up to" } dd { code { (position) } } }
            @if !source["slot"].is_null() { dt { "Replication slot" } dd { (slot(&source["slot"])) } }
        }
    }
}

/// Checks every condition of a source, and shows what was found.
pub(super) async fn check(visit: PageVisit) -> PageResult {
    let name = visit.param("source");
    let check = visit.post(&format!("/outbox/{name}/check"), None).await?;
    let rows: Vec<_> =
        check["findings"].as_array().into_iter().flatten().map(finding_row).collect();
    let body = html! {
        h1 { "Check of source " (name) }
        p.lead {
            @if check["good"] == true { "Every condition that must hold does." }
            @else { "The source cannot be read like this. Conditions that depend on a bad one were not checked." }
        }
        (table("Findings", &["Condition", "Verdict", "Found", "What to do"], &rows))
        div.actions.result {
            (check_button(&visit, "Check again"))
            a href=(visit.path(&format!("/outbox/{name}"))) { "Back to the source" }
        }
    };
    Reply::page(&format!("Check of source {name}"), Tab::Outbox, body)
}

fn finding_row(finding: &Value) -> Vec<Markup> {
    vec![
        html! { (super::shown::words(text(finding, "condition"))) },
        badge(text(finding, "verdict")),
        html! { (text(finding, "found")) },
        html! { @if let Some(fix) = finding["fix"].as_str() { pre tabindex="0" { code { (fix) } } } },
    ]
}

/// A check is made by its button: its address alone leads to the source.
pub(super) async fn check_by_address(visit: PageVisit) -> PageResult {
    Ok(Reply::Goto(visit.path(&format!("/outbox/{}", visit.param("source")))))
}
