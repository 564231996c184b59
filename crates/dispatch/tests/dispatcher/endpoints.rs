//! Endpoints that change while events are on their way.

use railpost_engine::{DeliveryState, EndpointStatus};
use railpost_store::{EndpointPrivate, EndpointSettings, Write};
use serde_json::json;

use crate::harness::{HANG_TIMEOUT, Harness, in_time, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn a_paused_endpoint_keeps_its_backlog_until_it_is_resumed() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    harness.switch(endpoint, EndpointStatus::Paused).await;
    harness.publish("one", Some("a")).await;
    let health = harness.dispatcher.health(endpoint).await.unwrap().unwrap().health;
    assert_eq!((health.status, health.ready, health.in_flight), (EndpointStatus::Paused, 1, 0));
    harness.switch(endpoint, EndpointStatus::Active).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_changed_url_takes_the_next_attempt_elsewhere() {
    let (mut harness, mut old) = (Harness::open().await, Receiver::start().await);
    let mut new = Receiver::start().await;
    let id = harness.endpoint(&old, json!({})).await;
    old.then(Answer::RetryAfter(500, 1));
    harness.publish("one", None).await;
    assert_eq!(old.texts(1).await, ["one"]);
    let settings = EndpointSettings::all_events(&new.url());
    let private = EndpointPrivate::default();
    harness.write(id, Write::UpdateEndpoint { id, settings, private, revision: None }).await;
    assert_eq!(new.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_removed_endpoint_gets_nothing_more() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let removed = harness.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    harness.publish("first", Some("a")).await;
    receiver.request().await;
    harness.publish("second", Some("a")).await;
    harness.write(removed, Write::RemoveEndpoint(removed)).await;
    answer.send(200).unwrap();
    let mut other = Receiver::start().await;
    harness.endpoint(&other, quick()).await;
    harness.publish("third", Some("a")).await;
    assert_eq!(other.texts(1).await, ["third"]);
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn one_hanging_endpoint_takes_nothing_from_another() {
    let (mut harness, hanging) = (Harness::open().await, Receiver::start().await);
    let mut good = Receiver::start().await;
    let mut policy = quick();
    policy["in_flight_max"] = json!(2);
    harness.endpoint(&hanging, policy.clone()).await;
    harness.endpoint(&good, policy).await;
    let _never = [hanging.then_wait(), hanging.then_wait()];
    for number in 0..50 {
        harness.publish(&format!("event-{number}"), None).await;
    }
    assert_eq!(good.texts(50).await.len(), 50);
}

#[tokio::test]
async fn what_the_engine_switched_off_a_person_switches_on() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(410));
    harness.publish("one", None).await;
    harness.ended().await;
    receiver.request().await;
    harness.publish("two", None).await;
    harness.switch(endpoint, EndpointStatus::Active).await;
    assert_eq!(receiver.texts(1).await, ["two"]);
    harness.stop().await;
    assert_eq!(harness.state("two").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn removing_an_endpoint_aborts_its_attempts_and_no_others() {
    let mut harness = Harness::open().await;
    let (mut removed, mut kept) = (Receiver::start().await, Receiver::start().await);
    let endpoint = harness.endpoint(&removed, quick()).await;
    harness.endpoint(&kept, quick()).await;
    let (mut unanswered, answer) = (removed.then_wait(), kept.then_wait());
    harness.publish("one", Some("a")).await;
    removed.request().await;
    kept.request().await;
    harness.write(endpoint, Write::RemoveEndpoint(endpoint)).await;
    in_time(unanswered.closed()).await;
    assert!(!answer.is_closed());
    answer.send(200).unwrap();
    let (transition, _) = harness.ended().await;
    assert_eq!(transition.state, DeliveryState::Delivered);
    assert!(in_time(harness.dispatcher.stop(HANG_TIMEOUT)).await, "nothing is left under way");
}
