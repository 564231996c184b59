//! The tower layer, the intake and the axum extractors, called as a server calls them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use ::redis::aio::MultiplexedConnection;
use axum::body::Body;
use axum::extract::FromRef;
use axum::routing::post;
use axum::{Extension, Router};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use railpost_receiver::axum::{CloudEventOf, EventOf, JsonEvent, JsonOrThin, ThinEvent};
use railpost_receiver::redis::RedisInbox;
use railpost_receiver::request_verifier::{RequestVerifier, unix_now};
use railpost_receiver::testing::{TestRequest, TestSender};
use railpost_receiver::tower::{ClaimingInbox, IntakeService, MemoryQueue, ReceiverLayer};
use railpost_receiver::wire::{Envelope, Event, Secret};
use railpost_receiver::{
    Counts, Delivery, InboxConfig, MemoryInbox, Policy, Receiver, Rejection, Retention,
};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tower_service::Service;

const SECRET: &[u8] = b"a secret of the adapters' tests";

fn verifier() -> RequestVerifier {
    let secret = Secret::from_bytes(SECRET).unwrap();
    RequestVerifier::new(Receiver::new(vec![secret], vec![])).body_len_max(1024)
}

fn request(sent: TestRequest) -> Request<Body> {
    let mut request = Request::post("/hook");
    for (name, value) in &sent.headers {
        request = request.header(name, value.as_bytes());
    }
    request.body(Body::from(sent.body)).unwrap()
}

async fn call(router: &mut Router, sent: TestRequest) -> Response<Body> {
    router.call(request(sent)).await.unwrap()
}

type Applied = Arc<Mutex<Vec<String>>>;

