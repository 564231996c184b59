//! The HTTP API: one table of routes, made of handlers whose types are the specification.
//!
//! Every request takes the same steps ([`route`]): authorize it, parse it, look for a stored answer, run the
//! handler. A handler gets a [`call::Ctx`] and the parsed path, query and body. It makes changes through
//! [`call::Ctx::commit`], which writes the audit entry too. Other parts of the server call handlers as
//! functions, so each operation is implemented once.
//!
//! It must not hold delivery rules or SQL, and must not know pages, the configuration file or how connections
//! are taken: what it reads of the configuration is [`ApiSettings`]. No static holds state.
//!
//! Start with [`routes`], then `route.rs`; `tenants.rs` is the smallest resource.

pub mod limits;

mod settings;
mod thin_links;
mod app;

mod path;
mod bounds;
mod auth;
mod key_ring;
mod unknown_keys;
mod idempotency;
mod call;
mod route;
mod table;
mod openapi;

mod health;
mod docs_page;
mod metrics;
mod egress;
mod tenants;
mod endpoint_health;
mod endpoints;
mod secrets;
mod event_types;
mod events;
mod deliveries;
mod attempts;
mod commands;
mod lanes;
mod open_lanes;
mod dead_letters;
mod replays;
mod story;
mod find;
mod thin;
mod figures;
mod report;
mod overview;
mod keys;
mod audit;
mod retention;
mod backup_series;
mod maintenance;
mod master_key;
mod outbox;
mod alerts;

use railpost_rest::{
    answer, body, client_address, members, merge, problem, query, run_despite_disconnect,
};

pub use alerts::{RunningAlerts, TestReach};
pub use app::{App, AppParts, TenantWatch};
pub use audit::{AUDIT_MASTER_KEY_ROTATED, AUDIT_TENANT_ERASED, Action};
pub use auth::{Caller, KEY_PREFIX, Needs, hash_of, scope_name};
pub use body::read as read_body;
pub use call::{AuditAction, note};
pub use client_address::{ClientAddress, TrustedProxies, is_proxied};
pub use commands::command_delivery;
pub use endpoints::check_endpoint;
pub use event_types::reserved_type;
pub use key_ring::{KeyRing, is_valid};
pub use keys::{CONFIGURED_KEY_NAME, generate};
pub use master_key::{MasterKeyRotator, RotationProgress};
pub use openapi::{openapi, openapi_text};
pub use outbox::{
    FindingVerdict, FindingView, RunningSources, SlotView, SourceMode, SourceState, SourceTrouble,
    SourceView,
};
pub use problem::{Code, Problem, ProblemView};
pub use railpost_rest::answer::with_security_headers;
pub use retention::prune;
pub use route::{Route, ServeFuture};
pub use secrets::{SecretRotations, rotate_due_secrets};
pub use settings::{ApiSettings, LimitsConfig, ObjectiveConfig, RetentionConfig};
pub use table::{Api, not_found};
pub use thin_links::ThinLinks;

/// Every route of the API.
pub fn routes() -> Vec<Route> {
    [
        health::routes(),
        metrics::routes(),
        egress::routes(),
        docs_page::routes(),
        tenants::routes(),
        endpoints::routes(),
        secrets::routes(),
        event_types::routes(),
        events::routes(),
        deliveries::routes(),
        attempts::routes(),
        lanes::routes(),
        open_lanes::routes(),
        dead_letters::routes(),
        replays::routes(),
        story::routes(),
        find::routes(),
        thin::routes(),
        figures::routes(),
        report::routes(),
        overview::routes(),
        keys::routes(),
        audit::routes(),
        maintenance::routes(),
        master_key::routes(),
        outbox::routes(),
        alerts::routes(),
    ]
    .concat()
}
