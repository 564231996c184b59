//! The event types of tenants that publish, in memory, with their schemas compiled: publishing asks
//! the store about them once in a while, not once per event.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railpost_engine::Timestamp;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Event, PageRequest, Store, StoreError};
use railpost_wire::{EventType, TenantId};
use rustc_hash::FxHashMap;

use super::event_type::{CompiledEventType, Rejection, Verdict};
use super::threads::{ThreadError, ValidationThreads};
use crate::limits::{
    EVENT_TYPES_BELIEVED_FOR, EVENT_TYPES_TENANTS_MAX, SCHEMA_INLINE_COST_MAX, VALIDATION_TIME_MAX,
};

/// What tenants say about their event types, as far as it was asked for lately.
#[derive(Debug, Default)]
pub struct Catalogue(Mutex<FxHashMap<TenantId, CachedTypes>>);

#[derive(Clone, Debug)]
struct CachedTypes {
    types: Arc<EventTypes>,
    until: Timestamp,
}

impl Catalogue {
    /// The event types of a tenant, as they were a moment ago at most.
    pub async fn types(
        &self,
        store: &dyn Store,
        now: Timestamp,
        tenant: &TenantId,
    ) -> Result<Arc<EventTypes>, StoreError> {
        let known = self.lock().get(tenant).cloned();
        if let Some(known) = known.as_ref().filter(|known| now < known.until) {
            return Ok(known.types.clone());
        }
        let types =
            Arc::new(EventTypes::load(store, tenant, known.map(|known| known.types)).await?);
        let mut tenants = self.lock();
        if tenants.len() >= EVENT_TYPES_TENANTS_MAX {
            tenants.retain(|_, cached| now < cached.until);
        }
        if tenants.len() < EVENT_TYPES_TENANTS_MAX {
            let until = now + EVENT_TYPES_BELIEVED_FOR;
            tenants.insert(tenant.clone(), CachedTypes { types: types.clone(), until });
        }
        Ok(types)
    }

    /// Forgets a tenant's types, so that a change counts at once.
    pub fn forget(&self, tenant: &TenantId) {
        self.lock().remove(tenant);
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<TenantId, CachedTypes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event types of one tenant.
#[derive(Debug, Default)]
pub struct EventTypes(FxHashMap<EventType, Arc<CompiledEventType>>);

impl EventTypes {
    /// Reads them; what is as it was keeps its compiled schemas.
    async fn load(
        store: &dyn Store,
        tenant: &TenantId,
        before: Option<Arc<EventTypes>>,
    ) -> Result<Self, StoreError> {
        let mut types = FxHashMap::default();
        let mut page = PageRequest::first(LIST_LIMIT_MAX);
        loop {
            let listing = store.event_types(tenant, page.clone()).await?;
            for record in listing.items {
                let old = before.as_ref().and_then(|before| before.0.get(&record.name));
                let same = old.filter(|old| old.is_of(&record)).cloned();
                let name = record.name.clone();
                types
                    .insert(name, same.unwrap_or_else(|| Arc::new(CompiledEventType::new(record))));
            }
            match listing.next {
                Some(next) => page.after = Some(next),
                None => return Ok(Self(types)),
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether this one is among them.
    pub fn describes(&self, name: &EventType) -> bool {
        self.0.contains_key(name)
    }

    /// Bytes of all schemas.
    pub fn schemas_len(&self) -> usize {
        self.0.values().map(|event_type| event_type.len()).sum()
    }

    /// Bytes of the schemas of one of them.
    pub fn schemas_len_of(&self, name: &EventType) -> usize {
        self.0.get(name).map_or(0, |event_type| event_type.len())
    }

    /// What is said of each event: its warnings, or why it is refused. What is not known to be cheap is looked at on
    /// one thread, for all of them.
    pub async fn check(
        &self,
        threads: &ValidationThreads,
        tenant: &TenantId,
        events: &[Event],
    ) -> Vec<Result<Vec<String>, Rejection>> {
        let (mut said, mut costly) = (vec![Ok(Vec::new()); events.len()], Vec::new());
        let mut allowance = SCHEMA_INLINE_COST_MAX;
        for (index, event) in events.iter().enumerate() {
            let Some(event_type) = self.held_against(event) else { continue };
            match event_type.validate_inline(event, &mut allowance) {
                Some(verdict) => said[index] = event_type.conclude(Ok(verdict)),
                None => costly.push((index, event_type.clone(), event.clone())),
            }
        }
        for (index, event_type, verdict) in judge_apart(threads, tenant, costly).await {
            said[index] = event_type.conclude(verdict);
        }
        said
    }

    /// The event's type, if anybody looks whether events of it fit.
    fn held_against(&self, event: &Event) -> Option<&Arc<CompiledEventType>> {
        let event_type = self.0.get(&event.event_type);
        event_type.filter(|event_type| event_type.is_validated())
    }
}

/// An event that waits to be held against its type, with its place among those of the request.
type Waiting = (usize, Arc<CompiledEventType>, Event);
/// The same once that was done, or why it was not.
type Judged = (usize, Arc<CompiledEventType>, Result<Verdict, ThreadError>);

/// Looks at events on a thread of the tenant's, one after the other, as long as there is time.
async fn judge_apart(
    threads: &ValidationThreads,
    tenant: &TenantId,
    events: Vec<Waiting>,
) -> Vec<Judged> {
    if events.is_empty() {
        return Vec::new();
    }
    let types: Vec<_> = events.iter().map(|(index, of, _)| (*index, of.clone())).collect();
    let judge_all = move || {
        let began = Instant::now();
        let judged = events.iter().map(|(_, event_type, event)| {
            let in_time = began.elapsed() < Duration::from(VALIDATION_TIME_MAX);
            in_time.then(|| event_type.validate(event)).ok_or(ThreadError::Overran)
        });
        judged.collect::<Vec<_>>()
    };
    let verdicts = match threads.run(tenant, judge_all).await {
        Ok(verdicts) => verdicts,
        Err(error) => types.iter().map(|_| Err(error)).collect(),
    };
    types.into_iter().zip(verdicts).map(|((index, of), verdict)| (index, of, verdict)).collect()
}
