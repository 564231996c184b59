//! The report of a period: the objective, what was achieved, whose part the rest was, and the incidents. It prints.

use maud::{Markup, html};
use serde_json::Value;

use super::filters::{OF_REPORT, filter_form, set_filters};
use super::layout::Tab;
use super::shown::{self, badge, count, instant, millis, number, text, time};
use super::table::{query, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};

/// The report of a tenant, or of all.
pub(super) async fn page(visit: PageVisit) -> PageResult {
    let asked = query(&set_filters(&visit, &OF_REPORT));
    let report = visit.get(&format!("/report?{asked}")).await?;
    let whose = report["tenant"].as_str().unwrap_or("all tenants");
    let body = html! {
        h1.breaks { "Report of " (whose) }
        p.lead { (time(&report["from"])) " to " (time(&report["to"])) }
        (filter_form(&visit, &OF_REPORT).await?)
        (verdict(&report))
        (judged(&report["achieved"]))
        (traffic(&report["total"]))
        (incidents(&report))
        (parts(&visit, &report))
        p.hint { "Print this page, or save it: " code { (command(&report)) } }
    };
    let tab = if report["tenant"].is_null() { Tab::All } else { Tab::Overview };
    Reply::page("Report", tab, body)
}

/// The command that writes the same to a file.
fn command(report: &Value) -> String {
    let whose = report["tenant"].as_str();
    let whose = whose.map_or("--everywhere".to_owned(), |tenant| format!("--tenant {tenant}"));
    let (from, to) = (text(report, "from"), text(report, "to"));
    format!("railpost report {whose} --from {from} --to {to} --format html -o report.html")
}

fn verdict(report: &Value) -> Markup {
    let (objective, achieved) = (&report["objective"], &report["achieved"]);
    let goal = format!(
        "{} of deliveries acknowledged within {}",
        percent(&objective["share"]),
        text(objective, "within")
    );
    html! {
        p.lead.verdict {
            @match achieved["met"].as_bool() {
                None => { "The objective is " (goal) ". No delivery was judged in this period." }
                Some(met) => {
                    (badge(if met { "met" } else { "missed" })) " The objective, " (goal) ": "
                    (percent(&achieved["share"])) " were on time, and " (percent(&achieved["budget_spent"]))
                    " of the budget for late ones is spent."
                }
            }
        }
    }
}

fn judged(achieved: &Value) -> Markup {
    html! {
        section aria-labelledby="judged" {
            h2 id="judged" { "The objective" }
            dl.facts {
                dt { "Judged" } dd { (count(number(achieved, "judged"))) }
                dt { "On time" } dd { (count(number(achieved, "on_time"))) }
                dt { "Late, the receivers\u{2019} part" } dd { (count(number(achieved, "late_receiver"))) }
                dt { "Late, the operator\u{2019}s part" } dd { (count(number(achieved, "late_operator"))) }
                dt { "Not late by the operator\u{2019}s part" } dd { (percent(&achieved["operator_share"])) }
                dt { "May be late by the objective" }
                dd { (count(achieved["budget"].as_f64().unwrap_or_default().round() as u64)) }
            }
            p.hint {
                "A delivery is judged once: when it is acknowledged, or when it passes the objective while its endpoint "
                "is not paused. It is the receivers\u{2019} part if something was sent and not acknowledged, the "
                "operator\u{2019}s if nothing was sent."
            }
        }
    }
}

fn traffic(total: &Value) -> Markup {
    let quantiles = |name: &str| {
        let of = |quantile: &str| format!("{quantile} {}", millis(&total[name][quantile]));
        ["p50", "p95", "p99"].map(of).join(", ")
    };
    html! {
        section aria-labelledby="traffic" {
            h2 id="traffic" { "Traffic" }
            dl.facts {
                dt { "Events accepted" } dd { (count(number(total, "accepted"))) }
                dt { "Attempts" } dd { (count(number(total, "attempts"))) }
                dt { "Acknowledged" } dd { (count(number(total, "acknowledged"))) }
                dt { "Dead letters" } dd { (count(number(total, "dead"))) }
                dt { "Accept to first attempt" } dd { (quantiles("first_attempt_ms")) }
                dt { "Accept to acknowledgement" } dd { (quantiles("deliver_ms")) }
                dt { "An attempt" } dd { (quantiles("attempt_ms")) }
            }
        }
    }
}

fn incidents(report: &Value) -> Markup {
    let incidents = report["incidents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |incident: &Value| {
        vec![
            time(&incident["from"]),
            html! { @if incident["to"].is_null() { (badge("open")) } @else { (time(&incident["to"])) } },
            html! { (lasted(incident)) },
            html! { (badge(text(incident, "severity"))) },
            html! { (shown::words(text(incident, "rule"))) },
            html! { (incident["summary"].as_str().unwrap_or("the server")) },
        ]
    };
    let rows: Vec<_> = incidents.iter().map(row).collect();
    let columns = ["From", "To", "Lasted", "Severity", "Alert", "What"];
    html! {
        section aria-labelledby="incidents" {
            h2 id="incidents" { "Incidents" }
            @if rows.is_empty() { p { "No alert was open in this period." } }
            @else { (table("Incidents", &columns, &rows)) }
            @if report["more_incidents"] == true {
                p.hint { "There were more; these are the latest " (rows.len()) "." }
            }
        }
    }
}

fn lasted(incident: &Value) -> String {
    match (instant(&incident["from"]), instant(&incident["to"])) {
        (Some(from), Some(to)) => shown::span(to.since(from)),
        _ => "still".to_owned(),
    }
}

fn parts(visit: &PageVisit, report: &Value) -> Markup {
    let of_all = report["tenant"].is_null();
    let parts = report["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |part: &Value| {
        let (id, achieved) = (text(part, "id"), &part["achieved"]);
        let link = match of_all {
            true => format!("/dashboard/t/{id}/report"),
            false => visit.path(&format!("/endpoints/{id}")),
        };
        vec![
            html! { a.breaks href=(link) { (if of_all { id } else { text(part, "name") }) } },
            html! { (count(number(achieved, "judged"))) },
            html! { (percent(&achieved["share"])) },
            html! { (count(number(achieved, "late_receiver"))) },
            html! { (count(number(achieved, "late_operator"))) },
            html! { (count(number(part, "dead"))) },
        ]
    };
    let rows: Vec<_> = parts.iter().map(row).collect();
    let (title, first) = if of_all { ("By tenant", "Tenant") } else { ("By endpoint", "Endpoint") };
    let columns = [first, "Judged", "On time", "Late: receiver", "Late: operator", "Dead letters"];
    html! {
        section aria-labelledby="parts" {
            h2 id="parts" { (title) }
            @if rows.is_empty() { p { "Nothing was sent in this period." } }
            @else { (table(title, &columns, &rows)) }
            @if report["more_parts"] == true {
                p.hint { "There are more; these " (rows.len()) " had most late deliveries." }
            }
        }
    }
}

/// A share as a percentage. It is rounded down: 99.9996 % is not all.
fn percent(share: &Value) -> String {
    let Some(share) = share.as_f64() else { return "–".to_owned() };
    let thousandths = (share * 100_000.0 + 1e-6).floor() / 1000.0;
    format!("{thousandths} %")
}
