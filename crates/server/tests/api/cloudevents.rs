use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::{Engine, engine::general_purpose::STANDARD};
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
    for field in ["id", "source"] {
        assert_eq!(shown["cloudevent"][field], first["cloudevent"][field], "{field}");
    }
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

/// A receiver of each CloudEvents envelope.
fn both(world: &World) -> [Receiver; 2] {
    ["cloudevents-structured", "cloudevents-binary"].map(|envelope| {
        let receiver = Receiver::new();
        world.endpoint_with(&json!({"url": receiver.url(), "envelope": envelope}));
        receiver
    })
}

/// Attributes of every kind: the standard's own, ours, and some of the producer's.
fn well_described() -> Value {
    let mut event = order_created();
    event["dataschema"] = json!("https://example.com/schemas/order");
    event["partitionkey"] = json!("shard-7");
    event["schemaversion"] = json!(2);
    event["datacontenttype"] = json!("application/json");
    for (name, value) in
        [("region", json!("eu \"1\" é")), ("retries", json!(-3)), ("urgent", json!(true))]
    {
        event[name] = value;
    }
    event
}

#[test]
fn all_attributes_of_a_cloudevent_go_from_its_producer_to_its_receivers() {
    let world = World::new();
    let [structured, binary] = both(&world);
    let sent = well_described();
    send(&world, "events", STRUCTURED, sent.to_string().as_bytes()).expect(202);
    assert_eq!(serde_json::from_slice::<Value>(&structured.next().body).unwrap(), sent);
    let arrived = binary.next();
    for (name, value) in [
        ("ce-subject", "1"),
        ("ce-dataschema", "https://example.com/schemas/order"),
        ("ce-partitionkey", "shard-7"),
        ("ce-region", "eu%20%221%22%20%C3%A9"),
        ("ce-retries", "-3"),
        ("ce-schemaversion", "2"),
        ("ce-traceparent", TRACE),
        ("ce-urgent", "true"),
        ("x-key", "shard-7"),
        ("x-schema-version", "2"),
    ] {
        assert_eq!(arrived.header(name), Some(value), "{name}");
    }
    // Binary mode has texts alone, and so has what is delivered of it.
    let headers = arrived.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut headers: Vec<_> =
        headers.filter(|(name, _)| name.starts_with("ce-") && *name != "ce-id").collect();
    headers.extend([("ce-id", "order-2"), ("content-type", "application/json")]);
    world.call("POST", &of_tenant("events"), &world.admin, &headers, &arrived.body).expect(202);
    let mut expected = sent.clone();
    for (name, text) in
        [("id", "order-2"), ("retries", "-3"), ("schemaversion", "2"), ("urgent", "true")]
    {
        expected[name] = json!(text);
    }
    assert_eq!(serde_json::from_slice::<Value>(&structured.next().body).unwrap(), expected);
    assert_eq!(binary.next().header("ce-retries"), Some("-3"));
    let mut third = sent.clone();
    third["id"] = json!("order-3");
    let batch = json!([third]).to_string();
    send(&world, "events/batch", BATCHED, batch.as_bytes()).expect(202);
    assert_eq!(serde_json::from_slice::<Value>(&structured.next().body).unwrap(), third);
}

/// Asks PyPI's `cloudevents`, by the program of the receiver's interop tests.
fn ask(question: &Value) -> Value {
    let advice = "run the tests with `cargo xtask with-services test -p railpost`";
    let folder = std::env::var("RAILPOST_TEST_INTEROP")
        .unwrap_or_else(|_| panic!("RAILPOST_TEST_INTEROP is not set: {advice}"));
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../receiver/tests/interop/tools/ask.py");
    let mut child = Command::new(Path::new(&folder).join("venv/bin/python"))
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!([question]).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap().remove(0)
}

