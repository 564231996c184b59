//! Alerts: the open ones, those that are over, and one of them with the events that told of it. The operator sees
//! all of them, with rules, silences and tests; a tenant sees its own.

mod forms;
mod rules;

use maud::{Markup, html};
use railpost_api::Needs;
use railpost_engine::Span;
use serde_json::Value;

use super::layout::Tab;
use super::live::live_part;
use super::shown::{badge, count, id, instant, items, json, moment, span, text, time, words};
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::{OPEN_ALERTS_SHOWN_MAX, TABLE_ROWS_MAX};

pub(super) use forms::{end_silence, silence, silence_some, test};

pub(super) async fn page(visit: PageVisit) -> PageResult {
    if let Some(own) = own_path(&visit, "/alerts") {
        return Ok(Reply::Goto(own));
    }
    let is_operator = visit.tenant.is_none();
    let part = live(visit.clone()).await?;
    let history = history(&visit).await?;
    let rules = if is_operator { Some(rules::section(&visit).await?) } else { None };
    let body = html! {
        div.heading {
            h1 { "Alerts" }
            @if is_operator { a.button href="#test" { "Send a test…" } a.button href="#silence" { "Silence…" } }
        }
        p.lead {
            @if is_operator { "What people should know, of all tenants and of this server." }
            @else { "What people should know of this tenant." }
        }
        (live_part(&visit, "/alerts", &part))
        (history)
        @if let Some(rules) = rules { (rules) }
    };
    Reply::page("Alerts", Tab::Alerts, body)
}

/// The part of the page that changes.
pub(super) async fn live(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let open = visit.get(&format!("/alerts?open=true&limit={OPEN_ALERTS_SHOWN_MAX}")).await?;
    let mut alerts: Vec<&Value> = items(&open).iter().collect();
    // Those of one severity stay as they come: the latest first.
    alerts.sort_by_key(|alert| std::cmp::Reverse(rank(text(alert, "severity"))));
    let silences = match visit.tenant {
        None => Some(forms::silences(&visit).await?),
        Some(_) => None,
    };
    Ok(html! {
        section {
            h2 data-announce { (open_heading(alerts.len(), !open["next"].is_null())) }
            @if alerts.is_empty() {
                (empty("Nothing is wrong. What was wrong stands below.", None))
            } @else {
                ul.alerts { @for alert in alerts { (card(&visit, alert)) } }
            }
        }
        @if let Some(silences) = silences { (silences) }
    })
}

fn open_heading(number: usize, is_cut: bool) -> String {
    match (number, is_cut) {
        (0, _) => "No open alerts".to_owned(),
        (1, _) => "1 open alert".to_owned(),
        (number, false) => format!("{} open alerts", count(number as u64)),
        (number, true) => format!("More than {} open alerts", count(number as u64)),
    }
}

fn rank(severity: &str) -> u8 {
    match severity {
        "critical" => 3,
        "error" => 2,
        "warning" => 1,
        _ => 0,
    }
}

/// An open alert, and what can be done about it.
fn card(visit: &PageVisit, alert: &Value) -> Markup {
    let (key, severity) = (text(alert, "id"), text(alert, "severity"));
    html! {
        li class={ "alert " (severity) } data-key=(key) {
            div.heading {
                (badge(severity))
                h3 { a href=(visit.path(&format!("/alerts/{key}"))) { (words(text(alert, "rule"))) } }
                @if !alert["silenced_until"].is_null() {
                    span.muted { "silenced until " (moment(&alert["silenced_until"])) }
                }
                span.since { "since " (time(&alert["fired_at"])) }
            }
            p { (text(alert, "summary")) }
            div.links { (links(visit, alert)) }
            @if visit.tenant.is_none() { (forms::silence_form(visit, alert)) }
        }
    }
}

/// Where to look: what it is about, and the runbook.
fn links(visit: &PageVisit, alert: &Value) -> Markup {
    let tenant = alert["tenant"].as_str();
    let subject = text(alert, "subject");
    html! {
        @match (tenant, alert["endpoint"].as_str()) {
            (Some(tenant), Some(endpoint)) => {
                a href={ "/dashboard/t/" (tenant) "/endpoints/" (endpoint) } { "Endpoint " (id(endpoint)) }
                @if text(alert, "rule") == "lane_held" {
                    a href={ "/dashboard/t/" (tenant) "/lanes?endpoint=" (endpoint) } { "Its lanes" }
                }
            }
            _ if text(alert, "rule") == "source_trouble" => {
                a href={ "/dashboard/outbox/" (subject) } { "Source " (subject) }
            }
            _ => {}
        }
        @if let (None, Some(tenant)) = (&visit.tenant, tenant) {
            a href={ "/dashboard/t/" (tenant) } { "Tenant " code { (tenant) } }
        }
        @if let Some(runbook) = alert["runbook"].as_str() {
            a href=(runbook) rel="noreferrer" { "Runbook" }
        }
    }
}

/// Alerts that are over.
async fn history(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let resolved = [("open".to_owned(), "false".to_owned())];
    let query = page_query(visit, &resolved, TABLE_ROWS_MAX);
    let page = visit.get(&format!("/alerts?{query}")).await?;
    let rows: Vec<_> = items(&page).iter().map(|alert| history_row(visit, alert)).collect();
    let columns = ["Alert", "Severity", "What happened", "Fired", "Lasted"];
    Ok(html! {
        section id="history" {
            h2 { "History" }
            @if rows.is_empty() { (empty("No alert is over yet.", None)) }
            @else { (table("Alerts that are over", &columns, &rows)) }
            (pager(visit, &[], &page))
        }
    })
}

