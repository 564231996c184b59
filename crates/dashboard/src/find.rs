//! The search box's page: what was found, by kind. The only hit, or the only one with exactly this id, is opened.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::Value;

use super::layout::Tab;
use super::shown::{self, items, text};
use super::table::{empty, query, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};

/// The kinds of things that are found, in the order of the page, and their headings.
const KINDS: [(&str, &str); 6] = [
    ("event", "Events"),
    ("delivery", "Deliveries"),
    ("endpoint", "Endpoints"),
    ("lane", "Lanes"),
    ("replay", "Replays"),
    ("tenant", "Tenants"),
];

pub(super) async fn page(visit: PageVisit) -> PageResult {
    let words = visit.query("q").to_owned();
    if words.is_empty() {
        return Reply::page("Find", Tab::None, html! { h1 { "Find" } (hint()) });
    }
    let asked = query(&[("q".to_owned(), words.clone())]);
    let found = visit.get(&format!("/find?{asked}")).await?;
    let found = items(&found);
    if let Some(only) = only_hit(found, &words) {
        return Ok(Reply::Goto(address(only)));
    }
    let body = html! {
        h1.breaks { "Found for " code { (words) } }
        @if found.is_empty() {
            (empty("Nothing has this id, key or URL.", None))
            (hint())
        }
        @for (kind, heading) in KINDS { (section(&visit, heading, found, kind)) }
        @if visit.tenant.is_some() && visit.may(Needs::Admin) {
            p { a href={ "/dashboard/find?" (asked) } { "Search all tenants" } }
        }
    };
    Reply::page("Find", Tab::None, body)
}

fn hint() -> Markup {
    html! {
        p.hint {
            "What can be found: ids of events, deliveries, endpoints and replays, whole or by their first 6 characters "
            "or more; keys; URLs of endpoints; ids that producers gave."
        }
    }
}

/// The hit that is meant beyond doubt.
fn only_hit<'a>(found: &'a [Value], words: &str) -> Option<&'a Value> {
    let exact: Vec<_> = found.iter().filter(|hit| text(hit, "id") == words).collect();
    match (found, &exact[..]) {
        ([only], _) => Some(only),
        (_, [only]) => Some(only),
        _ => None,
    }
}

/// The page of what was found.
fn address(hit: &Value) -> String {
    let (tenant, id) = (text(hit, "tenant"), text(hit, "id"));
    let of_tenant = |rest: &str| format!("/dashboard/t/{tenant}{rest}");
    match text(hit, "kind") {
        "event" => of_tenant(&format!("/events/{id}")),
        "delivery" => of_tenant(&format!("/deliveries/{id}")),
        "endpoint" => of_tenant(&format!("/endpoints/{id}")),
        "replay" => of_tenant(&format!("/replays/{id}")),
        "lane" => of_tenant(&format!("/lanes?endpoint={}#lane-{id}", text(hit, "endpoint"))),
        _ => of_tenant(""),
    }
}

fn section(visit: &PageVisit, heading: &str, found: &[Value], kind: &str) -> Markup {
    let of_kind = found.iter().filter(|hit| text(hit, "kind") == kind);
    let row = |hit: &Value| {
        let id = text(hit, "id");
        vec![
            html! { a href=(address(hit)) { (shown::id(id)) } },
            html! { (text(hit, "title")) },
            html! { (shown::words(text(hit, "why"))) },
            html! { (text(hit, "tenant")) },
        ]
    };
    let columns = ["Id", "What", "Found by", "Tenant"];
    let columns = if visit.tenant.is_some() { &columns[..3] } else { &columns };
    let rows: Vec<_> = of_kind.map(row).collect();
    html! {
        @if !rows.is_empty() {
            section { h2 { (heading) } (table(heading, columns, &rows)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_hit_or_one_exact_id_is_meant_beyond_doubt() {
        let event = json!({"kind": "event", "id": "order-1"});
        let lane = json!({"kind": "lane", "id": "7"});
        for (found, words, meant) in [
            (vec![], "order-1", None),
            (vec![event.clone()], "order", Some("event")),
            (vec![lane.clone(), event.clone()], "order-1", Some("event")),
            (vec![event.clone(), event], "order-1", None),
        ] {
            let hit = only_hit(&found, words).map(|hit| text(hit, "kind"));
            assert_eq!(hit, meant, "{words}: {found:?}");
        }
    }
}
