//! Counts and durations for Prometheus. Written by hand: counting is an atomic addition, the text
//! format is a line each, and a crate for it would add locks and labels that are not needed here.

use std::fmt::{Display, Write as _};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use railpost_dispatch::AttemptEnded;
use railpost_engine::{AttemptResult, Counters, DeliveryState, EndpointStatus, IgnoredReason};
use railpost_engine::{Notice, NoticeKind};
use railpost_store::{Counts, Receipt};
use railpost_wire::EndpointId;
use rustc_hash::FxHashSet;

use super::TelemetrySettings;
use super::deliveries::{DeliveryMetrics, LateDeliveries};
use super::disk::DiskSpace;
use super::labels::LabelledDeliveries;
use super::names::METRICS;
use super::outbox::{OutboxMetrics, SourceSample};
use super::words::{self, DEAD_REASONS, FAILURES, OUTCOMES};

/// What is counted where it happens.
#[derive(Debug)]
pub struct Metrics {
    routes: Vec<RouteCounts>,
    request_seconds: Durations,
    /// Connections that are open.
    pub connections_open: AtomicU64,
    accepted: AtomicU64,
    duplicates: AtomicU64,
    deliveries: AtomicU64,
    outcomes: [AtomicU64; OUTCOMES.len()],
    statuses: [AtomicU64; CLASSES.len()],
    failures: [AtomicU64; FAILURES.len()],
    dead: [AtomicU64; DEAD_REASONS.len()],
    attempt_seconds: Durations,
    delivery_seconds: Durations,
    of_deliveries: DeliveryMetrics,
    labelled: LabelledDeliveries,
    blocked: Mutex<FxHashSet<EndpointId>>,
    breakers: Mutex<FxHashSet<EndpointId>>,
    breaker_opened: AtomicU64,
    lanes_held: AtomicU64,
    switched_off: [AtomicU64; SWITCHED_OFF.len()],
    notices: [AtomicU64; NOTICE_STATUSES.len()],
    /// Failures of the store that the dispatcher met.
    pub store_trouble: AtomicU64,
    /// Events that retention deleted.
    pub pruned_events: AtomicU64,
    /// Spans that the collector took.
    pub spans_sent: AtomicU64,
    /// Spans that were left out.
    pub spans_dropped: AtomicU64,
    /// Batches of sources.
    pub outbox: OutboxMetrics,
}

#[derive(Debug)]
struct RouteCounts {
    method: String,
    route: &'static str,
    classes: [AtomicU64; CLASSES.len()],
}

/// What is looked up when someone asks for the metrics.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Totals of the store; nothing while it does not answer.
    pub counts: Option<Counts>,
    /// Age of the oldest open delivery.
    pub oldest_open_age_seconds: f64,
    /// Age of the oldest dead letter.
    pub oldest_dead_age_seconds: f64,
    /// Room on the disk of the server's files.
    pub disk: Option<DiskSpace>,
    /// Open alerts by severity.
    pub alerts_open: Vec<(&'static str, u64)>,
    /// Bytes that the store takes.
    pub store_size_bytes: Option<u64>,
    /// The engine's counters.
    pub engine: Option<Counters>,
    /// Attempts under way.
    pub in_flight: Option<usize>,
    /// Endpoints whose breaker is open.
    pub breakers_open: usize,
    /// Endpoints that cannot be sent to.
    pub endpoints_blocked: usize,
    /// Log lines that were left out.
    pub log_lines_dropped: u64,
    /// The sources that events are relayed from.
    pub sources: Vec<SourceSample>,
    /// Figures of the process.
    pub process: super::process::Process,
}

/// Classes of HTTP statuses.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

const SWITCHED_OFF: [EndpointStatus; 4] = [
    EndpointStatus::Paused,
    EndpointStatus::Quarantined,
    EndpointStatus::Gone,
    EndpointStatus::Failing,
];

/// What a notice says of its alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeStatus {
    /// It fired.
    Fired,
    /// It was resolved.
    Resolved,
    /// There is no alert: it happened once.
    Told,
}

const NOTICE_STATUSES: [(NoticeStatus, &str); 3] = [
    (NoticeStatus::Fired, "fired"),
    (NoticeStatus::Resolved, "resolved"),
    (NoticeStatus::Told, "told"),
];

pub(super) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

fn class_of(status: u16) -> usize {
    usize::from((status / 100).clamp(1, 5) - 1)
}

