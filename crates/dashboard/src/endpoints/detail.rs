//! One endpoint: health, figures, planned retries, secrets, policy.

use maud::{Markup, html};
use railpost_api::Needs;
use railpost_engine::Span;
use serde_json::Value;

use crate::alerts;
use crate::attempts;
use crate::chart;
use crate::form::{button, form};
use crate::health;
use crate::layout::Tab;
use crate::limits::LATEST_ATTEMPTS_MAX;
use crate::live::live_part;
use crate::overview::{figures_section, range};
use crate::shown::{self, copy_button, copyable, count, items, number, text, time, words};
use crate::table::table;
use crate::visit::{ApiRefusal, PageVisit};
use crate::{PageResult, Reply};

pub(crate) async fn detail(visit: PageVisit) -> PageResult {
    let base = format!("/endpoints/{}", visit.param("id"));
    let endpoint = visit.get(&base).await?;
    let part = live_detail(visit.clone()).await?;
    let schedule = visit.get(&format!("{base}/schedule?attempts=20")).await?;
    let secrets = visit.get(&format!("{base}/secrets")).await?;
    let body = html! {
        (live_part(&visit, &base, &part))
        section { h2 { "Planned retries" } (planned(&schedule)) }
        (secrets_section(&visit, &secrets))
        (settings(&endpoint))
    };
    Reply::page(text(&endpoint, "url"), Tab::Endpoints, body)
}

/// The part of the page that changes.
pub(crate) async fn live_detail(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let base = format!("/endpoints/{}", visit.param("id"));
    let endpoint = visit.get(&base).await?;
    let health = visit.get(&format!("{base}/health")).await?;
    let figures = visit.get(&format!("{base}/figures?range={}", range(&visit))).await?;
    let latest = visit.get(&format!("{base}/attempts?limit={LATEST_ATTEMPTS_MAX}")).await?;
    let alerts = alerts::of_endpoint(&visit, visit.param("id")).await?;
    let url = text(&endpoint, "url");
    Ok(html! {
        div.heading {
            h1.breaks { (url) }
            (copy_button(url))
            span data-announce { (health::badge(&health)) }
        }
        @if let Some(reason) = health["blocked"].as_str() {
            p.problem role="alert" { "✕ Nothing is sent to this endpoint: " (reason) "." }
        }
        @if !text(&endpoint, "description").is_empty() { p.lead { (text(&endpoint, "description")) } }
        (alerts)
        @if visit.may(Needs::Manage) { (actions(&visit, &endpoint, &health)) }
        (health::section(&health))
        (attempts::latest(&visit, &latest))
        (figures_section(&visit, &figures))
        (failures(&figures["total"]))
    })
}

fn actions(visit: &PageVisit, endpoint: &Value, health: &Value) -> Markup {
    let path = |action: &str| visit.path(&format!("/endpoints/{}/{action}", text(endpoint, "id")));
    let state = text(health, "state");
    html! {
        div.actions {
            @if !matches!(state, "active" | "blocked") {
                (button(visit, &path("resume"), "Resume", "primary"))
            }
            @if text(endpoint, "status") == "active" {
                (button(visit, &path("pause"), "Pause", ""))
            }
            (button(visit, &path("probe"), "Probe", ""))
            (button(visit, &path("test"), "Send a test event", ""))
            a.button href=(path("edit")) { "Edit" }
            (button(visit, &path("delete"), "Delete…", "danger"))
        }
        p.hint { "A probe is one request at once, past breaker and limits. A test event is a delivery like others." }
    }
}

fn failures(total: &Value) -> Markup {
    let mut statuses = counts(&total["by_status"]);
    statuses.truncate(8);
    html! {
        section.split {
            div { h2 { "Top status codes" } (bars("Status", &statuses)) }
            div { h2 { "Failures by class" } (bars("Failure", &counts(&total["by_failure"]))) }
        }
    }
}

