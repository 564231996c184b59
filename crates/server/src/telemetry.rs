//! What operators see: log lines, metrics, figures over time and traces.
//!
//! Every name stands in `names` and in `docs/reference/telemetry.md`.

mod names;
mod words;
mod log;
mod metrics;
mod process;
mod attempt;
mod figures;
mod traces;

pub use log::{Level, Log, Look, Value};
pub(crate) use metrics::{Metrics, Sample};
pub(crate) use process::Process;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use railpost_dispatch::{AttemptEnded, Observer};
use railpost_engine::{Notice, NoticeKind, Timestamp};
use railpost_store::{Receipt, Source, Store, StoreError};
use railpost_wire::{EndpointId, TenantId};
use tokio::sync::watch;

use crate::api::time::Time;
use crate::client_address::ClientAddress;
use crate::limits::TROUBLE_TOLD_EVERY;
use crate::serve::duration;
use figures::Gathered;
use traces::{Exporter, Traces};

/// All of it, for one server.
pub struct Telemetry {
    /// Log lines.
    pub log: Log,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started_at: SystemTime,
    gathered: Gathered,
    traces: Option<Traces>,
    trouble: Mutex<Rarely>,
    /// Why the store has stopped for good, if it has.
    stopped: watch::Sender<Option<String>>,
    source: Arc<dyn Source>,
}

/// A request as telemetry knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The number of its route.
    pub(crate) number: usize,
    pub(crate) method: &'a str,
    pub(crate) route: &'a str,
    /// Whether it publishes events.
    pub(crate) publishes: bool,
    /// Where it came from.
    pub(crate) client: ClientAddress,
    /// The trace that it belongs to.
    pub(crate) traceparent: Option<&'a str>,
}

impl Telemetry {
    /// Telemetry of an API with these routes. With a collector's URL, also what sends spans to it.
    pub(crate) fn new(
        log: Log,
        routes: impl IntoIterator<Item = (String, &'static str)>,
        otlp_url: &str,
        source: Arc<dyn Source>,
    ) -> Result<(Self, Option<Exporter>), String> {
        let metrics = Arc::new(Metrics::new(routes));
        let (traces, exporter) = match otlp_url {
            "" => (None, None),
            url => {
                let (traces, exporter) = traces::traces(url, &metrics, &log)?;
                (Some(traces), Some(exporter))
            }
        };
        let telemetry = Self {
            log,
            metrics,
            started_at: SystemTime::now(),
            gathered: Gathered::default(),
            traces,
            trouble: Mutex::default(),
            stopped: watch::Sender::default(),
            source,
        };
        Ok((telemetry, exporter))
    }

    /// A request was answered.
    pub(crate) fn request(&self, asked: &Asked<'_>, status: u16, took: Duration) {
        self.metrics.request(asked.number, status, took);
        if self.log.takes(Level::Debug) {
            let fields = [
                ("method", Value::Text(asked.method)),
                ("route", Value::Text(asked.route)),
                ("status", Value::Number(u64::from(status))),
                ("latency_ms", Value::Millis(took.as_micros() as u64)),
                ("address", Value::Shown(&asked.client.0)),
            ];
            self.log.line(Level::Debug, "request", &fields);
        }
        if let Some(traces) = self.traces.as_ref().filter(|_| asked.publishes) {
            let now = self.source.now();
            let began = now.as_millis().saturating_sub(took.as_millis() as u64);
            let time = (Timestamp::from_millis(began), now);
            traces.accepted(asked, status, time, || self.random(), &self.metrics);
        }
    }

    /// Adds what was gathered to the store's figures over time.
    pub(crate) async fn write_figures(&self, store: &dyn Store) {
        if let Err((problem, entries)) = self.gathered.write_to(store).await {
            self.note_stopped(&problem);
            let fields =
                [("problem", Value::Shown(&problem)), ("entries", Value::Number(entries as u64))];
            self.log.line(Level::Warn, "figures_lost", &fields);
        }
    }

    /// Takes note if the store has stopped for good.
    pub(crate) fn note_stopped(&self, trouble: &StoreError) {
        if let StoreError::Stopped(_) = trouble {
            self.note_store_stopped(&trouble.to_string());
        }
    }

    /// The store has stopped for good. Said once.
    pub(crate) fn note_store_stopped(&self, problem: &str) {
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
    pub(crate) async fn store_stopped(&self) -> String {
        let mut stopped = self.stopped.subscribe();
        let reason = stopped.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
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
        self.gathered.accepted(tenant, receipts);
    }

    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        self.metrics.attempt_ended(ended);
        self.gathered.attempt_ended(ended);
        attempt::write(&self.log, ended);
        if let Some(traces) = &self.traces {
            traces.attempt_ended(ended, || self.random(), &self.metrics);
        }
    }

    fn notice(&self, notice: &Notice) {
        self.metrics.notice(notice);
        let endpoint = ("endpoint", Value::Shown(&notice.endpoint));
        match &notice.kind {
            NoticeKind::BreakerOpened { until } => {
                let fields = [endpoint, ("until", Value::Shown(&Time(*until)))];
                self.log.line(Level::Warn, "breaker_opened", &fields);
            }
            NoticeKind::BreakerClosed => self.log.line(Level::Info, "breaker_closed", &[endpoint]),
            NoticeKind::LaneHeld { lane, delivery } => {
                let lane = ("lane", Value::Number(lane.0));
                let fields = [endpoint, lane, ("delivery", Value::Shown(delivery))];
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
        let endpoint = ("endpoint", Value::Shown(&endpoint));
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
        let times = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).now();
        if let Some(times) = times {
            let fields = [("problem", Value::Shown(trouble)), ("times", Value::Number(times))];
            self.log.line(Level::Error, "store_trouble", &fields);
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// What happens often is told of now and then.
#[derive(Debug, Default)]
struct Rarely {
    told_at: Option<Instant>,
    /// Times that nobody was told of.
    times: u64,
}

impl Rarely {
    /// It happened. If it is time to tell of it: how often it happened since it was last told.
    fn now(&mut self) -> Option<u64> {
        self.times += 1;
        let every = duration(TROUBLE_TOLD_EVERY);
        if self.told_at.is_some_and(|at| at.elapsed() < every) {
            return None;
        }
        self.told_at = Some(Instant::now());
        Some(std::mem::take(&mut self.times))
    }
}
