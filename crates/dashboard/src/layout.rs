//! The frame around every page: navigation, messages after a change, errors.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use railpost_api::{Needs, scope_name};

use super::form::{button, form};
use super::session::Flash;
use super::shown;
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::TENANTS_SHOWN_MAX;

/// A page before it has its frame.
pub(super) struct PageContent {
    pub(super) title: String,
    pub(super) tab: Tab,
    pub(super) body: Markup,
}

/// Which entry of the navigation a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    All,
    Overview,
    Lanes,
    Endpoints,
    Events,
    Deliveries,
    DeadLetters,
    Replays,
    Alerts,
    Keys,
    Audit,
    Outbox,
    AuditOfAll,
    None,
}

/// The entries of a tenant's navigation: where they lead, what they need, and the key that leads there after `g`.
pub(super) const TABS: [(Tab, &str, &str, Needs, &str); 10] = [
    (Tab::Overview, "Overview", "", Needs::Read, "o"),
    (Tab::Lanes, "Lanes", "/lanes", Needs::Read, "l"),
    (Tab::Endpoints, "Endpoints", "/endpoints", Needs::Read, "e"),
    (Tab::Events, "Events", "/events", Needs::Read, "v"),
    (Tab::Deliveries, "Deliveries", "/deliveries", Needs::Read, "d"),
    (Tab::DeadLetters, "Dead letters", "/dead-letters", Needs::Read, "x"),
    (Tab::Replays, "Replays", "/replays", Needs::Read, "r"),
    (Tab::Alerts, "Alerts", "/alerts", Needs::Read, "w"),
    (Tab::Keys, "Keys", "/keys", Needs::Manage, "k"),
    (Tab::Audit, "Audit", "/audit", Needs::Manage, "a"),
];

/// The same for all tenants.
pub(super) const TABS_OF_ALL: [(Tab, &str, &str, &str); 3] = [
    (Tab::All, "All tenants", "/dashboard/all", "o"),
    (Tab::Alerts, "Alerts", "/dashboard/alerts", "w"),
    (Tab::AuditOfAll, "Audit", "/dashboard/audit", "a"),
];

impl PageContent {
    /// The page in its frame.
    pub(super) async fn render(&self, visit: &PageVisit) -> Markup {
        let flash = visit.take_flash();
        let tenants = tenants(visit).await;
        let has_sources = has_sources(visit).await;
        let open_alerts = open_alerts(visit).await;
        document(
            &self.title,
            &html! {
                (header(visit, &tenants))
                (navigation(visit, self.tab, has_sources, open_alerts))
                main id="main" tabindex="-1" {
                    @if let Some(flash) = &flash { (said(visit, flash)) }
                    (self.body)
                }
                p.hidden id="announcer" role="status" aria-live="polite" {}
                (footer(Some(&visit.path("/help"))))
            },
        )
    }
}

/// A page without navigation, for users who have not signed in.
pub(super) fn plain(title: &str, body: &Markup) -> Markup {
    let brand = html! { header.top { a.brand href="/dashboard" { (logo()) "Railpost" } } };
    document(
        title,
        &html! { (brand) main.narrow id="main" tabindex="-1" { (body) } (footer(None)) },
    )
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Railpost" }
                link rel="icon" type="image/svg+xml" href="/dashboard/icon.svg";
                link rel="stylesheet" href="/dashboard/style.css";
                script src="/dashboard/script.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (body)
            }
        }
    }
}

fn logo() -> Markup {
    html! { img.logo src="/dashboard/icon.svg" alt="" width="28" height="28"; }
}

fn header(visit: &PageVisit, tenants: &[String]) -> Markup {
    let key = &visit.session.key;
    html! {
        header.top {
            a.brand href="/dashboard" { (logo()) "Railpost" }
            (switcher(visit, tenants))
            (search(visit))
            div.who {
                span { (key.name) " " span.muted { "(" (scope_name(key.scope)) ")" } }
                (button(visit, "/dashboard/sign-out", "Sign out", "quiet"))
            }
        }
    }
}

fn switcher(visit: &PageVisit, tenants: &[String]) -> Markup {
    let current = visit.tenant.as_deref().unwrap_or_default();
    html! {
        @if visit.session.key.tenant.is_none() {
            form.switch method="get" action="/dashboard/switch" {
                label for="tenant" { "Tenant" }
                select id="tenant" name="tenant" data-submit-on-change {
                    option value="" selected[current.is_empty()] { "all tenants" }
                    @for tenant in tenants {
                        option value=(tenant) selected[tenant == current] { (tenant) }
                    }
                }
                button type="submit" { "Go" }
            }
        } @else if !current.is_empty() {
            p.switch { "Tenant " code { (current) } }
        }
    }
}

/// One box to find anything by its id, key or URL: in the tenant, or in all of them.
fn search(visit: &PageVisit) -> Markup {
    html! {
        @if visit.tenant.is_some() || visit.may(Needs::Admin) {
            form.search method="get" action=(visit.path("/find")) role="search" aria-label="Find anything" {
                input id="search" type="search" name="q" value=(visit.query("q")) spellcheck="false"
                    aria-label="Find an event, delivery, key or URL" aria-keyshortcuts="/"
                    placeholder="Find an id, key or URL";
                button type="submit" { "Find" }
            }
        }
    }
}

