//! A running server: opens the store, starts the dispatcher, listens, and drains.

mod admission;
mod listen;
mod activity;
mod client_stream;
mod answer_body;
mod refusal;
mod drive;
mod connection;
mod opening;
mod first_keys;
mod offline;
mod restore_elsewhere;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use railpost_alerts::NoticeContext;
use railpost_api::{App, AppParts, ThinLinks, TrustedProxies};
use railpost_dashboard::Dashboard;
use railpost_dispatch::{
    BindAddresses, Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Parts, Sender,
    SenderConfig,
};
use railpost_store::{Source, SystemSource};
use railpost_telemetry::limits::SPANS_LAST_TIMEOUT;
use railpost_telemetry::{BadHeaders, Collector, Log, Telemetry, TelemetrySettings};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::alerts::{AlertWatch, AlertWatchParts};
use crate::config::Config;
use crate::key_rotation::{self, KeyRotation};
use crate::limits::DRAIN_RECORD_GRACE;
use crate::loopback::{ClosedBy, LoopbackWatch};
use crate::master_key::KeyPlace;
use crate::notices::{self, Notices};
use crate::objective;
use crate::outbox::OutboxRelay;
use crate::replays;
use crate::running_alerts::ConfiguredAlerts;
use crate::secret_rotation;
use crate::upkeep;
use admission::Admission;
use first_keys::StartReport;
use listen::{HttpListener, RequestHandlers};

pub use first_keys::DEFAULT_TENANT;
pub(crate) use offline::{RestoredStore, open_stopped, renew_lines, restore, verify};
pub use opening::OpenStore;
pub(crate) use restore_elsewhere::{RestoredContents, restore_elsewhere};

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    config: Config,
    app: Arc<App>,
    dashboard: Dashboard,
    address: SocketAddr,
    url: String,
    opened: StartReport,
    loopback_closed_by: Option<ClosedBy>,
    /// Tells the listener and the background jobs to stop.
    stop: watch::Sender<bool>,
    /// Tells the sender of spans that no more will come.
    last: watch::Sender<bool>,
    outbox: Arc<OutboxRelay>,
    alerts: Arc<AlertWatch>,
    listening: JoinHandle<()>,
    replaying: JoinHandle<()>,
    dispatching: JoinHandle<()>,
    upkeep: [JoinHandle<()>; 8],
    exporting: Option<JoinHandle<()>>,
}

/// Why a server did not start, and what to do about it.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

fn failed(what: &str, error: impl fmt::Display) -> StartError {
    StartError(format!("{what}: {error}"))
}

impl Server {
    /// Starts a server. When this answers, it accepts requests.
    pub async fn start(config: Config, log: Log) -> Result<Self, StartError> {
        Self::start_with(Arc::new(SystemSource), config, log).await
    }

    /// Starts a server that has its time and its randomness from `source`.
    pub async fn start_with(
        source: Arc<dyn Source>,
        config: Config,
        log: Log,
    ) -> Result<Self, StartError> {
        let listener = HttpListener::open(&config).await?;
        let opened = opening::open(&config, &source).await?;
        Self::start_at(listener, opened, config, log).await
    }

    /// Starts a server on a store that is open already.
    pub async fn start_on(store: OpenStore, config: Config, log: Log) -> Result<Self, StartError> {
        let listener = HttpListener::open(&config).await?;
        Self::start_at(listener, (store, KeyPlace::Memory), config, log).await
    }

