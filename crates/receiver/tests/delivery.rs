//! What can be read out of a delivery, by its headers and by its envelope.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use railpost_receiver::testing::{TestEvent, TestRequest, TestSender};
use railpost_receiver::wire::cloudevents::{Data, Origin};
use railpost_receiver::wire::{Envelope, Event, Secret};
use railpost_receiver::{Delivery, Fetched, Receiver, Rejection};

const NOW: i64 = 1_767_225_600;
const SECRET: &[u8] = b"a secret of the delivery tests";

fn verified(sent: TestRequest) -> Result<Delivery, Rejection> {
    let receiver = Receiver::new(vec![Secret::from_bytes(SECRET).unwrap()], vec![]);
    let headers = sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    Delivery::verify(&receiver, &headers.collect::<Vec<_>>(), sent.body, NOW)
}

fn dated() -> (TestSender, TestEvent) {
    let mut sender = TestSender::new(SECRET);
    let event = sender.event(Some("A"), b"{}");
    let event_type = "order.paid".parse().unwrap();
    (sender, TestEvent { event_type, schema_version: Some(3), ..event })
}

#[test]
fn the_headers_of_a_delivery_tell_type_time_and_schema_version() {
    let (sender, event) = dated();
    let received = verified(sender.request(&event, 1, NOW)).unwrap().received;
    assert_eq!(received.event_type, Some(event.event_type));
    assert_eq!(received.event_unix_ms, Some(NOW * 1000));
    assert_eq!(received.schema_version, Some(3));
}

#[test]
fn a_sender_that_says_neither_type_nor_time_is_read_as_well() {
    let (sender, event) = dated();
    let mut sent = sender.request(&event, 1, NOW);
    sent.headers.retain(|(name, _)| {
        !["X-Event-Type", "X-Event-Time", "X-Schema-Version"].contains(&name.as_str())
    });
    let received = verified(sent).unwrap().received;
    assert_eq!((received.event_type, received.event_unix_ms), (None, None));
    assert_eq!(received.schema_version, None);
}

/// An event of these bytes in an envelope of the real sender's.
fn wrapped(envelope: Envelope, payload: &[u8], content_type: &str) -> TestRequest {
    let (sender, event) = dated();
    let event = TestEvent { body: payload.to_vec(), ..event };
    wrapped_by(&sender, &event, envelope, content_type, None)
}

/// The same of this event, whose body is the payload.
fn wrapped_by(
    sender: &TestSender,
    event: &TestEvent,
    envelope: Envelope,
    content_type: &str,
    cloudevent: Option<&Origin>,
) -> TestRequest {
    let (content_type, source) = (content_type.parse().unwrap(), "/tenants/acme".parse().unwrap());
    let content = envelope.wrap(&Event {
        id: &event.id,
        event_type: &event.event_type,
        key: event.key.as_ref(),
        payload: &event.body,
        content_type: &content_type,
        schema_version: event.schema_version,
        unix_ms: event.event_unix_ms,
        cloudevent,
        source: &source,
        url: "https://railpost.test/v1/thin/1",
    });
    let thin = envelope == Envelope::Thin;
    let event = TestEvent { body: content.body.to_vec(), thin, ..event.clone() };
    let mut sent = sender.request(&event, 1, NOW);
    let headers = content.headers.into_iter();
    sent.headers.extend(headers.map(|(name, value)| (name.into_owned(), value)));
    sent
}