async fn tenants(visit: &PageVisit) -> Vec<String> {
    if visit.session.key.tenant.is_some() {
        return Vec::new();
    }
    let path = format!("/v1/tenants?limit={TENANTS_SHOWN_MAX}");
    let page = visit.call(http::Method::GET, &path, None).await.unwrap_or_default();
    shown::items(&page).iter().map(|tenant| shown::text(tenant, "id").to_owned()).collect()
}

/// Whether there are sources that the signed-in user may see: those without an outbox need no entry for it.
async fn has_sources(visit: &PageVisit) -> bool {
    if !visit.may(Needs::Admin) {
        return false;
    }
    let sources = visit.call(http::Method::GET, "/v1/outbox", None).await.unwrap_or_default();
    !shown::items(&sources).is_empty()
}

/// How many alerts are open: those of the tenant, or all of them on a page without a tenant.
pub(super) async fn open_alerts(visit: &PageVisit) -> u64 {
    let count = visit.get("/alerts/open-count").await.unwrap_or_default();
    shown::number(&count, "total")
}

/// The number of open alerts beside their entry, for as long as there are any.
fn open_alerts_count(number: u64) -> Markup {
    html! {
        " " span.count id="open-alerts" hidden[number == 0] aria-label="open" { (shown::count(number)) }
    }
}

fn navigation(visit: &PageVisit, tab: Tab, has_sources: bool, open_alerts: u64) -> Markup {
    let entry = |of: Tab, label: &str, path: &str, key: &str| {
        let current = (of == tab).then_some("page");
        html! {
            a href=(path) aria-current=[current] data-shortcut=(key) {
                (label)
                @if of == Tab::Alerts { (open_alerts_count(open_alerts)) }
            }
        }
    };
    html! {
        nav.tabs aria-label="Dashboard" {
            @if visit.tenant.is_some() {
                @for (of, label, path, needs, key) in TABS {
                    @if visit.may(needs) { (entry(of, label, &visit.path(path), key)) }
                }
            } @else {
                @for (of, label, path, key) in TABS_OF_ALL { (entry(of, label, path, key)) }
            }
            @if has_sources { (entry(Tab::Outbox, "Outbox", "/dashboard/outbox", "b")) }
        }
    }
}

fn said(visit: &PageVisit, flash: &Flash) -> Markup {
    let class = if flash.is_problem { "flash problem" } else { "flash" };
    html! {
        div class=(class) role=(if flash.is_problem { "alert" } else { "status" }) {
            p { (shown::sentence(&flash.text)) }
            @if let Some(secret) = &flash.secret {
                p { "Copy it: this page shows it once." (shown::copy_button(secret)) }
                pre tabindex="0" { code.secret { (secret) } }
            }
            @if let Some(undo) = &flash.undo {
                (form(visit, &undo.action, &html! {
                    @for (name, value) in &undo.fields { input type="hidden" name=(name) value=(value); }
                    button type="submit" { (undo.label) }
                }))
            }
        }
    }
}

fn footer(help: Option<&str>) -> Markup {
    html! {
        footer {
            "Railpost " (env!("CARGO_PKG_VERSION")) " · "
            a href="/docs" { "API" }
            @if let Some(help) = help { " · " a href=(help) data-help { "Help and shortcuts" } }
        }
    }
}

pub(super) fn response(status: StatusCode, page: Markup) -> Response {
    let PreEscaped(text) = page;
    let mut response = (status, text).into_response();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// A page that says what was refused.
pub(super) async fn refusal(visit: &PageVisit, refused: &ApiRefusal) -> Response {
    let page = PageContent {
        title: refused.title.clone(),
        tab: Tab::None,
        body: refusal_body(visit, refused),
    };
    response(status(refused), page.render(visit).await)
}

/// The same without a session.
pub(super) fn refusal_without_session(refused: &ApiRefusal) -> Response {
    let body = html! {
        h1 { (refused.title) }
        p { (refused.detail) }
        p { a href="/dashboard/sign-in" { "Sign in" } }
    };
    response(status(refused), plain(&refused.title, &body))
}

fn status(refused: &ApiRefusal) -> StatusCode {
    StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn refusal_body(visit: &PageVisit, refused: &ApiRefusal) -> Markup {
    let home = if visit.tenant.is_some() { visit.path("") } else { "/dashboard".to_owned() };
    let advice = match refused.status {
        403 => "Sign in with an API key of a larger scope to do this.",
        404 => "It may have been deleted, or belong to another tenant.",
        429 | 503 => "This passes: reload the page in a moment.",
        _ => "Go back and try again.",
    };
    html! {
        h1 { (refused.title) }
        p { (refused.detail) }
        p.hint { (advice) }
        p { a href=(home) { "To the overview" } }
    }
}

/// An unknown path of the dashboard.
pub(super) async fn not_found_page(visit: PageVisit) -> PageResult {
    let detail = format!("no such page: `{}`", visit.uri.path());
    Result::<Reply, _>::Err(ApiRefusal::new(404, "Not found", &detail))
}
