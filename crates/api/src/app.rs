//! What every request has at hand.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_dispatch::{Dispatcher, Guard};
use railpost_schema::{Catalogue, ValidationThreads};
use railpost_store::{MasterKey, Source, Store};
use railpost_telemetry::{Level, Telemetry, Value};
use tokio::sync::{Mutex, Notify};

use super::alerts::{OpenAlertsCache, RunningAlerts};
use super::auth::RateLimiter;
use super::docs_page::DocsPages;
use super::health::ReadinessCache;
use super::idempotency::RequestsInProgress;
use super::key_ring::KeyRing;
use super::master_key::MasterKeyRotator;
use super::metrics::SampleCache;
use super::outbox::RunningSources;
use super::settings::ApiSettings;
use super::thin_links::ThinLinks;

/// Follows the tenants that are created: a second one ends what only a single one may have.
#[async_trait]
pub trait TenantWatch: fmt::Debug + Send + Sync {
    /// A tenant was created. It is answered for when this ends.
    async fn tenant_created(&self);
}

/// What an API is made of.
pub struct AppParts {
    /// What was configured.
    pub settings: ApiSettings,
    /// Where everything is written.
    pub store: Arc<dyn Store>,
    /// Accepts events and sees to it that they arrive.
    pub dispatcher: Dispatcher,
    /// Where attempts may go.
    pub guard: Guard,
    /// The time, and chance.
    pub source: Arc<dyn Source>,
    /// Log lines, metrics and traces.
    pub telemetry: Arc<Telemetry>,
    /// Makes and checks the URLs of thin envelopes.
    pub thin_links: ThinLinks,
    /// Encrypts answers that may show secrets.
    pub master_key: MasterKey,
    /// Where the master key is kept, and what rotates it.
    pub key_rotation: Arc<dyn MasterKeyRotator>,
    /// Told of new tenants.
    pub tenant_watch: Arc<dyn TenantWatch>,
    /// The sources that events are relayed from.
    pub running_sources: Arc<dyn RunningSources>,
    /// The rules of alerts in use, and who is reached.
    pub running_alerts: Arc<dyn RunningAlerts>,
}

/// One server's parts. Handlers share it; nothing in it is global.
pub struct App {
    /// What was configured.
    pub settings: ApiSettings,
    /// Where everything is written.
    pub store: Arc<dyn Store>,
    /// Accepts events and sees to it that they arrive.
    pub dispatcher: Dispatcher,
    /// Where attempts may go.
    pub guard: Guard,
    /// The time, and chance.
    pub source: Arc<dyn Source>,
    /// Log lines, metrics and traces.
    pub telemetry: Arc<Telemetry>,
    /// API keys that were looked up lately.
    pub keys: KeyRing,
    /// A replay was asked for or cancelled: the runner of replays looks again.
    pub replay_changes: Notify,
    /// An endpoint was removed: its open deliveries are to be closed.
    pub removals: Notify,
    /// A tenant was marked: all that it has is to be erased.
    pub erasures: Notify,
    /// The settings of an endpoint changed: its secrets may be due to be rotated.
    pub secret_schedules: Notify,
    pub(crate) thin: ThinLinks,
    /// What secrets are encrypted under.
    pub master_key: MasterKey,
    pub(crate) key_rotation: Arc<dyn MasterKeyRotator>,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) in_progress: RequestsInProgress,
    pub(crate) catalogue: Catalogue,
    pub(crate) validation: ValidationThreads,
    pub(crate) pages: DocsPages,
    pub(crate) sample_cache: SampleCache,
    pub(crate) readiness: ReadinessCache,
    pub(crate) tenant_watch: Arc<dyn TenantWatch>,
    pub(crate) running_sources: Arc<dyn RunningSources>,
    pub(crate) running_alerts: Arc<dyn RunningAlerts>,
    pub(crate) open_alerts: OpenAlertsCache,
    /// Held by what rotates secrets or takes one away, and by a request that has an endpoint sign.
    pub(crate) secret_changes: Mutex<()>,
}

impl App {
    /// An API of these parts that has answered nothing yet.
    pub fn new(parts: AppParts) -> Self {
        let validation = validation_threads(parts.telemetry.clone());
        let AppParts { settings, store, dispatcher, guard, source, telemetry, .. } = parts;
        Self {
            settings,
            store,
            dispatcher,
            guard,
            source,
            telemetry,
            keys: Default::default(),
            replay_changes: Default::default(),
            removals: Default::default(),
            erasures: Default::default(),
            secret_schedules: Default::default(),
            thin: parts.thin_links,
            master_key: parts.master_key,
            key_rotation: parts.key_rotation,
            rate_limiter: Default::default(),
            in_progress: Default::default(),
            catalogue: Default::default(),
            validation,
            pages: Default::default(),
            sample_cache: Default::default(),
            readiness: Default::default(),
            tenant_watch: parts.tenant_watch,
            running_sources: parts.running_sources,
            running_alerts: parts.running_alerts,
            open_alerts: Default::default(),
            secret_changes: Default::default(),
        }
    }

    /// Unpredictable bytes, for ids and secrets.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.source.fill_random(&mut bytes);
        bytes
    }
}

fn validation_threads(telemetry: Arc<Telemetry>) -> ValidationThreads {
    ValidationThreads::new(move |tenant| {
        let fields = [("tenant", Value::Text(tenant.as_str()))];
        telemetry.log.line(Level::Warn, "validation_overran", &fields);
    })
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl fmt::Debug for AppParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppParts").finish_non_exhaustive()
    }
}