impl Metrics {
    /// For an API with these routes.
    pub fn new(
        routes: impl IntoIterator<Item = (String, &'static str)>,
        settings: &TelemetrySettings,
    ) -> Self {
        let counts = |(method, route)| RouteCounts { method, route, classes: Default::default() };
        Self {
            routes: routes.into_iter().map(counts).collect(),
            request_seconds: Durations::new(),
            connections_open: AtomicU64::default(),
            accepted: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            deliveries: AtomicU64::default(),
            outcomes: Default::default(),
            statuses: Default::default(),
            failures: Default::default(),
            dead: Default::default(),
            attempt_seconds: Durations::new(),
            delivery_seconds: Durations::new(),
            of_deliveries: DeliveryMetrics::new(settings.objective_within),
            labelled: LabelledDeliveries::new(&settings.labels),
            breakers: Mutex::default(),
            blocked: Mutex::default(),
            breaker_opened: AtomicU64::default(),
            lanes_held: AtomicU64::default(),
            switched_off: Default::default(),
            notices: Default::default(),
            store_trouble: AtomicU64::default(),
            pruned_events: AtomicU64::default(),
            spans_sent: AtomicU64::default(),
            spans_dropped: AtomicU64::default(),
            outbox: OutboxMetrics::default(),
        }
    }

    /// A request to the route of this number was answered.
    pub fn request(&self, route: usize, status: u16, took: Duration) {
        if let Some(route) = self.routes.get(route) {
            add(&route.classes[class_of(status)], 1);
        }
        self.request_seconds.record(took);
    }

    pub(super) fn accepted(&self, receipts: &[Receipt]) {
        for receipt in receipts {
            match receipt {
                Receipt::Accepted { deliveries, .. } => {
                    add(&self.accepted, 1);
                    add(&self.deliveries, deliveries.len());
                }
                Receipt::Duplicate { .. } => add(&self.duplicates, 1),
            }
        }
    }

    pub(super) fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        add(&self.outcomes[words::outcome(ended.transition) as usize], 1);
        match ended.detail.result {
            AttemptResult::Response { status, .. } => add(&self.statuses[class_of(status)], 1),
            AttemptResult::Failed(failure) => {
                let place = FAILURES.iter().position(|known| *known == failure);
                place.into_iter().for_each(|place| add(&self.failures[place], 1));
            }
        }
        let micros = u64::from(ended.detail.timing.total_us);
        self.attempt_seconds.record(Duration::from_micros(micros));
        match ended.transition.state {
            DeliveryState::Dead { reason, .. } => {
                let place = DEAD_REASONS.iter().position(|known| *known == reason);
                place.into_iter().for_each(|place| add(&self.dead[place], 1));
            }
            DeliveryState::Delivered => {
                if let Some(parcel) = ended.parcel {
                    let took = ended.transition.at.since(parcel.accepted_at);
                    self.delivery_seconds.record(Duration::from_millis(took.as_millis()));
                }
            }
            _ => {}
        }
        self.of_deliveries.attempt_ended(ended);
        self.labelled.attempt_ended(ended);
    }

    /// Deliveries passed the objective, and that is written down.
    pub fn late(&self, late: LateDeliveries) {
        self.of_deliveries.late(late);
    }

    /// A notice was published.
    pub fn notice_published(&self, status: NoticeStatus) {
        add(&self.notices[status as usize], 1);
    }

    pub(super) fn notice(&self, notice: &Notice) {
        match notice.kind {
            NoticeKind::BreakerOpened { .. } => {
                add(&self.breaker_opened, 1);
                self.breakers().insert(notice.endpoint);
            }
            NoticeKind::BreakerClosed => {
                self.breakers().remove(&notice.endpoint);
            }
            NoticeKind::LaneHeld { .. } => add(&self.lanes_held, 1),
            NoticeKind::SwitchedOff(status) => {
                let place = SWITCHED_OFF.iter().position(|known| *known == status);
                place.into_iter().for_each(|place| add(&self.switched_off[place], 1));
            }
        }
    }

    pub(super) fn endpoint_blocked(&self, endpoint: EndpointId, blocked: bool) {
        match blocked {
            true => self.blocked().insert(endpoint),
            false => self.blocked().remove(&endpoint),
        };
    }

