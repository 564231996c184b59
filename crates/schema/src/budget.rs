//! The cost bound of validating a payload, computed before the validation runs.
//!
//! A validator cannot be interrupted, and its cost does not depend on the schema's size alone: 25
//! definitions that each apply the next one twice come to 2^25 evaluations of the last. So a schema is read
//! as a graph first ([`graph`]), and from the graph follows how often, at most, anything is evaluated on one
//! value of a payload, by the value's depth. Nothing is assumed of what a validator remembers or leaves out.
//! The bound of one payload is then a sum over its values: a walk over the payload, not over the schema.
//!
//! Costs are in steps. A step is what it takes to look at one keyword: 2 to 10 ns.

mod graph;
mod pattern;
mod shape;

use std::fmt;

use serde_json::Value;

use crate::limits::{
    SCHEMA_CHAIN_MAX, SCHEMA_COST_MAX, SCHEMA_ERRORS_COST_MAX, SCHEMA_INLINE_CHAIN_MAX,
    SCHEMA_JUDGED_DEPTH, SCHEMA_STEPS_PER_VALUE_MAX,
};
use graph::{Graph, Node};
use shape::PayloadShape;

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// It is no schema, or refers to what is not in it.
    Invalid(String),
    /// It could cost more than it may.
    TooCostly(String),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Invalid(problem) | SchemaError::TooCostly(problem) => f.write_str(problem),
        }
    }
}

/// Deepest value of a payload that is looked at: what the parser takes.
const DEPTH_MAX: usize = 128;

/// Bytes of text that cost as much as one step, where a byte costs 1.
const BYTES_PER_STEP: u64 = 32;

/// What a schema can cost, for a value at each depth of a payload. Deeper than it has entries, nothing is
/// evaluated.
#[derive(Debug)]
pub(super) struct CostBound(Vec<PerValue>);

/// What is evaluated on one value at most.
#[derive(Clone, Copy, Debug, Default)]
struct PerValue {
    /// Steps, whatever the value.
    steps: u64,
    /// Cost of each byte of its text.
    per_byte: u64,
    /// Evaluations that are open at once when this one is reached.
    chain: u64,
    /// Those among them that are run once to see whether they hold and once more to see why not.
    repeats: u64,
}

impl PerValue {
    /// Refuses a schema of which even a small payload would cost too much.
    fn check(self) -> Result<(), String> {
        if self.steps > SCHEMA_STEPS_PER_VALUE_MAX {
            let steps = self.steps;
            return Err(format!(
                "one value of a payload could take {steps} steps; at most \
                 {SCHEMA_STEPS_PER_VALUE_MAX} are allowed: it applies the same schemas over and over"
            ));
        }
        check_chain(self.chain)
    }
}

fn check_chain(chain: u64) -> Result<(), String> {
    if chain <= SCHEMA_CHAIN_MAX {
        return Ok(());
    }
    Err(format!(
        "validation could go {chain} schemas deep; at most {SCHEMA_CHAIN_MAX} are allowed: follow fewer \
         references one after the other"
    ))
}

/// What one payload can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Steps to see whether it fits.
    steps: u64,
    /// Evaluations that are open at once.
    chain: u64,
    /// Steps to find out where it does not fit. No more misfits than these are found, so it bounds their
    /// memory too.
    errors: u64,
}

impl CostBound {
    /// The bound of a schema, or why it can cost more than it may.
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaError> {
        let graph = Graph::read(schema)?;
        let bound = Self(per_depth(&graph));
        for at in bound.0.iter().take(SCHEMA_JUDGED_DEPTH + 1) {
            at.check().map_err(SchemaError::TooCostly)?;
        }
        Ok(bound)
    }

