//! Sources that events are relayed from: the relay, with this server's dispatcher, event types, log and metrics.

mod events;
mod observer;
mod status;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use railpost_api::App;
use railpost_relay::{
    Relay, RelayContext, SourceConfig, SourceState, SourceStatus, StoreAddress, Trouble,
};
use railpost_store::{Source, SourceName, StoreError};

use crate::config::{Config, is_postgres_url};
use events::{CheckedByTypes, DispatchedEvents};
use observer::SourceLog;

/// The sources of a server, from its configuration. They are read between `start` and `stop`.
pub(crate) struct OutboxRelay {
    configs: Vec<SourceConfig>,
    store_address: Option<StoreAddress>,
    running: Mutex<Option<Relay>>,
}

impl OutboxRelay {
    /// The sources of a configuration. None is read yet.
    pub(crate) fn new(config: &Config) -> Result<Self, railpost_relay::ConfigError> {
        let configs = railpost_relay::check_all(&config.outbox)?;
        Ok(Self { configs, store_address: store_address(config), running: Mutex::default() })
    }

    /// Begins to read the sources. A source in trouble says so in its status; the others are read.
    pub(crate) fn start(&self, app: &Arc<App>, url: &str) {
        let names = self.configs.iter().map(|config| &config.name);
        let context = RelayContext {
            accept: Arc::new(DispatchedEvents(app.dispatcher.clone())),
            checks: Arc::new(CheckedByTypes(app.clone())),
            sources: app.store.clone(),
            observer: Arc::new(SourceLog::new(app.telemetry.clone(), names)),
            holder: holder(&*app.source, url),
            store_address: self.store_address.clone(),
        };
        *self.running() = Some(Relay::start(self.configs.clone(), &context));
    }

    /// Stops reading, and ends the leases.
    pub(crate) async fn stop(&self) {
        let running = self.running().take();
        if let Some(relay) = running {
            relay.stop().await;
        }
    }

    /// Warns of sources that were taken out of the configuration and left something behind.
    pub(crate) async fn warnings(&self, app: &App) -> Result<Vec<String>, StoreError> {
        let configured = |name: &SourceName| self.configs.iter().any(|config| config.name == *name);
        let known = app.store.known_sources().await?.into_iter();
        let warn = |name| {
            format!(
                "outbox source `{name}` is not in the configuration, but the store knows it. Its database may keep a \
                 replication slot, and its log, for it: put the section back and run `railpost outbox drop {name}`"
            )
        };
        Ok(known.filter(|name| !configured(name)).map(warn).collect())
    }

    /// The sources that cannot be read and why, but for those that are read elsewhere.
    pub(crate) fn troubles(&self) -> Vec<(String, String)> {
        let status = self.running().as_ref().map(Relay::status).unwrap_or_default();
        let trouble = |status: SourceStatus| match status.state {
            SourceState::Trouble { trouble: Trouble::Elsewhere(_), .. } => None,
            SourceState::Trouble { trouble, .. } => {
                Some((status.name.to_string(), trouble.to_string()))
            }
            SourceState::Starting | SourceState::Reading => None,
        };
        status.into_iter().filter_map(trouble).collect()
    }

    fn running(&self) -> MutexGuard<'_, Option<Relay>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OutboxRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRelay").field("sources", &self.configs).finish_non_exhaustive()
    }
}

/// Where the store's own PostgreSQL is, if it has one.
pub(crate) fn store_address(config: &Config) -> Option<StoreAddress> {
    let url = &config.store.url;
    is_postgres_url(url).then(|| StoreAddress { url: url.clone(), root_certificates_pem: None })
}

/// Who reads: people know the server by its URL, and two processes behind one URL are told apart.
fn holder(source: &dyn Source, url: &str) -> String {
    let mut random = [0; 4];
    source.fill_random(&mut random);
    format!("{url} {:08x}", u32::from_be_bytes(random))
}
