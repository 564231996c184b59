//! Endpoints that change while events are on their way.

use railpost_engine::{DeliveryState, EndpointStatus};
use railpost_store::{EndpointPrivate, EndpointSettings, Write};
use serde_json::json;

use crate::harness::{Shop, quick};
use crate::receiver::{Answer, Receiver};

#[tokio::test]
async fn a_paused_endpoint_keeps_its_backlog_until_it_is_resumed() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    let endpoint = shop.endpoint(&receiver, quick()).await;
    shop.switch(endpoint, EndpointStatus::Paused).await;
    shop.publish("one", Some("a")).await;
    let health = shop.dispatcher.health(endpoint).await.unwrap().unwrap();
    assert_eq!((health.status, health.ready, health.in_flight), (EndpointStatus::Paused, 1, 0));
    shop.switch(endpoint, EndpointStatus::Active).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_changed_url_takes_the_next_attempt_elsewhere() {
    let (mut shop, mut old) = (Shop::open().await, Receiver::start().await);
    let mut new = Receiver::start().await;
    let id = shop.endpoint(&old, json!({})).await;
    old.then(Answer::RetryAfter(500, 1));
    shop.publish("one", None).await;
    assert_eq!(old.texts(1).await, ["one"]);
    let settings = EndpointSettings::all_events(&new.url());
    let private = EndpointPrivate::default();
    shop.write(id, Write::UpdateEndpoint { id, settings, private, revision: None }).await;
    assert_eq!(new.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_removed_endpoint_gets_nothing_more() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    let removed = shop.endpoint(&receiver, quick()).await;
    let answer = receiver.then_wait();
    shop.publish("first", Some("a")).await;
    receiver.request().await;
    shop.publish("second", Some("a")).await;
    shop.write(removed, Write::RemoveEndpoint(removed)).await;
    answer.send(200).unwrap();
    let mut other = Receiver::start().await;
    shop.endpoint(&other, quick()).await;
    shop.publish("third", Some("a")).await;
    assert_eq!(other.texts(1).await, ["third"]);
    shop.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn one_hanging_endpoint_takes_nothing_from_another() {
    let (mut shop, hanging) = (Shop::open().await, Receiver::start().await);
    let mut good = Receiver::start().await;
    let mut policy = quick();
    policy["in_flight_max"] = json!(2);
    shop.endpoint(&hanging, policy.clone()).await;
    shop.endpoint(&good, policy).await;
    let _never = [hanging.then_wait(), hanging.then_wait()];
    for number in 0..50 {
        shop.publish(&format!("event-{number}"), None).await;
    }
    assert_eq!(good.texts(50).await.len(), 50);
}

#[tokio::test]
async fn what_the_engine_switched_off_a_person_switches_on() {
    let (mut shop, mut receiver) = (Shop::open().await, Receiver::start().await);
    let endpoint = shop.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(410));
    shop.publish("one", None).await;
    shop.ended().await;
    receiver.request().await;
    shop.publish("two", None).await;
    shop.switch(endpoint, EndpointStatus::Active).await;
    assert_eq!(receiver.texts(1).await, ["two"]);
    shop.stop().await;
    assert_eq!(shop.state("two").await, DeliveryState::Delivered);
}
