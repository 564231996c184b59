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

fn id_of(receipt: &Value) -> String {
    text(&receipt["id"])
}

#[test]
fn source_and_id_together_are_what_an_event_is_known_by() {
    let world = World::new();
    let publish = |source: &str, id: &str, total: u32| {
        let mut event = order_created();
        (event["source"], event["id"]) = (json!(source), json!(id));
        event["data"] = json!({ "total": total });
        send(&world, "events", STRUCTURED, event.to_string().as_bytes())
    };
    let first = publish("/shop", "1", 1).expect(202).json();
    assert_eq!(first["cloudevent"], json!({"id": "1", "source": "/shop"}));
    assert_eq!(first["duplicate"], false);
    // Of another source it is another event, whatever it holds.
    let other = publish("/warehouse", "1", 1).expect(202).json();
    assert_eq!(other["duplicate"], false);
    assert_ne!(id_of(&first), id_of(&other));
    let again = publish("/shop", "1", 1).expect(202).json();
    assert_eq!((id_of(&again), &again["duplicate"]), (id_of(&first), &json!(true)));
    let refused = publish("/shop", "1", 2).expect(409);
    assert_eq!(refused.code(), "conflict");
    // An id may be any text, and may be as long as ids of others are.
    publish("/shop", "with space, and é", 1).expect(202);
    publish("/shop", &"x".repeat(256), 1).expect(202);
    let shown = world.look(&format!("events/{}", id_of(&first)));
    assert_eq!(shown["cloudevent"], first["cloudevent"]);
}

#[test]
fn a_cloudevent_leaves_with_the_id_and_source_that_it_came_with() {
    let world = World::new();
    let endpoint = |envelope: &str| {
        let receiver = Receiver::new();
        world.endpoint_with(&json!({"url": receiver.url(), "envelope": envelope}));
        receiver
    };
    let structured = endpoint("cloudevents-structured");
    let (binary, raw) = (endpoint("cloudevents-binary"), endpoint("raw"));
    let sent = send(&world, "events", STRUCTURED, order_created().to_string().as_bytes());
    let id = id_of(&sent.expect(202).json());
    let arrived = structured.next();
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!((&body["id"], &body["source"]), (&json!("order-1"), &json!("/shop")));
    assert_eq!(arrived.header("webhook-id"), Some(id.as_str()));
    let arrived = binary.next();
    assert_eq!(arrived.header("ce-id"), Some("order-1"));
    assert_eq!(arrived.header("ce-source"), Some("/shop"));
    assert_eq!(arrived.header("webhook-id"), Some(id.as_str()));
    assert_eq!(raw.next().header("webhook-id"), Some(id.as_str()));
    // What did not come as one has its own id, and the tenant as its source.
    world.publish("plain", "a", None);
    let body: Value = serde_json::from_slice(&structured.next().body).unwrap();
    assert_eq!((&body["id"], &body["source"]), (&json!("plain"), &json!("/tenants/default")));
}

#[test]
fn a_structured_event_is_stored_with_all_that_has_a_place() {
    let world = World::new();
    let sent = send(&world, "events", STRUCTURED, order_created().to_string().as_bytes());
    let event = world.look(&format!("events/{}", id_of(&sent.expect(202).json())));
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
    let sent = send(&world, "events", STRUCTURED, event.to_string().as_bytes()).expect(202);
    let path = format!("events/{}", id_of(&sent.json()));
    assert_eq!(world.look(&path)["key"], "shard-7");
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
    let sent = world.call("POST", &of_tenant("events"), &world.admin, &headers, &bytes).expect(202);
    let arrived = receiver.next();
    assert_eq!(arrived.body, bytes);
    assert_eq!(arrived.header("content-type"), Some("application/x-thing; version=2"));
    assert_eq!(arrived.header("x-key"), Some("1"));
    let event = world.look(&format!("events/{}", id_of(&sent.json())));
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
    assert_eq!(text(&receipts["events"][1]["cloudevent"]["id"]), "order-2");
    second["id"] = json!("order-3");
    let mut bad = order_created();
    bad["type"] = json!("not a type");
    let batch = json!([second, bad]).to_string();
    let refused = send(&world, "events/batch", BATCHED, batch.as_bytes()).expect(422).json();
    assert_eq!(refused["field"], "[1].type");
    assert_eq!(world.look("events")["items"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_no_event_of_ours_is_refused_with_its_attribute() {
    let world = World::new();
    for (name, value, field) in [
        ("id", json!(""), "id"),
        ("id", json!("x".repeat(257)), "id"),
        ("source", json!(format!("/{}", "x".repeat(2048))), "source"),
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
