//! Look-ups of unknown API keys: each costs the store a read, so their number is limited.
//!
//! A few run at once, an address may send a number of them a second, and their results are cached for a while. Valid
//! keys that were used before are cached elsewhere, so their requests never wait here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railpost_engine::Timestamp;
use railpost_store::Digest;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::auth::rate_limited;
use super::key_ring::unknown;
use super::problem::Problem;
use crate::app::App;
use crate::client_address::ClientAddress;
use crate::limits::{
    KEY_BELIEVED_FOR, KEY_LOOK_UPS_AT_ONCE, UNKNOWN_KEY_ADDRESSES_MAX, UNKNOWN_KEYS_BURST,
    UNKNOWN_KEYS_PER_SECOND, UNKNOWN_KEYS_REMEMBERED_MAX,
};

/// The recently seen unknown keys, and their rates by address.
#[derive(Debug)]
pub(super) struct UnknownKeys {
    cached: Mutex<HashMap<Digest, Timestamp>>,
    /// Grows with every key that is made. The result of an earlier look-up is not cached: the key may be the new one.
    made: AtomicU64,
    /// For each address the instant at which it may show as many again as ever.
    addresses: Mutex<HashMap<IpAddr, Instant>>,
    look_ups: Semaphore,
}

impl Default for UnknownKeys {
    fn default() -> Self {
        Self {
            cached: Mutex::default(),
            made: AtomicU64::new(0),
            addresses: Mutex::default(),
            look_ups: Semaphore::new(KEY_LOOK_UPS_AT_ONCE),
        }
    }
}

/// A permit to look up one unknown key.
pub(super) struct LookUpPermit<'a> {
    keys: &'a UnknownKeys,
    hash: Digest,
    address: IpAddr,
    made: u64,
    _permit: SemaphorePermit<'a>,
}

impl UnknownKeys {
    /// Waits for a permit to look a key up. Refuses a key that is known to be invalid, and an address that sent too
    /// many of them.
    pub(super) async fn begin_look_up(
        &self,
        app: &App,
        hash: &Digest,
        client: ClientAddress,
    ) -> Result<LookUpPermit<'_>, Problem> {
        let address = network_of(client.0);
        self.check(app, hash, address)?;
        let closed = |_| unknown();
        let permit = self.look_ups.acquire().await.map_err(closed)?;
        // While it waited, the same may have been looked up.
        self.check(app, hash, address)?;
        let made = self.made.load(Ordering::SeqCst);
        Ok(LookUpPermit { keys: self, hash: *hash, address, made, _permit: permit })
    }

    fn check(&self, app: &App, hash: &Digest, address: IpAddr) -> Result<(), Problem> {
        let now = app.source.now();
        if lock(&self.cached).get(hash).is_some_and(|until| now < *until) {
            return Err(unknown());
        }
        let full_at = lock(&self.addresses).get(&address).copied();
        let depth = COST * UNKNOWN_KEYS_BURST;
        match full_at.and_then(|at| at.checked_duration_since(Instant::now() + depth)) {
            None => Ok(()),
            Some(wait) => {
                Err(rate_limited("too many unknown API keys came from this address", wait))
            }
        }
    }

    /// A key was made: drops the cached result for its text.
    pub(super) fn forget(&self, hash: &Digest) {
        self.made.fetch_add(1, Ordering::SeqCst);
        lock(&self.cached).remove(hash);
    }

    fn charge(&self, address: IpAddr) {
        let now = Instant::now();
        let mut addresses = lock(&self.addresses);
        if addresses.len() >= UNKNOWN_KEY_ADDRESSES_MAX {
            addresses.retain(|_, full_at| *full_at > now);
        }
        if addresses.len() < UNKNOWN_KEY_ADDRESSES_MAX || addresses.contains_key(&address) {
            let full_at = addresses.entry(address).or_insert(now);
            *full_at = (*full_at).max(now) + COST;
        }
    }
}

const COST: Duration = Duration::from_millis(1000 / UNKNOWN_KEYS_PER_SECOND as u64);

impl LookUpPermit<'_> {
    /// Caches that the store does not have the key.
    pub(super) fn cache_unknown(self, now: Timestamp) {
        self.keys.charge(self.address);
        let mut cached = lock(&self.keys.cached);
        if cached.len() >= UNKNOWN_KEYS_REMEMBERED_MAX {
            cached.retain(|_, until| now < *until);
        }
        let is_current = self.keys.made.load(Ordering::SeqCst) == self.made;
        if is_current && cached.len() < UNKNOWN_KEYS_REMEMBERED_MAX {
            cached.insert(self.hash, now + KEY_BELIEVED_FOR);
        }
    }
}

/// A client with one IPv6 address has the 2^64 beside it too.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