    pub(super) fn cost(&self, payload: &Value) -> Cost {
        let shape = PayloadShape::of(payload);
        let mut cost = Cost { steps: 0, chain: 0, errors: 0 };
        let mut repeats = 0;
        for (at, (values, bytes)) in self.0.iter().zip(shape.by_depth()) {
            let text = bytes.saturating_mul(at.per_byte) / BYTES_PER_STEP;
            let steps = values.saturating_mul(at.steps).saturating_add(text);
            cost.steps = cost.steps.saturating_add(steps);
            (cost.chain, repeats) = (cost.chain.max(at.chain), repeats.max(at.repeats));
        }
        cost.errors = cost.steps.saturating_mul(1 + repeats);
        cost
    }
}

impl Cost {
    /// Refuses what would cost more than it may.
    pub(super) fn check(self) -> Result<(), String> {
        if self.steps > SCHEMA_COST_MAX {
            let steps = self.steps;
            return Err(format!(
                "to hold it against its schema could take {steps} steps; at most {SCHEMA_COST_MAX} \
                 are allowed"
            ));
        }
        check_chain(self.chain)
    }

    /// Whether it is cheap enough to find out where a payload does not fit.
    pub(super) fn can_explain(self) -> bool {
        self.errors <= SCHEMA_ERRORS_COST_MAX
    }

    /// Takes it off what a request may still do without a thread of its own, if there is enough left.
    pub(super) fn take_from(self, allowance: &mut u64) -> bool {
        let cost = self.steps.saturating_add(if self.can_explain() { self.errors } else { 0 });
        let fits = cost <= *allowance && self.chain <= SCHEMA_INLINE_CHAIN_MAX;
        if fits {
            *allowance -= cost;
        }
        fits
    }
}

/// What each schema of the graph can cost for the value that it is applied to, or for one below it.
#[derive(Clone)]
struct Layer {
    /// Applied to a value: what is evaluated on the value itself, or, in later layers, on one value so much
    /// deeper, whose parent is an array or an object: only one of both, which is why they are kept apart.
    in_array: Vec<PerValue>,
    in_object: Vec<PerValue>,
}

impl Layer {
    fn either(&self, node: usize) -> PerValue {
        let (array, object) = (self.in_array[node], self.in_object[node]);
        PerValue {
            steps: array.steps.max(object.steps),
            per_byte: array.per_byte.max(object.per_byte),
            chain: array.chain.max(object.chain),
            repeats: array.repeats.max(object.repeats),
        }
    }
}

/// The bound of the graph's root, for each depth until nothing is evaluated any more.
fn per_depth(graph: &Graph) -> Vec<PerValue> {
    let mut layer = own_layer(graph);
    let mut bound = vec![layer.either(graph.root())];
    while bound.len() <= DEPTH_MAX {
        layer = next_layer(graph, &layer);
        let at = layer.either(graph.root());
        if at.steps == 0 && layer.is_empty() {
            break;
        }
        bound.push(at);
    }
    bound
}

impl Layer {
    fn is_empty(&self) -> bool {
        let mut all = self.in_array.iter().chain(&self.in_object);
        all.all(|at| at.steps == 0)
    }
}

/// What is evaluated on the value that a schema is applied to.
fn own_layer(graph: &Graph) -> Layer {
    let mut own = vec![PerValue::default(); graph.nodes.len()];
    for number in graph.inner_first() {
        let node = &graph.nodes[number];
        let mut sum =
            PerValue { steps: node.weight, per_byte: node.per_byte, chain: 1, repeats: 0 };
        for group in &node.in_place {
            sum.add(largest(group, |inner| own[inner]), node);
        }
        own[number] = sum;
    }
    Layer { in_array: own.clone(), in_object: own }
}

/// What is evaluated one level deeper than `above` says.
fn next_layer(graph: &Graph, above: &Layer) -> Layer {
    let none = vec![PerValue::default(); graph.nodes.len()];
    let mut layer = Layer { in_array: none.clone(), in_object: none };
    for number in graph.inner_first() {
        let node = &graph.nodes[number];
        let below = |children: &[Vec<usize>], same_level: &[PerValue]| {
            let mut sum = PerValue::default();
            for group in &node.in_place {
                sum.add(largest(group, |inner| same_level[inner]), node);
            }
            for group in children {
                sum.add(largest(group, |inner| above.either(inner)), node);
            }
            sum
        };
        let in_array = below(&node.items, &layer.in_array);
        let in_object = below(&node.members, &layer.in_object);
        (layer.in_array[number], layer.in_object[number]) = (in_array, in_object);
    }
    layer
}

