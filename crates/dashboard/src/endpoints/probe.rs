//! A probe: one signed request at once, past breaker, limits and lanes, and what came back.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::attempts::{outcome, response, timing};
use crate::form::button;
use crate::health;
use crate::layout::Tab;
use crate::shown::{sentence, text};
use crate::visit::PageVisit;
use crate::{PageResult, Reply};

/// Sends a probe and shows what came back.
pub(crate) async fn probe(visit: PageVisit) -> PageResult {
    let page = format!("/endpoints/{}", visit.param("id"));
    let endpoint = visit.get(&page).await?;
    let answered = visit.post(&format!("{page}/probe"), Some(&json!({}))).await;
    let result = match visit.or_redirect(&page, answered)? {
        Ok(result) => result,
        Err(back) => return Ok(back),
    };
    let path = |rest: &str| visit.path(&format!("{page}{rest}"));
    let resumable = result["succeeded"] == true && text(&result["health"], "state") != "active";
    let body = html! {
        h1.breaks { "Probe of " (text(&endpoint, "url")) }
        (said(&result))
        dl.facts {
            dt { "Answer" } dd { (outcome(&result)) @if let Some(message) = result["message"].as_str() { ": " (message) } }
            dt { "Time" } dd { (timing(&result["timing"])) }
            dt { "Endpoint" } dd { (health::badge(&result["health"])) }
            @if let Some(next) = result["health"]["next"].as_str() { dt { "Next" } dd { (sentence(next)) } }
        }
        div.actions.result {
            @if resumable { (button(&visit, &path("/resume"), "Resume", "primary")) }
            (button(&visit, &path("/probe"), "Probe again", ""))
            a href=(path("")) { "Back to the endpoint" }
        }
        (response(&result))
    };
    Reply::page("Probe", Tab::Endpoints, body)
}

/// What came back, in words, and what to do.
fn said(result: &Value) -> Markup {
    let succeeded = result["succeeded"] == true;
    html! {
        div.flash.problem[!succeeded] role="status" {
            p {
                strong { @if succeeded { "✓ The endpoint answers." } @else { "✕ The endpoint does not take events." } }
                @if let Some(advice) = result["advice"].as_str() { " " (sentence(advice)) }
            }
        }
    }
}

/// A probe is made by its button: its address alone leads to the endpoint.
pub(crate) async fn probe_by_address(visit: PageVisit) -> PageResult {
    Ok(Reply::Goto(visit.path(&format!("/endpoints/{}", visit.param("id")))))
}
