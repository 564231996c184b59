//! The rules with their thresholds, and the operator's forms about all alerts.

use maud::{Markup, html};
use serde_json::Value;

use super::{forms, length};
use crate::shown::{badge, count, items, number, text, words};
use crate::table::table;
use crate::visit::{ApiRefusal, PageVisit};

pub(super) async fn section(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let page = visit.get("/alert-rules").await?;
    let rules = items(&page);
    let rows: Vec<_> = rules.iter().map(row).collect();
    let columns = ["Rule", "Severity", "Holds when", "Resolved", "Open"];
    Ok(html! {
        section id="rules" {
            h2 { "Rules" }
            p.hint {
                "The sections [alerts.RULE] of the configuration change thresholds and severities, and switch rules off."
            }
            (table("Rules", &columns, &rows))
        }
        (forms::silence_some_section(visit, rules))
        (forms::test_section(visit, rules))
    })
}

fn row(rule: &Value) -> Vec<Markup> {
    let name = text(rule, "name");
    let open = number(rule, "open");
    vec![
        html! {
            @match rule["runbook"].as_str() {
                Some(runbook) => { a href=(runbook) rel="noreferrer" title="Runbook" { (words(name)) } }
                None => { (words(name)) }
            }
        },
        badge(if rule["enabled"] == true { text(rule, "severity") } else { "switched_off" }),
        html! { (text(rule, "holds_when")) },
        html! { (length(&rule["resolve_after"])) },
        html! { @if open > 0 { strong { (count(open)) } } @else { "0" } },
    ]
}
