//! What each answer leads to, over real HTTP.

use railpost_engine::{AttemptResult, DeadReason, DeliveryState, EndpointStatus, Failure, Stage};
use railpost_wire::Envelope;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{DEFECT, Shop, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn every_class_of_answer_leads_where_the_table_says() {
    for (status, stage) in [
        (200, Stage::Delivered),
        (201, Stage::Delivered),
        (204, Stage::Delivered),
        (299, Stage::Delivered),
        (302, Stage::Waiting),
        (308, Stage::Waiting),
        (400, Stage::Dead),
        (401, Stage::Dead),
        (403, Stage::Dead),
        (404, Stage::Dead),
        (408, Stage::Waiting),
        (409, Stage::Waiting),
        (410, Stage::Dead),
        (415, Stage::Dead),
        (422, Stage::Dead),
        (425, Stage::Waiting),
        (429, Stage::Waiting),
        (500, Stage::Waiting),
        (501, Stage::Dead),
        (502, Stage::Waiting),
        (503, Stage::Waiting),
        (504, Stage::Waiting),
    ] {
        let (mut shop, receiver) = (Shop::open().await, Receiver::start().await);
        shop.endpoint(&receiver, json!({})).await;
        receiver.then(Answer::Status(status));
        shop.publish("one", Some("a")).await;
        let (transition, detail) = shop.ended().await;
        assert_eq!(transition.state.stage(), stage, "{status}");
        assert_eq!(detail.result, AttemptResult::Response { status, retry_after: None });
        shop.stop().await;
        assert_eq!(shop.state("one").await.stage(), stage, "{status} as it is on record");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_and_recovers_gets_every_event_in_order() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    shop.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(500)).then(Answer::Status(503)).then(Answer::Status(500));
    shop.accept(vec![
        crate::harness::event("first", Some("a")),
        crate::harness::event("second", Some("a")),
    ])
    .await;
    let got = receiver.texts(5).await;
    assert_eq!(got, ["first", "first", "first", "first", "second"]);
    shop.stop().await;
    assert_eq!(shop.state("second").await, DeliveryState::Delivered);
    let numbers: Vec<u32> = shop.attempts("first").await.iter().map(|a| a.detail.number).collect();
    assert_eq!(numbers.len(), 4, "each attempt is on record: {numbers:?}");
}

#[tokio::test]
async fn an_attempt_whose_task_dies_is_one_that_failed_and_what_follows_goes_on() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    shop.endpoint_with(&receiver, quick(), |settings| settings.envelope = Envelope::Thin).await;
    shop.publish("before", Some("a")).await;
    shop.publish(DEFECT, Some("a")).await;
    shop.publish("after", Some("a")).await;
    for id in ["before", DEFECT, "after"] {
        assert_eq!(receiver.request().await.header("webhook-id"), Some(id));
    }
    shop.stop().await;
    let results: Vec<_> = shop.attempts(DEFECT).await.iter().map(|a| a.detail.result).collect();
    assert_eq!(results[0], AttemptResult::Failed(Failure::NotSent));
    assert_eq!(results[1..], [AttemptResult::Response { status: 200, retry_after: None }]);
    assert_eq!(shop.state("after").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn retry_after_reaches_the_engine() {
    let (mut shop, receiver) = (Shop::open().await, Receiver::start().await);
    shop.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::RetryAfter(503, 120));
    shop.publish("one", None).await;
    let (transition, _) = shop.ended().await;
    let DeliveryState::Waiting { until } = transition.state else { panic!("{transition:?}") };
    assert_eq!(until.since(transition.at).as_millis(), 120_000);
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_a_failure_with_a_reason() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    receiver.address = unused.local_addr().unwrap();
    drop(unused);
    shop.endpoint(&receiver, json!({})).await;
    shop.publish("one", None).await;
    let (transition, detail) = shop.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::Refused));
    assert_eq!(transition.state.stage(), Stage::Waiting);
    assert!(detail.message.is_some_and(|message| !message.is_empty()));
}

#[tokio::test]
async fn a_url_that_the_guard_refuses_is_never_connected_to() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    shop.endpoint_with(&receiver, json!({}), |settings| {
        settings.url = "http://169.254.169.254/latest".to_owned();
    })
    .await;
    shop.publish("one", None).await;
    let (_, detail) = shop.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::BlockedAddress));
    shop.endpoint(&receiver, json!({})).await;
    shop.publish("two", None).await;
    assert_eq!(receiver.texts(1).await, ["two"]);
}

#[tokio::test]
async fn a_receiver_that_hangs_is_cut_off() {
    let (mut shop, receiver) = (Shop::open().await, Receiver::start().await);
    shop.endpoint_with(&receiver, json!({}), |settings| {
        settings.timeout = Some(railpost_engine::Span::from_millis(100));
    })
    .await;
    let _never = receiver.then_wait();
    shop.publish("one", None).await;
    let (_, detail) = shop.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::Timeout));
}

#[tokio::test]
async fn gone_switches_the_endpoint_off_and_that_is_on_record() {
    let (mut shop, receiver) = (Shop::open().await, Receiver::start().await);
    let endpoint = shop.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::Status(410));
    shop.publish("one", Some("a")).await;
    shop.ended().await;
    shop.publish("two", Some("b")).await;
    shop.stop().await;
    let stored = shop.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(stored.status, EndpointStatus::Gone);
    assert_eq!(shop.state("two").await, DeliveryState::Pending, "the backlog is kept");
    let reason = DeadReason::Permanent;
    assert_eq!(shop.state("one").await, DeliveryState::Dead { reason, holds: true });
}
