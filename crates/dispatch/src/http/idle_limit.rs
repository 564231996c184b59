//! How many idle connections are kept: for one tenant, and in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use railpost_wire::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pool::PoolBounds;

/// The limits of all tenants.
pub(super) struct IdleLimits {
    all: Arc<Semaphore>,
    per_tenant: usize,
    /// Of those to whom an origin belongs; nothing is the server itself.
    tenants: Mutex<HashMap<Option<TenantId>, Weak<Semaphore>>>,
}

/// What the origins of one tenant share.
#[derive(Clone)]
pub(super) struct IdleLimit {
    all: Arc<Semaphore>,
    tenant: Arc<Semaphore>,
}

/// The right to keep one connection.
pub(super) struct IdleSlot {
    _all: OwnedSemaphorePermit,
    _tenant: OwnedSemaphorePermit,
}

impl IdleLimits {
    pub(super) fn new(bounds: PoolBounds) -> Self {
        let all = Arc::new(semaphore(bounds.idle));
        Self { all, per_tenant: bounds.idle_per_tenant, tenants: Mutex::default() }
    }

    pub(super) fn of(&self, tenant: &Option<TenantId>) -> IdleLimit {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tenants.get(tenant).and_then(Weak::upgrade);
        let limit = known.unwrap_or_else(|| {
            let limit = Arc::new(semaphore(self.per_tenant));
            tenants.insert(tenant.clone(), Arc::downgrade(&limit));
            limit
        });
        IdleLimit { all: Arc::clone(&self.all), tenant: limit }
    }

    /// Forgets tenants that have no origin.
    pub(super) fn sweep(&self) {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|_, limit| limit.strong_count() > 0);
    }

    #[cfg(test)]
    pub(super) fn tenants(&self) -> usize {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl IdleLimit {
    /// A slot, if the tenant has one left and so has the sender.
    pub(super) fn slot(&self) -> Option<IdleSlot> {
        let _tenant = Arc::clone(&self.tenant).try_acquire_owned().ok()?;
        let _all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(IdleSlot { _all, _tenant })
    }
}

fn semaphore(permits: usize) -> Semaphore {
    Semaphore::new(permits.min(Semaphore::MAX_PERMITS))
}