/// Names and counts, the most frequent first.
fn counts(of: &Value) -> Vec<(String, u64)> {
    let pairs = of.as_object().into_iter().flatten();
    let mut counts: Vec<_> =
        pairs.map(|(name, count)| (words(name), count.as_u64().unwrap_or_default())).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn bars(what: &str, counts: &[(String, u64)]) -> Markup {
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let row = |(name, number): &(String, u64)| {
        vec![
            html! { (name) },
            html! { (count(*number)) },
            html! {
                svg.bar viewBox="0 0 100 10" aria-hidden="true" preserveAspectRatio="none" {
                    rect width=((100 * number / most).max(1)) height="10" {}
                }
            },
        ]
    };
    let rows: Vec<_> = counts.iter().map(row).collect();
    html! {
        @if rows.is_empty() { p.muted { "None in this range." } }
        @else { (table(what, &[what, "Count", "Share"], &rows)) }
    }
}

fn planned(schedule: &Value) -> Markup {
    let attempts = schedule["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let after = |span: &Value| {
        let span = span.as_str().and_then(|text| text.parse::<Span>().ok()).unwrap_or_default();
        span.as_millis() as f64 / 1000.0
    };
    let attempts: Vec<_> = attempts
        .iter()
        .map(|one| (number(one, "number"), after(&one["earliest"]), after(&one["latest"])))
        .collect();
    html! {
        @if attempts.is_empty() { p.muted { "There are no retries." } }
        @else { (chart::schedule(&attempts)) }
    }
}

fn secrets_section(visit: &PageVisit, secrets: &Value) -> Markup {
    let endpoint = visit.param("id");
    let path = |rest: &str| visit.path(&format!("/endpoints/{endpoint}/{rest}"));
    let manages = visit.may(Needs::Manage);
    let row = |secret: &Value| {
        let id = text(secret, "id");
        vec![
            shown::id(id),
            html! { (text(secret, "kind")) },
            html! { @if secret["active"] == true { "signs" } @else { "expired" } },
            time(&secret["created_at"]),
            html! {
                @if secret["expires_at"].is_null() { "never" } @else { (time(&secret["expires_at"])) }
            },
            html! {
                @if manages {
                    div.actions {
                        (button(visit, &path(&format!("secrets/{id}/reveal")), "Reveal", "quiet"))
                        (button(visit, &path(&format!("secrets/{id}/delete")), "Delete…", "quiet"))
                    }
                }
            },
        ]
    };
    let rows: Vec<_> = items(secrets).iter().map(row).collect();
    html! {
        section {
            h2 id="secrets" { "Secrets" }
            @if rows.is_empty() { p.muted { "None." } }
            @else { (table("Secrets", &["Secret", "Kind", "State", "Created", "Expires", "Actions"], &rows)) }
            @if manages { (rotation(visit, &path("rotate"))) (addition(visit, &path("add-secret"))) }
        }
    }
}

fn rotation(visit: &PageVisit, action: &str) -> Markup {
    let body = html! {
        div.inline {
            label for="overlap" { "Old secrets sign for another" }
            input id="overlap" name="overlap" value="24h" size="6" spellcheck="false";
            button type="submit" { "Rotate the secret" }
        }
    };
    form(visit, action, &body)
}

/// Another secret beside those that there are.
fn addition(visit: &PageVisit, action: &str) -> Markup {
    let body = html! {
        div.inline {
            label for="kind" { "Another one" }
            select id="kind" name="kind" {
                option value="shared" { "shared: HMAC-SHA256, whsec_…" }
                option value="signing" { "signing: Ed25519, whsk_…" }
            }
            button type="submit" { "Add a secret" }
        }
    };
    form(visit, action, &body)
}

fn settings(endpoint: &Value) -> Markup {
    let list = |field: &str| -> String {
        let values = endpoint[field].as_array().into_iter().flatten();
        values.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    html! {
        section {
            h2 { "Settings" }
            dl.facts {
                dt { "Id" } dd { (copyable(text(endpoint, "id"))) }
                dt { "URL" } dd { (copyable(text(endpoint, "url"))) }
                dt { "Event types" } dd { code { (list("types")) } }
                dt { "Envelope" } dd { (text(endpoint, "envelope")) }
                @if let Some(section) = endpoint["managed_by"].as_str() {
                    dt { "Configured in" } dd { code { (section) } " of the configuration file" }
                }
                @if endpoint["routing_key_set"] == true { dt { "Routing key" } dd { "set" } }
                @if let Some(template) = endpoint["template"].as_str() {
                    dt { "Template" } dd { code { (template) } }
                }
                @if let Some(bytes) = endpoint["thin_above"].as_u64() {
                    dt { "Reference above" } dd { (bytes) " bytes" }
                }
                dt { "Timeout" } dd { (endpoint["timeout"].as_str().unwrap_or("default")) }
                dt { "Headers set" } dd { (list("headers")) }
                dt { "Revision" } dd { (number(endpoint, "revision")) }
            }
            details { summary { "Policy" } (shown::json(&endpoint["policy"])) }
        }
    }
}
