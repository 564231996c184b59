//! Stopping, and starting again on what the store has.

use railpost_dispatch::DispatcherConfig;
use railpost_engine::DeliveryState;
use serde_json::json;

use crate::flaky::Flaky;
use std::time::Duration;

use crate::harness::{HANG_TIMEOUT, Harness, event, in_time, memory_store, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn a_stop_waits_for_what_is_under_way_and_starts_nothing_more() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    receiver.request().await;
    let stop = harness.dispatcher.clone();
    let stopping = tokio::spawn(async move { stop.stop(HANG_TIMEOUT).await });
    // Accepting still works while it stops: what is durable is not lost.
    answer.send(200).unwrap();
    in_time(stopping).await.unwrap();
    assert_eq!(harness.state("first").await, DeliveryState::Delivered);
    assert_eq!(harness.state("second").await, DeliveryState::Pending);
    assert_eq!(receiver.left(), 0);
    harness.restart().await;
    assert_eq!(receiver.texts(1).await, ["second"]);
}

#[tokio::test]
async fn a_stop_aborts_attempts_that_outlast_its_timeout_and_the_next_start_makes_them_again() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    let mut unanswered = receiver.then_wait();
    harness.publish("one", Some("a")).await;
    receiver.request().await;
    assert!(!in_time(harness.dispatcher.stop(Duration::ZERO)).await, "not all had ended");
    in_time(unanswered.closed()).await;
    assert_eq!(harness.state("one").await, DeliveryState::Pending);
    harness.restart().await;
    assert_eq!(receiver.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_stop_without_attempts_under_way_says_that_all_ended() {
    let harness = Harness::open().await;
    assert!(in_time(harness.dispatcher.stop(Duration::MAX)).await);
}

#[tokio::test]
async fn what_was_accepted_before_a_start_is_delivered_after_it() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    harness.stop().await;
    let events = (0..300).map(|n| event(&format!("{n}"), (n % 3 > 0).then_some("a")));
    harness.accept(events.collect()).await;
    harness.restart().await;
    let mut texts = receiver.texts(300).await;
    let keyed: Vec<u32> = texts.iter().map(|t| t.parse().unwrap()).filter(|n| n % 3 > 0).collect();
    assert!(keyed.is_sorted(), "{keyed:?}");
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 300, "each once");
}

#[tokio::test]
async fn payloads_that_are_not_in_memory_are_read_from_the_store() {
    let config = DispatcherConfig { payload_cache_bytes_max: 0, ..DispatcherConfig::default() };
    let mut harness = Harness::on(memory_store(), config).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(500));
    harness.publish("one", Some("a")).await;
    assert_eq!(receiver.texts(2).await, ["one", "one"]);
}

#[tokio::test]
async fn an_at_most_once_delivery_under_way_in_a_crash_is_not_sent_again() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({"guarantee": "at_most_once"})).await;
    let _never = receiver.then_wait();
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    assert_eq!(receiver.texts(1).await, ["first"]);
    harness.restart().await;
    assert_eq!(receiver.texts(1).await, ["second"], "the first may have arrived");
}

#[tokio::test]
async fn after_a_crash_what_was_under_way_is_sent_again_with_the_same_id() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    let _never = receiver.then_wait();
    harness.publish("one", Some("a")).await;
    let first = receiver.request().await;
    harness.restart().await;
    let again = receiver.request().await;
    assert_eq!(first.header("webhook-id"), again.header("webhook-id"));
    assert_eq!(again.header("x-seq"), Some("1"));
}

#[tokio::test]
async fn a_stopped_dispatcher_says_so() {
    let harness = Harness::open().await;
    harness.stop().await;
    assert!(harness.dispatcher.counters().await.is_err());
    harness.stop().await;
}

#[tokio::test]
async fn an_at_most_once_delivery_that_is_being_recorded_when_a_stop_comes_is_sent() {
    let flaky = Flaky::new(memory_store());
    let mut harness = Harness::on(flaky.clone(), DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, json!({"guarantee": "at_most_once"})).await;
    let held = flaky.hold_records().await;
    harness.publish("one", None).await;
    // It is on record as sent, and the answer is under way.
    in_time(flaky.record_begun()).await;
    let stop = harness.dispatcher.clone();
    let stopping = tokio::spawn(async move { stop.stop(HANG_TIMEOUT).await });
    harness.dispatcher.under_way().await.ok();
    drop(held);
    in_time(stopping).await.unwrap();
    assert_eq!(receiver.texts(1).await, ["one"]);
    assert_eq!(harness.state("one").await, DeliveryState::Delivered);
}
