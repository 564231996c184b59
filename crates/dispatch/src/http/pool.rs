//! Connections that wait for their next request.
//!
//! Endpoints of one tenant with the same scheme, host, port and TLS version share an [`Origin`] and with it
//! their connections; an endpoint with a client certificate or authorities of its own has one to itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_wire::TenantId;
use tokio::time::Instant;

use super::dial::{Destination, Peer};
use super::h1::H1;
use super::h2::H2;
use super::idle_limit::{IdleLimit, IdleLimits, IdleSlot};
use super::route::RouteConfig;
use super::tls::TlsVersion;
use crate::guard::{Host, Scheme};
use crate::limits::{
    IDLE_DEFAULT, IDLE_PER_TARGET_DEFAULT, IDLE_PER_TENANT_DEFAULT, IDLE_TIMEOUT_DEFAULT,
    SWEEP_PERIOD_MIN,
};

/// How many idle connections are kept, and how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolBounds {
    /// Idle HTTP/1 connections to one target of a tenant. With HTTP/2 there is one connection.
    pub idle_per_target: usize,
    /// Idle connections of one tenant.
    pub idle_per_tenant: usize,
    /// Idle connections in all.
    pub idle: usize,
    /// How long a connection is kept unused.
    pub idle_timeout: Duration,
}

impl Default for PoolBounds {
    fn default() -> Self {
        Self {
            idle_per_target: IDLE_PER_TARGET_DEFAULT,
            idle_per_tenant: IDLE_PER_TENANT_DEFAULT,
            idle: IDLE_DEFAULT,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
        }
    }
}

/// All origins of one sender.
pub(super) struct Pool {
    bounds: PoolBounds,
    limits: IdleLimits,
    /// Those that a route leads to, or a connection.
    origins: Mutex<HashMap<OriginKey, Arc<Origin>>>,
    private_origins: AtomicU64,
    sweeping: AtomicBool,
}

/// What two endpoints must have in common to share connections.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct OriginKey {
    tenant: Option<TenantId>,
    scheme: Scheme,
    host: Host,
    port: u16,
    tls: TlsVersion,
    /// A number that no other origin has, for those that are not shared.
    private: Option<u64>,
}

impl Pool {
    pub(super) fn new(bounds: PoolBounds) -> Self {
        Self {
            bounds,
            limits: IdleLimits::new(bounds),
            origins: Mutex::default(),
            private_origins: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
        }
    }

    /// What to find the origin of such an endpoint by.
    pub(super) fn key(&self, config: &RouteConfig) -> OriginKey {
        let RouteConfig { target, tenant, tls, .. } = config;
        let secure = target.scheme() == Scheme::Https;
        let private = secure && tls.are_private();
        OriginKey {
            tenant: tenant.clone(),
            scheme: target.scheme(),
            host: target.host().clone(),
            port: target.port(),
            tls: tls.min_version,
            private: private.then(|| self.private_origins.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The origin of this key; made by `destination` if it is new.
    pub(super) fn origin<E>(
        &self,
        key: OriginKey,
        destination: impl FnOnce() -> Result<Destination, E>,
    ) -> Result<Arc<Origin>, E> {
        let mut origins = lock(&self.origins);
        if let Some(origin) = origins.get(&key) {
            return Ok(Arc::clone(origin));
        }
        let limit = self.limits.of(&key.tenant);
        let origin = Arc::new(Origin::new(destination()?, self.bounds, limit));
        origins.insert(key, Arc::clone(&origin));
        Ok(origin)
    }

    /// Closes what is idle for too long, now and then, as long as the pool lives.
    pub(super) fn keep_swept(self: &Arc<Self>) {
        if self.sweeping.load(Ordering::Relaxed) || self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (pool, period) = (Arc::downgrade(self), self.bounds.idle_timeout);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(period.max(SWEEP_PERIOD_MIN)).await;
                let Some(pool) = pool.upgrade() else { return };
                pool.sweep(Instant::now());
            }
        });
    }

    fn sweep(&self, now: Instant) {
        lock(&self.origins).retain(|_, origin| {
            let has_connections = origin.sweep(now);
            has_connections || Arc::strong_count(origin) > 1
        });
        self.limits.sweep();
    }
}

/// One place that requests go to, and the idle connections to it.
pub(super) struct Origin {
    pub(super) destination: Destination,
    bounds: PoolBounds,
    limit: IdleLimit,
    waiting: Mutex<PooledConnections>,
    /// Whether to expect HTTP/2, by the last handshake; under TLS also before the first.
    expects_h2: AtomicBool,
    dialling: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PooledConnections {
    /// The longest unused first.
    idle: Vec<Idle>,
    shared: Option<Shared>,
}

struct Idle {
    connection: H1,
    since: Instant,
    _slot: IdleSlot,
}

struct Shared {
    connection: H2,
    last_used: Instant,
    /// Without one it is shared by those who use it, and not kept beyond them.
    slot: Option<IdleSlot>,
}

/// A connection to send on.
pub(super) enum Connection {
    H1(H1),
    H2(H2),
}

impl Connection {
    pub(super) fn peer(&self) -> &Peer {
        match self {
            Connection::H1(connection) => connection.peer(),
            Connection::H2(connection) => connection.peer(),
        }
    }
}

impl Origin {
    fn new(destination: Destination, bounds: PoolBounds, limit: IdleLimit) -> Self {
        let expects_h2 = AtomicBool::new(destination.tls.is_some());
        let (waiting, dialling) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { destination, bounds, limit, waiting, expects_h2, dialling }
    }

