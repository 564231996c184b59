//! Whether the server is alive, and whether it can do its work.

use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use http::{Method, StatusCode};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use tokio::sync::Mutex;

use super::answer::{DescribedAnswer, Json, Media, RawResponse};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::path::NoPath;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;
use crate::app::App;
use crate::limits::READINESS_BELIEVED_FOR;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/health/live",
            Needs::Nothing,
            "Whether the process is alive",
            live,
        ),
        Route::new(
            Method::GET,
            "/health/ready",
            Needs::Nothing,
            "Whether the server can accept events, and why not",
            ready,
        ),
    ]
}

/// The process is alive.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Live {
    /// `live`.
    status: &'static str,
}

/// Whether the server can do its work.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Ready {
    /// Whether it can.
    pub(crate) ready: bool,
    /// Why it cannot.
    pub(crate) reasons: Vec<String>,
    /// Where it writes; `null` when that is in trouble.
    pub(crate) store: Option<StoreView>,
    /// The version of the server.
    pub(crate) version: &'static str,
}

/// Where the server writes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoreView {
    /// `memory`, `sqlite` or `postgres`.
    pub(crate) backend: &'static str,
    /// The version of its schema.
    pub(crate) schema: u32,
    /// How many bytes it takes, as far as is known.
    pub(crate) size_bytes: u64,
}

async fn live(_: Ctx, _: NoPath, _: NoQuery, _: NoBody) -> Result<Json<Live>, Problem> {
    Ok(Json(Live { status: "live" }))
}

impl Media for Ready {
    fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        let ready = DescribedAnswer::json::<Ready>(schemas, StatusCode::OK);
        let not_ready = DescribedAnswer::json::<Ready>(schemas, StatusCode::SERVICE_UNAVAILABLE);
        vec![
            DescribedAnswer { about: Some("The server can accept events."), ..ready },
            DescribedAnswer {
                about: Some("The server cannot accept events; `reasons` has the causes."),
                ..not_ready
            },
        ]
    }
}

async fn ready(ctx: Ctx, _: NoPath, _: NoQuery, _: NoBody) -> Result<RawResponse<Ready>, Problem> {
    let ready = ctx.app.readiness.get(&ctx.app).await;
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(RawResponse::new((status, axum::Json(ready)).into_response()))
}

/// Whether the server can do its work, as it was found a moment ago. Anybody may ask, and each check is a durable
/// write, so one check runs at a time, and all callers share its result.
#[derive(Debug, Default)]
pub(crate) struct ReadinessCache(Mutex<Option<(Instant, Ready)>>);

impl ReadinessCache {
    async fn get(&self, app: &App) -> Ready {
        let mut last = self.0.lock().await;
        match &*last {
            Some((at, ready)) if at.elapsed() < Duration::from(READINESS_BELIEVED_FOR) => {
                ready.clone()
            }
            _ => {
                let ready = check(app).await;
                *last = Some((Instant::now(), ready.clone()));
                ready
            }
        }
    }
}

/// Whether the server can do its work, and why not.
async fn check(app: &App) -> Ready {
    let (store, mut reasons) = match app.store.check().await {
        Ok(health) => {
            let railpost_store::Health { backend, schema, size_bytes } = health;
            (Some(StoreView { backend, schema, size_bytes }), Vec::new())
        }
        Err(error) => {
            app.telemetry.note_stopped(&error);
            (None, vec![error.to_string()])
        }
    };
    if let Err(stopped) = app.dispatcher.counters().await {
        reasons.push(stopped.to_string());
    }
    Ready { ready: reasons.is_empty(), reasons, store, version: env!("CARGO_PKG_VERSION") }
}
