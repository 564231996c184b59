//! Spans for an OpenTelemetry collector: OTLP over HTTP, as JSON. A separate task sends them in batches, and
//! retries what failed for a temporary reason. If the collector stays down, spans are dropped and counted, and
//! a line is logged at most every 10 s.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use railpost_dispatch::{
    AttemptEnded, Guard, GuardConfig, NamedNetwork, Request, Route, RouteConfig, Sender,
    SenderConfig, Target, TraceParent,
};
use railpost_engine::{AttemptResult, DeliveryState, Span, Timestamp};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, watch};

use super::log::{Level, Log, Value};
use super::metrics::Metrics;
use super::otlp::{Collector, OtlpHeaders};
use super::{LogThrottle, words};
use crate::limits::{
    SPANS_BATCH_MAX, SPANS_EVERY, SPANS_RETRY_WAIT, SPANS_RETRY_WAIT_MAX, SPANS_TRIES_MAX,
    SPANS_WAITING_MAX,
};

/// Where spans go.
#[derive(Debug)]
pub(crate) struct Traces {
    spans: mpsc::Sender<Json>,
}

/// The position of a span in its trace.
struct SpanIds {
    trace_id: u128,
    span_id: u64,
    parent: Option<u64>,
}

/// Sends spans.
pub struct Exporter {
    spans: mpsc::Receiver<Json>,
    sender: Sender,
    route: Route,
    headers: OtlpHeaders,
    metrics: Arc<Metrics>,
    log: Log,
    throttle: LogThrottle,
}

/// Spans for the collector at this URL, and the task that sends them.
pub(crate) fn traces(
    collector: &Collector,
    metrics: &Arc<Metrics>,
    log: &Log,
) -> Result<(Traces, Exporter), String> {
    let text = |error: &dyn std::fmt::Display| format!("telemetry.otlp_url: {error}");
    // The operator named the collector: the guard is for what tenants name.
    let everything = ["0.0.0.0/0", "::/0"].map(|network| NamedNetwork::new("collector", network));
    let networks = everything.into_iter().collect::<Result<_, _>>().map_err(|e| text(&e))?;
    let guard = Guard::new(GuardConfig { networks, https_only: false });
    let url = format!("{}/v1/traces", collector.url.trim_end_matches('/'));
    let target = Target::parse(&url, &guard).map_err(|e| text(&e))?;
    let sender = Sender::new(SenderConfig { guard, ..SenderConfig::default() });
    let sender = sender.map_err(|e| text(&e))?;
    let route = sender.route(&RouteConfig::new(target)).map_err(|e| text(&e))?;
    let (outbox, spans) = mpsc::channel(SPANS_WAITING_MAX);
    let (metrics, log) = (metrics.clone(), log.clone());
    let (headers, throttle) = (collector.headers.clone(), LogThrottle::default());
    let exporter = Exporter { spans, sender, route, headers, metrics, log, throttle };
    Ok((Traces { spans: outbox }, exporter))
}

impl Traces {
    /// A request that publishes was answered.
    pub(super) fn accepted(
        &self,
        request: &super::AnsweredRequest<'_>,
        status: u16,
        (began, now): (Timestamp, Timestamp),
        random: impl Fn() -> u128,
        metrics: &Metrics,
    ) {
        let parent: Option<TraceParent> = request.traceparent.and_then(|text| text.parse().ok());
        let ids = SpanIds {
            trace_id: parent.map_or_else(|| random().max(1), TraceParent::trace_id),
            span_id: (random() as u64).max(1),
            parent: parent.map(TraceParent::span_id),
        };
        let attributes = vec![
            text("messaging.system", words::SERVICE),
            text("messaging.operation.name", "accept"),
            text("http.request.method", request.method),
            text("http.route", request.route),
            number("http.response.status_code", u64::from(status)),
        ];
        self.send(metrics, || {
            span("accept", SERVER, &ids, (began, now), &attributes, status >= 500)
        });
    }

    pub(super) fn attempt_ended(
        &self,
        ended: &AttemptEnded<'_>,
        random: impl Fn() -> u128,
        metrics: &Metrics,
    ) {
        let event = ended.parcel.map(|parcel| &parcel.event);
        let producer = event.and_then(|event| event.traceparent.as_ref()?.parse().ok());
        let ids = SpanIds {
            trace_id: ended.trace.map_or_else(|| random().max(1), TraceParent::trace_id),
            span_id: ended.trace.map_or_else(|| (random() as u64).max(1), TraceParent::span_id),
            parent: ended.trace.and(producer.map(TraceParent::span_id)),
        };
        let began = ended.detail.started_at;
        let took = Duration::from_micros(u64::from(ended.detail.timing.total_us));
        let until = Timestamp::from_millis(began.as_millis() + took.as_millis() as u64);
        let failed = ended.transition.state != DeliveryState::Delivered;
        self.send(metrics, || {
            span("attempt", CLIENT, &ids, (began, until), &attributes(ended), failed)
        });
    }

