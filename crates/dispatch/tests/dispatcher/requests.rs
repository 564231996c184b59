//! What a receiver finds in a request: signatures, headers, envelopes.

use railpost_engine::Timestamp;
use railpost_store::{DeliveryView, Event, Source, SystemSource};
use railpost_wire::cloudevents::CloudEvent;
use railpost_wire::{Envelope, Header, HeaderNames, Received, Secret, Verifier};
use serde_json::{Value, json};

use crate::harness::{Harness, event, quick, secret};
use crate::receiver::{Answer, Receiver, Seen};

pub(crate) fn now() -> i64 {
    (SystemSource.now().as_millis() / 1000) as i64
}

pub(crate) fn lookup<'s>(seen: &'s Seen) -> impl Fn(&str) -> Option<&'s [u8]> {
    move |name: &str| seen.header(name).map(str::as_bytes)
}

#[tokio::test]
async fn a_request_verifies_and_says_what_it_is() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    receiver.then(Answer::Status(500));
    let event = Event {
        time: Timestamp::from_millis(1_767_225_600_120),
        schema_version: Some(3),
        ..event("one", Some("order 1"))
    };
    harness.accept(vec![event.clone()]).await;
    for attempt in [1, 2] {
        let seen = receiver.request().await;
        let verifier = Verifier::new(vec![secret()], vec![]);
        verifier.verify(lookup(&seen), &seen.body, now()).unwrap();
        let received = Received::parse(&HeaderNames::default(), lookup(&seen)).unwrap();
        assert_eq!(received.event_id.to_string(), "one");
        assert_eq!(received.event_type, Some(event.event_type.clone()));
        assert_eq!(received.event_unix_ms, Some(1_767_225_600_120));
        assert_eq!(seen.header("x-event-time"), Some("2026-01-01T00:00:00.12Z"));
        assert_eq!(received.schema_version, Some(3));
        assert_eq!(received.key.unwrap().as_str(), "order 1");
        assert_eq!(received.seq.unwrap().get(), 1);
        assert_eq!((received.attempt, received.replay), (Some(attempt), false));
        assert_eq!(seen.header("content-type"), Some("text/plain"));
        assert!(seen.header("user-agent").unwrap().starts_with("Railpost/"));
        assert_eq!(seen.text(), "one");
    }
}

#[tokio::test]
async fn during_a_rotation_both_secrets_sign() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let endpoint = harness.endpoint(&receiver, quick()).await;
    let new = Secret::generate(&[5; 32]);
    harness.add_secret(endpoint, new.clone()).await;
    harness.publish("one", None).await;
    let seen = receiver.request().await;
    for secret in [secret(), new] {
        let verifier = Verifier::new(vec![secret], vec![]);
        verifier.verify(lookup(&seen), &seen.body, now()).unwrap();
    }
}

#[tokio::test]
async fn an_endpoint_that_wants_no_signature_gets_none() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({"signed": false})).await;
    harness.publish("one", None).await;
    let seen = receiver.request().await;
    assert_eq!(seen.header("webhook-signature"), None);
    assert_eq!(seen.header("x-webhook-signature"), None);
    assert_eq!(seen.header("webhook-id"), Some("one"));
}

#[tokio::test]
async fn renamed_headers_are_renamed() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let names = [(Header::XKey, "X-Order"), (Header::XEventType, "X-Topic")];
    let names = names.map(|(header, name)| (header, name.to_owned()));
    let names = HeaderNames::renamed(names).unwrap();
    harness.endpoint_with(&receiver, quick(), |settings| settings.header_names = names).await;
    harness.publish("one", Some("a")).await;
    let seen = receiver.request().await;
    assert_eq!((seen.header("x-order"), seen.header("x-key")), (Some("a"), None));
    assert!(seen.header("x-topic").is_some() && seen.header("x-event-type").is_none());
}

