//! The audit trail of a tenant.

use maud::html;
use serde_json::Value;

use super::events::TIME_EXAMPLE;
use super::form::{Filter, filter_form};
use super::layout::Tab;
use super::shown::{self, items, text};
use super::table::{empty, filters, page_query, pager, table};
use super::visit::Visit;
use super::{Answered, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: Visit) -> Answered {
    let set = filters(&visit, &["target", "created_after", "created_before"]);
    let page = visit.get(&format!("/audit?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let row = |entry: &Value| {
        vec![
            visit.ago(&entry["at"]),
            html! { code { (text(entry, "action")) } },
            html! { code { (text(entry, "target")) } },
            shown::id(text(entry, "actor")),
            html! {
                @if entry["detail"].as_object().is_some_and(|detail| !detail.is_empty()) {
                    code.key { (entry["detail"].to_string()) }
                }
            },
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
