//! A store, a relay around it, and what the tests look at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use railpost_relay::{
    Accept, EventCheck, Observation, Relay, RelayContext, SourceConfig, SourceObserver,
    SourceSection, SourceState, SourceStatus, StoreAddress, Trouble,
};
use railpost_store::{
    AcceptBatch, AcceptedBy, Event, MasterKey, MemoryStore, Receipt, RowRefusal, Setup, SourceName,
    Store, StoreError, SystemSource, TenantSettings, Write,
};
use railpost_wire::TenantId;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a test waits for what must happen.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub(crate) fn setup() -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) }
}

/// Accepts into a store, and remembers what was accepted for the first time, in order.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    accepted: Mutex<Vec<(String, Event)>>,
    /// Types that are refused.
    refused_types: Mutex<Vec<String>>,
    /// What each accept is answered with, if it is not the store that answers.
    pub(crate) failure: Mutex<Option<StoreError>>,
    troubles: Mutex<HashMap<String, Vec<Trouble>>>,
    alarms: Mutex<Vec<String>>,
    /// How often each source began to be read.
    readings: Mutex<HashMap<String, usize>>,
    changed: Notify,
}

impl World {
    pub(crate) async fn new() -> Arc<Self> {
        Self::around(Arc::new(MemoryStore::new(setup()))).await
    }

    pub(crate) async fn around(store: Arc<dyn Store>) -> Arc<Self> {
        for tenant in ["acme", "globex"] {
            let create = Write::CreateTenant(tenant.parse().unwrap(), TenantSettings::default());
            store.commit(create.into()).await.unwrap();
        }
        Arc::new(Self {
            store,
            accepted: Mutex::default(),
            refused_types: Mutex::default(),
            failure: Mutex::default(),
            troubles: Mutex::default(),
            alarms: Mutex::default(),
            readings: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn refuse_types(&self, types: &[&str]) {
        *self.refused_types.lock().unwrap() = types.iter().map(|&name| name.to_owned()).collect();
    }

    pub(crate) fn relay(self: &Arc<Self>, sources: Vec<SourceConfig>) -> Relay {
        self.relay_of("a", sources)
    }

    pub(crate) fn relay_of(self: &Arc<Self>, holder: &str, sources: Vec<SourceConfig>) -> Relay {
        self.relay_with(holder, sources, None)
    }

    pub(crate) fn relay_with(
        self: &Arc<Self>,
        holder: &str,
        sources: Vec<SourceConfig>,
        store_address: Option<StoreAddress>,
    ) -> Relay {
        let context = RelayContext {
            accept: self.clone(),
            checks: self.clone(),
            sources: self.store.clone(),
            observer: self.clone(),
            holder: holder.to_owned(),
            store_address,
        };
        Relay::start(sources, &context)
    }

    /// What was accepted so far.
    pub(crate) fn accepted(&self) -> Vec<(String, Event)> {
        self.accepted.lock().unwrap().clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.accepted().iter().map(|(_, event)| event.id.to_string()).collect()
    }

    pub(crate) fn alarms(&self) -> Vec<String> {
        self.alarms.lock().unwrap().clone()
    }

    /// Waits until so many events were accepted.
    pub(crate) async fn until_accepted(&self, count: usize) -> Vec<(String, Event)> {
        self.until(
            || self.accepted.lock().unwrap().len() >= count,
            || format!("{} of {count} accepted", self.accepted.lock().unwrap().len()),
        )
        .await;
        self.accepted()
    }

    /// Waits until a source is in trouble of this kind.
    pub(crate) async fn until_trouble(&self, source: &str, code: &str) -> Trouble {
        let find = || {
            let troubles = self.troubles.lock().unwrap();
            troubles
                .get(source)
                .and_then(|of| of.iter().find(|trouble| trouble.code() == code).cloned())
        };
        self.until(|| find().is_some(), || format!("{:?}", self.troubles.lock().unwrap())).await;
        find().unwrap()
    }

    /// Waits until any source is in trouble that is told with these words.
    pub(crate) async fn until_told(&self, words: &str) {
        let told = || {
            let troubles = self.troubles.lock().unwrap();
            troubles.values().flatten().any(|trouble| trouble.to_string().contains(words))
        };
        self.until(told, || format!("{:?}", self.troubles.lock().unwrap())).await;
    }

    /// Waits until a source began to be read so often.
    pub(crate) async fn until_reading(&self, source: &str, times: usize) {
        let often = || self.readings.lock().unwrap().get(source).copied().unwrap_or_default();
        self.until(|| often() >= times, || format!("{:?}", self.troubles.lock().unwrap())).await;
    }

    pub(crate) async fn until_alarm(&self) -> String {
        self.until(|| !self.alarms.lock().unwrap().is_empty(), String::new).await;
        self.alarms()[0].clone()
    }

    pub(crate) async fn until(&self, done: impl Fn() -> bool, told: impl Fn() -> String) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if done() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(WAIT_MAX, waiting).await.is_err() {
            panic!("it did not happen: {}", told());
        }
    }

    /// Waits until so many rows of the source are parked.
    pub(crate) async fn until_parked(&self, source: &SourceName, rows: u64) {
        let parked = async || self.store.parked_holds(source).await.unwrap().summary.rows;
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if parked().await == rows {
                    return;
                }
                let _ = timeout(Duration::from_millis(200), changed).await;
            }
        };
        if timeout(WAIT_MAX, waiting).await.is_err() {
            panic!("{} rows are parked, not {rows}", parked().await);
        }
    }
}

