//! Alerts: what is seen is compared with what is on record, again and again, and what changed is written down
//! and published.
//!
//! `observe` collects what is seen, `railpost-alerts` says what holds and what becomes of it, and a
//! [`Publish`] brings notices to people.

mod figures;
mod lanes;
mod observe;
mod publish;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use railpost_alerts::{AlertSettings, NoticeStatus, Rule, Tracker, evaluate};
use railpost_api::App;
use railpost_engine::Timestamp;
use railpost_store::limits::ALERTS_BATCH_MAX;
use railpost_store::{Alert, Severity, StoreError, Told};
use railpost_telemetry::{Level, Value};
use railpost_wire::AlertId;
use tokio::sync::{Mutex, watch};

use crate::limits::ALERTS_NOTICE_DELAY;
use crate::outbox::OutboxRelay;
use crate::upkeep::stops_within;
use observe::Observer;
pub(crate) use publish::Publish;

/// Watches for alerts.
pub(crate) struct AlertWatch {
    app: Arc<App>,
    settings: AlertSettings,
    /// The share of deliveries that the objective allows to be late.
    late_allowed: f64,
    publish: Arc<dyn Publish>,
    state: Mutex<WatchState>,
}

struct WatchState {
    observer: Observer,
    /// Nothing until the alerts on record were read.
    tracker: Option<Tracker>,
}

/// What a watch needs.
pub(crate) struct AlertWatchParts {
    pub(crate) app: Arc<App>,
    pub(crate) settings: AlertSettings,
    /// The share of deliveries that is to be on time.
    pub(crate) on_time_share: f64,
    /// The folder whose disk is watched.
    pub(crate) data_dir: PathBuf,
    pub(crate) outbox: Arc<OutboxRelay>,
    pub(crate) publish: Arc<dyn Publish>,
}

impl AlertWatch {
    pub(crate) fn new(parts: AlertWatchParts) -> Self {
        let AlertWatchParts { app, settings, on_time_share, data_dir, outbox, publish } = parts;
        let observer = Observer::new(app.clone(), outbox, data_dir);
        let state = Mutex::new(WatchState { observer, tracker: None });
        Self { app, settings, late_allowed: 1.0 - on_time_share, publish, state }
    }

    /// Looks until the server stops: regularly, and soon after the engine has something to tell.
    pub(crate) async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let every = Duration::from(self.settings.look_every);
        loop {
            self.look().await;
            let noticed = tokio::time::timeout(every, self.app.telemetry.noticed());
            let rest = tokio::select! {
                _ = stopping.wait_for(|stops| *stops) => return,
                // What happens within a moment is looked at together.
                noticed = noticed => noticed.map_or(Duration::ZERO, |()| ALERTS_NOTICE_DELAY.into()),
            };
            if stops_within(rest, &mut stopping).await {
                return;
            }
        }
    }

    /// Looks once: what holds, what is new and what is gone; writes it down and publishes it.
    pub(crate) async fn look(&self) {
        let WatchState { observer, tracker } = &mut *self.state.lock().await;
        let now = self.app.source.now();
        if tracker.is_none() {
            match self.app.store.open_alerts().await {
                Ok(on_record) => *tracker = Some(Tracker::new(on_record, now)),
                Err(problem) => return observer.store_failed(&problem),
            }
        }
        let Some(tracker) = tracker else { return };
        let seen = observer.observe(&self.settings, tracker, now).await;
        let evaluation = evaluate(&self.settings, &seen, self.late_allowed, now);
        let changed = tracker.observe(&evaluation, &self.settings, now, &mut || self.new_id(now));
        changed.iter().for_each(|alert| self.log(alert));
        if let Err(problem) = self.write_and_publish(tracker, now).await {
            observer.store_failed(&problem);
            self.log_unsaved(&problem);
            self.send_store_trouble(tracker).await;
        }
    }

    /// What cannot be written down cannot be published: that the store is in trouble is sent at once, as well as it
    /// can be. Once the store is back it is published like any other.
    async fn send_store_trouble(&self, tracker: &Tracker) {
        let untold =
            |alert: &&Alert| alert.rule == Rule::StoreTrouble.name() && alert.told == Told::Nothing;
        for alert in tracker.open().filter(untold) {
            self.publish.send_directly(alert, NoticeStatus::Fired).await;
        }
    }

    fn new_id(&self, now: Timestamp) -> AlertId {
        let mut random = [0; 10];
        self.app.source.fill_random(&mut random);
        AlertId::generate(now.as_millis(), random)
    }

    /// Writes down what changed, publishes what is due, and writes down that it was published, until nothing is
    /// left. What fails is tried again with the next look.
    async fn write_and_publish(
        &self,
        tracker: &mut Tracker,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let silences = self.app.store.silences().await?;
        loop {
            let unsaved = tracker.unsaved();
            for batch in unsaved.chunks(ALERTS_BATCH_MAX) {
                self.app.store.save_alerts(batch.to_vec()).await?;
                tracker.saved(batch);
            }
            for (alert, status) in tracker.due(&silences, now) {
                self.publish.publish(&alert, status).await?;
                tracker.told(alert.id, status);
            }
            if tracker.unsaved().is_empty() {
                return Ok(());
            }
        }
    }

    fn log_unsaved(&self, problem: &StoreError) {
        let fields = [("problem", Value::Display(problem))];
        self.app.telemetry.log.line(Level::Warn, "alerts_unsaved", &fields);
    }

    fn log(&self, alert: &Alert) {
        let tenant = alert.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let fields = [
            ("alert", Value::Display(&alert.id)),
            ("rule", Value::Text(&alert.rule)),
            ("severity", Value::Text(alert.severity.as_str())),
            ("tenant", Value::Text(tenant)),
            ("subject", Value::Text(&alert.subject)),
            ("summary", Value::Text(&alert.summary)),
        ];
        let (level, event) = match (alert.is_open(), alert.severity) {
            (true, Severity::Critical | Severity::Error) => (Level::Error, "alert_fired"),
            (true, Severity::Warning) => (Level::Warn, "alert_fired"),
            (true, Severity::Info) => (Level::Info, "alert_fired"),
            (false, _) => (Level::Info, "alert_resolved"),
        };
        self.app.telemetry.log.line(level, event, &fields);
    }
}

impl fmt::Debug for AlertWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertWatch").field("settings", &self.settings).finish_non_exhaustive()
    }
}