    async fn start_at(
        listener: HttpListener,
        (opened, key_place): (OpenStore, KeyPlace),
        config: Config,
        log: Log,
    ) -> Result<Self, StartError> {
        let outbox = OutboxRelay::new(&config).map_err(|error| StartError(error.to_string()))?;
        let outbox = Arc::new(outbox);
        let OpenStore { store, master_key, source } = opened;
        let sections = notices::resolve(&config.notices, &config.alerts).map_err(StartError)?;
        let (loopback, loopback_closed_by) =
            LoopbackWatch::begin(&config, store.clone(), log.clone()).await;
        let loopback = Arc::new(loopback);
        let guard = guard(&config)?.with_loopback(loopback.switch());
        let trusted_proxies = TrustedProxies::new(&config.server.trusted_proxies);
        let trusted_proxies =
            trusted_proxies.map_err(|error| failed("server.trusted_proxies", error))?;
        let admission = Admission::new(&config.server)?;
        let bind = BindAddresses::new(&config.delivery.bind);
        let bind = Arc::new(bind.map_err(|error| failed("delivery.bind", error))?);
        let sender =
            Sender::new(SenderConfig { guard: guard.clone(), bind, ..SenderConfig::default() });
        let routes = railpost_api::routes();
        let routes =
            routes.iter().map(|route| (route.operation.method.to_string(), route.operation.path));
        let settings = TelemetrySettings {
            collector: collector(&config)?,
            objective_within: config.objective.within,
            labels: config.telemetry.label_settings(),
        };
        let telemetry = Telemetry::new(log, routes, &settings, source.clone());
        let (telemetry, exporter) = telemetry.map_err(StartError)?;
        let telemetry = Arc::new(telemetry);
        let url = public_url(&config, listener.address);
        let links_ttl = config.delivery.thin_url_ttl;
        let thin = ThinLinks::new(master_key.clone(), &url, links_ttl, source.clone());
        let key_rotation = KeyRotation::new(master_key.clone(), key_place, source.clone());
        let key_rotation = Arc::new(key_rotation);
        let parts = Parts {
            store: store.clone(),
            sender: sender.map_err(|error| failed("sender", error))?,
            source: source.clone(),
            observer: telemetry.clone(),
            thin_url: Arc::new(thin.clone()),
        };
        let mut dispatch = DispatcherConfig::default();
        dispatch.engine.in_flight_max = config.delivery.in_flight_max;
        let (dispatcher, dispatching) =
            Dispatcher::start(parts, &dispatch).await.map_err(|error| failed("store", error))?;
        let context = notice_context(&config, &url);
        let configured_alerts = ConfiguredAlerts::new(config.alerts.clone(), context.clone());
        let configured_alerts = Arc::new(configured_alerts);
        let app = Arc::new(App::new(AppParts {
            settings: config.api_settings(),
            store,
            dispatcher,
            guard,
            source,
            telemetry,
            thin_links: thin,
            master_key,
            key_rotation: key_rotation.clone(),
            tenant_watch: loopback.clone(),
            running_sources: outbox.clone(),
            running_alerts: configured_alerts.clone(),
        }));
        let dashboard = Dashboard::new(app.clone(), is_reached_by_tls(&config));
        let mut opened = first_keys::prepare(&app, &config.server.admin_key).await?;
        let left_behind = outbox.warnings(&app).await.map_err(|error| failed("store", error))?;
        opened.warnings.extend(left_behind);
        let (managed, told) = notices::prepare(&app, &sections).await.map_err(StartError)?;
        opened.warnings.extend(told);
        let notices = Arc::new(Notices::new(app.clone(), managed, context));
        configured_alerts.publish_with(&notices);
        outbox.start(&app, &url);
        let alerts = Arc::new(AlertWatch::new(AlertWatchParts {
            app: app.clone(),
            settings: config.alerts.clone(),
            on_time_share: config.objective.share,
            data_dir: config.server.data_dir.clone(),
            outbox: outbox.clone(),
            publish: notices.clone(),
        }));
        let (stop, stopping) = watch::channel(false);
        let (last, ending) = watch::channel(false);
        let upkeep = [
            tokio::spawn(upkeep::prune_regularly(app.clone(), stopping.clone())),
            tokio::spawn(upkeep::write_figures_regularly(app.clone(), stopping.clone())),
            tokio::spawn(upkeep::close_removed(app.clone(), stopping.clone())),
            tokio::spawn(upkeep::erase_tenants(app.clone(), stopping.clone())),
            tokio::spawn(secret_rotation::run(app.clone(), stopping.clone())),
            tokio::spawn(key_rotation::run(app.clone(), key_rotation, links_ttl, stopping.clone())),
            tokio::spawn(alerts.clone().run(stopping.clone())),
            tokio::spawn(objective::judge_regularly(app.clone(), stopping.clone())),
        ];
        let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(ending)));
        let address = listener.address;
        let replaying = tokio::spawn(replays::run(app.clone(), notices.clone(), stopping.clone()));
        let served =
            RequestHandlers::new(app.clone(), &dashboard, trusted_proxies, loopback, admission);
        let served = Arc::new(served);
        let listening = tokio::spawn(listener.listen(served, stopping));
        Ok(Self {
            config,
            app,
            dashboard,
            address,
            url,
            opened,
            loopback_closed_by,
            stop,
            last,
            outbox,
            alerts,
            listening,
            replaying,
            dispatching,
            upkeep,
            exporting,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL by which it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The admin key that this start created, if any: it is shown once.
    pub fn admin_key(&self) -> Option<&str> {
        self.opened.made_key.as_deref()
    }

    /// What was found at the start that an operator should know.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.opened.warnings
    }

    /// Why receivers on this machine were refused at the start, if they were.
    pub(crate) fn loopback_closed_by(&self) -> Option<ClosedBy> {
        self.loopback_closed_by
    }

    /// Ends when the store has stopped for good, with the reason: the process must end, so that the next
    /// one recovers.
    pub async fn store_stopped(&self) -> String {
        self.app.telemetry.store_stopped().await
    }

    /// What was configured.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its pages for people.
    pub fn dashboard(&self) -> &Dashboard {
        &self.dashboard
    }

    /// Looks for alerts once, beside the regular looks.
    pub async fn look_for_alerts(&self) {
        self.alerts.look().await;
    }

    /// What its requests have at hand.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Takes no more requests, lets those under way end, and attempts too, within the configured
    /// time; attempts that have not ended then are aborted, and the next start makes them again. Says
    /// whether all of it ended.
    pub async fn drain(self) -> bool {
        let patience = Duration::from(self.config.server.drain_timeout);
        let deadline = Instant::now() + patience;
        let _ = self.stop.send(true);
        self.dashboard.close();
        let drained = async {
            // A client that does not read its answer must not cost the attempts their time.
            let answered = tokio::time::timeout(patience / 2, self.listening);
            let (answered, ()) = tokio::join!(answered, self.outbox.stop());
            let answered = answered.is_ok();
            let _ = self.replaying.await;
            let left = deadline.saturating_duration_since(Instant::now());
            let attempts_ended = self.app.dispatcher.stop(left).await;
            let _ = self.dispatching.await;
            for task in self.upkeep {
                let _ = task.await;
            }
            self.app.telemetry.write_figures(&*self.app.store).await;
            answered && attempts_ended
        };
        // Attempts are aborted at the deadline; what had ended by then is still recorded.
        let patience = patience + Duration::from(DRAIN_RECORD_GRACE);
        let drained = tokio::time::timeout(patience, drained).await.unwrap_or(false);
        let _ = self.last.send(true);
        if let Some(exporting) = self.exporting {
            let _ = tokio::time::timeout(Duration::from(SPANS_LAST_TIMEOUT), exporting).await;
        }
        drained
    }
}

