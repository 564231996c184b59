//! Schemas and payloads made to cost much: what they may cost is bounded, and nobody else pays for it.

use serde_json::{Value, json};

use crate::world::World;

const ORDER: &str = "/v1/tenants/default/event-types/order.created";

fn reject(schema: &Value) -> Value {
    json!({"validation": "reject", "schemas": {"1": schema}})
}

/// A chain of definitions, each of which applies the next one twice.
fn doubling(combinator: &str, levels: usize) -> Value {
    let next = |level: usize| json!({"$ref": format!("#/$defs/d{}", level + 1)});
    let mut defs: serde_json::Map<String, Value> = (0..levels)
        .map(|level| (format!("d{level}"), json!({combinator: [next(level), next(level)]})))
        .collect();
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn a_schema_that_costs_too_much_is_refused_when_it_is_registered() {
    let world = World::new();
    for combinator in ["anyOf", "allOf", "oneOf"] {
        let refused = world.put(ORDER, &reject(&doubling(combinator, 25))).expect(422).json();
        assert_eq!(refused["field"], "schemas.1", "{combinator}: {refused}");
        assert_eq!(refused["code"], "schema_budget", "{combinator}: {refused}");
    }
}
