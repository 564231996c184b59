//! A store in trouble: nothing is lost, and everything goes on when it is back.

use railpost_dispatch::DispatcherConfig;
use railpost_engine::{Command, DeliveryState, Timestamp};
use railpost_store::{
    AcceptBatch, Access, AuditEntry, AuditQuery, PageRequest, Period, StoreError,
};
use railpost_wire::AuditId;
use serde_json::json;

use crate::flaky::Flaky;
use crate::harness::{Harness, Observed, event, in_time, memory_store, quick, tenant};
use crate::receiver::{Answer, Receiver};

pub(crate) async fn shop_on_flaky(config: DispatcherConfig) -> (Harness, std::sync::Arc<Flaky>) {
    let flaky = Flaky::new(memory_store());
    (Harness::on(flaky.clone(), config).await, flaky)
}

/// Waits until the dispatcher has noticed that its store is in trouble.
pub(crate) async fn trouble(harness: &mut Harness) -> StoreError {
    loop {
        if let Observed::Trouble(trouble) = harness.observed().await {
            return trouble;
        }
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_recorded_when_the_store_is_back() {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    receiver.request().await;
    flaky.set_down(true);
    answer.send(200).unwrap();
    assert!(matches!(trouble(&mut harness).await, StoreError::Unavailable(_)));
    assert_eq!(receiver.texts(1).await, ["second"], "the acknowledgement is enough to go on");
    flaky.set_down(false);
    harness.stop().await;
    assert_eq!(harness.state("first").await, DeliveryState::Delivered);
    assert_eq!(harness.state("second").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn an_accept_is_refused_while_the_store_is_down_and_nothing_is_sent() {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    flaky.set_down(true);
    let events = vec![event("lost", None)];
    let batch = AcceptBatch { tenant: tenant(), events, accepted_by: None, idempotency: None };
    assert!(harness.dispatcher.accept(batch).await.is_err());
    flaky.set_down(false);
    harness.publish("kept", None).await;
    assert_eq!(receiver.texts(1).await, ["kept"]);
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_is_read_when_the_store_is_back() {
    let config = DispatcherConfig { payload_cache_bytes_max: 0, ..DispatcherConfig::default() };
    let (mut harness, flaky) = shop_on_flaky(config).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    assert_eq!(receiver.texts(1).await, ["first"]);
    flaky.set_down(true);
    answer.send(200).unwrap();
    trouble(&mut harness).await;
    assert_eq!(receiver.left(), 0, "there is nothing to send yet");
    flaky.set_down(false);
    assert_eq!(receiver.texts(1).await, ["second"]);
}

#[tokio::test]
async fn an_at_most_once_delivery_whose_record_was_answered_too_late_still_goes_out_once() {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, json!({"guarantee": "at_most_once"})).await;
    flaky.lose_record_answers(1);
    harness.publish("one", None).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
    assert_eq!(harness.state("one").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn one_payload_that_cannot_be_read_keeps_none_of_the_others_back() {
    let config = DispatcherConfig { payload_cache_bytes_max: 0, ..DispatcherConfig::default() };
    let (mut harness, flaky) = shop_on_flaky(config).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    flaky.make_unreadable("bad");
    let good = (0..20).map(|number| event(&format!("good-{number}"), None));
    let events = std::iter::once(event("bad", None)).chain(good).collect();
    harness.accept(events).await;
    let texts = receiver.texts(20).await;
    assert!(texts.iter().all(|text| text.starts_with("good")), "{texts:?}");
    harness.stop().await;
    let attempts = harness.attempts("bad").await;
    let message = attempts[0].detail.message.as_deref().unwrap();
    assert!(message.contains("does not read back"), "{message}");
    assert!(matches!(
        harness.state("bad").await,
        DeliveryState::Waiting { .. } | DeliveryState::Dead { .. }
    ));
}

#[tokio::test]
async fn one_endpoint_whose_secrets_cannot_be_read_keeps_none_of_the_others_back() {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let (mut receiver, sealed_receiver) = (Receiver::start().await, Receiver::start().await);
    let sealed = harness.endpoint(&sealed_receiver, quick()).await;
    harness.endpoint(&receiver, quick()).await;
    harness.stop().await;
    flaky.seal(sealed);
    harness.restart().await;
    harness.publish("one", Some("a")).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
    let (endpoint, reason) = harness.blocked().await;
    assert_eq!(endpoint, sealed);
    assert!(reason.unwrap().contains("a secret does not open"));
    assert_eq!(sealed_receiver.left(), 0, "nothing leaves unsigned");
}

#[tokio::test]
async fn what_a_person_decided_is_durable_before_it_is_told() {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(422));
    harness.publish("one", Some("a")).await;
    harness.ended().await;
    in_time(flaky.record_begun()).await;
    assert_eq!(flaky.durable_records(), 0);
    let held = flaky.hold_records().await;
    harness.command(Command::Skip, "one").await;
    let dispatcher = harness.dispatcher.clone();
    let written = tokio::spawn(async move { dispatcher.written().await });
    in_time(flaky.record_begun()).await;
    assert!(!written.is_finished());
    drop(held);
    in_time(written).await.unwrap().unwrap();
    assert_eq!(flaky.durable_records(), 1);
    assert!(matches!(harness.state("one").await, DeliveryState::Dead { holds: false, .. }));
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
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(422));
    harness.publish("one", Some("a")).await;
    harness.ended().await;
    flaky.refuse_commits(true);
    let delivery = harness.delivery("one").await.delivery;
    let decide = async |number, command| {
        in_time(harness.dispatcher.decide(command, delivery, Some(audit_entry(number))))
            .await
            .unwrap()
    };
    assert_eq!(decide(1, Command::Skip).await, Ok(()));
    assert!(decide(2, Command::Skip).await.is_err(), "it holds its lane no more");
    in_time(harness.dispatcher.written()).await.unwrap();
    let page = PageRequest::first(10);
    let query = AuditQuery { tenant: None, target: None, at: Period::default(), page };
    assert_eq!(flaky.audit(query).await.unwrap().items, [audit_entry(1)]);
    assert_eq!(flaky.durable_records(), 1);
}
