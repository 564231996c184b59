//! A dispatcher on a memory store, with an observer that says what ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use railpost_dispatch::{
    AttemptEnded, Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Observer, Parts,
    Sender, SenderConfig,
};
use railpost_engine::{Command, DeliveryState, EndpointStatus, Notice, NoticeKind, Transition};
use railpost_store::{
    AcceptBatch, AttemptDetail, DeliveryView, EndpointPrivate, EndpointSettings, Event, MasterKey,
    MemoryStore, NewEndpoint, NewSecret, PageRequest, Receipt, SecretValue, Setup, Store,
    StoreError, SystemSource, TenantSettings, Write,
};
use railpost_wire::{EndpointId, EventId, Secret, SecretId, TenantId};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::receiver::Receiver;

/// After this long a test hangs.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(20);

/// The id of an event whose thin envelope cannot be made at first: the task that tries to panics.
pub(crate) const DEFECT: &str = "defect";

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, work).await.expect("the test hangs")
}

/// What the dispatcher told its observer.
#[derive(Debug)]
pub(crate) enum Observed {
    Ended(Box<Transition>, Box<AttemptDetail>),
    Notice(NoticeKind),
    Trouble(StoreError),
    Blocked(EndpointId, Option<String>),
}

struct ObserverChannel(mpsc::UnboundedSender<Observed>);

impl Observer for ObserverChannel {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let observed = Observed::Ended(Box::new(*ended.transition), Box::new(ended.detail.clone()));
        let _ = self.0.send(observed);
    }

    fn notice(&self, notice: &Notice) {
        let _ = self.0.send(Observed::Notice(notice.kind));
    }

    fn endpoint_blocked(&self, endpoint: EndpointId, reason: Option<&str>) {
        let _ = self.0.send(Observed::Blocked(endpoint, reason.map(str::to_owned)));
    }

    fn store_trouble(&self, trouble: &StoreError) {
        let _ = self.0.send(Observed::Trouble(trouble.clone()));
    }
}

pub(crate) struct Harness {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) config: DispatcherConfig,
    observed: mpsc::UnboundedReceiver<Observed>,
    next: u128,
}

pub(crate) fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn memory_store() -> Arc<dyn Store> {
    let source = Arc::new(SystemSource);
    Arc::new(MemoryStore::new(Setup { source, master_key: MasterKey::new(&[7; 32]) }))
}

pub(crate) fn secret() -> Secret {
    Secret::generate(&[9; 32])
}

/// Retries at once, so that tests need not wait.
pub(crate) fn quick() -> Value {
    json!({"retry": {"backoff": {"strategy": "fixed", "delay": "1ms"}}, "breaker": null})
}

pub(crate) fn event(name: &str, key: Option<&str>) -> Event {
    Event {
        id: name.parse::<EventId>().unwrap(),
        event_type: "order.updated".parse().unwrap(),
        key: key.map(|key| key.parse().unwrap()),
        payload: name.to_owned().into(),
        content_type: "text/plain".parse().unwrap(),
        schema_version: None,
        time: railpost_engine::Timestamp::from_millis(1_700_000_000_000),
        traceparent: None,
        cloudevent: None,
    }
}

impl Harness {
    pub(crate) async fn open() -> Self {
        Self::on(memory_store(), DispatcherConfig::default()).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, config: DispatcherConfig) -> Self {
        let created = Write::CreateTenant(tenant(), TenantSettings::default());
        let _ = store.commit(created.into()).await;
        let (dispatcher, observed) = start(store.clone(), &config).await;
        Self { store, dispatcher, config, observed, next: 1 }
    }

    /// Starts a new dispatcher on the same store, without having stopped the old one: as after a
    /// crash.
    pub(crate) async fn restart(&mut self) {
        (self.dispatcher, self.observed) = start(self.store.clone(), &self.config).await;
    }

    pub(crate) async fn endpoint(&mut self, receiver: &Receiver, policy: Value) -> EndpointId {
        self.endpoint_with(receiver, policy, |_| {}).await
    }

    pub(crate) async fn endpoint_with(
        &mut self,
        receiver: &Receiver,
        policy: Value,
        change: impl FnOnce(&mut EndpointSettings),
    ) -> EndpointId {
        self.next += 1;
        let id = EndpointId::from_u128(self.next);
        let mut settings = EndpointSettings::all_events(&receiver.url());
        settings.policy = serde_json::from_value(policy).unwrap();
        change(&mut settings);
        let private = EndpointPrivate::default();
        let endpoint = NewEndpoint { id, tenant: tenant(), settings, private };
        self.write(id, Write::CreateEndpoint(endpoint)).await;
        self.add_secret(id, secret()).await;
        id
    }