#[async_trait]
impl Accept for World {
    async fn accept(
        &self,
        source: &SourceName,
        tenant: &TenantId,
        events: Vec<Event>,
    ) -> Result<Vec<Receipt>, StoreError> {
        if let Some(error) = self.failure.lock().unwrap().clone() {
            return Err(error);
        }
        let accepted_by = Some(AcceptedBy::Source(source.clone()));
        let batch = AcceptBatch { tenant: tenant.clone(), events, accepted_by, idempotency: None };
        let batch = Arc::new(batch);
        let receipts = self.store.accept(batch.clone()).await?;
        let mut accepted = self.accepted.lock().unwrap();
        for (event, receipt) in batch.events.iter().zip(&receipts) {
            if matches!(receipt, Receipt::Accepted { .. }) {
                accepted.push((tenant.to_string(), event.clone()));
            }
        }
        drop(accepted);
        self.changed.notify_waiters();
        Ok(receipts)
    }
}

#[async_trait]
impl EventCheck for World {
    async fn check(
        &self,
        _: &TenantId,
        events: &[Event],
    ) -> Result<Vec<Option<RowRefusal>>, StoreError> {
        let refused = self.refused_types.lock().unwrap();
        let check = |event: &Event| {
            let wrong = refused.iter().any(|name| name == event.event_type.as_str());
            wrong.then(|| RowRefusal {
                code: "schema".to_owned(),
                reason: "it does not fit".to_owned(),
            })
        };
        Ok(events.iter().map(check).collect())
    }
}

impl SourceObserver for World {
    fn observe(&self, source: &SourceName, what: &Observation<'_>) {
        match what {
            Observation::Trouble { trouble, .. } => {
                let mut troubles = self.troubles.lock().unwrap();
                troubles.entry(source.to_string()).or_default().push((*trouble).clone());
            }
            Observation::Alarm(text) => self.alarms.lock().unwrap().push((*text).to_owned()),
            Observation::Reading => {
                *self.readings.lock().unwrap().entry(source.to_string()).or_default() += 1;
            }
            _ => {}
        }
        self.changed.notify_waiters();
    }
}

/// A checked source with these fields beside its name and URL.
pub(crate) fn source(name: &str, url: &str, fields: &str) -> SourceConfig {
    let text = format!("name = {name:?}\nurl = {url:?}\n{fields}");
    toml::from_str::<SourceSection>(&text).unwrap().check().unwrap()
}

pub(crate) fn is_reading(status: &SourceStatus) -> bool {
    status.state == SourceState::Reading
}
