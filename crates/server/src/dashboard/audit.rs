//! The audit trail of a tenant.

use maud::{Markup, html};
use serde_json::Value;

use super::events::TIME_EXAMPLE;
use super::form::{Filter, filter_form};
use super::layout::Tab;
use super::shown::{self, items, text};
use super::table::{empty, filters, page_query, pager, table};
use super::visit::Visit;
use super::{Answered, Reply};
use crate::api::{DetailLine, detail_lines};
use crate::limits::TABLE_ROWS_MAX;

/// Characters of a value that the page shows; the API has the rest.
const VALUE_CHARS_MAX: usize = 120;

pub(super) async fn list(visit: Visit) -> Answered {
    let set = filters(&visit, &["target", "created_after", "created_before"]);
    let page = visit.get(&format!("/audit?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let row = |entry: &Value| {
        vec![
            visit.ago(&entry["at"]),
            html! { code { (text(entry, "action")) } },
            html! { code { (text(entry, "target")) } },
            shown::id(text(entry, "actor")),
            details(&entry["detail"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    let body = html! {
        h1 { "Audit" }
        (filter_form(&visit, &[
            ("target", "Target", Filter::Text("ep_…")),
            ("created_after", "From", Filter::Text(TIME_EXAMPLE)),
            ("created_before", "Before", Filter::Text(TIME_EXAMPLE)),
        ]))
        @if rows.is_empty() { (empty("Nothing was changed yet, or nothing that matches.", None)) }
        @else { (table("Audit trail", &["When", "Action", "Target", "Who", "Detail"], &rows)) }
        (pager(&visit, &set, &page))
    };
    Reply::page("Audit", Tab::Audit, body)
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
                        @if let Some(from) = from { del { (from) } " → " ins { (to) } } @else { (to) }
                    }
                }
            }
        }
    }
}