    /// Endpoints that were blocked and not unblocked.
    pub fn blocked(&self) -> std::sync::MutexGuard<'_, FxHashSet<EndpointId>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Endpoints whose breaker opened and did not say that it closed.
    pub fn breakers(&self) -> std::sync::MutexGuard<'_, FxHashSet<EndpointId>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it, in Prometheus' text format.
    pub fn render(&self, sample: &Sample) -> String {
        let mut page = MetricsText(String::with_capacity(32 * 1024));
        page.one("railpost_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.count("railpost_events_accepted_total", &self.accepted);
        page.count("railpost_events_duplicate_total", &self.duplicates);
        page.count("railpost_deliveries_created_total", &self.deliveries);
        self.render_requests(&mut page);
        self.render_attempts(&mut page);
        self.of_deliveries.render(&mut page);
        self.labelled.render(&mut page);
        self.render_notices(&mut page, sample);
        render_engine(&mut page, sample);
        render_store(&mut page, sample);
        page.count("railpost_store_trouble_total", &self.store_trouble);
        page.count("railpost_pruned_events_total", &self.pruned_events);
        page.one("railpost_log_lines_dropped_total", &[], sample.log_lines_dropped);
        page.count("railpost_spans_sent_total", &self.spans_sent);
        page.count("railpost_spans_dropped_total", &self.spans_dropped);
        page.one("process_start_time_seconds", &[], sample.process.started_at_seconds);
        page.one("process_resident_memory_bytes", &[], sample.process.resident_bytes);
        page.one("process_open_fds", &[], sample.process.open_files);
        self.outbox.render(&mut page, &sample.sources);
        page.0
    }

    fn render_requests(&self, page: &mut MetricsText) {
        page.head("railpost_requests_total");
        for route in &self.routes {
            for (class, count) in CLASSES.iter().zip(&route.classes) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels =
                        [("method", &*route.method), ("route", route.route), ("status", class)];
                    page.sample("railpost_requests_total", &labels, count);
                }
            }
        }
        page.durations("railpost_request_duration_seconds", &self.request_seconds);
        page.count("railpost_connections_open", &self.connections_open);
    }

    fn render_attempts(&self, page: &mut MetricsText) {
        let outcomes = OUTCOMES.iter().map(|outcome| words::outcome_name(*outcome));
        page.labelled("railpost_attempts_total", "outcome", outcomes.zip(&self.outcomes));
        let statuses = CLASSES.into_iter().zip(&self.statuses);
        let failures = FAILURES.iter().map(|failure| words::failure_name(*failure));
        let results = statuses.chain(failures.zip(&self.failures));
        page.labelled("railpost_attempt_results_total", "result", results);
        page.durations("railpost_attempt_duration_seconds", &self.attempt_seconds);
        page.durations("railpost_delivery_duration_seconds", &self.delivery_seconds);
        let reasons = DEAD_REASONS.iter().map(|reason| words::dead_reason_name(*reason));
        page.labelled("railpost_deliveries_dead_total", "reason", reasons.zip(&self.dead));
    }

    fn render_notices(&self, page: &mut MetricsText, sample: &Sample) {
        page.one("railpost_breakers_open", &[], sample.breakers_open);
        page.count("railpost_breaker_opened_total", &self.breaker_opened);
        page.count("railpost_lanes_held_total", &self.lanes_held);
        let statuses = SWITCHED_OFF.iter().map(|status| words::status_name(*status));
        let counts = statuses.zip(&self.switched_off);
        page.labelled("railpost_endpoints_switched_off_total", "status", counts);
        page.one("railpost_endpoints_blocked", &[], sample.endpoints_blocked);
        page.head("railpost_alerts_open");
        for (severity, count) in &sample.alerts_open {
            page.sample("railpost_alerts_open", &[("severity", severity)], count);
        }
        let statuses = NOTICE_STATUSES.iter().map(|(_, name)| *name);
        page.labelled("railpost_notices_total", "status", statuses.zip(&self.notices));
    }
}

fn render_engine(page: &mut MetricsText, sample: &Sample) {
    page.some("railpost_attempts_in_flight", sample.in_flight);
    let engine = sample.engine.as_ref();
    page.some("railpost_engine_attempts_started_total", engine.map(|engine| engine.started));
    page.some("railpost_engine_acknowledged_total", engine.map(|engine| engine.acknowledged));
    page.some("railpost_engine_retries_planned_total", engine.map(|engine| engine.retried));
    page.some("railpost_engine_dead_total", engine.map(|engine| engine.dead));
    page.some("railpost_engine_loads_total", engine.map(|engine| engine.loads));
    page.head("railpost_engine_ignored_total");
    let ignored = engine.map(|engine| engine.ignored).unwrap_or_default();
    for (because, count) in IgnoredReason::ALL.iter().zip(ignored) {
        let because = words::serde_name(because);
        page.sample("railpost_engine_ignored_total", &[("because", &because)], count);
    }
}

fn render_store(page: &mut MetricsText, sample: &Sample) {
    page.head("railpost_deliveries");
    if let Some(counts) = &sample.counts {
        let Counts { pending, in_flight, waiting, held, dead, .. } = *counts;
        for (state, count) in [
            ("pending", pending),
            ("in_flight", in_flight),
            ("waiting", waiting),
            ("held", held),
            ("dead", dead),
        ] {
            page.sample("railpost_deliveries", &[("state", state)], count);
        }
    }
    page.one("railpost_oldest_open_age_seconds", &[], sample.oldest_open_age_seconds);
    page.one("railpost_oldest_dead_age_seconds", &[], sample.oldest_dead_age_seconds);
    page.one("railpost_store_up", &[], u8::from(sample.store_size_bytes.is_some()));
    page.some("railpost_store_size_bytes", sample.store_size_bytes);
    page.some("railpost_disk_free_bytes", sample.disk.map(|disk| disk.free_bytes));
    page.some("railpost_disk_size_bytes", sample.disk.map(|disk| disk.size_bytes));
}

