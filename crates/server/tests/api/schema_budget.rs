//! Schemas and payloads made to cost much: what they may cost is bounded, and nobody else pays for it.

use railpost_store::{Change, EventTypeRecord, Validation, Write};
use serde_json::{Map, Value, json};

use crate::world::World;

const ORDER: &str = "/v1/tenants/default/event-types/order.created";
const EVENTS: &str = "/v1/tenants/default/events";

fn described(validation: &str, schema: &Value) -> Value {
    json!({"validation": validation, "schemas": {"1": schema}})
}

fn event(payload: &Value) -> Value {
    json!({"type": "order.created", "payload": payload})
}

/// A chain of definitions, each of which applies the next one twice.
fn doubling(combinator: &str, levels: usize) -> Value {
    let next = |level: usize| json!({"$ref": format!("#/$defs/d{}", level + 1)});
    let mut defs: Map<String, Value> = (0..levels)
        .map(|level| (format!("d{level}"), json!({combinator: [next(level), next(level)]})))
        .collect();
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// Definitions that each refer to the next one, and the last to nothing.
fn chain(levels: usize) -> Value {
    let mut defs: Map<String, Value> = (0..levels)
        .map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)})))
        .collect();
    defs.insert(format!("d{levels}"), json!(true));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// The same, each one level deeper into the payload.
