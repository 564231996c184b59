//! What was committed without the dispatcher hearing of it is delivered without a restart.

use std::sync::Arc;
use std::time::Duration;

use railpost_dispatch::DispatcherConfig;
use railpost_engine::{DeliveryState, EndpointStatus, Span};
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, MasterKey, MemoryStore, NewEndpoint, Receipt,
    RedeliverBatch, Setup, SystemSource, Write,
};
use railpost_wire::EndpointId;

use crate::flaky::Flaky;
use crate::harness::{Harness, event, in_time, quick, tenant};
use crate::receiver::Receiver;
use crate::trouble::{shop_on_flaky, trouble};

fn batch(name: &str, key: Option<&str>) -> AcceptBatch {
    AcceptBatch {
        tenant: tenant(),
        events: vec![event(name, key)],
        accepted_by: None,
        idempotency: None,
    }
}

/// Asks until it is so: there is no signal for it.
async fn until(is_so: impl AsyncFn() -> bool) {
    in_time(async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn shop_with_receiver() -> (Harness, Arc<Flaky>, Receiver, EndpointId) {
    let (mut harness, flaky) = shop_on_flaky(DispatcherConfig::default()).await;
    let receiver = Receiver::start().await;
    let endpoint = harness.endpoint(&receiver, quick()).await;
    (harness, flaky, receiver, endpoint)
}

#[tokio::test]
async fn an_event_whose_acceptance_was_not_answered_is_delivered() {
    for key in [Some("a"), None] {
        let (harness, flaky, mut receiver, _) = shop_with_receiver().await;
        flaky.lose_answers(1);
        assert!(harness.dispatcher.accept(batch("one", key)).await.is_err());
        let again = harness.dispatcher.accept(batch("one", key)).await.unwrap();
        assert!(matches!(again[..], [Receipt::Duplicate { .. }]), "{again:?}");
        assert_eq!(receiver.texts(1).await, ["one"]);
        harness.publish("two", key).await;
        assert_eq!(receiver.texts(1).await, ["two"]);
        harness.stop().await;
        assert_eq!(receiver.left(), 0, "each once");
    }
}

#[tokio::test]
async fn a_redelivery_that_was_not_answered_is_delivered() {
    let (mut harness, flaky, mut receiver, endpoint) = shop_with_receiver().await;
    harness.publish("one", Some("a")).await;
    receiver.request().await;
    harness.ended().await;
    flaky.lose_answers(1);
    let orders = vec![("one".parse().unwrap(), endpoint)];
    let again = RedeliverBatch { tenant: tenant(), orders, audit: None, idempotency: None };
    assert!(harness.dispatcher.redeliver(again).await.is_err());
    let seen = receiver.request().await;
    let found = ["x-seq", "x-replay"].map(|name| seen.header(name).unwrap());
    assert_eq!((seen.text(), found), ("one", ["2", "true"]));
}

#[tokio::test]
async fn what_nobody_doubts_is_found_by_the_sweep() {
    let config = DispatcherConfig {
        sweep_every: Duration::from_millis(20),
        sweep_lag: Span::from_millis(20),
        ..DispatcherConfig::default()
    };
    let (mut harness, flaky) = shop_on_flaky(config).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    // Behind the dispatcher's back, as another process would.
    let store: &dyn railpost_store::Store = &*flaky;
    store.accept(batch("keyed", Some("a")).into()).await.unwrap();
    store.accept(batch("unkeyed", None).into()).await.unwrap();
    let mut texts = receiver.texts(2).await;
    texts.sort();
    assert_eq!(texts, ["keyed", "unkeyed"]);
}

#[tokio::test]
async fn a_new_endpoint_that_could_not_be_read_is_served_as_soon_as_it_can() {
    let (mut harness, flaky, _, _) = shop_with_receiver().await;
    let mut receiver = Receiver::start().await;
    flaky.fail_endpoint_reads(3);
    let (id, settings) = (EndpointId::from_u128(99), EndpointSettings::all_events(&receiver.url()));
    let settings = EndpointSettings {
        policy: serde_json::from_value(serde_json::json!({"signed": false})).unwrap(),
        ..settings
    };
    let private = EndpointPrivate::default();
    let new = NewEndpoint { id, tenant: tenant(), settings, private };
    harness.dispatcher.commit(Write::CreateEndpoint(new).into()).await.unwrap();
    trouble(&mut harness).await;
    harness.publish("one", None).await;
    assert_eq!(receiver.texts(1).await, ["one"]);
}

#[tokio::test]
async fn a_pause_whose_answer_was_lost_is_obeyed() {
    let (harness, flaky, receiver, endpoint) = shop_with_receiver().await;
    flaky.lose_answers(1);
    let pause = Write::SetEndpointStatus(endpoint, EndpointStatus::Paused);
    assert!(harness.dispatcher.commit(pause.into()).await.is_err());
    let health = async || harness.dispatcher.health(endpoint).await.unwrap().unwrap().health;
    until(async || health().await.status == EndpointStatus::Paused).await;
    harness.publish("one", None).await;
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn what_a_fenced_record_told_of_is_loaded_again() {
    let (harness, flaky, mut receiver, _) = shop_with_receiver().await;
    flaky.fence_records(1);
    harness.publish("one", Some("a")).await;
    assert_eq!(receiver.texts(2).await, ["one", "one"], "the store does not know that it arrived");
    harness.stop().await;
    assert_eq!(harness.state("one").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn a_store_that_lost_commits_is_loaded_again_and_begins_new_lines() {
    let (harness, flaky, mut receiver, _) = shop_with_receiver().await;
    let answer = receiver.then_wait();
    harness.publish("one", Some("a")).await;
    let first = receiver.request().await;
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    harness.store.backup(&copy).await.unwrap();
    answer.send(200).unwrap();
    harness.publish("lost", Some("a")).await;
    let lost = receiver.request().await;
    assert_eq!((lost.header("x-seq"), lost.header("x-lane")), (Some("2"), first.header("x-lane")));
    until(async || harness.state("lost").await == DeliveryState::Delivered).await;

    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) };
    flaky.replace(Arc::new(MemoryStore::restore(&copy, setup).unwrap()));
    flaky.lose_answers(1);
    assert!(harness.dispatcher.accept(batch("two", Some("a"))).await.is_err());
    let again = receiver.request().await;
    assert_eq!((again.text(), again.header("x-seq")), ("one", Some("1")));
    assert_ne!(
        again.header("x-lane"),
        first.header("x-lane"),
        "what was open goes out in a new line"
    );
    let two = receiver.request().await;
    assert_eq!((two.text(), two.header("x-seq")), ("two", Some("2")));
    assert_eq!(two.header("x-lane"), again.header("x-lane"));
    harness.stop().await;
    assert_eq!(harness.state("one").await, DeliveryState::Delivered);
}

#[tokio::test]
async fn a_stopped_dispatcher_lets_go_of_its_store() {
    let store = crate::harness::memory_store();
    let held = Arc::downgrade(&store);
    let sweep_every = Duration::from_secs(3_600);
    let config = DispatcherConfig { sweep_every, ..DispatcherConfig::default() };
    let harness = Harness::on(store, config).await;
    harness.stop().await;
    drop(harness);
    until(async || held.strong_count() == 0).await;
}
