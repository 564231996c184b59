//! API keys of a tenant: the list, a new one, revoking.

use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::confirm::Question;
use super::form::{Field, button, form};
use super::layout::Tab;
use super::shown::{self, badge, items, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

const SCOPES: [(&str, &str); 3] = [
    ("read-only", "read-only: look at everything of this tenant"),
    ("publish-only", "publish-only: publish events"),
    ("tenant", "tenant: everything of this tenant"),
];

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let page = visit.get(&format!("/keys?{}", page_query(&visit, &[], TABLE_ROWS_MAX))).await?;
    let row = |key: &Value| {
        let revoked = !key["revoked_at"].is_null();
        let revoke = visit.path(&format!("/keys/{}/revoke", text(key, "id")));
        vec![
            html! { (text(key, "name")) br; (shown::id(text(key, "id"))) },
            html! { (text(key, "scope")) },
            badge(if revoked { "revoked" } else { "active" }),
            time(&key["last_used_at"]),
            time(&key["created_at"]),
            html! { @if !revoked { (button(&visit, &revoke, "Revoke…", "quiet")) } },
        ]
    };
    let rows: Vec<_> = items(&page).iter().map(row).collect();
    let body = html! {
        h1 { "API keys" }
        @if rows.is_empty() {
            (empty("This tenant has no API keys yet. Admin keys work too.", Some("railpost keys create shop --scope publish-only")))
        } @else {
            (table("API keys", &["Name", "Scope", "State", "Last used", "Created", "Actions"], &rows))
        }
        (pager(&visit, &[], &page))
        section { h2 { "New key" } div.stack { (new_form(&visit)) } }
    };
    Reply::page("API keys", Tab::Keys, body)
}

fn new_form(visit: &PageVisit) -> Markup {
    let name =
        Field { name: "name", path: "name", label: "Name", hint: "Who or what will use it." };
    let scope =
        Field { name: "scope", path: "scope", label: "Scope", hint: "The least that is enough." };
    let body = html! {
        (name.text("", None))
        (scope.choice("", &SCOPES, None))
        button.primary type="submit" { "Create the key" }
    };
    form(visit, &visit.path("/keys"), &body)
}

pub(super) async fn create(visit: PageVisit) -> PageResult {
    let body = json!({ "name": visit.field("name"), "scope": visit.field("scope") });
    let answered = visit.post("/keys", Some(&body)).await;
    Ok(match visit.or_redirect("/keys", answered)? {
        Ok(made) => visit.redirect_with_secret("/keys", "The new key:", text(&made, "key")),
        Err(back) => back,
    })
}

pub(super) async fn revoke(visit: PageVisit) -> PageResult {
    if !visit.is_confirmed() {
        return Question {
            title: "Revoke this key?".to_owned(),
            effect: html! { "1 key, " code { (visit.param("id")) } ", opens nothing any more, at once." },
            undo: "This cannot be undone. Everyone who uses the key needs another one.",
            label: "Revoke the key".to_owned(),
            back: "/keys".to_owned(),
            tab: Tab::Keys,
        }
        .ask(&visit);
    }
    let path = visit.api_path(&format!("/keys/{}", visit.param("id")));
    let answered = visit.call(Method::DELETE, &path, None).await;
    Ok(match visit.or_redirect("/keys", answered)? {
        Ok(_) => visit.redirect("/keys", "The key is revoked."),
        Err(back) => back,
    })
}
