//! Parked rows: those that were refused, and the later ones of their keys behind them.

use maud::{Markup, html};
use serde_json::Value;

use crate::form::button;
use crate::layout::Tab;
use crate::limits::TABLE_ROWS_MAX;
use crate::shown::{self, badge, bytes, count, items, number, text, time, words};
use crate::table::{empty, page_query, pager, table};
use crate::visit::{ApiRefusal, PageVisit};
use crate::{PageResult, Reply};

/// The parked rows of a source, a page of them.
pub(super) async fn section(visit: &PageVisit, source: &Value) -> Result<Markup, ApiRefusal> {
    let refused_only = visit.query("refused") == "true";
    let filters =
        if refused_only { vec![("refused".to_owned(), "true".to_owned())] } else { vec![] };
    let path = format!("/outbox/{}/parked", text(source, "name"));
    let page =
        visit.get(&format!("{path}?{}", page_query(visit, &filters, TABLE_ROWS_MAX))).await?;
    let rows: Vec<_> = items(&page).iter().map(|row| cells(visit, row)).collect();
    let columns = ["Row", "Why", "Type", "Tenant", "Key", "Size", "Parked", "Actions"];
    Ok(html! {
        section aria-labelledby="parked" {
            div.heading {
                h2 id="parked" { "Parked rows" }
                @if refused_only || !rows.is_empty() { (choice(visit, refused_only)) }
            }
            @if rows.is_empty() && refused_only {
                (empty("No refused row waits for a decision.", None))
            } @else if rows.is_empty() {
                (empty("No row is parked: every row that was read has been accepted.", None))
            } @else {
                p {
                    "Railpost refused these rows. The later rows of their keys wait behind them; other keys go on."
                }
                div.actions {
                    (button(visit, &visit.path(&format!("{path}/retry-all")), "Retry all", ""))
                    span.hint { "Hands all refused rows over again, after their cause is fixed." }
                }
                (table("Parked rows", &columns, &rows))
            }
            (pager(visit, &filters, &page))
        }
    })
}

/// All rows, or those without the ones that wait behind them.
fn choice(visit: &PageVisit, refused_only: bool) -> Markup {
    let current = |chosen: bool| chosen.then_some("true");
    let path = visit.uri.path();
    html! {
        nav.ranges aria-label="Which rows" {
            a href={ (path) "#parked" } aria-current=[current(!refused_only)] { "All" }
            a href={ (path) "?refused=true#parked" } aria-current=[current(refused_only)] { "Refused" }
        }
    }
}

fn cells(visit: &PageVisit, row: &Value) -> Vec<Markup> {
    vec![
        html! { a href=(visit.path(&row_path(visit, number(row, "number")))) { (number(row, "number")) } },
        why(row),
        html! { code { (text(row, "type")) } },
        html! { (text(row, "tenant")) },
        shown::key(&row["key"]),
        html! { (bytes(number(row, "bytes"))) },
        time(&row["parked_at"]),
        html! { @if can_be_decided(row) { (action_button(visit, row, "retry", "Retry", "quiet")) } },
    ]
}

/// The path of a row, in the dashboard and in the API.
fn row_path(visit: &PageVisit, number: u64) -> String {
    format!("/outbox/{}/parked/{number}", visit.param("source"))
}

fn why(row: &Value) -> Markup {
    let refusal = &row["refusal"];
    html! {
        @if row["released"] == true { (badge("handed_over_again")) }
        @else if refusal.is_null() { span.muted { "waits behind an earlier row of its key" } }
        @else { div { strong { (words(text(refusal, "code"))) } ": " (text(refusal, "reason")) } }
    }
}

/// Whether a person has to decide about the row: it was refused, and is not on its way already.
fn can_be_decided(row: &Value) -> bool {
    !row["refusal"].is_null() && row["released"] != true
}

fn action_button(visit: &PageVisit, row: &Value, action: &str, label: &str, class: &str) -> Markup {
    let path = row_path(visit, number(row, "number"));
    button(visit, &visit.path(&format!("{path}/{action}")), label, class)
}

