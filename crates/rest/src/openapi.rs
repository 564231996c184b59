//! The specification of an API, made of the types of its handlers.

mod links;
mod operation;
mod operation_id;
mod responses;

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::needs::Needs;
use crate::operation::Operation;
use crate::problem::ProblemView;
use operation::describe;
use operation_id::operation_id;

pub use responses::UNSAID;

const DEFINITIONS: &str = "/components/schemas";

/// The OpenAPI 3.1 document of these operations. `groups` are in the order in which people meet them, each with what it
/// is about.
pub fn document(operations: &[Operation], groups: &[(&str, &str)]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = DEFINITIONS.into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<ProblemView<'static>>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let described = (operation.describe)(&mut schemas);
        let of_path = paths.entry(operation.path).or_insert_with(|| json!({}));
        let mut entry = describe(operation, &described, &schemas);
        entry["operationId"] = operation_id(operation, operations).into();
        of_path[operation.method.as_str().to_lowercase()] = entry;
    }
    links::add(&mut paths);
    let mut document = around(paths, schemas.take_definitions(true), groups);
    document["components"]["responses"] = responses::problems(&problem);
    bound_numbers(&mut document);
    document
}

/// Says how large whole numbers may be where only their format says it.
fn bound_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        Value::Object(fields) => {
            let max: Option<u64> = match fields.get("format").and_then(Value::as_str) {
                Some("uint32") => Some(u32::MAX.into()),
                Some("uint" | "uint64") => Some(u64::MAX),
                _ => None,
            };
            if let Some(max) = max {
                fields.entry("maximum").or_insert_with(|| max.into());
            }
            fields.values_mut().for_each(bound_numbers);
        }
        _ => {}
    }
}

/// The document around its paths and schemas.
fn around(
    paths: Map<String, Value>,
    mut definitions: Map<String, Value>,
    groups: &[(&str, &str)],
) -> Value {
    let paths = Value::from(paths);
    keep_referred(&paths, &mut definitions);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Railpost",
            "version": "1",
            "summary": "Webhook delivery: at least once, in order within a key.",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags(&paths, groups),
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "api_key": { "type": "http", "scheme": "bearer", "description": "An API key: `rp_…`." },
            },
        },
    })
}

const ABOUT: &str = "Times are RFC 3339 in UTC. Durations are text such as `30s` or `72h`. \
    Unknown fields are errors. Lists come in pages: `next` of one is `cursor` of the next. \
    Errors are problem details (RFC 9457) with a stable `code`. A method that a path does not have is answered \
    with 405, and `Allow` says which ones it has. A text's longest length is in bytes of UTF-8.";

/// The groups that have operations.
fn tags(paths: &Value, groups: &[(&str, &str)]) -> Vec<Value> {
    let operations = paths.as_object().into_iter().flatten().flat_map(|(_, item)| item.as_object());
    let used: BTreeSet<&str> = operations
        .flat_map(|item| item.values())
        .filter_map(|one| one["tags"][0].as_str())
        .collect();
    let known = groups.iter().filter(|(name, _)| used.contains(name));
    known.map(|(name, about)| json!({ "name": name, "description": about })).collect()
}

/// Drops the schemas that nothing leads to: those of queries, whose parts are parameters.
fn keep_referred(paths: &Value, definitions: &mut Map<String, Value>) {
    let mut wanted = BTreeSet::new();
    let mut found = references(paths);
    // The answers that refuse refer to it.
    found.push("Problem".to_owned());
    while let Some(name) = found.pop() {
        if let Some(schema) = definitions.get(&name)
            && wanted.insert(name)
        {
            found.extend(references(schema));
        }
    }
    definitions.retain(|name, _| wanted.contains(name));
}

/// The names of the schemas that are referred to within.
pub fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).map(referred_name);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        _ => Vec::new(),
    }
}

/// The name of the schema that a reference leads to.
pub(crate) fn referred_name(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// What a route needs, in words.
fn needs_text(needs: Needs) -> &'static str {
    match needs {
        Needs::Nothing => "nothing",
        Needs::AnyKey => "any API key",
        Needs::Publish => "a key of scope `publish-only`, `tenant` or `admin`",
        Needs::Read => "a key of scope `read-only`, `tenant` or `admin`",
        Needs::Manage => "a key of scope `tenant` or `admin`",
        Needs::Admin => "a key of scope `admin`",
    }
}

/// The same schema for a value that is there or not, but never `null`.
pub(crate) fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema["type"].as_array() {
        let kinds: Vec<Value> = kinds.iter().filter(|kind| **kind != "null").cloned().collect();
        schema["type"] = kinds.into_iter().next().unwrap_or_default();
    }
    let choices = schema["anyOf"].as_array().cloned().unwrap_or_default();
    let is_null = |choice: &Value| choice["type"] == "null";
    if choices.iter().any(is_null) {
        return choices.into_iter().find(|choice| !is_null(choice)).unwrap_or_default();
    }
    // Looking a field up in an object of the JSON library leaves `null` behind.
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    schema
}
