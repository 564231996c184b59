//! A store in trouble: nothing is lost, and everything goes on when it is back.

use railpost_dispatch::DispatcherConfig;
use railpost_engine::{Command, DeliveryState, Timestamp};
use railpost_store::{
    AcceptBatch, Access, AuditEntry, AuditQuery, PageRequest, Period, StoreError,
};
use railpost_wire::AuditId;
use serde_json::json;

use crate::flaky::Flaky;
use crate::harness::{Shop, Told, event, in_time, memory_store, quick, tenant};
use crate::receiver::{Answer, Receiver};

pub(crate) async fn shop_on_flaky(config: DispatcherConfig) -> (Shop, std::sync::Arc<Flaky>) {
    let flaky = Flaky::new(memory_store());
    (Shop::on(flaky.clone(), config).await, flaky)
}

/// Waits until the dispatcher has noticed that its store is in trouble.
pub(crate) async fn trouble(shop: &mut Shop) -> StoreError {
    loop {
        if let Told::Trouble(trouble) = shop.told().await {
            return trouble;
        }
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_recorded_when_the_store_is_back() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    shop.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    receiver.request().await;
    flaky.set_down(true);
    answer.send(200).unwrap();
    assert!(matches!(trouble(&mut shop).await, StoreError::Unavailable(_)));
    assert_eq!(receiver.texts(1).await, ["second"], "the acknowledgement is enough to go on");
    flaky.set_down(false);
    shop.stop().await;
    assert_eq!(shop.state("first").await, DeliveryState::Delivered);
    assert_eq!(shop.state("second").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn an_accept_is_refused_while_the_store_is_down_and_nothing_is_sent() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    flaky.set_down(true);
    let events = vec![event("lost", None)];
    let batch = AcceptBatch { tenant: tenant(), events, idempotency: None };
    assert!(shop.dispatcher.accept(batch).await.is_err());
    flaky.set_down(false);
    shop.publish("kept", None).await;
    assert_eq!(receiver.texts(1).await, ["kept"]);
    shop.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_is_read_when_the_store_is_back() {
    let config = DispatcherConfig { parcels_bytes_max: 0, ..DispatcherConfig::default() };
    let (mut shop, flaky) = shop_on_flaky(config).await;
    let mut receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    shop.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    assert_eq!(receiver.texts(1).await, ["first"]);
    flaky.set_down(true);
    answer.send(200).unwrap();
    trouble(&mut shop).await;
    assert_eq!(receiver.left(), 0, "there is nothing to send yet");
    flaky.set_down(false);
    assert_eq!(receiver.texts(1).await, ["second"]);
}

#[tokio::test]
async fn an_at_most_once_delivery_whose_record_was_answered_too_late_still_goes_out_once() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    shop.endpoint(&receiver, json!({"guarantee": "at_most_once"})).await;
    flaky.lose_record_answers(1);
    shop.publish("one", None).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
    shop.stop().await;
    assert_eq!(receiver.left(), 0);
    assert_eq!(shop.state("one").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn one_payload_that_cannot_be_read_keeps_none_of_the_others_back() {
    let config = DispatcherConfig { parcels_bytes_max: 0, ..DispatcherConfig::default() };
    let (mut shop, flaky) = shop_on_flaky(config).await;
    let mut receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    flaky.make_unreadable("bad");
    let good = (0..20).map(|number| event(&format!("good-{number}"), None));
    let events = std::iter::once(event("bad", None)).chain(good).collect();
    shop.accept(events).await;
    let texts = receiver.texts(20).await;
    assert!(texts.iter().all(|text| text.starts_with("good")), "{texts:?}");
    shop.stop().await;
    let attempts = shop.attempts("bad").await;
    let message = attempts[0].detail.message.as_deref().unwrap();
    assert!(message.contains("does not read back"), "{message}");
    assert!(matches!(
        shop.state("bad").await,
        DeliveryState::Waiting { .. } | DeliveryState::Dead { .. }
    ));
}

#[tokio::test]
async fn one_endpoint_whose_secrets_cannot_be_read_keeps_none_of_the_others_back() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let (mut receiver, sealed_receiver) = (Receiver::start().await, Receiver::start().await);
    let sealed = shop.endpoint(&sealed_receiver, quick()).await;
    shop.endpoint(&receiver, quick()).await;
    shop.stop().await;
    flaky.seal(sealed);
    shop.start_anew().await;
    shop.publish("one", Some("a")).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
    let (endpoint, reason) = shop.blocked().await;
    assert_eq!(endpoint, sealed);
    assert!(reason.unwrap().contains("a secret does not open"));
    assert_eq!(sealed_receiver.left(), 0, "nothing leaves unsigned");
}

#[tokio::test]
async fn what_a_person_decided_is_durable_before_it_is_told() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(422));
    shop.publish("one", Some("a")).await;
    shop.ended().await;
    in_time(flaky.record_begun()).await;
    assert_eq!(flaky.durable_records(), 0);
    let held = flaky.hold_records().await;
    shop.command(Command::Skip, "one").await;
    let dispatcher = shop.dispatcher.clone();
    let written = tokio::spawn(async move { dispatcher.written().await });
    in_time(flaky.record_begun()).await;
    assert!(!written.is_finished());
    drop(held);
    in_time(written).await.unwrap().unwrap();
    assert_eq!(flaky.durable_records(), 1);
    assert!(matches!(shop.state("one").await, DeliveryState::Dead { holds: false, .. }));
}

/// Somebody decided about a delivery.
fn audit_entry(number: u128) -> AuditEntry {
    AuditEntry {
        id: AuditId::from_u128(number),
        at: Timestamp::from_millis(1),
        tenant: Some(tenant()),
        actor: "key_1".to_owned(),
        address: None,
        action: "delivery.skip".to_owned(),
        target: "one".to_owned(),
        detail: serde_json::Value::Null,
    }
}

#[tokio::test]
async fn who_decided_is_written_with_the_decision_and_nothing_of_one_that_was_refused() {
    let (mut shop, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let receiver = Receiver::start().await;
    shop.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(422));
    shop.publish("one", Some("a")).await;
    shop.ended().await;
    flaky.refuse_commits(true);
    let delivery = shop.delivery("one").await.delivery;
    let decide = async |number, command| {
        in_time(shop.dispatcher.decide(command, delivery, Some(audit_entry(number)))).await.unwrap()
    };
    assert_eq!(decide(1, Command::Skip).await, Ok(()));
    assert!(decide(2, Command::Skip).await.is_err(), "it holds its lane no more");
    in_time(shop.dispatcher.written()).await.unwrap();
    let page = PageRequest::first(10);
    let query = AuditQuery { tenant: None, target: None, at: Period::default(), page };
    assert_eq!(flaky.audit(query).await.unwrap().items, [audit_entry(1)]);
    assert_eq!(flaky.durable_records(), 1);
}