/// One row with its payload, and what can be done with it.
pub(crate) async fn show(visit: PageVisit) -> PageResult {
    let name = visit.param("source");
    let path = format!("/outbox/{name}/parked/{}", visit.param("number"));
    let row = visit.get(&path).await?;
    let title = format!("Parked row {}", number(&row, "number"));
    let body = html! {
        h1 { (title) }
        p.lead { "Of source " a href=(visit.path(&format!("/outbox/{name}"))) { (name) } }
        (facts(&row))
        @if can_be_decided(&row) { (decisions(&visit, &row)) }
        section { h2 { "Payload" } (payload(&row)) }
    };
    Reply::page(&title, Tab::Outbox, body)
}

fn facts(row: &Value) -> Markup {
    let fields = [
        ("Event", "id"),
        ("Tenant", "tenant"),
        ("Type", "type"),
        ("Content type", "content_type"),
        ("Trace", "traceparent"),
    ];
    html! {
        dl.facts {
            dt { "Why" } dd { (why(row)) }
            dt { "Key" } dd { (shown::key(&row["key"])) }
            @for (label, field) in fields {
                @if let Some(value) = row[field].as_str() { dt { (label) } dd { code { (value) } } }
            }
            @if let Some(version) = row["schema_version"].as_i64() { dt { "Schema version" } dd { (version) } }
            dt { "Size" } dd { (bytes(number(row, "bytes"))) }
            dt { "Parked" } dd { (time(&row["parked_at"])) }
        }
    }
}

/// What can be done with a refused row. What drops a row asks once.
fn decisions(visit: &PageVisit, row: &Value) -> Markup {
    html! {
        section {
            h2 { "What to do with it" }
            div.actions {
                (action_button(visit, row, "retry", "Retry", "primary"))
                span.hint { "After the cause is fixed: hands this row over again, then the rows behind it." }
            }
            div.actions {
                details.confirm {
                    summary { "Skip…" }
                    p { "Drops this row: its event is never delivered. The rows behind it are handed over." }
                    (action_button(visit, row, "skip", "Skip this row", "danger"))
                }
                details.confirm {
                    summary { "Discard…" }
                    p { "Drops this row and all rows behind it: none of their events is ever delivered." }
                    (action_button(visit, row, "discard", "Discard this row and those behind it", "danger"))
                }
            }
        }
    }
}

fn payload(row: &Value) -> Markup {
    match row["payload_base64"].as_str() {
        Some(text) => html! { p.hint { "Base64:" } pre tabindex="0" { code { (text) } } },
        None => shown::json(&row["payload"]),
    }
}

/// What can be done with a refused row.
pub(crate) const ACTIONS: [&str; 3] = ["retry", "skip", "discard"];

/// Does one of [`ACTIONS`].
pub(crate) async fn act(visit: PageVisit, action: &'static str) -> PageResult {
    let page = format!("/outbox/{}", visit.param("source"));
    let row = format!("{page}/parked/{}", visit.param("number"));
    let answered = visit.post(&format!("{row}/{action}"), None).await;
    let answer = match visit.or_redirect(&page, answered)? {
        Ok(answer) => answer,
        Err(back) => return Ok(back),
    };
    let rows = number(&answer, "rows");
    Ok(match action {
        "retry" => visit.redirect(
            &page,
            "The row is handed over again. If it is refused again, it stays parked.",
        ),
        "skip" => visit.redirect(&page, "The row is dropped. The rows behind it are handed over."),
        _ => visit.redirect(&page, format!("Dropped: {}.", counted(rows))),
    })
}

/// Hands all refused rows over again.
pub(crate) async fn retry_all(visit: PageVisit) -> PageResult {
    let page = format!("/outbox/{}", visit.param("source"));
    let answered = visit.post(&format!("{page}/parked/retry-all"), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(answer) => {
            let rows = counted(number(&answer, "rows"));
            visit.redirect(
                &page,
                format!("Handed over again: {rows}. Those that are refused again stay parked."),
            )
        }
        Err(back) => back,
    })
}

fn counted(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{} rows", count(rows)) }
}