    fn send(&self, metrics: &Metrics, span: impl FnOnce() -> Json) {
        match self.spans.try_reserve() {
            Ok(room) => room.send(span()),
            Err(_) => {
                metrics.spans_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// OTLP's numbers for the kinds of spans.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

fn attributes(ended: &AttemptEnded<'_>) -> Vec<Json> {
    let endpoint = ended.transition.endpoint.to_string();
    let mut attributes = vec![
        text("messaging.system", words::SERVICE),
        text("messaging.operation.name", "deliver"),
        text("messaging.operation.type", "send"),
        text("messaging.destination.name", &endpoint),
    ];
    if let Some(parcel) = ended.parcel {
        attributes.push(text("messaging.message.id", &parcel.event.id.to_string()));
        attributes.push(text("railpost.tenant", &parcel.tenant.to_string()));
        attributes.push(text("railpost.event.id", &parcel.event.id.to_string()));
        attributes.push(text("railpost.event.type", &parcel.event.event_type.to_string()));
    }
    let outcome = words::outcome_name(words::outcome(ended.transition));
    attributes.extend([
        text("railpost.endpoint", &endpoint),
        text("railpost.delivery", &ended.transition.delivery.to_string()),
        number("railpost.attempt", u64::from(ended.detail.number)),
        text("railpost.outcome", outcome),
        json!({"key": "railpost.replay", "value": {"boolValue": ended.replay}}),
        match ended.detail.result {
            AttemptResult::Response { status, .. } => {
                number("http.response.status_code", u64::from(status))
            }
            AttemptResult::Failed(failure) => text("error.type", words::failure_name(failure)),
        },
    ]);
    attributes
}

fn text(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Json {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn span(
    name: &str,
    kind: u8,
    ids: &SpanIds,
    (began, ended): (Timestamp, Timestamp),
    attributes: &[Json],
    failed: bool,
) -> Json {
    let nanos = |at: Timestamp| format!("{}000000", at.as_millis());
    json!({
        "traceId": format!("{:032x}", ids.trace_id),
        "spanId": format!("{:016x}", ids.span_id),
        "parentSpanId": ids.parent.map(|id| format!("{id:016x}")).unwrap_or_default(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(began),
        "endTimeUnixNano": nanos(ended),
        "attributes": attributes,
        "status": if failed { json!({"code": 2}) } else { json!({}) },
    })
}

impl Exporter {
    /// Sends spans in batches until it is told that there will be no more.
    pub async fn run(mut self, mut ending: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(SPANS_BATCH_MAX);
        loop {
            tokio::select! {
                _ = self.spans.recv_many(&mut batch, SPANS_BATCH_MAX) => {}
                _ = ending.wait_for(|end| *end) => break,
            }
            self.send(std::mem::take(&mut batch), &mut ending).await;
            // What comes meanwhile goes together.
            if self.spans.len() < SPANS_BATCH_MAX {
                let gathering = ending.wait_for(|end| *end);
                let _ = tokio::time::timeout(Duration::from(SPANS_EVERY), gathering).await;
            }
        }
        self.spans.close();
        while self.spans.recv_many(&mut batch, SPANS_BATCH_MAX).await > 0 {
            self.send(std::mem::take(&mut batch), &mut ending).await;
        }
    }

    async fn send(&mut self, spans: Vec<Json>, ending: &mut watch::Receiver<bool>) {
        let count = spans.len() as u64;
        match self.post_with_retries(&body(&spans), ending).await {
            Ok(()) => {
                self.metrics.spans_sent.fetch_add(count, Ordering::Relaxed);
            }
            Err(failure) => {
                self.metrics.spans_dropped.fetch_add(count, Ordering::Relaxed);
                if let Some(times) = self.throttle.now() {
                    let fields = [
                        ("problem", Value::Text(&failure.problem)),
                        ("spans", Value::Number(times * count)),
                    ];
                    self.log.line(Level::Warn, "traces_not_taken", &fields);
                }
            }
        }
    }

    /// Sends a batch until it is taken or refused for good, a few times at most. What comes meanwhile waits in the
    /// channel. A server that stops waits no more.
    async fn post_with_retries(
        &self,
        body: &Bytes,
        ending: &mut watch::Receiver<bool>,
    ) -> Result<(), ExportFailure> {
        let mut wait = SPANS_RETRY_WAIT;
        for _ in 1..SPANS_TRIES_MAX {
            match self.post(body).await {
                Err(ExportFailure { retry_after: Some(least), .. }) if !*ending.borrow() => {
                    let wait = Duration::from(wait.max(least).min(SPANS_RETRY_WAIT_MAX));
                    let _ = tokio::time::timeout(wait, ending.wait_for(|end| *end)).await;
                }
                done => return done,
            }
            wait = wait.times(2);
        }
        self.post(body).await
    }

    async fn post(&self, body: &Bytes) -> Result<(), ExportFailure> {
        let content_type = ("content-type", "application/json".to_owned());
        let headers = self.headers.iter().chain([content_type]);
        let request = Request::new(&self.route, headers, body.clone());
        let request = request.map_err(|error| ExportFailure::lasting(error.to_string()))?;
        match self.sender.send(request).await.result {
            AttemptResult::Response { status: 200..=299, .. } => Ok(()),
            AttemptResult::Response { status, retry_after } => {
                let problem = format!("the collector answered {status}");
                let passing = matches!(status, 429 | 502 | 503 | 504);
                let retry_after = passing.then(|| retry_after.unwrap_or_default());
                Err(ExportFailure { problem, retry_after })
            }
            AttemptResult::Failed(failure) => Err(ExportFailure {
                problem: words::failure_name(failure).to_owned(),
                retry_after: Some(Span::ZERO),
            }),
        }
    }
}

/// Why the collector did not take spans.
#[derive(Debug)]
struct ExportFailure {
    problem: String,
    /// How long it asks to be left alone; nothing if it will not take them later either.
    retry_after: Option<Span>,
}

impl ExportFailure {
    fn lasting(problem: String) -> Self {
        Self { problem, retry_after: None }
    }
}

fn body(spans: &[Json]) -> Bytes {
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", words::SERVICE), text("service.version", version)]},
        "scopeSpans": [{"scope": {"name": words::SERVICE, "version": version}, "spans": spans}],
    }]});
    body.to_string().into()
}
