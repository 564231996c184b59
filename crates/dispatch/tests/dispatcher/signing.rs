//! Signed means signed: nothing leaves without a signature that should have one.

use railpost_dispatch::Dispatcher;
use railpost_engine::{EndpointStatus, Span, Timestamp};
use railpost_store::{Source, SystemSource, Write};
use railpost_wire::{EndpointId, Verifier};

use crate::harness::{Shop, quick, secret};
use crate::receiver::Receiver;
use crate::requests::{lookup, now};

async fn secret_of(shop: &Shop, endpoint: EndpointId) -> railpost_wire::SecretId {
    shop.store.secrets(endpoint).await.unwrap()[0].id
}

async fn is_blocked(dispatcher: &Dispatcher, endpoint: EndpointId) -> bool {
    let health = dispatcher.health(endpoint).await.unwrap().unwrap();
    assert_eq!(health.status, EndpointStatus::Active);
    assert_eq!(dispatcher.blocked(endpoint).await.unwrap().is_some(), health.blocked);
    health.blocked
}

#[tokio::test]
async fn an_endpoint_without_a_valid_secret_sends_nothing_and_keeps_its_backlog() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    let endpoint = shop.endpoint(&receiver, quick()).await;
    // An endpoint is made before its first secret.
    assert_eq!(shop.blocked().await.0, endpoint);
    assert_eq!(shop.blocked().await, (endpoint, None));
    let id = secret_of(&shop, endpoint).await;
    shop.write(endpoint, Write::RemoveSecret { endpoint, id }).await;
    let (_, reason) = shop.blocked().await;
    assert!(reason.unwrap().contains("no secret that is valid"));
    assert!(is_blocked(&shop.dispatcher, endpoint).await);
    for name in ["one", "two"] {
        shop.publish(name, Some("a")).await;
    }
    assert!(is_blocked(&shop.dispatcher, endpoint).await);
    assert_eq!((receiver.left(), shop.attempts("one").await.len()), (0, 0));
    shop.add_secret(endpoint, secret()).await;
    for name in ["one", "two"] {
        let seen = receiver.request().await;
        assert_eq!((seen.text(), seen.header("x-attempt")), (name, Some("1")));
        let verifier = Verifier::new(vec![secret()], vec![]);
        verifier.verify(lookup(&seen), &seen.body, now()).unwrap();
    }
    assert!(!is_blocked(&shop.dispatcher, endpoint).await);
}

#[tokio::test]
async fn an_endpoint_whose_last_secret_expires_stops_sending_by_itself() {
    let (mut shop, receiver) = (Shop::open().await, Receiver::start().await);
    let endpoint = shop.endpoint(&receiver, quick()).await;
    assert!(shop.blocked().await.1.is_some());
    assert!(shop.blocked().await.1.is_none());
    let soon: Timestamp = SystemSource.now() + Span::from_millis(50);
    let id = secret_of(&shop, endpoint).await;
    shop.write(endpoint, Write::ExpireSecret { endpoint, id, at: soon }).await;
    let (_, reason) = shop.blocked().await;
    assert!(reason.is_some());
    shop.publish("one", None).await;
    shop.stop().await;
    assert_eq!(receiver.left(), 0);
}
