//! What each answer leads to, over real HTTP.

use railpost_engine::{
    AttemptResult, DeadReason, DeliveryStage, DeliveryState, EndpointStatus, Failure,
};
use railpost_wire::Envelope;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{DEFECT, Harness, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn every_class_of_answer_leads_where_the_table_says() {
    for (status, stage) in [
        (200, DeliveryStage::Delivered),
        (201, DeliveryStage::Delivered),
        (204, DeliveryStage::Delivered),
        (299, DeliveryStage::Delivered),
        (302, DeliveryStage::Waiting),
        (308, DeliveryStage::Waiting),
        (400, DeliveryStage::Dead),
        (401, DeliveryStage::Dead),
        (403, DeliveryStage::Dead),
        (404, DeliveryStage::Dead),
        (408, DeliveryStage::Waiting),
        (409, DeliveryStage::Waiting),
        (410, DeliveryStage::Dead),
        (415, DeliveryStage::Dead),
        (422, DeliveryStage::Dead),
        (425, DeliveryStage::Waiting),
        (429, DeliveryStage::Waiting),
        (500, DeliveryStage::Waiting),
        (501, DeliveryStage::Dead),
        (502, DeliveryStage::Waiting),
        (503, DeliveryStage::Waiting),
        (504, DeliveryStage::Waiting),
    ] {
        let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
        // One that signs got its secret just now here, and 401 and 403 are retried for a while after that.
        harness.endpoint(&receiver, json!({"signed": false})).await;
        receiver.then(Answer::Status(status));
        harness.publish("one", Some("a")).await;
        let (transition, detail) = harness.ended().await;
        assert_eq!(transition.state.stage(), stage, "{status}");
        assert_eq!(detail.result, AttemptResult::Response { status, retry_after: None });
        harness.stop().await;
        assert_eq!(harness.state("one").await.stage(), stage, "{status} as it is on record");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_and_recovers_gets_every_event_in_order() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(500)).then(Answer::Status(503)).then(Answer::Status(500));
    harness
        .accept(vec![
            crate::harness::event("first", Some("a")),
            crate::harness::event("second", Some("a")),
        ])
        .await;
    let got = receiver.texts(5).await;
    assert_eq!(got, ["first", "first", "first", "first", "second"]);
    harness.stop().await;
    assert_eq!(harness.state("second").await, DeliveryState::Delivered);
    let numbers: Vec<u32> =
        harness.attempts("first").await.iter().map(|a| a.detail.number).collect();
    assert_eq!(numbers.len(), 4, "each attempt is on record: {numbers:?}");
}

#[tokio::test]
async fn an_attempt_whose_task_dies_is_one_that_failed_and_what_follows_goes_on() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint_with(&receiver, quick(), |settings| settings.envelope = Envelope::Thin).await;
    harness.publish("before", Some("a")).await;
    harness.publish(DEFECT, Some("a")).await;
    harness.publish("after", Some("a")).await;
    for id in ["before", DEFECT, "after"] {
        assert_eq!(receiver.request().await.header("webhook-id"), Some(id));
    }
    harness.stop().await;
    let results: Vec<_> = harness.attempts(DEFECT).await.iter().map(|a| a.detail.result).collect();
    assert_eq!(results[0], AttemptResult::Failed(Failure::NotSent));
    assert_eq!(results[1..], [AttemptResult::Response { status: 200, retry_after: None }]);
    assert_eq!(harness.state("after").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn retry_after_reaches_the_engine() {
    let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::RetryAfter(503, 120));
    harness.publish("one", None).await;
    let (transition, _) = harness.ended().await;
    let DeliveryState::Waiting { until } = transition.state else { panic!("{transition:?}") };
    assert_eq!(until.since(transition.at).as_millis(), 120_000);
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_a_failure_with_a_reason() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    receiver.address = unused.local_addr().unwrap();
    drop(unused);
    harness.endpoint(&receiver, json!({})).await;
    harness.publish("one", None).await;
    let (transition, detail) = harness.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::Refused));
    assert_eq!(transition.state.stage(), DeliveryStage::Waiting);
    assert!(detail.message.is_some_and(|message| !message.is_empty()));
}

#[tokio::test]
async fn a_url_that_the_guard_refuses_is_never_connected_to() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness
        .endpoint_with(&receiver, json!({}), |settings| {
            settings.url = "http://169.254.169.254/latest".to_owned();
        })
        .await;
    harness.publish("one", None).await;
    let (_, detail) = harness.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::BlockedAddress));
    harness.endpoint(&receiver, json!({})).await;
    harness.publish("two", None).await;
    assert_eq!(receiver.texts(1).await, ["two"]);
}

#[tokio::test]
async fn a_receiver_that_hangs_is_cut_off() {
    let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
    harness
        .endpoint_with(&receiver, json!({}), |settings| {
            settings.timeout = Some(railpost_engine::Span::from_millis(100));
        })
        .await;
    let _never = receiver.then_wait();
    harness.publish("one", None).await;
    let (_, detail) = harness.ended().await;
    assert_eq!(detail.result, AttemptResult::Failed(Failure::Timeout));
}

#[tokio::test]
async fn gone_switches_the_endpoint_off_and_that_is_on_record() {
    let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::Status(410));
    harness.publish("one", Some("a")).await;
    harness.ended().await;
    harness.publish("two", Some("b")).await;
    harness.stop().await;
    let stored = harness.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(stored.status, EndpointStatus::Gone);
    assert_eq!(harness.state("two").await, DeliveryState::Pending, "the backlog is kept");
    let reason = DeadReason::Permanent;
    assert_eq!(harness.state("one").await, DeliveryState::Dead { reason, holds: true });
}
