use serde_json::{Value, json};

use crate::world::World;

const TYPES: &str = "/v1/tenants/default/event-types";
const ORDER: &str = "/v1/tenants/default/event-types/order.created";
const EVENTS: &str = "/v1/tenants/default/events";

fn described(validation: &str) -> Value {
    let schema = json!({"type": "object", "required": ["order"]});
    json!({"description": "An order", "validation": validation, "schemas": {"1": schema}})
}

fn event(payload: &Value) -> Value {
    json!({"type": "order.created", "payload": payload})
}

#[test]
fn an_event_type_is_described_listed_and_forgotten() {
    let world = World::new();
    let put = world.put(ORDER, &described("warn")).expect(200).json();
    assert_eq!((&put["name"], &put["validation"]), (&json!("order.created"), &json!("warn")));
    assert_eq!(world.get(ORDER).expect(200).json(), put);
    assert_eq!(world.get(TYPES).expect(200).json()["items"], json!([put]));
    world.delete(ORDER).expect(204);
    assert_eq!(world.get(ORDER).expect(404).code(), "not_found");
    assert_eq!(world.delete(ORDER).expect(404).code(), "not_found");
}

#[test]
fn what_is_no_schema_is_refused_with_the_version() {
    let world = World::new();
    for (body, field) in [
        (json!({"schemas": {"1": {"type": "obect"}}}), "schemas.1"),
        (json!({"schemas": {"1": true, "2": 7}}), "schemas.2"),
        (json!({"schemas": {"0": true}}), "schemas.0"),
        (json!({"schemas": {"2": {"$ref": "https://example.com/s.json"}}}), "schemas.2"),
        (json!({"validation": "maybe"}), "validation"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let refused = world.put(ORDER, &body).expect(422);
        assert_eq!(refused.json()["field"], json!(field), "{}", refused.text);
    }
}

#[test]
fn what_does_not_fit_is_let_pass_warned_about_or_refused() {
    let world = World::new();
    let (good, bad) = (event(&json!({"order": 1})), event(&json!({"odrer": 1})));
    world.put(ORDER, &described("off")).expect(200);
    assert!(world.post(EVENTS, &bad).expect(202).json().get("warnings").is_none());
    world.put(ORDER, &described("warn")).expect(200);
    assert!(world.post(EVENTS, &good).expect(202).json().get("warnings").is_none());
    let warned = world.post(EVENTS, &bad).expect(202).json();
    assert_eq!(warned["warnings"].as_array().unwrap().len(), 1, "{warned}");
    world.put(ORDER, &described("reject")).expect(200);
    world.post(EVENTS, &good).expect(202);
    let refused = world.post(EVENTS, &bad).expect(422);
    assert_eq!(refused.code(), "schema_mismatch");
    assert_eq!(refused.json()["field"], json!("payload"));
    world.post(EVENTS, &json!({"type": "order.sent", "payload": {}})).expect(202);
    world.delete(ORDER).expect(204);
    world.post(EVENTS, &bad).expect(202);
}

#[test]
fn a_batch_with_one_misfit_is_refused_whole() {
    let world = World::new();
    world.put(ORDER, &described("reject")).expect(200);
    let batch = json!({"events": [event(&json!({"order": 1})), event(&json!([]))]});
    let refused = world.post(&format!("{EVENTS}/batch"), &batch).expect(422);
    assert_eq!(refused.json()["field"], json!("events[1].payload"));
    world.put(ORDER, &described("warn")).expect(200);
    let receipts = world.post(&format!("{EVENTS}/batch"), &batch).expect(202).json();
    let warnings = |index: usize| receipts["events"][index].get("warnings").cloned();
    assert!(warnings(0).is_none() && warnings(1).is_some(), "{receipts}");
}

#[test]
fn an_event_is_held_against_the_version_that_it_names() {
    let world = World::new();
    let schemas = json!({"1": {"type": "string"}, "2": {"type": "number"}});
    world.put(ORDER, &json!({"validation": "reject", "schemas": schemas})).expect(200);
    let of = |payload: Value, version: Option<u32>| {
        let event = json!({"type": "order.created", "payload": payload, "schema_version": version});
        world.post(EVENTS, &event).status
    };
    for (payload, version, status) in [
        (json!("a"), Some(1), 202),
        (json!(1), Some(2), 202),
        (json!(1), None, 202),
        (json!(1), Some(1), 422),
        (json!("a"), None, 422),
        (json!(1), Some(3), 422),
    ] {
        assert_eq!(of(payload.clone(), version), status, "{payload} as {version:?}");
    }
}
