//! What operators see: log lines, metrics, process figures, figures over time and traces.
//!
//! It must not know the API, the dashboard or the configuration file: a request is a number, a route and an
//! address to it. It decides nothing about deliveries; it hears of them from the dispatcher ([`Observer`]).
//!
//! Every name stands in `names` and in `docs/reference/telemetry.md`. Start with [`Telemetry`], then [`Log`].

pub mod limits;

mod names;
mod words;
mod log;
mod log_throttle;
mod metrics;
mod deliveries;
mod labels;
mod disk;
mod outbox;
mod process;
mod attempt;
mod figures;
mod otlp;
mod traces;
mod facade;

pub use deliveries::LateDeliveries;
pub use disk::DiskSpace;
pub use facade::follow_dependencies;
pub use labels::{Label, LabelSettings};
pub use log::{Level, Log, LogStyle, Value};
pub use log_throttle::LogThrottle;
pub use metrics::{Metrics, NoticeStatus, Sample};
pub use otlp::{BadHeaders, Collector, OtlpHeaders};
pub use outbox::{OutboxMetrics, SlotSample, SourceSample};
pub use process::Process;
pub use traces::Exporter;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use railpost_dispatch::{AttemptEnded, Observer};
use railpost_engine::{Notice, NoticeKind, Span, Time, Timestamp};
use railpost_store::{Receipt, Source, Store, StoreError};
use railpost_wire::{EndpointId, TenantId};
use tokio::sync::{Notify, watch};

use figures::FigureCollector;
use traces::Traces;

/// What can be chosen.
#[derive(Clone, Debug, Default)]
pub struct TelemetrySettings {
    /// Where spans go, if anywhere.
    pub collector: Option<Collector>,
    /// A delivery that is acknowledged within this is on time.
    pub objective_within: Span,
    /// Which labels metrics have by choice.
    pub labels: LabelSettings,
}

/// All of it, for one server.
pub struct Telemetry {
    /// Log lines.
    pub log: Log,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// When the server was started.
    pub started_at: SystemTime,
    figures: FigureCollector,
    traces: Option<Traces>,
    trouble: Mutex<LogThrottle>,
    latest_trouble: Mutex<Option<String>>,
    noticed: Notify,
    /// Why the store has stopped for good, if it has.
    stopped: watch::Sender<Option<String>>,
    source: Arc<dyn Source>,
}

/// A request as telemetry knows it.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The number of its route.
    pub number: usize,
    /// Its method.
    pub method: &'a str,
    /// Its route's path.
    pub route: &'a str,
    /// Whether it publishes events.
    pub publishes: bool,
    /// Where it came from.
    pub client: IpAddr,
    /// The trace that it belongs to.
    pub traceparent: Option<&'a str>,
}

