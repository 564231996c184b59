//! CloudEvents deliveries, parsed by PyPI's `cloudevents`.

use crate::tools::{Library, about};
use railpost_receiver::testing::TestRequest;
use railpost_receiver::wire::{Envelope, Event};
use serde_json::json;

fn wrapped(envelope: Envelope) -> TestRequest {
    let (id, key) = ("order-1:paid".parse().unwrap(), "caf\u{e9} 1".parse().unwrap());
    let (event_type, source) = ("order.paid".parse().unwrap(), "/tenants/acme".parse().unwrap());
    let content_type = "application/json".parse().unwrap();
    let content = envelope.wrap(&Event {
        id: &id,
        event_type: &event_type,
        key: Some(&key),
        payload: br#"{"total": 12}"#,
        content_type: &content_type,
        schema_version: Some(3),
        unix_ms: 1_767_225_600_000,
        source: &source,
        cloudevent: None,
        url: "https://railpost.test/",
    });
    let headers = content.headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.clone())).collect();
    TestRequest { headers, body: content.body.into_owned() }
}

#[test]
fn deliveries_parse_with_the_reference_library() {
    for (envelope, subject) in [
        (Envelope::CloudeventsStructured, "caf\u{e9} 1"),
        // The library leaves it to its user to undo the percent-encoding of headers.
        (Envelope::CloudeventsBinary, "caf%C3%A9%201"),
    ] {
        let answers = Library::Python.ask(&[about("cloud_event", &wrapped(envelope), "")]);
        let event = &answers[0];
        for (attribute, expected) in [
            ("specversion", json!("1.0")),
            ("id", json!("order-1:paid")),
            ("type", json!("order.paid")),
            ("source", json!("/tenants/acme")),
            ("subject", json!(subject)),
            ("datacontenttype", json!("application/json")),
            ("schemaversion", json!("3")),
            ("data", json!({"total": 12})),
        ] {
            assert_eq!(event[attribute], expected, "{envelope:?}: {attribute} of {event}");
        }
        println!("railpost {envelope:?} → Python cloudevents: parsed");
    }
}
