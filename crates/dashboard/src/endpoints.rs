//! Endpoints: the list, one of them, creating and editing, and what can be done to one.

mod detail;
mod probe;
mod settings;
mod draft;
mod edit;

use http::Method;
use maud::{Markup, html};
use railpost_api::Needs;
use railpost_engine::Span;
use serde_json::{Value, json};

use super::confirm::Question;
use super::health;
use super::layout::Tab;
use super::live::live_part;
use super::session::Undo;
use super::shown::{count, items, number, sentence, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) use detail::{detail, live_detail};
pub(super) use edit::{change, create, edit, new};
pub(super) use probe::{probe, probe_by_address};

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let part = live_list(visit.clone()).await?;
    let body = html! {
        div.heading {
            h1 { "Endpoints" }
            @if visit.may(Needs::Manage) {
                a.button.primary href=(visit.path("/endpoints/new")) { "New endpoint" }
            }
        }
        (live_part(&visit, "/endpoints", &part))
    };
    Reply::page("Endpoints", Tab::Endpoints, body)
}

/// The part of the list that changes.
pub(super) async fn live_list(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let page =
        visit.get(&format!("/endpoints?{}", page_query(&visit, &[], TABLE_ROWS_MAX))).await?;
    let row = |endpoint: &Value| {
        let id = text(endpoint, "id");
        vec![
            html! {
                div {
                    a href=(visit.path(&format!("/endpoints/{id}"))) { (text(endpoint, "url")) }
                    @if !text(endpoint, "description").is_empty() {
                        br; span.muted { (text(endpoint, "description")) }
                    }
                }
            },
            health::cell(&endpoint["health"]),
            html! { @if let Some(next) = endpoint["health"]["next"].as_str() { span { (sentence(next)) } } },
            html! {
                span {
                    @for filter in endpoint["types"].as_array().into_iter().flatten() {
                        code { (filter.as_str().unwrap_or_default()) } " "
                    }
                }
            },
            time(&endpoint["created_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    Ok(html! {
        @if rows.is_empty() {
            (empty(
                "No endpoint yet. An endpoint is where events go:",
                Some("railpost endpoints create --url https://example.com/hooks"),
            ))
        } @else {
            (table("Endpoints", &["URL", "Health", "What happens next", "Event types", "Created"], &rows))
        }
        (pager(&visit, &[], &page))
    })
}

/// What can be done to an endpoint.
pub(super) const ACTIONS: [&str; 6] = ["pause", "resume", "test", "rotate", "add-secret", "delete"];

/// Does one of [`ACTIONS`].
pub(super) async fn act(visit: PageVisit, action: &'static str) -> PageResult {
    if let Some(question) = question(&visit, action).await? {
        return question.ask(&visit);
    }
    let page = format!("/endpoints/{}", visit.param("id"));
    let api = &page;
    let answered = match action {
        "pause" | "resume" => visit.post(&format!("{api}/{action}"), None).await,
        "test" => visit.post(&format!("{api}/test"), Some(&json!({}))).await,
        "rotate" => {
            let body = json!({ "overlap": visit.field("overlap") });
            visit.post(&format!("{api}/secrets/rotate"), Some(&body)).await
        }
        "add-secret" => {
            let body = json!({ "kind": visit.field("kind") });
            visit.post(&format!("{api}/secrets"), Some(&body)).await
        }
        _ => visit.call(Method::DELETE, &visit.api_path(api), None).await,
    };
    let answer = match visit.or_redirect(&page, answered)? {
        Ok(answer) => answer,
        Err(back) => return Ok(back),
    };
    Ok(match action {
        "pause" => {
            let undo = Undo {
                label: "Resume".to_owned(),
                action: visit.path(&format!("{page}/resume")),
                fields: vec![],
            };
            visit.redirect_with_undo(&page, "The endpoint is paused. Its backlog is kept.", undo)
        }
        "resume" => visit.redirect(&page, resumed(text(&answer, "resumed"))),
        "test" => {
            let delivery = format!("/deliveries/{}", text(&answer, "delivery"));
            visit.redirect(&delivery, "A test event is on its way to this endpoint alone.")
        }
        "delete" => {
            let open = deliveries(number(&answer, "open_deliveries"));
            visit.redirect("/endpoints", format!("The endpoint is deleted. Discarded: {open}."))
        }
        "rotate" => visit.redirect_with_secret(
            &page,
            "A new secret signs from here on; the old ones until they expire.",
            text(&answer, "value"),
        ),
        _ => visit.redirect_with_secret(
            &page,
            "A new secret signs beside the others.",
            text(&answer, "value"),
        ),
    })
}

/// What a resume did.
fn resumed(what: &str) -> &'static str {
    match what {
        "half_open" => {
            "The breaker is half-open: one attempt goes at once. If it is acknowledged, sending goes on."
        }
        "retry_after_lifted" => "The endpoint is not left alone any more: sending goes on.",
        "nothing_to_do" => "Nothing was to be done: the endpoint is sent to.",
        _ => "The endpoint is resumed: its backlog is sent.",
    }
}

/// The question before an action that destroys something.
async fn question(visit: &PageVisit, action: &str) -> Result<Option<Question>, ApiRefusal> {
    let cuts_off = action == "rotate"
        && visit.field("overlap").parse::<Span>().is_ok_and(|overlap| overlap == Span::ZERO);
    if visit.is_confirmed() || !(cuts_off || action == "delete") {
        return Ok(None);
    }
    let back = format!("/endpoints/{}", visit.param("id"));
    let (title, effect, undo, label) = if cuts_off {
        let secrets = visit.get(&format!("{back}/secrets")).await?;
        let signing = items(&secrets).iter().filter(|secret| secret["active"] == true).count();
        (
            "Rotate without an overlap?",
            html! {
                "Ends " (count(signing as u64)) " secrets at once. Receivers that check signatures refuse everything "
                "until they have the new secret."
            },
            "This cannot be undone. With an overlap such as 24h, old and new secrets sign side by side.",
            "Rotate and end the old secrets",
        )
    } else {
        let health = visit.get(&format!("{back}/health")).await?;
        (
            "Delete this endpoint?",
            html! {
                "Closes " (deliveries(number(&health, "open"))) ": they are discarded and not sent any more."
            },
            "This cannot be undone. To stop sending and keep the backlog, pause the endpoint.",
            "Delete this endpoint",
        )
    };
    let (title, label) = (title.to_owned(), label.to_owned());
    Ok(Some(Question { title, effect, undo, label, back, tab: Tab::Endpoints }))
}

fn deliveries(open: u64) -> String {
    if open == 1 {
        "1 open delivery".to_owned()
    } else {
        format!("{} open deliveries", count(open))
    }
}

/// Shows the value of a secret, once.
pub(super) async fn reveal_secret(visit: PageVisit) -> PageResult {
    let page = format!("/endpoints/{}", visit.param("id"));
    let path = format!("{page}/secrets/{}/reveal", visit.param("secret"));
    let answered = visit.post(&path, None).await;
    let said = "The secret. The audit trail has an entry for this.";
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(answer) => visit.redirect_with_secret(&page, said, text(&answer, "value")),
        Err(back) => back,
    })
}

pub(super) async fn delete_secret(visit: PageVisit) -> PageResult {
    let page = format!("/endpoints/{}", visit.param("id"));
    let secret = visit.param("secret");
    if !visit.is_confirmed() {
        return Question {
            title: "Delete this secret?".to_owned(),
            effect: html! { "1 secret, " code { (secret) } ", signs nothing any more, from the next request on." },
            undo: "This cannot be undone: its value is erased.",
            label: "Delete the secret".to_owned(),
            back: page,
            tab: Tab::Endpoints,
        }
        .ask(&visit);
    }
    let path = format!("{page}/secrets/{secret}");
    let answered = visit.call(Method::DELETE, &visit.api_path(&path), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(_) => visit.redirect(&page, "The secret is deleted."),
        Err(back) => back,
    })
}