#[test]
fn what_another_library_writes_it_reads_again_at_the_receiver() {
    let world = World::new();
    let receivers = both(&world);
    let attributes = json!({
        "id": "order-1", "source": "/shop", "type": "order.created", "subject": "1",
        "time": "2026-01-31T12:00:00Z", "dataschema": "https://example.com/schemas/order",
        "datacontenttype": "application/json", "partitionkey": "shard-7", "region": "eu",
        "schemaversion": "2", "traceparent": TRACE,
    });
    for (mode, data) in [("structured", json!({"total": 1})), ("binary", json!({"total": 1}))] {
        let mut attributes = attributes.clone();
        attributes["id"] = json!(mode);
        let question = json!({
            "ask": "wrap_cloud_event", "attributes": attributes, "data": data, "mode": mode,
        });
        let written = ask(&question);
        let headers: Vec<_> = written["headers"].as_object().unwrap().iter().collect();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        let body = STANDARD.decode(text(&written["body"])).unwrap();
        world.call("POST", &of_tenant("events"), &world.admin, &headers, &body).expect(202);
        for receiver in &receivers {
            let arrived = receiver.next();
            let headers: serde_json::Map<_, _> =
                arrived.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let body = STANDARD.encode(&arrived.body);
            let read = ask(&json!({"ask": "cloud_event", "headers": headers, "body": body}));
            for (name, value) in attributes.as_object().unwrap() {
                assert_eq!(&read[name], value, "{mode}: {name} of {read}");
            }
            assert_eq!(read["data"], data, "{mode}: {read}");
            // Its attributes, `specversion` and the data, and nothing else.
            let count = attributes.as_object().unwrap().len() + 2;
            assert_eq!(read.as_object().unwrap().len(), count, "{mode}: {read}");
        }
    }
}

#[test]
fn the_api_shows_what_a_cloudevent_came_with() {
    let world = World::new();
    let sent = send(&world, "events", STRUCTURED, well_described().to_string().as_bytes());
    let receipt = sent.expect(202).json();
    assert_eq!(receipt["cloudevent"], json!({"id": "order-1", "source": "/shop"}));
    let shown = world.look(&format!("events/{}", id_of(&receipt)));
    let expected = json!({
        "id": "order-1",
        "source": "/shop",
        "subject": "1",
        "dataschema": "https://example.com/schemas/order",
        "extensions": {
            "partitionkey": "shard-7", "region": "eu \"1\" é", "retries": -3, "schemaversion": 2,
            "traceparent": TRACE, "urgent": true,
        },
        "no_data": false,
    });
    assert_eq!(shown["cloudevent"], expected);
    world.publish("plain", "a", None);
    assert!(world.look("events/plain").get("cloudevent").is_none());
}

#[test]
fn no_data_and_empty_data_are_told_apart_where_the_format_can_say_it() {
    let world = World::new();
    let [structured, binary] = both(&world);
    for (id, data) in [
        ("none", json!({})),
        ("none-of-a-kind", json!({"datacontenttype": "application/xml"})),
        ("empty", json!({"datacontenttype": "application/xml", "data_base64": ""})),
        ("null", json!({"datacontenttype": "application/json", "data": null})),
    ] {
        let mut event = order_created();
        event["id"] = json!(id);
        event.as_object_mut().unwrap().remove("data");
        event.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        send(&world, "events", STRUCTURED, event.to_string().as_bytes()).expect(202);
        let arrived = structured.next();
        let body: Value = serde_json::from_slice(&arrived.body).unwrap();
        assert_eq!(body, event, "{id}");
        let expected = if id == "null" { "null" } else { "" };
        assert_eq!(binary.next().text(), expected, "{id}");
    }
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "binary"),
        ("ce-source", "/shop"),
        ("ce-type", "order.created"),
    ];
    world.call("POST", &of_tenant("events"), &world.admin, &headers, b"").expect(202);
    let body: Value = serde_json::from_slice(&structured.next().body).unwrap();
    let names = ["data", "data_base64", "datacontenttype"];
    assert!(names.iter().all(|name| body.get(name).is_none()), "{body}");
}

#[test]
fn too_many_or_too_long_extensions_are_refused_with_the_bound() {
    let world = World::new();
    let with = |extensions: Vec<(String, Value)>| {
        let mut event = order_created();
        event.as_object_mut().unwrap().extend(extensions);
        send(&world, "events", STRUCTURED, event.to_string().as_bytes())
    };
    let numbered = |count: u32| (0..count).map(|n| (format!("e{n}"), json!(n))).collect();
    // `traceparent` and `schemaversion` count as well.
    with(numbered(30)).expect(202);
    let refused = with(numbered(31)).expect(422).json();
    assert_eq!(refused["field"], "extensions");
    assert!(text(&refused["detail"]).contains("at most 32"), "{refused}");
    let long = |len: usize| {
        vec![("a".to_owned(), json!("x".repeat(2000))), ("b".to_owned(), json!("x".repeat(len)))]
    };
    let refused = with(long(2030)).expect(422).json();
    assert_eq!(refused["field"], "extensions");
    assert!(text(&refused["detail"]).contains("at most 4096 bytes"), "{refused}");
    let refused = with(vec![("a".to_owned(), json!("x".repeat(2049)))]).expect(422).json();
    assert_eq!(refused["field"], "a");
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