impl Telemetry {
    /// Telemetry of an API with these routes. With a collector, also what sends spans to it.
    pub fn new(
        log: Log,
        routes: impl IntoIterator<Item = (String, &'static str)>,
        settings: &TelemetrySettings,
        source: Arc<dyn Source>,
    ) -> Result<(Self, Option<Exporter>), String> {
        let metrics = Arc::new(Metrics::new(routes, settings));
        let (traces, exporter) = match &settings.collector {
            None => (None, None),
            Some(collector) => {
                let (traces, exporter) = traces::traces(collector, &metrics, &log)?;
                (Some(traces), Some(exporter))
            }
        };
        let telemetry = Self {
            log,
            metrics,
            started_at: SystemTime::now(),
            figures: FigureCollector::new(settings.objective_within),
            traces,
            trouble: Mutex::default(),
            latest_trouble: Mutex::default(),
            noticed: Notify::new(),
            stopped: watch::Sender::default(),
            source,
        };
        Ok((telemetry, exporter))
    }

    /// A request was answered.
    pub fn request(&self, request: &AnsweredRequest<'_>, status: u16, took: Duration) {
        self.metrics.request(request.number, status, took);
        if self.log.is_enabled(Level::Debug) {
            let fields = [
                ("method", Value::Text(request.method)),
                ("route", Value::Text(request.route)),
                ("status", Value::Number(u64::from(status))),
                ("latency_ms", Value::Millis(took.as_micros() as u64)),
                ("address", Value::Display(&request.client)),
            ];
            self.log.line(Level::Debug, "request", &fields);
        }
        if let Some(traces) = self.traces.as_ref().filter(|_| request.publishes) {
            let now = self.source.now();
            let began = now.as_millis().saturating_sub(took.as_millis() as u64);
            let time = (Timestamp::from_millis(began), now);
            traces.accepted(request, status, time, || self.random(), &self.metrics);
        }
    }

    /// Adds what was gathered to the store's figures over time.
    pub async fn write_figures(&self, store: &dyn Store) {
        if let Err((problem, entries)) = self.figures.write_to(store).await {
            self.note_stopped(&problem);
            let fields =
                [("problem", Value::Display(&problem)), ("entries", Value::Number(entries as u64))];
            self.log.line(Level::Warn, "figures_lost", &fields);
        }
    }

    /// Takes note if the store has stopped for good.
    pub fn note_stopped(&self, trouble: &StoreError) {
        if let StoreError::Stopped(_) = trouble {
            self.note_store_stopped(&trouble.to_string());
        }
    }

    /// The store has stopped for good. Said once.
    pub fn note_store_stopped(&self, problem: &str) {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert_with(|| problem.to_owned());
            first
        });
        if first {
            self.log.line(Level::Error, "store_stopped", &[("problem", Value::Text(problem))]);
        }
    }

    /// Ends when the store has stopped for good, with the reason.
    pub async fn store_stopped(&self) -> String {
        let mut stopped = self.stopped.subscribe();
        let reason = stopped.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    /// Ends when the engine had something to tell operators since this was asked last.
    pub async fn noticed(&self) {
        self.noticed.notified().await;
    }

    /// What the store said when it could last not be written or read.
    pub fn latest_store_trouble(&self) -> Option<String> {
        self.latest_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn random(&self) -> u128 {
        let mut bytes = [0; 16];
        self.source.fill_random(&mut bytes);
        u128::from_be_bytes(bytes)
    }
}

impl Observer for Telemetry {
    fn accepted(&self, tenant: &TenantId, receipts: &[Receipt]) {
        self.metrics.accepted(receipts);
        self.figures.accepted(tenant, receipts);
    }

    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        self.metrics.attempt_ended(ended);
        self.figures.attempt_ended(ended);
        attempt::write(&self.log, ended);
        if let Some(traces) = &self.traces {
            traces.attempt_ended(ended, || self.random(), &self.metrics);
        }
    }

    fn notice(&self, notice: &Notice) {
        self.metrics.notice(notice);
        self.noticed.notify_one();
        let endpoint = ("endpoint", Value::Display(&notice.endpoint));
        match &notice.kind {
            NoticeKind::BreakerOpened { until } => {
                let fields = [endpoint, ("until", Value::Display(&Time(*until)))];
                self.log.line(Level::Warn, "breaker_opened", &fields);
            }
            NoticeKind::BreakerClosed => self.log.line(Level::Info, "breaker_closed", &[endpoint]),
            NoticeKind::LaneHeld { lane, delivery } => {
                let lane = ("lane", Value::Number(lane.0));
                let fields = [endpoint, lane, ("delivery", Value::Display(delivery))];
                self.log.line(Level::Warn, "lane_held", &fields);
            }
            NoticeKind::SwitchedOff(status) => {
                let fields = [endpoint, ("status", Value::Text(words::status_name(*status)))];
                self.log.line(Level::Error, "endpoint_switched_off", &fields);
            }
        }
    }

    fn endpoint_blocked(&self, endpoint: EndpointId, reason: Option<&str>) {
        self.metrics.endpoint_blocked(endpoint, reason.is_some());
        self.noticed.notify_one();
        let endpoint = ("endpoint", Value::Display(&endpoint));
        match reason {
            Some(reason) => {
                let fields = [endpoint, ("reason", Value::Text(reason))];
                self.log.line(Level::Error, "endpoint_blocked", &fields);
            }
            None => self.log.line(Level::Info, "endpoint_unblocked", &[endpoint]),
        }
    }

    fn store_trouble(&self, trouble: &StoreError) {
        self.note_stopped(trouble);
        self.metrics.store_trouble.fetch_add(1, Ordering::Relaxed);
        *self.latest_trouble.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(trouble.to_string());
        let times = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).now();
        if let Some(times) = times {
            let fields = [("problem", Value::Display(trouble)), ("times", Value::Number(times))];
            self.log.line(Level::Error, "store_trouble", &fields);
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}
