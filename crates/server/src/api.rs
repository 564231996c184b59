//! The HTTP API: one table of routes, made of handlers whose types are the specification.
//!
//! Every request takes the same steps ([`route`]): authorize it, parse it, look for a stored answer, run the
//! handler. A handler gets a [`call::Ctx`] and the parsed path, query and body. It makes changes through
//! [`call::Ctx::commit`], which writes the audit entry too. Other parts of the server call handlers as
//! functions, so each operation is implemented once.

pub mod problem;
pub(crate) mod time;
mod path;
mod query;
mod strict;
mod bounds;
mod body;
mod merge;
mod answer;
pub(crate) mod auth;
pub(crate) mod key_ring;
mod unknown_keys;
pub(crate) mod idempotency;
mod call;
mod run_despite_disconnect;
mod route;
mod table;
mod openapi;

pub(crate) mod health;
pub(crate) mod docs_page;
pub(crate) mod metrics;
mod tenants;
mod endpoints;
mod secrets;
pub(crate) mod event_types;
mod events;
mod deliveries;
mod attempts;
mod commands;
mod lanes;
mod dead_letters;
mod replays;
mod thin;
mod figures;
mod overview;
pub(crate) mod keys;
mod audit;
mod maintenance;

use axum::response::Response;
use http::{HeaderName, HeaderValue};

pub(crate) use audit::{Action, DetailLine, DetailValue, detail_lines};
pub use auth::Needs;
pub(crate) use body::read as read_body;
pub(crate) use call::{AuditAction, note};
pub(crate) use commands::command_delivery;
pub use openapi::{openapi, openapi_text};
pub use route::Route;
pub use table::Api;
pub(crate) use table::not_found;

/// Every route of the API.
pub fn routes() -> Vec<Route> {
    [
        health::routes(),
        metrics::routes(),
        docs_page::routes(),
        tenants::routes(),
        endpoints::routes(),
        secrets::routes(),
        event_types::routes(),
        events::routes(),
        deliveries::routes(),
        attempts::routes(),
        lanes::routes(),
        dead_letters::routes(),
        replays::routes(),
        thin::routes(),
        figures::routes(),
        overview::routes(),
        keys::routes(),
        audit::routes(),
        maintenance::routes(),
    ]
    .concat()
}

/// Headers that every answer carries, unless a page says otherwise: nothing is cached, sniffed, framed,
/// run or referred to.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        http::header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (http::header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (http::header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

pub(crate) fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}