#[test]
fn an_event_envelope_is_read_with_its_data_byte_for_byte() {
    for (payload, content_type) in [
        (&br#"{"b" : 1.10, "b":2 }"#[..], "application/json"),
        (b"null", "application/json"),
        (b"[1]", "application/vnd.shop+json"),
        (b"{\"a\":", "application/json"),
        (b"\0\xff", "application/octet-stream"),
        (b"", "text/plain"),
    ] {
        let delivery = verified(wrapped(Envelope::Event, payload, content_type)).unwrap();
        let event = delivery.event().unwrap();
        let (_, sent) = dated();
        assert_eq!((&event.id, &event.event_type), (&sent.id, &sent.event_type));
        assert_eq!((&event.key, event.version), (&sent.key, Some(3)));
        assert_eq!(event.created_at.as_deref(), Some("2026-01-01T00:00:00Z"));
        match event.data {
            Data::Json(value) => assert_eq!(value.get().as_bytes(), payload),
            Data::Binary(bytes) => assert_eq!(&*bytes, payload),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_no_event_envelope_is_refused() {
    for body in [
        "[]",
        r#"{"type": "a", "data": 1}"#,
        r#"{"id": "test-1", "data": 1}"#,
        r#"{"id": "another", "type": "a", "data": 1}"#,
        r#"{"id": "test-1", "type": "a", "version": "3", "data": 1}"#,
        r#"{"id": "test-1", "type": "a", "data": 1, "data_base64": ""}"#,
        r#"{"id": "test-1", "type": "a", "data_base64": "%"}"#,
    ] {
        let (sender, event) = dated();
        let sent = sender.request(&TestEvent { body: body.into(), ..event }, 1, NOW);
        let refused = verified(sent).unwrap().event().map(|event| event.id);
        assert!(matches!(refused, Err(Rejection::Unreadable(_))), "{body}: {refused:?}");
    }
}

/// A client of the application's own: what it was asked for, and the payload with its type.
async fn get(url: &str) -> Result<Fetched, Rejection> {
    assert_eq!(url, "https://railpost.test/v1/thin/1");
    Ok(Fetched { content_type: "application/json".into(), payload: b"{\"total\": 12}".to_vec() })
}

#[tokio::test]
async fn a_payload_that_is_here_and_one_that_is_fetched_are_read_alike() {
    for envelope in [Envelope::Raw, Envelope::Thin] {
        let sent = wrapped(envelope, b"{\"total\": 12}", "application/json");
        let delivery = verified(sent).unwrap();
        assert_eq!(delivery.received.thin, envelope == Envelope::Thin);
        let whole = delivery.clone().fetched("https://railpost.test", get).await.unwrap();
        assert_eq!(whole.json::<serde_json::Value>().unwrap()["total"], 12, "{envelope:?}");
        assert_eq!(whole.received.event_id, delivery.received.event_id);
        assert_eq!(whole.received.line, delivery.received.line);
        let elsewhere = delivery.fetched("https://another.test", get).await;
        assert_eq!(elsewhere.is_err(), envelope == Envelope::Thin);
    }
}

#[test]
fn a_reference_is_not_read_as_the_payload() {
    let delivery = verified(wrapped(Envelope::Thin, b"{}", "application/json")).unwrap();
    assert!(delivery.thin().is_ok());
    let refused = [
        delivery.json::<serde_json::Value>().err(),
        delivery.event().err(),
        delivery.cloud_event().err(),
    ];
    for rejection in refused {
        let message = rejection.unwrap().to_string();
        assert!(message.contains("a reference to the event, not the event"), "{message}");
    }
}

#[test]
fn a_cloudevent_that_kept_its_own_id_is_read_under_the_id_that_was_signed() {
    let origin = Origin { id: "order-1".into(), source: "/shop".into(), ..Origin::default() };
    for (signed, readable) in [(origin.event_id(), true), ("another".parse().unwrap(), false)] {
        for envelope in [Envelope::CloudeventsStructured, Envelope::CloudeventsBinary] {
            let (sender, event) = dated();
            let event = TestEvent { id: signed.clone(), ..event };
            let sent = wrapped_by(&sender, &event, envelope, "application/json", Some(&origin));
            let delivery = verified(sent).unwrap();
            let read = delivery.cloud_event().map(|event| (event.source, event.id));
            assert_eq!(read.is_ok(), readable, "{envelope:?}: {read:?}");
            let expected = ("/shop".into(), "order-1".into());
            assert!(read.is_err() || read == Ok(expected), "{envelope:?}");
        }
    }
}