/// The URL by which this server is reached.
fn public_url(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.server.tls_certificate.is_empty() { "http" } else { "https" };
    match config.server.public_url.as_str() {
        "" => format!("{scheme}://{address}"),
        url => url.trim_end_matches('/').to_owned(),
    }
}

/// What notices say of this server.
fn notice_context(config: &Config, url: &str) -> NoticeContext {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next();
    let instance = match config.server.instance.as_str() {
        "" => host.unwrap_or_default().to_owned(),
        name => name.to_owned(),
    };
    let runbook_url = config.server.runbook_url.clone();
    NoticeContext { instance, public_url: url.to_owned(), runbook_url }
}

/// The collector that spans go to, if there is one.
fn collector(config: &Config) -> Result<Option<Collector>, StartError> {
    let telemetry = &config.telemetry;
    let headers = telemetry.otlp_headers.parse();
    let headers = headers.map_err(|error: BadHeaders| failed("telemetry.otlp_headers", error))?;
    let url = telemetry.otlp_url.clone();
    Ok((!url.is_empty()).then_some(Collector { url, headers }))
}

/// Whether browsers reach this server by TLS alone.
fn is_reached_by_tls(config: &Config) -> bool {
    let server = &config.server;
    server.public_url.starts_with("https:") || !server.tls_certificate.is_empty()
}

fn guard(config: &Config) -> Result<Guard, StartError> {
    let bad = |error| failed("delivery.allow_networks", error);
    let mut networks = Vec::new();
    for network in &config.delivery.allow_networks {
        networks
            .push(NamedNetwork::new("allow_networks", network).map_err(|e| bad(e.to_string()))?);
    }
    let guard = Guard::new(GuardConfig { networks, https_only: config.delivery.https_only });
    Ok(if config.delivery.allow_public { guard } else { guard.without_public() })
}