fn history_row(visit: &PageVisit, alert: &Value) -> Vec<Markup> {
    vec![
        html! {
            div {
                a href=(visit.path(&format!("/alerts/{}", text(alert, "id")))) { (words(text(alert, "rule"))) }
                @if let (None, Some(tenant)) = (&visit.tenant, alert["tenant"].as_str()) {
                    br; span.muted { (tenant) }
                }
            }
        },
        badge(text(alert, "severity")),
        html! { (text(alert, "summary")) },
        time(&alert["fired_at"]),
        html! { (lasted(alert)) },
    ]
}

fn lasted(alert: &Value) -> String {
    match (instant(&alert["fired_at"]), instant(&alert["resolved_at"])) {
        (Some(fired), Some(resolved)) => span(resolved.since(fired)),
        _ => "–".to_owned(),
    }
}

pub(super) async fn detail(visit: PageVisit) -> PageResult {
    let path = format!("/alerts/{}", visit.param("id"));
    if let Some(own) = own_path(&visit, &path) {
        return Ok(Reply::Goto(own));
    }
    let alert = visit.get(&path).await?;
    let is_open = alert["open"] == true;
    let body = html! {
        div.heading {
            h1 { "Alert: " (words(text(&alert, "rule"))) }
            (badge(text(&alert, "severity")))
            (badge(if is_open { "open" } else { "resolved" }))
        }
        p.lead { (text(&alert, "summary")) }
        div.links { (links(&visit, &alert)) }
        @if is_open && visit.tenant.is_none() { (forms::silence_form(&visit, &alert)) }
        (facts(&alert))
        section { h2 { "Who was told" } (notices(&visit, &alert)) }
        @if alert["details"].as_object().is_some_and(|details| !details.is_empty()) {
            section { h2 { "Details" } (json(&alert["details"])) }
        }
        p { a href=(visit.path("/alerts")) { "All alerts" } }
    };
    Reply::page(&format!("Alert: {}", words(text(&alert, "rule"))), Tab::Alerts, body)
}

fn facts(alert: &Value) -> Markup {
    html! {
        dl.facts {
            dt { "Alert" } dd { (super::shown::copyable(text(alert, "id"))) }
            @if let Some(tenant) = alert["tenant"].as_str() { dt { "Tenant" } dd { code { (tenant) } } }
            @if !text(alert, "subject").is_empty() { dt { "About" } dd { code { (text(alert, "subject")) } } }
            dt { "Fired" } dd { (time(&alert["fired_at"])) }
            @if alert["open"] != true {
                dt { "Resolved" } dd { (time(&alert["resolved_at"])) }
                dt { "Lasted" } dd { (lasted(alert)) }
            }
            @if !alert["silenced_until"].is_null() {
                dt { "Silenced until" } dd { (time(&alert["silenced_until"])) }
            }
            dt { "Published" } dd { (published(text(alert, "published"))) }
        }
    }
}

/// What was published of an alert, in words.
fn published(what: &str) -> &'static str {
    match what {
        "fired" => "that it fired",
        "resolved" => "that it fired, and that it is resolved",
        "withheld" => "nothing: it was silenced, or is about notices themselves",
        _ => "nothing yet",
    }
}

/// The events by which people were told, each with its story.
fn notices(visit: &PageVisit, alert: &Value) -> Markup {
    let row = |notice: &Value| {
        let (event, tenant) = (text(notice, "event"), text(notice, "tenant"));
        vec![
            html! { a href={ "/dashboard/t/" (tenant) "/events/" (event) } { (text(notice, "type")) } },
            html! { code { (tenant) } },
            time(&notice["accepted_at"]),
        ]
    };
    let rows: Vec<_> = alert["notices"].as_array().into_iter().flatten().map(row).collect();
    html! {
        @if rows.is_empty() {
            p.muted { "Nothing of it was published, or its events are past their retention." }
        } @else {
            (table("Notices", &["Notice", "Tenant", "Published"], &rows))
            @if visit.may(Needs::Manage) { p.hint { "A notice's page tells to whom it went, and each attempt." } }
        }
    }
}

/// Open alerts about an endpoint, for its own page.
pub(super) async fn of_endpoint(visit: &PageVisit, endpoint: &str) -> Result<Markup, ApiRefusal> {
    let open = visit.get(&format!("/alerts?open=true&limit={OPEN_ALERTS_SHOWN_MAX}")).await?;
    let alerts: Vec<&Value> =
        items(&open).iter().filter(|alert| text(alert, "endpoint") == endpoint).collect();
    Ok(html! {
        @if !alerts.is_empty() {
            ul.attention aria-label="Open alerts" {
                @for alert in alerts {
                    li {
                        (badge(text(alert, "severity"))) " "
                        a href=(visit.path(&format!("/alerts/{}", text(alert, "id")))) { (words(text(alert, "rule"))) }
                        " since " (time(&alert["fired_at"]))
                    }
                }
            }
        }
    })
}

/// Where somebody with a tenant's key finds the same: notices link to the operator's page.
fn own_path(visit: &PageVisit, path: &str) -> Option<String> {
    let own = visit.session.key.tenant.as_ref()?;
    visit.tenant.is_none().then(|| format!("/dashboard/t/{own}{path}"))
}

/// A length of time of the API, in words.
fn length(value: &Value) -> String {
    let parsed = value.as_str().and_then(|text| text.parse::<Span>().ok());
    match parsed {
        Some(Span::ZERO) => "at once".to_owned(),
        Some(length) => format!("after {}", span(length)),
        None => "–".to_owned(),
    }
}