/// The text as it grows.
#[derive(Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    #[cfg(test)]
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn head(&mut self, name: &str) {
        let known = METRICS.iter().find(|(known, ..)| *known == name);
        let (_, kind, help) = known.expect("every metric is listed by its name");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let _ = write!(self.0, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn one(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.head(name);
        self.sample(name, labels, value);
    }

    /// What is not known is left out.
    fn some(&mut self, name: &str, value: Option<impl Display>) {
        self.head(name);
        value.into_iter().for_each(|value| self.sample(name, &[], value));
    }

    pub(super) fn count(&mut self, name: &str, count: &AtomicU64) {
        self.one(name, &[], count.load(Ordering::Relaxed));
    }

    pub(super) fn labelled<'a>(
        &mut self,
        name: &str,
        label: &str,
        counts: impl Iterator<Item = (&'static str, &'a AtomicU64)>,
    ) {
        self.head(name);
        for (value, count) in counts {
            self.sample(name, &[(label, value)], count.load(Ordering::Relaxed));
        }
    }

    pub(super) fn durations(&mut self, name: &str, durations: &Durations) {
        self.head(name);
        self.labelled_durations(name, &[], durations);
    }

    pub(super) fn labelled_durations(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        durations: &Durations,
    ) {
        let bounds = BOUNDS_SECONDS.iter().map(ToString::to_string);
        let sum = durations.micros.load(Ordering::Relaxed) as f64 / 1e6;
        self.buckets(name, labels, bounds, &durations.counts, sum);
    }

    /// A histogram with these upper bounds; the last count is of what is above all of them.
    pub(super) fn buckets(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: impl Iterator<Item = String>,
        counts: &[AtomicU64],
        sum: impl Display,
    ) {
        let mut below = 0;
        let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
        for (bound, count) in bounds.zip(counts) {
            below += count.load(Ordering::Relaxed);
            let labels = [labels, &[("le", &*bound)]].concat();
            self.sample(&format!("{name}_bucket"), &labels, below);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, below);
    }
}

/// Upper bounds of the buckets: from a local hop to a retry a day later. The usual objective is one of them.
const BOUNDS_SECONDS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0,
    600.0, 1800.0, 3600.0, 21_600.0, 86_400.0,
];

/// How many durations fell into which bucket.
#[derive(Debug)]
pub(super) struct Durations {
    counts: [AtomicU64; BOUNDS_SECONDS.len() + 1],
    micros: AtomicU64,
}

impl Durations {
    pub(super) fn new() -> Self {
        Self { counts: Default::default(), micros: AtomicU64::default() }
    }

    pub(super) fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        add(&self.counts[bucket], 1);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_that_is_listed_is_given() {
        let page = Metrics::new([], &TelemetrySettings::default()).render(&Sample::default());
        let given: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let mut given: Vec<_> = given.into_iter().collect();
        let mut listed: Vec<_> = METRICS.iter().map(|(name, ..)| *name).collect();
        given.sort_unstable();
        listed.sort_unstable();
        assert_eq!(given, listed);
    }

    #[test]
    fn buckets_count_all_that_is_not_above_them() {
        let durations = Durations::new();
        for millis in [1, 2, 3, 600_000, 600_001, 90_000_000] {
            durations.record(Duration::from_millis(millis));
        }
        let mut page = MetricsText(String::new());
        page.durations("railpost_request_duration_seconds", &durations);
        for line in [
            "_bucket{le=\"0.001\"} 1",
            "_bucket{le=\"0.0025\"} 2",
            "_bucket{le=\"0.005\"} 3",
            "_bucket{le=\"300\"} 3",
            "_bucket{le=\"600\"} 4",
            "_bucket{le=\"1800\"} 5",
            "_bucket{le=\"86400\"} 5",
            "_bucket{le=\"+Inf\"} 6",
            "_sum 91200.007",
            "_count 6",
        ] {
            let line = format!("railpost_request_duration_seconds{line}\n");
            assert!(page.0.contains(&line), "{line} not in {}", page.0);
        }
    }

    #[test]
    fn requests_are_counted_by_route_and_class() {
        let routes = [("GET".to_owned(), "/v1/tenants")];
        let metrics = Metrics::new(routes, &TelemetrySettings::default());
        metrics.request(0, 200, Duration::ZERO);
        metrics.request(0, 404, Duration::ZERO);
        metrics.request(0, 404, Duration::ZERO);
        let page = metrics.render(&Sample::default());
        let line = "railpost_requests_total{method=\"GET\",route=\"/v1/tenants\",status=\"4xx\"} 2";
        assert!(page.contains(line), "{page}");
    }
}
