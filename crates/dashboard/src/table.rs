//! Tables with pages, and their texts when they are empty.

use maud::{Markup, html};
use serde_json::Value;

use super::visit::PageVisit;

/// A table: its caption for screen readers, its columns and its rows.
pub(super) fn table(caption: &str, columns: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption.hidden { (caption) }
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (cell, column) in row.iter().zip(columns) {
                                td data-label=(column) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The text of an empty table, with the command that creates the first row.
pub(super) fn empty(what: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p { (what) }
            @if let Some(command) = command { pre tabindex="0" { code { (command) } } }
        }
    }
}

/// A query made of these pairs.
pub(super) fn query(pairs: &[(String, String)]) -> String {
    serde_urlencoded::to_string(pairs).unwrap_or_default()
}

/// The query by which the API is asked for this page of a list.
pub(super) fn page_query(visit: &PageVisit, filters: &[(String, String)], limit: u32) -> String {
    let mut pairs = filters.to_vec();
    pairs.push(("limit".to_owned(), limit.to_string()));
    if !visit.query("cursor").is_empty() {
        pairs.push(("cursor".to_owned(), visit.query("cursor").to_owned()));
    }
    query(&pairs)
}

/// The way to the next page and back to the first.
pub(super) fn pager(visit: &PageVisit, filters: &[(String, String)], page: &Value) -> Markup {
    let link = |pairs: &[(String, String)]| format!("{}?{}", visit.page_path(), query(pairs));
    let next = page["next"].as_str().map(|cursor| {
        let mut pairs = filters.to_vec();
        pairs.push(("cursor".to_owned(), cursor.to_owned()));
        link(&pairs)
    });
    let is_first = visit.query("cursor").is_empty();
    html! {
        @if next.is_some() || !is_first {
            nav.pager aria-label="Pages" {
                @if !is_first { a href=(link(filters)) { "← First page" } }
                @if let Some(next) = next { a rel="next" href=(next) { "Next page →" } }
            }
        }
    }
}
