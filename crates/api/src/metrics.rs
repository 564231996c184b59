//! The metrics for Prometheus.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use http::{Method, StatusCode, header};
use railpost_engine::Timestamp;
use railpost_store::{Counts, Severity};
use railpost_telemetry::{DiskSpace, Metrics, Process, Sample};
use railpost_wire::EndpointId;
use rustc_hash::FxHashSet;
use tokio::sync::Mutex;

use super::answer::{PrometheusText, RawResponse};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::outbox::SourceView;
use super::path::NoPath;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;
use crate::app::App;
use crate::limits::METRICS_SAMPLE_BELIEVED_FOR;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/metrics",
            Needs::Nothing,
            "Metrics in Prometheus' text format",
            metrics,
        )
        .also_refuses(&[StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]),
    ]
}

/// What was looked up lately, and when.
#[derive(Debug, Default)]
pub(crate) struct SampleCache(Mutex<Option<(Instant, Sample)>>);

async fn metrics(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<PrometheusText>, Problem> {
    let sample = ctx.app.sample_cache.get(&ctx.app).await;
    let page = ctx.app.telemetry.metrics.render(&sample);
    let content_type = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    Ok(RawResponse::new(([content_type], page).into_response()))
}

impl SampleCache {
    /// Readers that come together wait for one look-up.
    async fn get(&self, app: &App) -> Sample {
        let mut sampled = self.0.lock().await;
        let believed_for = Duration::from(METRICS_SAMPLE_BELIEVED_FOR);
        match &*sampled {
            Some((at, sample)) if at.elapsed() < believed_for => sample.clone(),
            _ => {
                let sample = look_up(app).await;
                *sampled = Some((Instant::now(), sample.clone()));
                sample
            }
        }
    }
}

async fn look_up(app: &App) -> Sample {
    let counts = app.store.totals(None).await.ok();
    let age_seconds = |since: fn(&Counts) -> Option<Timestamp>| {
        let since = counts.as_ref().and_then(since);
        since.map_or(0, |at| app.source.now().since(at).as_millis()) as f64 / 1000.0
    };
    Sample {
        oldest_open_age_seconds: age_seconds(|counts| counts.oldest_open_at),
        oldest_dead_age_seconds: age_seconds(|counts| counts.oldest_dead_at),
        counts,
        disk: DiskSpace::of(&app.settings.data_dir),
        alerts_open: alerts_open(app).await,
        store_size_bytes: app.store.check().await.ok().map(|health| health.size_bytes),
        engine: app.dispatcher.counters().await.ok(),
        in_flight: app.dispatcher.under_way().await.ok(),
        breakers_open: served(app, Metrics::breakers).await,
        endpoints_blocked: served(app, Metrics::blocked).await,
        log_lines_dropped: app.telemetry.log.lines_dropped(),
        sources: app.running_sources.status().into_iter().map(SourceView::sample).collect(),
        process: Process::sampled(app.telemetry.started_at),
    }
}

/// How many alerts are open, by severity; nothing if they cannot be read.
async fn alerts_open(app: &App) -> Vec<(&'static str, u64)> {
    let Ok(alerts) = app.store.open_alerts().await else { return Vec::new() };
    let open = |severity: &Severity| {
        alerts.iter().filter(|alert| alert.is_open() && alert.severity == *severity).count() as u64
    };
    Severity::ALL.iter().map(|severity| (severity.as_str(), open(severity))).collect()
}

/// How many endpoints of a set are served. Those that went away meanwhile are forgotten.
async fn served(app: &App, set: fn(&Metrics) -> MutexGuard<'_, FxHashSet<EndpointId>>) -> usize {
    let known: Vec<_> = set(&app.telemetry.metrics).iter().copied().collect();
    for endpoint in known {
        if let Ok(None) = app.dispatcher.health(endpoint).await {
            set(&app.telemetry.metrics).remove(&endpoint);
        }
    }
    set(&app.telemetry.metrics).len()
}