fn deep_chain(levels: usize) -> Value {
    let next = |n: usize| json!({"items": {"$ref": format!("#/$defs/d{}", n + 1)}});
    let mut defs: Map<String, Value> = (0..levels).map(|n| (format!("d{n}"), next(n))).collect();
    defs.insert(format!("d{levels}"), json!(true));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

fn patterns(count: usize) -> Value {
    let all: Map<String, Value> =
        (0..count).map(|n| (format!("^a{n}.*b"), json!({"type": "string"}))).collect();
    json!({"patternProperties": all})
}

#[test]
fn a_schema_that_costs_too_much_is_refused_when_it_is_registered() {
    let world = World::new();
    let nots = (0..60).fold(json!({"$ref": "#/$defs/d0"}), |inner, _| json!({"not": inner}));
    let mut under_nots = doubling("anyOf", 25);
    under_nots["$ref"] = Value::Null;
    under_nots.as_object_mut().unwrap().remove("$ref");
    under_nots["allOf"] = json!([nots]);
    let mut large_enum = doubling("anyOf", 8);
    large_enum["$defs"]["d8"] = json!({"enum": (0..30_000).collect::<Vec<_>>()});
    for (what, schema) in [
        ("anyOf", doubling("anyOf", 25)),
        ("allOf", doubling("allOf", 25)),
        ("oneOf", doubling("oneOf", 25)),
        ("not", under_nots),
        (
            "in items",
            json!({"items": {"$ref": "#/$defs/d0"}, "$defs": doubling("anyOf", 25)["$defs"]}),
        ),
        ("itself", json!({"$ref": "#"})),
        ("a chain", chain(5_000)),
        ("a large pattern", json!({"pattern": "((a{50}){50}){50}"})),
        ("patterns", patterns(300)),
        ("a large enum", large_enum),
    ] {
        let refused = world.put(ORDER, &described("reject", &schema)).expect(422).json();
        assert_eq!(refused["field"], "schemas.1", "{what}: {refused}");
        assert_eq!(refused["code"], "schema_budget", "{what}: {refused}");
    }
}

#[test]
fn hostile_schemas_within_the_budget_are_registered_and_used() {
    let world = World::new();
    let many: Vec<usize> = (0..30_000).collect();
    for (what, schema, payload, fits) in [
        ("anyOf", doubling("anyOf", 14), json!(1), false),
        ("oneOf", doubling("oneOf", 14), json!({}), false),
        ("allOf", doubling("allOf", 14), json!("a"), true),
        ("a deep chain", deep_chain(2_000), json!([[[[1]]]]), true),
        ("a large enum", json!({"enum": many}), json!(-1), false),
        ("a pattern", json!({"pattern": "^(a+)+$"}), json!("a".repeat(30_000) + "b"), false),
        ("many patterns", patterns(150), json!({"a0".repeat(5_000): 1}), true),
        ("unique items", json!({"uniqueItems": true}), json!(many), true),
    ] {
        world.put(ORDER, &described("reject", &schema)).expect(200);
        let answer = world.post(EVENTS, &event(&payload));
        let expected = if fits { 202 } else { 422 };
        assert_eq!(answer.status, expected, "{what}: {}", answer.text);
        if !fits {
            assert_eq!(answer.code(), "schema_mismatch", "{what}: {}", answer.text);
        }
    }
}

/// Arrays in arrays, so deep.
fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// A schema that costs twice as much for each level of a payload.
fn recursive() -> Value {
    let again = json!({"$ref": "#"});
    json!({"anyOf": [{"items": again, "maxItems": 0}, {"items": again, "type": "array"}]})
}

#[test]
fn a_payload_that_would_cost_too_much_is_refused_and_says_what_was_exceeded() {
    let world = World::new();
    world.put(ORDER, &described("reject", &recursive())).expect(200);
    for (depth, what) in [(40, "steps"), (120, "steps"), (1_000, "nested deeper than 128")] {
        let body = format!(r#"{{"type": "order.created", "payload": {}}}"#, nested(depth));
        let json = [("content-type", "application/json")];
        let refused = world.call("POST", EVENTS, &world.admin, &json, body.as_bytes()).expect(422);
        assert_eq!(refused.code(), "schema_budget", "{depth}: {}", refused.text);
        let problem = refused.json();
        assert_eq!(problem["field"], "payload", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(what), "{depth}: {problem}");
    }
    world.post(EVENTS, &event(&json!([[]]))).expect(202);
    let batch =
        json!({"events": [event(&json!([])), event(&serde_json::from_str(&nested(60)).unwrap())]});
    let refused = world.post(&format!("{EVENTS}/batch"), &batch).expect(422).json();
    assert_eq!(refused["field"], "events[1].payload");
}

#[test]
fn a_payload_that_is_only_warned_about_is_accepted_without_being_checked() {
    let world = World::new();
    world.put(ORDER, &described("warn", &recursive())).expect(200);
    let deep: Value = serde_json::from_str(&nested(60)).unwrap();
    let receipt = world.post(EVENTS, &event(&deep)).expect(202).json();
    let warning = receipt["warnings"][0].as_str().unwrap();
    assert!(warning.contains("not held against its schema"), "{warning}");
}

#[test]
fn a_stored_schema_over_the_budget_refuses_payloads() {
    let world = World::new();
    // As one from before there was a budget.
    let record = EventTypeRecord {
        tenant: "default".parse().unwrap(),
        name: "order.created".parse().unwrap(),
        description: String::new(),
        schemas: [(1, doubling("anyOf", 25))].into(),
        validation: Validation::Reject,
    };
    let change = Change::from(Write::PutEventType(record));
    world.wait_for(world.server().app().store.commit(change)).unwrap();
    for _ in 0..2 {
        let refused = world.post(EVENTS, &event(&json!(1))).expect(422);
        assert_eq!(refused.code(), "schema_budget");
        assert!(refused.text.contains("over the budget"), "{}", refused.text);
    }
    world.post(EVENTS, &json!({"type": "order.sent", "payload": 1})).expect(202);
}

#[test]
fn other_tenants_publish_while_one_keeps_its_threads_busy() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let theirs = "/v1/tenants/other/event-types/order.created";
    // Each of their payloads needs a thread too.
    let small = json!({"type": "array", "items": {"type": "integer"}});
    world.put(theirs, &described("reject", &small)).expect(200);
    // As much as a payload may cost.
    world.put(ORDER, &described("reject", &doubling("anyOf", 15))).expect(200);
    let costly = event(&json!(1));
    let large = event(&json!(vec![1; 10_000]));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let answer = world.post(EVENTS, &costly);
                    assert!([422, 429].contains(&answer.status), "{}", answer.text);
                }
            });
        }
        for _ in 0..5 {
            world.post("/v1/tenants/other/events", &large).expect(202);
            world
                .post("/v1/tenants/other/events", &json!({"type": "plain", "payload": 1}))
                .expect(202);
        }
    });
}

#[test]
fn the_schemas_of_a_tenant_are_bounded_together() {
    let world = World::new();
    let filler = json!({"description": "x".repeat(250 * 1024)});
    let schemas: Map<String, Value> = (1..=10).map(|n| (n.to_string(), filler.clone())).collect();
    let body = json!({"schemas": schemas});
    let put = |n: usize| world.put(&format!("/v1/tenants/default/event-types/t{n}"), &body);
    let refused = (0..20).map(put).find(|answer| answer.status != 200).unwrap();
    assert_eq!(refused.expect(422).code(), "limit_reached");
    put(0).expect(200);
}