    pub(crate) async fn add_secret(&mut self, endpoint: EndpointId, secret: Secret) -> SecretId {
        self.next += 1;
        let id = SecretId::from_u128(self.next);
        let value = SecretValue::Shared(secret);
        let secret = NewSecret { id, endpoint, value, expires_at: None };
        self.write(endpoint, Write::CreateSecret(secret)).await;
        id
    }

    /// Why nothing can be sent to an endpoint; or that it can again.
    pub(crate) async fn blocked(&mut self) -> (EndpointId, Option<String>) {
        loop {
            if let Observed::Blocked(endpoint, reason) = self.observed().await {
                return (endpoint, reason);
            }
        }
    }

    /// Changes something about an endpoint, and waits until the dispatcher has taken it in: commands are
    /// executed one after the other, so an answer to a later one says so.
    pub(crate) async fn write(&self, endpoint: EndpointId, write: Write) {
        self.store.commit(write.into()).await.unwrap();
        self.dispatcher.endpoint_changed(endpoint).await;
        in_time(self.dispatcher.counters()).await.unwrap();
    }

    pub(crate) async fn switch(&self, endpoint: EndpointId, status: EndpointStatus) {
        self.write(endpoint, Write::SetEndpointStatus(endpoint, status)).await;
    }

    pub(crate) async fn accept(&self, events: Vec<Event>) -> Vec<Receipt> {
        let batch = AcceptBatch { tenant: tenant(), events, accepted_by: None, idempotency: None };
        self.dispatcher.accept(batch).await.unwrap()
    }

    /// Accepts one event with the payload `name`.
    pub(crate) async fn publish(&self, name: &str, key: Option<&str>) {
        self.accept(vec![event(name, key)]).await;
    }

    pub(crate) async fn observed(&mut self) -> Observed {
        in_time(self.observed.recv()).await.expect("the dispatcher has its observer")
    }

    /// What followed the next attempt that ended.
    pub(crate) async fn ended(&mut self) -> (Transition, AttemptDetail) {
        loop {
            if let Observed::Ended(transition, detail) = self.observed().await {
                return (*transition, *detail);
            }
        }
    }

    pub(crate) async fn delivery(&self, event: &str) -> DeliveryView {
        let event = event.parse().unwrap();
        self.store.deliveries_of(&tenant(), &event).await.unwrap().remove(0)
    }

    pub(crate) async fn state(&self, event: &str) -> DeliveryState {
        self.delivery(event).await.delivery.state
    }

    pub(crate) async fn command(&self, command: Command, event: &str) {
        let delivery = self.delivery(event).await.delivery;
        in_time(self.dispatcher.command(command, delivery)).await.unwrap().unwrap();
    }

    /// Ends the dispatcher; then everything is on record.
    pub(crate) async fn stop(&self) {
        in_time(self.dispatcher.stop(HANG_TIMEOUT)).await;
    }

    pub(crate) async fn attempts(&self, event: &str) -> Vec<railpost_store::AttemptView> {
        let id = self.delivery(event).await.delivery.id;
        self.store.attempts(id, PageRequest::first(100)).await.unwrap().items
    }
}

async fn start(
    store: Arc<dyn Store>,
    config: &DispatcherConfig,
) -> (Dispatcher, mpsc::UnboundedReceiver<Observed>) {
    let loopback = NamedNetwork::new("test-loopback", "127.0.0.1/32").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    let sender = Sender::new(SenderConfig { guard, ..SenderConfig::default() }).unwrap();
    let (tell, observed) = mpsc::unbounded_channel();
    let broken = AtomicBool::new(false);
    let parts = Parts {
        store,
        sender,
        source: Arc::new(SystemSource),
        observer: Arc::new(ObserverChannel(tell)),
        thin_url: Arc::new(move |parcel: &railpost_store::Parcel| {
            let id = parcel.event.id.to_string();
            assert!(id != DEFECT || broken.swap(true, Ordering::Relaxed), "as planned");
            format!("https://railpost.test/events/{id}")
        }),
    };
    let (dispatcher, _) = Dispatcher::start(parts, config).await.unwrap();
    (dispatcher, observed)
}
