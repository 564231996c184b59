//! Signed means signed: nothing leaves without a signature that should have one.

use railpost_dispatch::{Dispatcher, ServedHealth};
use railpost_engine::{EndpointStatus, Span, Timestamp};
use railpost_store::{Source, SystemSource, Write};
use railpost_wire::{EndpointId, Verifier};

use crate::harness::{Harness, quick, secret};
use crate::receiver::Receiver;
use crate::requests::{lookup, now};

async fn secret_of(harness: &Harness, endpoint: EndpointId) -> railpost_wire::SecretId {
    harness.store.secrets(endpoint).await.unwrap()[0].id
}

async fn is_blocked(dispatcher: &Dispatcher, endpoint: EndpointId) -> bool {
    let ServedHealth { health, blocked } = dispatcher.health(endpoint).await.unwrap().unwrap();
    assert_eq!(health.status, EndpointStatus::Active);
    assert_eq!(blocked.is_some(), health.blocked);
    health.blocked
}

#[tokio::test]
async fn an_endpoint_without_a_valid_secret_sends_nothing_and_keeps_its_backlog() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    // An endpoint is made before its first secret.
    assert_eq!(harness.blocked().await.0, endpoint);
    assert_eq!(harness.blocked().await, (endpoint, None));
    let id = secret_of(&harness, endpoint).await;
    harness.write(endpoint, Write::RemoveSecret { endpoint, id }).await;
    let (_, reason) = harness.blocked().await;
    assert!(reason.unwrap().contains("no secret that is valid"));
    assert!(is_blocked(&harness.dispatcher, endpoint).await);
    for name in ["one", "two"] {
        harness.publish(name, Some("a")).await;
    }
    assert!(is_blocked(&harness.dispatcher, endpoint).await);
    assert_eq!((receiver.left(), harness.attempts("one").await.len()), (0, 0));
    harness.add_secret(endpoint, secret()).await;
    for name in ["one", "two"] {
        let seen = receiver.request().await;
        assert_eq!((seen.text(), seen.header("x-attempt")), (name, Some("1")));
        let verifier = Verifier::new(vec![secret()], vec![]);
        verifier.verify(lookup(&seen), &seen.body, now()).unwrap();
    }
    assert!(!is_blocked(&harness.dispatcher, endpoint).await);
}

#[tokio::test]
async fn an_endpoint_whose_last_secret_expires_stops_sending_by_itself() {
    let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    assert!(harness.blocked().await.1.is_some());
    assert!(harness.blocked().await.1.is_none());
    let soon: Timestamp = SystemSource.now() + Span::from_millis(50);
    let id = secret_of(&harness, endpoint).await;
    harness.write(endpoint, Write::ExpireSecret { endpoint, id, at: soon }).await;
    let (_, reason) = harness.blocked().await;
    assert!(reason.is_some());
    harness.publish("one", None).await;
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
}
