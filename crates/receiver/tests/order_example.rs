//! The worked example, end to end: the real sender, the shop of the examples, PostgreSQL. The first POST
//! of `order.created` times out, `order.updated` is held, and the duplicate is ignored.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "what it shows is part of the proof")]

mod support;
#[path = "../examples/shop/mod.rs"]
mod shop;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use railpost_dispatch::{
    AttemptEnded, Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Observer, Parts,
    Sender, SenderConfig,
};
use railpost_engine::{Span, Timestamp};
use railpost_receiver::Receiver;
use railpost_receiver::request_verifier::RequestVerifier;
use railpost_receiver::wire::{EndpointId, Secret, SecretId, TenantId};
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, MasterKey, MemoryStore, NewEndpoint,
    NewSecret, Parcel, SecretValue, Setup, Store, SystemSource, TenantSettings, Write,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// So long until a test that hangs is given up.
const PATIENCE: Duration = Duration::from_secs(30);

type Lines = mpsc::UnboundedSender<String>;

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn secret() -> Secret {
    Secret::generate(&[9; 32])
}

/// What the sender makes of each attempt, as lines of the transcript.
struct ObserverChannel(Lines);

impl Observer for ObserverChannel {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let answer = ended.detail.message.as_deref().unwrap_or("answered");
        let line = format!("sender    {answer}: {:?}", ended.transition.state.stage());
        let _ = self.0.send(line);
    }
}

/// A network that loses the answer to the first request for key A: the shop has applied it by then.
async fn lose_one_answer(
    lines: Lines,
    lost: Arc<AtomicBool>,
    request: Request,
    next: Next,
) -> Response {
    let [id, key, seq, attempt] = ["webhook-id", "x-key", "x-seq", "x-attempt"]
        .map(|name| request.headers()[name].to_str().unwrap().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let lose = key == "A" && !lost.swap(true, Ordering::SeqCst);
    let answer = if lose { "the answer is lost" } else { "answered" };
    let _ =
        lines.send(format!("receiver  {id} ({key}:{seq}), attempt {attempt}: {status}, {answer}"));
    if lose {
        std::future::pending::<()>().await;
    }
    response
}

/// The shop, listening on loopback behind that network.
async fn serve(verifier: RequestVerifier, schema: &str, lines: Lines) -> String {
    let shop = shop::Shop::open(verifier, support::pool(4, schema)).await.unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let network = from_fn(move |request: Request, next: Next| {
        lose_one_answer(lines.clone(), lost.clone(), request, next)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, shop::router(shop).layer(network)).await });
    url
}

async fn start_sender(url: &str, lines: Lines) -> Dispatcher {
    let source = Arc::new(SystemSource);
    let setup = Setup { source: source.clone(), master_key: MasterKey::new(&[7; 32]) };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(setup));
    subscribe(&*store, url).await;
    let loopback = NamedNetwork::new("test-loopback", "127.0.0.1/32").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    let sender = Sender::new(SenderConfig { guard, ..SenderConfig::default() }).unwrap();
    let thin_url = Arc::new(|_: &Parcel| String::new());
    let parts =
        Parts { store, sender, source, observer: Arc::new(ObserverChannel(lines)), thin_url };
    Dispatcher::start(parts, &DispatcherConfig::default()).await.unwrap().0
}

async fn subscribe(store: &dyn Store, url: &str) {
    let mut settings = EndpointSettings::all_events(url);
    let backoff = json!({"strategy": "fixed", "delay": "1ms"});
    settings.policy = serde_json::from_value(json!({"retry": {"backoff": backoff}})).unwrap();
    settings.timeout = Some(Span::from_secs(1));
    let endpoint = EndpointId::from_u128(1);
    let private = EndpointPrivate::default();
    let value = SecretValue::Shared(secret());
    for write in [
        Write::CreateTenant(tenant(), TenantSettings::default()),
        Write::CreateEndpoint(NewEndpoint { id: endpoint, tenant: tenant(), settings, private }),
        Write::CreateSecret(NewSecret {
            id: SecretId::from_u128(1),
            endpoint,
            value,
            expires_at: None,
        }),
    ] {
        store.commit(write.into()).await.unwrap();
    }
}

async fn publish(
    sender: &Dispatcher,
    id: &str,
    event_type: &str,
    key: &str,
    body: serde_json::Value,
) {
    let event = Event {
        id: id.parse().unwrap(),
        event_type: event_type.parse().unwrap(),
        key: Some(key.parse().unwrap()),
        payload: body.to_string().into(),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(1_767_225_600_000),
        traceparent: None,
        cloudevent: None,
    };
    let batch =
        AcceptBatch { tenant: tenant(), events: vec![event], accepted_by: None, idempotency: None };
    sender.accept(batch).await.unwrap();
}

#[tokio::test]
async fn the_order_is_created_once_and_then_updated() {
    let schema = support::unique("shop");
    let client = support::postgres(&schema).await;
    let verifier = RequestVerifier::new(Receiver::new(vec![secret()], vec![]));
    let (lines, mut transcript) = mpsc::unbounded_channel();
    let url = serve(verifier.clone(), &schema, lines.clone()).await;
    let sender = start_sender(&url, lines).await;
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, transcript.recv()).await;
        let line = line.expect("the test hangs").unwrap();
        println!("{line}");
        line
    };

    let body = json!({"type": "order.created", "order": "A", "total": 10});
    publish(&sender, "created", "order.created", "A", body).await;
    assert_eq!(next().await, "receiver  created (A:1), attempt 1: 200, the answer is lost");
    let body = json!({"type": "order.updated", "order": "A", "total": 12});
    publish(&sender, "updated", "order.updated", "A", body).await;
    let body = json!({"type": "payment.settled", "payment": "P"});
    publish(&sender, "settled", "payment.settled", "B", body).await;

    let mut lines = Vec::new();
    while lines.len() < 7 {
        lines.push(next().await);
    }
    let (at_sender, at_receiver): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.starts_with("sender"));
    assert_eq!(
        at_receiver,
        [
            "receiver  settled (B:1), attempt 1: 200, answered",
            "receiver  created (A:1), attempt 2: 200, answered",
            "receiver  updated (A:2), attempt 1: 200, answered",
        ]
    );
    let waited = at_sender.iter().filter(|line| line.ends_with("Waiting")).count();
    assert_eq!((at_sender.len(), waited), (4, 1), "{at_sender:?}");
    sender.stop(Duration::MAX).await;

    let rows = client.query("select id, total from orders", &[]).await.unwrap();
    let orders: Vec<(String, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(orders, [("A".to_owned(), 12)]);
    let counts = verifier.counters().counts();
    println!("shop      order A is {:?}; {counts:?}", orders[0]);
    assert_eq!((counts.fresh, counts.duplicate, counts.gap), (3, 1, 0));
}