#[tokio::test]
async fn a_structured_cloud_event_arrives_as_one() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let envelope = Envelope::CloudeventsStructured;
    harness.endpoint_with(&receiver, quick(), |settings| settings.envelope = envelope).await;
    let mut event = event("one", Some("a"));
    event.payload = r#"{"total": 12}"#.into();
    event.content_type = "application/json".parse().unwrap();
    harness.accept(vec![event]).await;
    let seen = receiver.request().await;
    assert_eq!(seen.header("content-type"), Some("application/cloudevents+json"));
    let event = CloudEvent::from_json(&seen.body).unwrap();
    assert_eq!((event.id.as_ref(), event.subject.as_deref()), ("one", Some("a")));
    assert!(seen.text().contains(r#"{"total": 12}"#), "the payload is embedded as it is");
    let verifier = Verifier::new(vec![secret()], vec![]);
    verifier.verify(lookup(&seen), &seen.body, now()).unwrap();
}

#[tokio::test]
async fn a_thin_event_says_where_the_rest_is() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let envelope = Envelope::Thin;
    harness.endpoint_with(&receiver, quick(), |settings| settings.envelope = envelope).await;
    harness.publish("one", Some("a")).await;
    let seen = receiver.request().await;
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(body["url"], "https://railpost.test/events/one");
    assert_eq!((&body["id"], &body["key"]), (&json!("one"), &json!("a")));
}

#[tokio::test]
async fn a_trace_goes_on_at_the_receiver_with_a_span_of_our_own() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut event = event("one", None);
    event.traceparent = Some(parent.to_owned());
    harness.accept(vec![event]).await;
    let seen = receiver.request().await;
    let passed_on = seen.header("traceparent").unwrap();
    assert!(passed_on.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{passed_on}");
    assert!(passed_on.ends_with("-01") && passed_on != parent, "{passed_on}");
}

#[tokio::test]
async fn an_attempt_is_on_record_with_its_answer_and_timing() {
    let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({})).await;
    receiver.then(Answer::Status(500));
    harness.publish("one", None).await;
    harness.ended().await;
    harness.stop().await;
    let attempt = harness.attempts("one").await.remove(0);
    assert_eq!(&*attempt.detail.response_body, b"noted");
    assert!(attempt.detail.timing.connect_us.is_some() && attempt.detail.timing.total_us > 0);
    assert!(attempt.next_at.is_some_and(|next| next >= attempt.detail.started_at));
    let DeliveryView { created_at, changed_at, .. } = harness.delivery("one").await;
    assert!(Timestamp::default() < created_at && created_at <= changed_at);
}

#[tokio::test]
async fn a_request_names_its_line_and_what_it_follows() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, json!({"on_dead_letter": "advance", "breaker": null})).await;
    for status in [200, 400, 400, 200] {
        receiver.then(Answer::Status(status));
    }
    let mut found = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        harness.publish(name, Some("a")).await;
        harness.ended().await;
        let seen = receiver.request().await;
        let received = Received::parse(&HeaderNames::default(), lookup(&seen)).unwrap();
        found.push((received.line.unwrap(), received.seq.unwrap().get(), received.after));
    }
    assert!(found.iter().all(|(line, ..)| *line == found[0].0));
    let numbers: Vec<_> = found.iter().map(|(_, seq, after)| (*seq, *after)).collect();
    assert_eq!(numbers, [(1, None), (2, None), (3, Some(1)), (4, Some(1)), (5, None)]);
    harness.publish("unkeyed", None).await;
    let seen = receiver.request().await;
    assert_eq!((seen.header("x-lane"), seen.header("x-seq")), (None, None));
}

#[tokio::test]
async fn two_endpoints_and_two_keys_have_lines_of_their_own() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    harness.endpoint(&receiver, quick()).await;
    harness.endpoint(&receiver, quick()).await;
    let mut lines = Vec::new();
    for key in ["a", "b"] {
        harness.publish(key, Some(key)).await;
        for _ in 0..2 {
            lines.push(receiver.request().await.header("x-lane").unwrap().to_owned());
        }
    }
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 4);
}
