use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::World;

const STRUCTURED: &str = "application/cloudevents+json";
const BATCHED: &str = "application/cloudevents-batch+json";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn order_created() -> Value {
    json!({
        "specversion": "1.0",
        "id": "order-1",
        "source": "/shop",
        "type": "order.created",
        "subject": "1",
        "time": "2026-01-31T12:00:00Z",
        "traceparent": TRACE,
        "schemaversion": "2",
        "data": {"total": 1},
    })
}

fn send(world: &World, path: &str, content_type: &str, body: &[u8]) -> crate::world::Answer {
    let headers = [("content-type", content_type)];
    world.call("POST", &of_tenant(path), &world.admin, &headers, body)
}

#[test]
fn a_structured_event_is_stored_with_all_that_has_a_place() {
    let world = World::new();
    send(&world, "events", STRUCTURED, order_created().to_string().as_bytes()).expect(202);
    let event = world.look("events/order-1");
    for (field, value) in [
        ("type", json!("order.created")),
        ("key", json!("1")),
        ("time", json!("2026-01-31T12:00:00.000Z")),
        ("traceparent", json!(TRACE)),
        ("schema_version", json!(2)),
        ("content_type", json!("application/json")),
        ("payload", json!({"total": 1})),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
}

#[test]
fn a_partition_key_wins_over_the_subject() {
    let world = World::new();
    let mut event = order_created();
    event["partitionkey"] = json!("shard-7");
    send(&world, "events", STRUCTURED, event.to_string().as_bytes()).expect(202);
    assert_eq!(world.look("events/order-1")["key"], "shard-7");
}

#[test]
fn a_binary_event_keeps_its_bytes_and_their_type() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let bytes = [0, 159, 146, 150, b'\n', 255];
    let headers = [
        ("content-type", "application/x-thing; version=2"),
        ("ce-specversion", "1.0"),
        ("ce-id", "order-1"),
        ("ce-source", "/shop"),
        ("ce-type", "order.created"),
        ("ce-subject", "1"),
    ];
    world.call("POST", &of_tenant("events"), &world.admin, &headers, &bytes).expect(202);
    let arrived = receiver.next();
    assert_eq!(arrived.body, bytes);
    assert_eq!(arrived.header("content-type"), Some("application/x-thing; version=2"));
    assert_eq!(arrived.header("x-key"), Some("1"));
    let event = world.look("events/order-1");
    assert_eq!(event["payload_base64"], "AJ+Slgr/");
    assert!(event.get("payload").is_none());
}

#[test]
fn a_batch_is_accepted_whole_or_not_at_all() {
    let world = World::new();
    let mut second = order_created();
    second["id"] = json!("order-2");
    let batch = json!([order_created(), second.clone()]).to_string();
    let receipts = send(&world, "events/batch", BATCHED, batch.as_bytes()).expect(202).json();
    assert_eq!(text(&receipts["events"][1]["id"]), "order-2");
    second["id"] = json!("order-3");
    let mut bad = order_created();
    bad["type"] = json!("not a type");
    let batch = json!([second, bad]).to_string();
    let refused = send(&world, "events/batch", BATCHED, batch.as_bytes()).expect(422).json();
    assert_eq!(refused["field"], "[1].type");
    world.get(&of_tenant("events/order-3")).expect(404);
}

#[test]
fn what_is_no_event_of_ours_is_refused_with_its_attribute() {
    let world = World::new();
    for (name, value, field) in [
        ("id", json!("with space"), "id"),
        ("id", json!("x".repeat(65)), "id"),
        ("type", json!("not a type"), "type"),
        ("source", Value::Null, "source"),
        ("specversion", json!("0.3"), "specversion"),
        ("subject", json!("x".repeat(257)), "subject"),
        ("partitionkey", json!("x".repeat(257)), "partitionkey"),
        ("time", json!("noon"), "time"),
        ("time", json!("1969-01-01T00:00:00Z"), "time"),
        ("traceparent", json!("00-x"), "traceparent"),
        ("schemaversion", json!("two"), "schemaversion"),
    ] {
        let mut event = order_created();
        event[name] = value.clone();
        let body = event.to_string();
        let refused = send(&world, "events", STRUCTURED, body.as_bytes()).expect(422).json();
        assert_eq!(refused["field"], field, "{name} = {value}: {refused}");
    }
}

#[test]
fn a_content_type_in_the_wrong_place_is_refused() {
    let world = World::new();
    let event = order_created().to_string();
    for (path, content_type) in [
        ("events", BATCHED),
        ("events", "application/cloudevents+avro"),
        ("events", "text/plain"),
        ("events/batch", STRUCTURED),
        ("events/batch", "text/plain"),
        ("events/stream", "application/json"),
    ] {
        let refused = send(&world, path, content_type, event.as_bytes()).expect(415);
        assert_eq!(refused.code(), "unsupported_media_type", "{path} {content_type}");
    }
}