    /// A connection that served before and, as far as this side can know, can serve again.
    pub(super) fn check_out(&self, now: Instant) -> Option<Connection> {
        let mut waiting = lock(&self.waiting);
        if let Some(shared) = &mut waiting.shared {
            if shared.connection.is_ready() {
                shared.last_used = now;
                return Some(Connection::H2(shared.connection.clone()));
            }
            waiting.shared = None;
        }
        while let Some(mut idle) = waiting.idle.pop() {
            if !self.is_stale(idle.since, now) && idle.connection.is_ready() {
                return Some(Connection::H1(idle.connection));
            }
        }
        None
    }

    /// Keeps a connection for the next request, if it can serve one and there is room.
    pub(super) fn check_in(&self, mut connection: H1) {
        if !connection.is_ready() {
            return;
        }
        let Some(_slot) = self.limit.slot() else { return };
        let mut waiting = lock(&self.waiting);
        if waiting.idle.len() < self.bounds.idle_per_target {
            waiting.idle.push(Idle { connection, since: Instant::now(), _slot });
        }
    }

    /// Lets all attempts use an HTTP/2 connection.
    pub(super) fn share(&self, connection: &H2) {
        let (connection, last_used) = (connection.clone(), Instant::now());
        let shared = Shared { connection, last_used, slot: self.limit.slot() };
        lock(&self.waiting).shared = Some(shared);
    }

    /// Closes the shared connection if it is unused and there is no room to keep it.
    pub(super) fn close_unkept(&self) {
        let shared = &mut lock(&self.waiting).shared;
        shared.take_if(|shared| !self.may_keep(shared));
    }

    fn may_keep(&self, shared: &mut Shared) -> bool {
        if shared.slot.is_none() && shared.connection.is_unused() {
            shared.slot = self.limit.slot();
            return shared.slot.is_some();
        }
        true
    }

    /// Stops sharing a connection. Requests that use it go on.
    pub(super) fn retire(&self, connection: &H2) {
        let shared = &mut lock(&self.waiting).shared;
        shared.take_if(|shared| shared.connection.is_same(connection));
    }

    /// Waits for the turn to dial, where one connection is enough for all. Where it is not, it is
    /// always one's turn.
    pub(super) async fn turn_to_dial(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if !self.expects_h2.load(Ordering::Relaxed) {
            return None;
        }
        let turn = self.dialling.lock().await;
        // The first dial may have learned otherwise.
        self.expects_h2.load(Ordering::Relaxed).then_some(turn)
    }

    /// Remembers what the last handshake chose.
    pub(super) fn learn(&self, speaks_h2: bool) {
        self.expects_h2.store(speaks_h2, Ordering::Relaxed);
    }

    /// Closes what is idle for too long, and says whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.idle.retain(|idle| !self.is_stale(idle.since, now));
        waiting
            .shared
            .take_if(|shared| self.is_stale(shared.last_used, now) || !self.may_keep(shared));
        waiting.shared.is_some() || !waiting.idle.is_empty()
    }

    fn is_stale(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.bounds.idle_timeout
    }
}

/// A panic elsewhere leaves no half-made state behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{Guard, Target};
    use crate::http::tls::TlsSettings;

    fn origin(pool: &Pool, tenant: &str, url: &str, tls: &TlsSettings) -> Arc<Origin> {
        let target = Target::parse(url, &Guard::default()).unwrap();
        let tenant = Some(tenant.parse().unwrap());
        let config = RouteConfig { tenant, tls: tls.clone(), ..RouteConfig::new(target.clone()) };
        let made = pool.origin(pool.key(&config), || {
            let (host, port) = (target.host().clone(), target.port());
            Ok::<_, std::convert::Infallible>(Destination { host, port, tls: None })
        });
        made.unwrap()
    }

    #[test]
    fn endpoints_share_an_origin_if_their_connections_are_interchangeable() {
        let (old, new) = (TlsVersion::Tls12, TlsVersion::Tls13);
        for (a, b, shared) in [
            (("https://a.com/x", old), ("https://a.com:443/y?z", old), true),
            (("https://a.com/", old), ("https://A.com./", old), true),
            (("https://a.com/", old), ("https://a.com/", new), false),
            (("https://a.com/", old), ("https://b.com/", old), false),
            (("https://a.com/", old), ("https://a.com:8443/", old), false),
            (("https://a.com:8443/", old), ("http://a.com:8443/", old), false),
        ] {
            let pool = Pool::new(PoolBounds::default());
            let [a, b] = [a, b].map(|(url, min_version)| {
                let tls = TlsSettings { min_version, ..TlsSettings::default() };
                origin(&pool, "acme", url, &tls)
            });
            assert_eq!(Arc::ptr_eq(&a, &b), shared, "{:?}", b.destination.host);
        }
    }

    #[test]
    fn an_origin_that_nobody_uses_is_forgotten() {
        let pool = Pool::new(PoolBounds::default());
        let of = |tenant| origin(&pool, tenant, "https://a.com", &TlsSettings::default());
        let kept = of("kept");
        drop(of("dropped"));
        assert_eq!((lock(&pool.origins).len(), pool.limits.tenants()), (2, 2));
        pool.sweep(Instant::now());
        assert_eq!((lock(&pool.origins).len(), pool.limits.tenants()), (1, 1));
        assert!(Arc::ptr_eq(&kept, &of("kept")));
        assert!(!Arc::ptr_eq(&kept, &of("another")));
    }
}
