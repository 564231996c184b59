//! The overview page: figures, and what needs attention.

use http::Method;
use maud::{Markup, html};
use railpost_api::Needs;
use railpost_wire::TenantId;
use serde_json::Value;

use super::chart::{Chart, Series};
use super::health;
use super::layout::Tab;
use super::live::live_part;
use super::shown::{count, counted_badge, items, millis, number, text, time};
use super::table::{empty, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};

/// The ranges that figures are kept for.
pub(super) const RANGES: [(&str, &str); 4] =
    [("15m", "15 min"), ("1h", "1 hour"), ("24h", "24 hours"), ("7d", "7 days")];

/// The first page after signing in: the user's tenant, or all tenants if there are several.
pub(super) async fn start(visit: PageVisit) -> PageResult {
    if let Some(tenant) = &visit.session.key.tenant {
        return Ok(Reply::Goto(format!("/dashboard/t/{tenant}")));
    }
    // The reserved tenant has no users.
    let tenants = visit.call(Method::GET, "/v1/tenants?limit=3", None).await?;
    let tenants: Vec<_> =
        items(&tenants).iter().filter(|tenant| tenant["reserved"] != true).collect();
    match tenants[..] {
        [only] => Ok(Reply::Goto(format!("/dashboard/t/{}", text(only, "id")))),
        _ => Ok(Reply::Goto("/dashboard/all".to_owned())),
    }
}

/// Goes to the tenant that was chosen, or to all of them.
pub(super) async fn switch(visit: PageVisit) -> PageResult {
    match visit.query("tenant").parse::<TenantId>() {
        Ok(tenant) => Ok(Reply::Goto(format!("/dashboard/t/{tenant}"))),
        Err(_) => Ok(Reply::Goto("/dashboard/all".to_owned())),
    }
}

pub(super) async fn of_tenant(visit: PageVisit) -> PageResult {
    let endpoints = visit.get("/endpoints?limit=1").await?;
    let part = live_of_tenant(visit.clone()).await?;
    let body = html! {
        h1 { "Overview" }
        @if items(&endpoints).is_empty() { (first_steps(&visit)) }
        (live_part(&visit, "/overview", &part))
        (report_link(&visit))
    };
    Reply::page("Overview", Tab::Overview, body)
}

fn report_link(visit: &PageVisit) -> Markup {
    html! { p { a href=(visit.path("/report")) { "Report of the last 30 days" } " against the objective" } }
}

/// The part of a tenant's overview that changes.
pub(super) async fn live_of_tenant(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let overview = visit.get("/overview").await?;
    let figures = visit.get(&format!("/figures?range={}", range(&visit))).await?;
    Ok(html! {
        (totals(&overview, Some(&visit.path(""))))
        (endpoint_states(&overview, Some(&visit.path("/endpoints"))))
        (attention(&overview))
        (figures_section(&visit, &figures))
    })
}

pub(super) async fn of_all(visit: PageVisit) -> PageResult {
    let part = live_of_all(visit.clone()).await?;
    let body = html! {
        h1 { "All tenants" }
        (live_part(&visit, "/all", &part))
        (report_link(&visit))
        section aria-labelledby="tenants" { h2 id="tenants" { "Tenants" } (tenants(&visit).await?) }
    };
    Reply::page("All tenants", Tab::All, body)
}

/// The part of the overview of all tenants that changes.
pub(super) async fn live_of_all(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let overview = visit.get("/overview").await?;
    let figures = visit.get(&format!("/figures?range={}", range(&visit))).await?;
    Ok(html! {
        (totals(&overview, None))
        (endpoint_states(&overview, None))
        (attention(&overview))
        (figures_section(&visit, &figures))
    })
}

