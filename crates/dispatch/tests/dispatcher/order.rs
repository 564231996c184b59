//! Order within a key, over real HTTP; and what people's orders do to it.

use railpost_engine::{Command, DeliveryState, NoticeKind};
use serde_json::json;

use crate::harness::{Harness, Observed, event, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn the_second_event_of_a_key_is_held_until_the_first_is_acknowledged() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    harness.publish("created", Some("A")).await;
    assert_eq!(receiver.texts(1).await, ["created"]);
    harness.publish("updated", Some("A")).await;
    harness.publish("settled", Some("B")).await;
    assert_eq!(receiver.texts(1).await, ["settled"], "another key is not blocked");
    assert_eq!(receiver.left(), 0);
    answer.send(200).unwrap();
    assert_eq!(receiver.texts(1).await, ["updated"]);
}

#[tokio::test]
async fn a_hundred_keys_arrive_each_in_its_order() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    for round in 0..5 {
        let events =
            (0..100).map(|key| event(&format!("{key}-{round}"), Some(&format!("key-{key}"))));
        harness.accept(events.collect()).await;
    }
    let mut next = [0; 100];
    for text in receiver.texts(500).await {
        let (key, round) = text.split_once('-').unwrap();
        let (key, round): (usize, usize) = (key.parse().unwrap(), round.parse().unwrap());
        assert_eq!(round, next[key], "key {key}");
        next[key] += 1;
    }
    assert_eq!(next, [5; 100]);
}

#[tokio::test]
async fn a_dead_letter_holds_its_lane_until_it_is_replayed() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::Status(400));
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    receiver.request().await;
    loop {
        if let Observed::Notice(NoticeKind::LaneHeld { .. }) = harness.observed().await {
            break;
        }
    }
    harness.publish("other", Some("b")).await;
    assert_eq!(receiver.texts(1).await, ["other"]);
    harness.command(Command::Replay, "first").await;
    let replayed = receiver.request().await;
    assert_eq!((replayed.text(), replayed.header("x-replay")), ("first", Some("true")));
    assert_eq!(replayed.header("webhook-id"), Some("first"), "the same event id");
    assert_eq!(receiver.texts(1).await, ["second"]);
}

#[tokio::test]
async fn a_skip_and_a_discard_release_the_lane_too() {
    for (command, stage) in [(Command::Skip, "dead"), (Command::Discard, "discarded")] {
        let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
        harness.endpoint(&receiver, json!({})).await;
        receiver.then(Answer::Status(400));
        harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
        harness.ended().await;
        harness.command(command, "first").await;
        assert_eq!(receiver.texts(2).await, ["first", "second"]);
        harness.stop().await;
        assert_eq!(harness.state("first").await.stage().to_string(), stage);
    }
}

#[tokio::test]
async fn an_at_most_once_delivery_goes_out_once_and_is_not_retried() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let mut policy = quick();
    policy["guarantee"] = json!("at_most_once");
    harness.endpoint(&receiver, policy).await;
    receiver.then(Answer::Status(500));
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    assert_eq!(receiver.texts(2).await, ["first", "second"]);
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
    assert_eq!(harness.state("second").await, DeliveryState::Delivered);
    assert_eq!(harness.state("first").await.stage().to_string(), "dead");
}

#[tokio::test]
async fn an_event_sent_again_goes_to_the_end_of_its_lane() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    harness.accept(vec![event("first", Some("a")), event("second", Some("a"))]).await;
    receiver.texts(2).await;
    let orders = vec![("first".parse().unwrap(), endpoint)];
    let tenant = crate::harness::tenant();
    let batch = railpost_store::RedeliverBatch { tenant, orders, audit: None, idempotency: None };
    harness.dispatcher.redeliver(batch).await.unwrap();
    let again = receiver.request().await;
    assert_eq!((again.text(), again.header("x-seq")), ("first", Some("3")));
}