/// Of a group at most one applies to any value.
fn largest(group: &[usize], of: impl Fn(usize) -> PerValue) -> PerValue {
    group.iter().map(|inner| of(*inner)).fold(PerValue::default(), |a, b| PerValue {
        steps: a.steps.max(b.steps),
        per_byte: a.per_byte.max(b.per_byte),
        chain: a.chain.max(b.chain),
        repeats: a.repeats.max(b.repeats),
    })
}

impl PerValue {
    /// Adds what a schema that `node` applies costs.
    fn add(&mut self, inner: PerValue, node: &Node) {
        if inner.steps == 0 {
            return;
        }
        self.steps = self.steps.saturating_add(inner.steps);
        self.per_byte = self.per_byte.saturating_add(inner.per_byte);
        self.chain = self.chain.max(inner.chain + 1);
        self.repeats = self.repeats.max(inner.repeats + u64::from(node.repeats));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use serde_json::json;

    use super::*;

    /// A chain of definitions, each of which applies the next one twice.
    fn doubling(combinator: &str, levels: usize) -> Value {
        let next = |level: usize| json!({"$ref": format!("#/$defs/d{}", level + 1)});
        let mut defs: serde_json::Map<String, Value> = (0..levels)
            .map(|level| (format!("d{level}"), json!({combinator: [next(level), next(level)]})))
            .collect();
        defs.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    }

    fn steps(schema: &Value, payload: &Value) -> u64 {
        CostBound::of(schema).unwrap().cost(payload).steps
    }

    #[test]
    fn what_is_applied_twice_costs_twice() {
        for combinator in ["anyOf", "allOf", "oneOf"] {
            let (four, five) = (doubling(combinator, 4), doubling(combinator, 5));
            let (four, five) = (steps(&four, &json!(1)), steps(&five, &json!(1)));
            assert!(five > 2 * four && five < 3 * four, "{combinator}: {four} {five}");
            let refused = CostBound::of(&doubling(combinator, 25)).unwrap_err().to_string();
            assert!(refused.contains(&SCHEMA_STEPS_PER_VALUE_MAX.to_string()), "{refused}");
        }
    }

    #[test]
    fn it_is_found_below_properties_items_and_behind_anchors_and_ids() {
        for schema in [
            json!({"properties": {"a": {"items": doubling("anyOf", 25)["$defs"]["d0"]}}}),
            json!({"additionalProperties": {"contains": {"$ref": "#/$defs/d0"}}}),
            json!({"patternProperties": {"^a": {"prefixItems": [{"$ref": "#/$defs/d0"}]}}}),
            json!({"if": {"$ref": "#/$defs/d0"}, "then": true}),
            json!({"not": {"not": {"$ref": "#/$defs/d0"}}}),
            json!({"dependentSchemas": {"a": {"propertyNames": {"$ref": "#/$defs/d0"}}}}),
            json!({"$ref": "#named"}),
            json!({"$dynamicRef": "#dynamic"}),
            json!({"$ref": "https://example.com/inner#/allOf/0"}),
        ] {
            let mut schema = schema;
            let mut defs = doubling("anyOf", 25)["$defs"].clone();
            let to = json!({"$ref": "#/$defs/d0"});
            defs["named"] = json!({"$anchor": "named", "allOf": [to]});
            defs["dynamic"] = json!({"$dynamicAnchor": "dynamic", "allOf": [to]});
            defs["inner"] = json!({"$id": "https://example.com/inner", "allOf": [to]});
            schema["$defs"] = defs;
            assert!(CostBound::of(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"anyOf": [{"type": "string"}, {"$ref": "#"}]}),
            json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/b"}},
                "b": {"if": {"$ref": "#/$defs/a"}}}}),
        ] {
            let refused = CostBound::of(&schema).unwrap_err().to_string();
            assert!(refused.contains("itself"), "{schema}: {refused}");
        }
    }

    /// A value nested so deep: arrays in arrays.
    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!(1), |inner, _| json!([inner]))
    }

    #[test]
    fn a_recursive_schema_costs_by_the_depth_of_the_payload() {
        let list = json!({"items": {"$ref": "#"}, "type": ["array", "integer"]});
        assert!(steps(&list, &nested(100)) < 2_000);
        let again = json!({"$ref": "#"});
        let doubled = json!({"anyOf": [{"items": again}, {"items": again}]});
        let bound = CostBound::of(&doubled).unwrap();
        assert_eq!(bound.cost(&nested(4)).check(), Ok(()));
        let refused = bound.cost(&nested(100)).check().unwrap_err();
        assert!(refused.contains("steps"), "{refused}");
    }

    #[test]
    fn branches_for_arrays_and_for_objects_are_not_added_up() {
        let again = json!({"$ref": "#"});
        let json = json!({"anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            {"type": "array", "items": again},
            {"type": "object", "additionalProperties": again},
        ]});
        assert!(steps(&json, &nested(100)) < 5_000);
    }

    #[test]
    fn every_value_and_every_byte_of_text_counts() {
        let schema = json!({"items": {"type": "string", "pattern": "^[a-z]{3}$"}});
        let of = |items: &[&str]| steps(&schema, &json!(items));
        assert!(of(&["abc"; 100]) > 50 * of(&["abc"]));
        assert!(of(&[&"x".repeat(10_000)]) > 1_000);
    }

    #[test]
    fn what_was_evaluated_is_found_out_by_running_it_once_more() {
        let inner = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
        let of = |extra: Value| {
            let mut schema = json!({"allOf": [inner, inner]});
            schema.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            steps(&schema, &json!({"a": 1}))
        };
        let (without, with) = (of(json!({})), of(json!({"unevaluatedProperties": false})));
        assert!(with > 2 * without, "{without} {with}");
    }

    #[test]
    fn unique_items_cost_all_that_is_below_them() {
        let schema = json!({"uniqueItems": true});
        let deep = json!([{"a": [1, 2, 3]}, {"a": [1, 2, 4]}]);
        assert!(steps(&schema, &deep) > steps(&json!({"minItems": 1}), &deep) + 8);
    }

    #[test]
    fn an_ordinary_schema_and_payload_need_no_thread() {
        let item = json!({"type": "object", "required": ["sku", "price"], "properties": {
            "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
            "price": {"type": "number", "minimum": 0},
        }});
        let schema = json!({
            "type": "object",
            "required": ["id", "items"],
            "properties": {
                "id": {"type": "string", "format": "uuid"},
                "currency": {"enum": ["EUR", "USD", "GBP"]},
                "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
            },
            "$defs": {"item": item},
        });
        let item = json!({"sku": "ABC-1234", "price": 1.5});
        let payload = json!({"id": "6b0b1ad2", "currency": "EUR", "items": vec![item; 20]});
        let cost = CostBound::of(&schema).unwrap().cost(&payload);
        let mut allowance = crate::limits::SCHEMA_INLINE_COST_MAX;
        assert!(cost.can_explain() && cost.take_from(&mut allowance), "{cost:?}");
    }

    #[test]
    fn a_chain_of_references_is_bounded_by_what_a_stack_holds() {
        let levels = 3_000;
        let defs: serde_json::Map<String, Value> = (0..levels)
            .map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", (n + 1) % levels)})))
            .chain([("d2999".to_owned(), json!(true))])
            .collect();
        let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
        let refused = CostBound::of(&schema).unwrap_err().to_string();
        assert!(refused.contains("schemas deep"), "{refused}");
        let list = json!({"items": {"allOf": [{"$ref": "#"}]}});
        let bound = CostBound::of(&list).unwrap();
        assert!(bound.cost(&nested(3)).chain < bound.cost(&nested(100)).chain);
    }
}