async fn tenants(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let page = visit.call(Method::GET, "/v1/tenants?limit=100", None).await?;
    let row = |tenant: &Value| {
        let id = text(tenant, "id");
        vec![
            html! { a href={ "/dashboard/t/" (id) } { (id) } },
            html! { (text(tenant, "name")) },
            time(&tenant["created_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    Ok(table("Tenants", &["Tenant", "Name", "Created"], &rows))
}

/// What a newcomer does next.
fn first_steps(visit: &PageVisit) -> Markup {
    html! {
        section.welcome {
            h2 { "Nothing is sent yet" }
            ol {
                li {
                    "Create an endpoint"
                    @if visit.may(Needs::Manage) {
                        " " a href=(visit.path("/endpoints/new")) { "here" } ", or"
                    }
                    ":"
                    pre tabindex="0" { code { "railpost endpoints create --url https://example.com/hooks" } }
                }
                li {
                    "Publish an event: "
                    pre tabindex="0" {
                        code { "railpost send order.created --key order-1 --data '{\"total\": 42}'" }
                    }
                }
            }
            p { "To see it all at work first: " code { "railpost demo" } }
        }
    }
}

fn totals(overview: &Value, base: Option<&str>) -> Markup {
    let oldest = html! {
        @if overview["oldest_open_at"].is_null() { "none waits" }
        @else { "oldest " (time(&overview["oldest_open_at"])) }
    };
    let link = |path: &str| base.map(|base| format!("{base}{path}"));
    let tile = |label: &str, value: u64, hint: Markup, href: Option<String>, bad: bool| {
        html! {
            li.tile.bad[bad && value > 0] {
                span.label { @if let Some(href) = href { a href=(href) { (label) } } @else { (label) } }
                span.value { @if bad && value > 0 { span aria-hidden="true" { "⚠ " } } (count(value)) }
                span.hint { (hint) }
            }
        }
    };
    let attention = overview["attention"].as_array().map_or(0, Vec::len) as u64;
    let dead = number(overview, "dead") + number(overview, "held");
    html! {
        ul.tiles aria-label="Totals" {
            (tile("Backlog", number(overview, "open"), oldest, link("/deliveries"), false))
            (tile("Held lanes", number(overview, "held"), html! { "wait for somebody" }, link("/lanes"), true))
            (tile("Dead letters", dead, html! { "given up on" }, link("/dead-letters"), true))
            (tile("Need attention", attention, html! { "endpoints" }, link("/endpoints"), true))
        }
    }
}

/// How many endpoints are in which state.
fn endpoint_states(overview: &Value, link: Option<&str>) -> Markup {
    const STATES: [&str; 7] =
        ["active", "waiting", "paused", "blocked", "quarantined", "failing", "gone"];
    let counts = &overview["endpoints"];
    let there: Vec<_> = STATES.into_iter().filter(|state| number(counts, state) > 0).collect();
    html! {
        @if !there.is_empty() {
            p.summary {
                @if let Some(link) = link { a href=(link) { "Endpoints" } } @else { "Endpoints" } ": "
                @for state in there { (counted_badge(number(counts, state), state)) " " }
            }
        }
    }
}

fn attention(overview: &Value) -> Markup {
    let attention = overview["attention"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !attention.is_empty() {
            section aria-labelledby="attention" {
                h2 id="attention" { "Endpoints that need attention" }
                ul.attention {
                    @for endpoint in attention {
                        li {
                            a href={
                                "/dashboard/t/" (text(endpoint, "tenant")) "/endpoints/"
                                (text(endpoint, "endpoint"))
                            } { (text(endpoint, "url")) }
                            " " (health::badge(&endpoint["health"]))
                            @if !endpoint["health"]["last_error"].is_null() {
                                " " span.muted { (health::last_error(&endpoint["health"])) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The range that was asked for.
pub(super) fn range(visit: &PageVisit) -> &str {
    let known = RANGES.iter().any(|(range, _)| *range == visit.query("range"));
    if known { visit.query("range") } else { "1h" }
}

/// The figures over time, with a choice of ranges.
pub(super) fn figures_section(visit: &PageVisit, figures: &Value) -> Markup {
    html! {
        section aria-labelledby="figures" {
            div.heading {
                h2 id="figures" { "Over time" }
                nav.ranges aria-label="Range" {
                    @for (value, label) in RANGES {
                        a href={ "?range=" (value) }
                            aria-current=[(value == range(visit)).then_some("true")] { (label) }
                    }
                }
            }
            @if number(&figures["total"], "attempts") == 0 {
                (empty("Nothing was sent in this time. Figures follow what happens within seconds.", None))
            } @else {
                div.charts { (throughput(figures)) (success(figures)) (time_to_deliver(figures)) }
            }
        }
    }
}

fn points(figures: &Value) -> &[Value] {
    figures["points"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The instants of the points.
fn instants(figures: &Value) -> Vec<String> {
    points(figures).iter().map(|point| text(point, "at").to_owned()).collect()
}

fn shows_days(figures: &Value) -> bool {
    text(figures, "range") == "7d"
}

fn series(figures: &Value, of: impl Fn(&Value) -> Option<f64>) -> Vec<Option<f64>> {
    points(figures).iter().map(of).collect()
}

fn throughput(figures: &Value) -> Markup {
    let total = &figures["total"];
    let step = number(figures, "step_s").max(1) as f64;
    let per_second = |field: &'static str| {
        series(figures, |point| point[field].as_f64().map(|count| count / step))
    };
    let summary = format!(
        "Attempts per second. In all {} attempts: {} acknowledged, {} to be retried, {} refused for good.",
        number(total, "attempts"),
        number(total, "acknowledged"),
        number(total, "retryable"),
        number(total, "permanent"),
    );
    Chart {
        title: "Throughput, attempts per second",
        summary,
        series: vec![
            Series { name: "acknowledged", class: "good", values: per_second("acknowledged") },
            Series { name: "to be retried", class: "wait", values: per_second("retryable") },
            Series { name: "refused for good", class: "bad", values: per_second("permanent") },
        ],
        label: |value| match value {
            ..1.0 => format!("{value:.2}"),
            ..10.0 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        },
        at: instants(figures),
        shows_days: shows_days(figures),
        top: None,
    }
    .stacked()
}

fn success(figures: &Value) -> Markup {
    let rate = |point: &Value| {
        let attempts = point["attempts"].as_f64().filter(|attempts| *attempts > 0.0)?;
        Some(100.0 * point["acknowledged"].as_f64().unwrap_or_default() / attempts)
    };
    let total = figures["total"]["success_rate"].as_f64().unwrap_or_default() * 100.0;
    Chart {
        title: "Success rate",
        summary: format!("Share of attempts that were acknowledged: {total:.1} % over the range."),
        series: vec![Series { name: "acknowledged", class: "good", values: series(figures, rate) }],
        label: |value| format!("{value:.0} %"),
        at: instants(figures),
        shows_days: shows_days(figures),
        top: Some(100.0),
    }
    .lines()
}

/// How many deliveries were on time and late, if any was judged.
fn judged(total: &Value) -> String {
    let on_time = number(total, "on_time");
    let late = number(total, "late_operator") + number(total, "late_receiver");
    match on_time + late {
        0 => String::new(),
        _ => format!("On time: {}, late: {}.", count(on_time), count(late)),
    }
}

fn time_to_deliver(figures: &Value) -> Markup {
    let total = &figures["total"]["deliver_ms"];
    let of = |field: &'static str| series(figures, |point| point["deliver_ms"][field].as_f64());
    Chart {
        title: "Time to deliver",
        summary: format!(
            "From accepted to acknowledged: half within {}, 95 % within {}, 99 % within {}. {}",
            millis(&total["p50"]),
            millis(&total["p95"]),
            millis(&total["p99"]),
            judged(&figures["total"])
        ),
        series: vec![
            Series { name: "p50", class: "solid", values: of("p50") },
            Series { name: "p95", class: "dashed", values: of("p95") },
            Series { name: "p99", class: "dotted", values: of("p99") },
        ],
        label: |value| millis(&value.into()),
        at: instants(figures),
        shows_days: shows_days(figures),
        top: None,
    }
    .lines()
}
