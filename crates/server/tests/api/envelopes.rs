//! What a receiver finds in a body, by its endpoint's envelope and by the payload's size.

use serde_json::{Value, json};

use crate::receiver::{Arrived, Receiver};
use crate::scene::{of_tenant, text};
use crate::world::World;

fn endpoint(world: &World, settings: &Value) -> (Receiver, String) {
    let receiver = Receiver::new();
    let mut new = settings.clone();
    new["url"] = json!(receiver.url());
    let id = world.endpoint_with(&new);
    (receiver, id)
}

fn publish(world: &World, id: &str, payload: &Value) {
    let event = json!({
        "id": id, "type": "order.paid", "key": "k", "schema_version": 2,
        "time": "2026-01-31T12:00:00.120Z", "payload": payload,
    });
    world.post(&of_tenant("events"), &event).expect(202);
}

fn body(arrived: &Arrived) -> Value {
    serde_json::from_slice(&arrived.body).unwrap()
}

#[test]
fn an_event_envelope_has_id_type_time_version_key_and_data() {
    let world = World::new();
    let (receiver, _) = endpoint(&world, &json!({"envelope": "event"}));
    publish(&world, "e1", &json!({"total": 1}));
    let arrived = receiver.next();
    let expected = json!({
        "id": "e1", "type": "order.paid", "created_at": "2026-01-31T12:00:00.12Z", "version": 2,
        "key": "k", "data": {"total": 1},
    });
    assert_eq!(body(&arrived), expected);
    assert_eq!(arrived.header("content-type"), Some("application/json"));
    for (header, value) in [
        ("x-event-type", "order.paid"),
        ("x-event-time", "2026-01-31T12:00:00.12Z"),
        ("x-schema-version", "2"),
    ] {
        assert_eq!(arrived.header(header), Some(value), "{header}");
    }
}

#[test]
fn a_payload_above_the_bound_is_delivered_as_a_reference_whatever_the_envelope() {
    for envelope in ["raw", "cloudevents-structured", "cloudevents-binary", "event"] {
        let world = World::new();
        let settings = json!({"envelope": envelope, "thin_above": 10});
        let (receiver, _) = endpoint(&world, &settings);
        let (fits, above) = ("x".repeat(8), "x".repeat(9));
        publish(&world, "fits", &json!(fits));
        let arrived = receiver.next();
        assert_eq!(arrived.header("x-thin"), None, "{envelope}");
        assert!(arrived.text().contains(&fits), "{envelope}: {}", arrived.text());
        publish(&world, "above", &json!(above));
        let arrived = receiver.next();
        assert_eq!(arrived.header("x-thin"), Some("true"), "{envelope}");
        assert_eq!(arrived.header("ce-id"), None, "{envelope}");
        let thin = body(&arrived);
        assert_eq!((&thin["id"], &thin["key"]), (&json!("above"), &json!("k")), "{envelope}");
        let url = text(&thin["url"]).strip_prefix(&world.url("")).unwrap().to_owned();
        let fetched = world.call("GET", &url, "", &[], b"").expect(200);
        assert_eq!(fetched.text, format!("\"{above}\""), "{envelope}");
    }
}

#[test]
fn a_thin_envelope_says_that_it_is_one_and_a_bound_can_be_taken_away() {
    let world = World::new();
    let (receiver, id) = endpoint(&world, &json!({"envelope": "thin", "thin_above": 100}));
    publish(&world, "e1", &json!(1));
    assert_eq!(receiver.next().header("x-thin"), Some("true"));
    let change = json!({"envelope": "raw", "thin_above": 0});
    let path = of_tenant(&format!("endpoints/{id}"));
    assert_eq!(world.patch(&path, &change).expect(200).json()["thin_above"], 0);
    publish(&world, "e2", &json!(1));
    assert_eq!(receiver.next().header("x-thin"), Some("true"));
    let changed = world.patch(&path, &json!({"thin_above": null})).expect(200).json();
    assert!(changed["thin_above"].is_null(), "{changed}");
    publish(&world, "e3", &json!(1));
    let arrived = receiver.next();
    assert_eq!((arrived.header("x-thin"), arrived.text().as_str()), (None, "1"));
}

#[test]
fn a_bound_that_no_payload_can_pass_is_refused() {
    let world = World::new();
    for thin_above in [json!(1_048_577), json!(-1), json!(1.5), json!("10")] {
        let new = json!({"url": "https://example.com", "thin_above": thin_above});
        let refused = world.post(&of_tenant("endpoints"), &new).expect(422).json();
        assert_eq!(refused["field"], "thin_above", "{thin_above}: {refused}");
    }
    let most = json!({"url": "https://example.com", "thin_above": 1_048_576});
    world.post(&of_tenant("endpoints"), &most).expect(201);
}
