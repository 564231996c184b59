//! Endpoints: the list, one of them, creating and editing, and what can be done to one.

mod detail;
mod settings;
mod draft;
mod edit;

use http::Method;
use maud::html;
use railpost_api::Needs;
use serde_json::{Value, json};

use super::layout::Tab;
use super::shown::{self, badge, items, text};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) use detail::detail;
pub(super) use edit::{change, create, edit, new};

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let page =
        visit.get(&format!("/endpoints?{}", page_query(&visit, &[], TABLE_ROWS_MAX))).await?;
    let row = |endpoint: &Value| {
        let id = text(endpoint, "id");
        vec![
            html! {
                a href=(visit.path(&format!("/endpoints/{id}"))) { (text(endpoint, "url")) }
                @if !text(endpoint, "description").is_empty() {
                    br; span.muted { (text(endpoint, "description")) }
                }
            },
            html! {
                (badge(text(endpoint, "status")))
                @if !endpoint["blocked"].is_null() { " " (badge("blocked")) }
            },
            html! {
                @for filter in endpoint["types"].as_array().into_iter().flatten() {
                    code { (filter.as_str().unwrap_or_default()) } " "
                }
            },
            visit.ago(&endpoint["created_at"]),
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    let body = html! {
        div.heading {
            h1 { "Endpoints" }
            @if visit.may(Needs::Manage) {
                a.button.primary href=(visit.path("/endpoints/new")) { "New endpoint" }
            }
        }
        @if rows.is_empty() {
            (empty(
                "No endpoint yet. An endpoint is where events go:",
                Some("railpost endpoints create --url https://example.com/hooks"),
            ))
        } @else {
            (table("Endpoints", &["URL", "Status", "Event types", "Created"], &rows))
        }
        (pager(&visit, &[], &page))
    };
    Reply::page("Endpoints", Tab::Endpoints, body)
}

/// What can be done to an endpoint.
pub(super) const ACTIONS: [&str; 6] = ["pause", "resume", "test", "rotate", "add-secret", "delete"];

/// Does one of [`ACTIONS`].
pub(super) async fn act(visit: PageVisit, action: &'static str) -> PageResult {
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
        "pause" => visit.redirect(&page, "The endpoint is paused. Its backlog is kept."),
        "resume" => visit.redirect(&page, "The endpoint is resumed."),
        "test" => {
            let delivery = format!("/deliveries/{}", text(&answer, "delivery"));
            visit.redirect(&delivery, "A test event is on its way to this endpoint alone.")
        }
        "delete" => {
            let open = shown::count(shown::number(&answer, "open_deliveries"));
            let text = format!("The endpoint is deleted. {open} open deliveries are discarded.");
            visit.redirect("/endpoints", &text)
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
    let path = format!("{page}/secrets/{}", visit.param("secret"));
    let answered = visit.call(Method::DELETE, &visit.api_path(&path), None).await;
    Ok(match visit.or_redirect(&page, answered)? {
        Ok(_) => visit.redirect(&page, "The secret is deleted."),
        Err(back) => back,
    })
}
