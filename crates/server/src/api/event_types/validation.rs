//! Threads for validation that is not known to be cheap: few of them, and of those only a share for any one
//! tenant, so that expensive schemas of one tenant delay neither the server's own threads nor other tenants.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;

use railpost_wire::TenantId;
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::api::problem::{Code, Problem};
use crate::app::App;
use crate::limits::{
    RETRY_AFTER_DEFAULT, VALIDATION_STACK_LEN, VALIDATION_TENANTS_MAX, VALIDATION_THREADS_MIN,
    VALIDATION_TIME_MAX, VALIDATION_WAIT_MAX,
};
use crate::serve::duration;
use crate::telemetry::{Level, Value};

/// The threads, and each tenant's share of them.
#[derive(Debug)]
pub(crate) struct ValidationThreads {
    all: Arc<Semaphore>,
    share: usize,
    tenants: Mutex<FxHashMap<TenantId, Weak<Semaphore>>>,
}

impl Default for ValidationThreads {
    /// As many as there are processors. A tenant has half of them at most.
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = processors.max(VALIDATION_THREADS_MIN);
        let all = Arc::new(Semaphore::new(threads));
        Self { all, share: threads / 2, tenants: Mutex::default() }
    }
}

/// A place among the threads. It is free again when the work has ended, however long nobody has waited for it.
struct Place {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl ValidationThreads {
    /// Does the work on a thread of its own, within a bounded time.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        app: &App,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let place = timeout(duration(VALIDATION_WAIT_MAX), self.place(tenant)).await;
        let place = place.ok().flatten().ok_or_else(busy)?;
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("validation".to_owned());
        let started = thread.stack_size(VALIDATION_STACK_LEN).spawn(move || {
            let _place = place;
            let _ = tell.send(work());
        });
        started.map_err(|_| busy())?;
        match timeout(duration(VALIDATION_TIME_MAX), told).await {
            Ok(done) => {
                done.map_err(|_| Problem::new(Code::Internal, "validation ended in a defect"))
            }
            Err(_) => {
                let fields = [("tenant", Value::Text(tenant.as_str()))];
                app.telemetry.log.line(Level::Warn, "validation_overran", &fields);
                Err(overran())
            }
        }
    }

    /// Waits for a place, first among the tenant's own.
    async fn place(&self, tenant: &TenantId) -> Option<Place> {
        let of_tenant = self.of_tenant(tenant).acquire_owned().await.ok()?;
        let of_all = self.all.clone().acquire_owned().await.ok()?;
        Some(Place { _of_tenant: of_tenant, _of_all: of_all })
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

fn busy() -> Problem {
    let detail = format!(
        "no validation thread was free for {VALIDATION_WAIT_MAX}: the tenant publishes expensive payloads \
         faster than they can be validated"
    );
    Problem::new(Code::ValidationBusy, detail).retry_after(RETRY_AFTER_DEFAULT)
}

pub(super) fn overran() -> Problem {
    let detail = format!("the validation took longer than {VALIDATION_TIME_MAX}");
    Problem::new(Code::SchemaBudget, detail)
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
        let threads = ValidationThreads::default();
        let mut taken = Vec::new();
        while let Some(place) = threads.place(&tenant("greedy")).now_or_never() {
            taken.push(place.unwrap());
        }
        assert_eq!(taken.len(), threads.share);
        let other = threads.place(&tenant("other")).now_or_never();
        assert!(other.is_some_and(|place| place.is_some()));
        taken.pop();
        assert!(threads.place(&tenant("greedy")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn tenants_that_have_nothing_under_way_are_forgotten() {
        let threads = ValidationThreads::default();
        for number in 0..2 * VALIDATION_TENANTS_MAX {
            drop(threads.place(&tenant(&format!("t{number}"))).await);
        }
        assert!(threads.tenants.lock().unwrap().len() <= VALIDATION_TENANTS_MAX);
    }
}
