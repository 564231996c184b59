//! Threads for validation that is not known to be cheap: few of them, and of those only a share for any one
//! tenant, so that expensive schemas of one tenant delay neither the server's own threads nor other tenants.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use railpost_wire::TenantId;
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::limits::{
    VALIDATION_STACK_LEN, VALIDATION_TENANTS_MAX, VALIDATION_THREADS_MIN, VALIDATION_TIME_MAX,
    VALIDATION_WAIT_MAX,
};

/// The threads, and each tenant's share of them.
pub struct ValidationThreads {
    all: Arc<Semaphore>,
    share: usize,
    tenants: Mutex<FxHashMap<TenantId, Weak<Semaphore>>>,
    on_overrun: Box<dyn Fn(&TenantId) + Send + Sync>,
}

impl fmt::Debug for ValidationThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidationThreads").field("share", &self.share).finish_non_exhaustive()
    }
}

/// Why a thread did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// None was free in time.
    Busy,
    /// The work takes longer than it may.
    Overran,
    /// The work ended in a panic.
    Panicked,
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadError::Busy => write!(
                f,
                "{VALIDATION_WAIT_MAX} passed without a free thread to hold it against its schema: the \
                 tenant publishes payloads that take long, faster than they can be checked"
            ),
            ThreadError::Overran => {
                write!(f, "validation takes longer than {VALIDATION_TIME_MAX}")
            }
            ThreadError::Panicked => f.write_str("validation ended in a defect"),
        }
    }
}

impl std::error::Error for ThreadError {}

/// A place among the threads. It is free again when the work has ended, however long nobody has waited for it.
struct ThreadPermits {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl ValidationThreads {
    /// As many as there are processors. A tenant has half of them at most. `on_overrun` is told of tenants whose
    /// work took longer than it may.
    pub fn new(on_overrun: impl Fn(&TenantId) + Send + Sync + 'static) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = processors.max(VALIDATION_THREADS_MIN);
        let all = Arc::new(Semaphore::new(threads));
        let on_overrun = Box::new(on_overrun);
        Self { all, share: threads / 2, tenants: Mutex::default(), on_overrun }
    }

    /// Does the work on a thread of its own, within a bounded time.
    pub async fn run<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ThreadError> {
        let permits = timeout(Duration::from(VALIDATION_WAIT_MAX), self.permits(tenant)).await;
        let permits = permits.ok().flatten().ok_or(ThreadError::Busy)?;
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::Builder::new().name("validation".to_owned());
        let started = thread.stack_size(VALIDATION_STACK_LEN).spawn(move || {
            let _permits = permits;
            let _ = sender.send(work());
        });
        started.map_err(|_| ThreadError::Busy)?;
        match timeout(Duration::from(VALIDATION_TIME_MAX), receiver).await {
            Ok(done) => done.map_err(|_| ThreadError::Panicked),
            Err(_) => {
                (self.on_overrun)(tenant);
                Err(ThreadError::Overran)
            }
        }
    }

    /// Waits for a place, first among the tenant's own.
    async fn permits(&self, tenant: &TenantId) -> Option<ThreadPermits> {
        let of_tenant = self.of_tenant(tenant).acquire_owned().await.ok()?;
        let of_all = self.all.clone().acquire_owned().await.ok()?;
        Some(ThreadPermits { _of_tenant: of_tenant, _of_all: of_all })
    }

    fn of_tenant(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        if tenants.len() >= VALIDATION_TENANTS_MAX {
            tenants.retain(|_, known| known.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.share));
        tenants.insert(tenant.clone(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn a_tenant_that_takes_all_it_may_leaves_places_for_others() {
        let threads = ValidationThreads::new(|_| {});
        let mut taken = Vec::new();
        while let Some(permits) = threads.permits(&tenant("greedy")).now_or_never() {
            taken.push(permits.unwrap());
        }
        assert_eq!(taken.len(), threads.share);
        let other = threads.permits(&tenant("other")).now_or_never();
        assert!(other.is_some_and(|permits| permits.is_some()));
        taken.pop();
        assert!(threads.permits(&tenant("greedy")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn tenants_that_have_nothing_under_way_are_forgotten() {
        let threads = ValidationThreads::new(|_| {});
        for number in 0..2 * VALIDATION_TENANTS_MAX {
            drop(threads.permits(&tenant(&format!("t{number}"))).await);
        }
        assert!(threads.tenants.lock().unwrap().len() <= VALIDATION_TENANTS_MAX);
    }
}
