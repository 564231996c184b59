//! The audit trail, of a tenant or of all.

use http::Method;
use maud::{Markup, html};
use serde_json::Value;

use super::audit_detail::{DetailLine, DetailValue, detail_lines};
use super::filters::{OF_AUDIT, filter_form, set_filters};
use super::layout::Tab;
use super::shown::{self, items, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

/// Characters of a value that the page shows; the API has the rest.
const VALUE_CHARS_MAX: usize = 120;

/// The trail of a tenant.
pub(super) async fn list(visit: PageVisit) -> PageResult {
    let path = visit.api_path("/audit");
    trail(visit, &path, Tab::Audit).await
}

/// The trail of all tenants, and of what concerns none.
pub(super) async fn of_all(visit: PageVisit) -> PageResult {
    trail(visit, "/v1/audit", Tab::AuditOfAll).await
}

async fn trail(visit: PageVisit, path: &str, tab: Tab) -> PageResult {
    let set = set_filters(&visit, &OF_AUDIT);
    let query = page_query(&visit, &set, TABLE_ROWS_MAX);
    let page = visit.call(Method::GET, &format!("{path}?{query}"), None).await?;
    let rows: Vec<_> = items(&page).iter().map(|entry| row(&visit, entry)).collect();
    let body = html! {
        h1 { "Audit" }
        (filter_form(&visit, &OF_AUDIT).await?)
        @if rows.is_empty() { (empty("Nothing was changed yet, or nothing that matches.", None)) }
        @else { (table("Audit trail", &["When", "Action", "Target", "Who", "Detail"], &rows)) }
        (pager(&visit, &set, &page))
    };
    Reply::page("Audit", tab, body)
}

fn row(visit: &PageVisit, entry: &Value) -> Vec<Markup> {
    let tenant = entry["tenant"].as_str().filter(|_| visit.tenant.is_none());
    vec![
        time(&entry["at"]),
        html! { code { (text(entry, "action")) } },
        html! {
            div {
                code { (text(entry, "target")) }
                @if let Some(tenant) = tenant { br; span.muted { "of " (tenant) } }
            }
        },
        shown::id(text(entry, "actor")),
        details(&entry["detail"]),
    ]
}

/// What changed, line by line, and what else there is to know.
fn details(detail: &Value) -> Markup {
    let lines = detail_lines(detail, VALUE_CHARS_MAX);
    html! {
        @if !lines.is_empty() {
            ul.changes {
                @for DetailLine { field, from, to } in &lines {
                    li {
                        code { (field) } ": "
                        @if let Some(from) = from { (old(from)) " → " (new(to)) } @else { (to) }
                    }
                }
            }
        }
    }
}

fn old(value: &DetailValue) -> Markup {
    match value.0 {
        Some(_) => html! { del { (value) } },
        None => html! { span.muted { (value) } },
    }
}

fn new(value: &DetailValue) -> Markup {
    match value.0 {
        Some(_) => html! { ins { (value) } },
        None => html! { span.muted { (value) } },
    }
}
