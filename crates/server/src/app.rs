//! The shared state of the server, for every request.

use std::fmt;
use std::sync::Arc;

use railpost_dispatch::{Dispatcher, Guard};
use railpost_store::{Source, Store};
use tokio::sync::{Mutex, Notify};

use crate::api::auth::Rates;
use crate::api::docs_page::Pages;
use crate::api::event_types::{Catalogue, ValidationThreads};
use crate::api::health::Readiness;
use crate::api::idempotency::UnderWay;
use crate::api::key_ring::KeyRing;
use crate::api::metrics::Sampled;
use crate::client_address::TrustedProxies;
use crate::config::Config;
use crate::dashboard::SessionStore;
use crate::loopback::LoopbackWatch;
use crate::replays::ReplayBell;
use crate::seal::Seal;
use crate::telemetry::Telemetry;
use crate::thin::ThinLinks;

/// One server's parts. Handlers share it; nothing in it is global.
pub struct App {
    /// What was configured.
    pub config: Config,
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
    pub(crate) thin: ThinLinks,
    pub(crate) seal: Seal,
    pub(crate) keys: KeyRing,
    pub(crate) rates: Rates,
    pub(crate) under_way: UnderWay,
    pub(crate) session_store: SessionStore,
    pub(crate) replays: ReplayBell,
    pub(crate) catalogue: Catalogue,
    pub(crate) validation: ValidationThreads,
    pub(crate) pages: Pages,
    pub(crate) sampled: Sampled,
    pub(crate) readiness: Readiness,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) loopback: LoopbackWatch,
    /// An endpoint was removed: its open deliveries are to be closed.
    pub(crate) removals: Notify,
    /// A tenant was marked: all that it has is to be erased.
    pub(crate) erasures: Notify,
    /// Held by a request that takes a secret away or has an endpoint sign.
    pub(crate) secret_changes: Mutex<()>,
}

impl App {
    /// Unpredictable bytes, for ids and secrets.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.source.fill_random(&mut bytes);
        bytes
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}