/// A handler behind the layer, which fails the first time it sees a body that says so.
async fn handler(Extension(applied): Extension<Applied>, delivery: Delivery) -> StatusCode {
    let text = String::from_utf8_lossy(&delivery.body).into_owned();
    let mut applied = applied.lock().unwrap();
    if text == "fail once" && !applied.contains(&"failed".to_owned()) {
        applied.push("failed".to_owned());
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    applied.push(text);
    StatusCode::OK
}

#[tokio::test]
async fn behind_the_layer_a_handler_survives_the_ordeal() {
    // The ordeal turns the order around, so a line has to begin with 1.
    survives_the_ordeal(MemoryInbox::new(Policy::default(), Retention::default())).await;
}

#[tokio::test]
async fn behind_the_layer_with_redis_a_handler_survives_the_ordeal() {
    survives_the_ordeal(redis_inbox().await).await;
}

async fn redis_inbox() -> RedisInbox<MultiplexedConnection> {
    let client = ::redis::Client::open(support::redis_url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    RedisInbox::new(InboxConfig::named(&support::unique("layer")), connection)
}

async fn survives_the_ordeal(inbox: impl ClaimingInbox) {
    let (verifier, applied) = (verifier(), Applied::default());
    let mut router = Router::new()
        .route("/hook", post(handler))
        .layer(Extension(applied.clone()))
        .layer(ReceiverLayer::new(verifier.clone(), inbox))
        .with_state(State { verifier: verifier.clone() });
    let mut sender = TestSender::new(SECRET);
    let events = [
        sender.event(Some("A"), b"one"),
        sender.event(Some("A"), b"fail once"),
        sender.event(Some("A"), b"three"),
        sender.event(None, b"free"),
    ];
    let router = &mut router;
    let report = sender
        .ordeal(&events, unix_now(), async |sent| call(router, sent).await.status().as_u16())
        .await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(*applied.lock().unwrap(), ["free", "one", "failed", "fail once", "three"]);
    assert_eq!(report.refused, 28);
    let Counts { fresh, duplicate, stale, gap, rejected, .. } = verifier.counters().counts();
    assert_eq!((fresh, duplicate, stale, gap, rejected), (4, 4, 0, 4, 28));
}

/// Says that it was reached, and answers when it is told to.
async fn slow_handler(Extension((reached, go_on)): Extension<(Arc<Notify>, Arc<Notify>)>) {
    reached.notify_one();
    go_on.notified().await;
}

#[tokio::test]
async fn with_redis_a_copy_is_held_off_while_the_handler_runs() {
    let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let verifier = verifier();
    let router = Router::new()
        .route("/hook", post(slow_handler))
        .layer(Extension((reached.clone(), go_on.clone())))
        .layer(ReceiverLayer::new(verifier.clone(), redis_inbox().await));
    let mut sender = TestSender::new(SECRET);
    let event = sender.event(Some("A"), b"once");
    let sent = sender.request(&event, 1, unix_now());
    let offer = async || call(&mut router.clone(), sent.clone()).await.status().as_u16();
    let meanwhile = async || {
        reached.notified().await;
        let status = offer().await;
        go_on.notify_one();
        status
    };
    assert_eq!(tokio::join!(offer(), meanwhile()), (200, 409));
    assert_eq!(offer().await, 200, "a duplicate, which the handler does not see");
    let counts = verifier.counters().counts();
    assert_eq!((counts.fresh, counts.busy, counts.duplicate), (1, 1, 1));
}

#[derive(Clone, FromRef)]
struct State {
    verifier: RequestVerifier,
}

#[tokio::test]
async fn a_body_over_the_limit_is_not_read_on() {
    let problems = Applied::default();
    let log = problems.clone();
    let verifier = verifier().log(move |error| log.lock().unwrap().push(error.to_string()));
    let (queue, _work) = MemoryQueue::new(MemoryInbox::default(), 1);
    let mut service = IntakeService::new(verifier, queue);
    let mut sender = TestSender::new(SECRET);
    for (length, status) in [(1024, 200), (1025, 413)] {
        let event = sender.event(None, &vec![b'x'; length]);
        let sent = request(sender.request(&event, 1, unix_now()));
        assert_eq!(service.call(sent).await.unwrap().status(), status);
    }
    assert_eq!(*problems.lock().unwrap(), ["the body is longer than 1024 bytes"]);
}

#[tokio::test]
async fn a_full_queue_asks_the_sender_to_wait_and_takes_the_event_later() {
    let verifier = verifier();
    let (queue, mut work) = MemoryQueue::new(MemoryInbox::default(), 1);
    let mut service = IntakeService::new(verifier.clone(), queue);
    let mut sender = TestSender::new(SECRET);
    let (first, second) = (sender.event(None, b"1"), sender.event(None, b"2"));
    let mut offer = async |event| {
        let sent = request(sender.request(event, 1, unix_now()));
        service.call(sent).await.unwrap()
    };
    assert_eq!(offer(&first).await.status(), 200);
    let full = offer(&second).await;
    assert_eq!(
        (full.status().as_u16(), &full.headers()["retry-after"]),
        (429, &"5".parse().unwrap())
    );
    assert_eq!(work.recv().await.unwrap().body, b"1");
    assert_eq!(offer(&second).await.status(), 200);
    assert_eq!(offer(&second).await.status(), 200, "a duplicate");
    drop(work);
    let third = sender.clone().event(None, b"3");
    assert_eq!(offer(&third).await.status(), 503, "nobody works on the queue");
    let counts = verifier.counters().counts();
    assert_eq!((counts.fresh, counts.duplicate, counts.full, counts.trouble), (2, 1, 1, 1));
}

#[derive(serde::Deserialize)]
struct Order {
    total: u32,
}

async fn raw(event: JsonEvent<Order>) -> String {
    format!("raw {}", event.payload.total)
}

async fn cloud(event: CloudEventOf<Order>) -> String {
    format!("{} of {}: {}", event.event_type, event.source, event.data.total)
}

async fn event(event: EventOf<Order>) -> String {
    format!("{}: {}", event.event_type, event.data.total)
}

async fn either(event: JsonOrThin<Order>) -> String {
    match event {
        JsonOrThin::Json(event) => format!("here {}", event.payload.total),
        JsonOrThin::Thin(event) => format!("at {}", event.thin.url),
    }
}

async fn thin(event: ThinEvent) -> Result<String, Rejection> {
    let rest = event
        .thin
        .fetch("https://railpost.test", async |url| Ok::<_, Rejection>(format!("fetched {url}")));
    rest.await
}

/// Sends an event in an envelope of the real sender's.
fn wrapped(sender: &TestSender, envelope: Envelope, url: &str) -> TestRequest {
    let id = "order-1:paid".parse().unwrap();
    let (event_type, source) = ("order.paid".parse().unwrap(), "/tenants/acme".parse().unwrap());
    let content_type = "application/json".parse().unwrap();
    let content = envelope.wrap(&Event {
        id: &id,
        event_type: &event_type,
        key: None,
        payload: br#"{"total":12}"#,
        content_type: &content_type,
        schema_version: None,
        unix_ms: 1_767_225_600_000,
        cloudevent: None,
        source: &source,
        url,
    });
    let mut event = sender.clone().event(None, &content.body);
    event.thin = envelope == Envelope::Thin;
    event.id = id.clone();
    let mut sent = sender.request(&event, 1, unix_now());
    let headers = content.headers.into_iter();
    sent.headers.extend(headers.map(|(name, value)| (name.into_owned(), value)));
    sent
}

#[tokio::test]
async fn each_envelope_becomes_a_typed_event() {
    let verifier = verifier();
    let sender = TestSender::new(SECRET);
    let url = "https://railpost.test/v1/events/order-1:paid";
    for (envelope, route, status, text) in [
        (Envelope::Raw, post(raw), 200, "raw 12"),
        (Envelope::CloudeventsStructured, post(cloud), 200, "order.paid of /tenants/acme: 12"),
        (Envelope::CloudeventsBinary, post(cloud), 200, "order.paid of /tenants/acme: 12"),
        (Envelope::Thin, post(thin), 200, "fetched https://railpost.test/v1/events/order-1:paid"),
        (Envelope::Event, post(event), 200, "order.paid: 12"),
        (Envelope::Raw, post(either), 200, "here 12"),
        (Envelope::Thin, post(either), 200, "at https://railpost.test/v1/events/order-1:paid"),
        (Envelope::Raw, post(event), 400, "not readable"),
        (Envelope::Raw, post(cloud), 400, "not readable"),
        (Envelope::Thin, post(raw), 400, "not readable"),
    ] {
        let mut router =
            Router::new().route("/hook", route).with_state(State { verifier: verifier.clone() });
        let response = call(&mut router, wrapped(&sender, envelope, url)).await;
        assert_eq!(response.status(), status, "{envelope:?}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, text, "{envelope:?}");
    }
    assert_eq!(verifier.counters().counts().rejected, 3);
}

#[tokio::test]
async fn a_thin_event_is_fetched_from_its_sender_alone() {
    let sender = TestSender::new(SECRET);
    for url in ["https://railpost.test.evil.example/x", "https://evil.example/", "file:///etc"] {
        let mut router =
            Router::new().route("/hook", post(thin)).with_state(State { verifier: verifier() });
        let response = call(&mut router, wrapped(&sender, Envelope::Thin, url)).await;
        assert_eq!(response.status(), 400, "{url}");
    }
}
