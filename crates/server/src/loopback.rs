//! Whether requests may go to receivers on loopback, and what blocks that.
//!
//! A new user has a receiver on the same machine. So `delivery.allow_loopback = "auto"` allows loopback while every
//! user who can create an endpoint is on this machine already. Once a request or a second tenant shows otherwise,
//! loopback stays blocked until the process ends.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;
use railpost_api::{TenantWatch, is_proxied};
use railpost_dispatch::Loopback;
use railpost_store::{PageRequest, Store, is_reserved_tenant};
use railpost_telemetry::{Level, Log, Value};

use crate::config::{AllowLoopback, Config};

/// The setting.
pub(crate) const SETTING: &str = "delivery.allow_loopback";

/// Why loopback is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosedBy {
    /// The setting is `never`.
    Never,
    /// The API listens on other addresses too.
    Address,
    /// The API has a public URL.
    PublicUrl,
    /// There is more than one tenant.
    SecondTenant,
    /// A request came through a proxy.
    Proxy,
}

impl ClosedBy {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            ClosedBy::Never => "the setting is \"never\"",
            ClosedBy::Address => "the API does not listen on loopback alone",
            ClosedBy::PublicUrl => "server.public_url is set",
            ClosedBy::SecondTenant => "there is more than one tenant",
            ClosedBy::Proxy => "a request came through a proxy",
        }
    }
}

/// What closes loopback by this configuration alone; nothing if it begins open.
pub(crate) fn closed_by(config: &Config) -> Option<ClosedBy> {
    let (address, public_url) = (config.server.listen.ip(), &config.server.public_url);
    match config.delivery.allow_loopback {
        AllowLoopback::Always => None,
        AllowLoopback::Never => Some(ClosedBy::Never),
        AllowLoopback::Auto if !address.is_loopback() => Some(ClosedBy::Address),
        AllowLoopback::Auto if !public_url.is_empty() => Some(ClosedBy::PublicUrl),
        AllowLoopback::Auto => None,
    }
}

/// What is said of receivers on this machine: at the start, and by `railpost config check`.
pub(crate) fn start_message(config: &Config, closed_by: Option<ClosedBy>) -> String {
    match closed_by {
        Some(by) => format!("Receivers on loopback are blocked ({SETTING}): {}.", by.reason()),
        None if config.delivery.allow_loopback == AllowLoopback::Auto => format!(
            "Receivers on loopback are allowed, until there is a second tenant or a request comes through \
             a proxy ({SETTING})."
        ),
        None => format!("Receivers on loopback are allowed ({SETTING})."),
    }
}

/// Loopback while the server runs.
pub(crate) struct LoopbackWatch {
    loopback: Loopback,
    is_auto: bool,
    store: Arc<dyn Store>,
    log: Log,
}

impl LoopbackWatch {
    /// Loopback as the configuration and the store have it, and what has closed it.
    pub(crate) async fn begin(
        config: &Config,
        store: Arc<dyn Store>,
        log: Log,
    ) -> (Self, Option<ClosedBy>) {
        let is_auto = config.delivery.allow_loopback == AllowLoopback::Auto;
        let loopback = Loopback::new(SETTING, closed_by(config).is_none());
        let watch = Self { loopback, is_auto, store, log };
        let by_tenant = watch.look_for_tenants().await;
        (watch, closed_by(config).or(by_tenant))
    }

    /// The switch that the guard reads.
    pub(crate) fn switch(&self) -> Loopback {
        self.loopback.clone()
    }

    /// A request came: one that came through a proxy may be anybody's.
    pub(crate) fn note_request(&self, headers: &HeaderMap) {
        if self.may_close() && is_proxied(headers) {
            self.close(ClosedBy::Proxy);
        }
    }

    /// Blocks loopback if there is more than one tenant, or if their number is unknown.
    async fn look_for_tenants(&self) -> Option<ClosedBy> {
        if !self.may_close() {
            return None;
        }
        // The server's own tenant has no users.
        let tenants = self.store.tenants(PageRequest::first(3)).await;
        let several = tenants.map_or(true, |tenants| {
            tenants.items.iter().filter(|tenant| !is_reserved_tenant(&tenant.id)).count() > 1
        });
        several.then(|| self.close(ClosedBy::SecondTenant))
    }

    fn may_close(&self) -> bool {
        self.is_auto && self.loopback.is_open()
    }

    fn close(&self, by: ClosedBy) -> ClosedBy {
        if self.loopback.close() {
            let fields = [("reason", Value::Text(by.reason())), ("setting", Value::Text(SETTING))];
            self.log.line(Level::Warn, "loopback_closed", &fields);
        }
        by
    }
}

#[async_trait]
impl TenantWatch for LoopbackWatch {
    async fn tenant_created(&self) {
        self.look_for_tenants().await;
    }
}

impl fmt::Debug for LoopbackWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopbackWatch").field("loopback", &self.loopback).finish_non_exhaustive()
    }
}
