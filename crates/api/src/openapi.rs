//! The specification of the API, made of the types of its handlers.

mod links;
mod operation;
mod operation_id;
mod responses;

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::auth::Needs;
use super::problem::ProblemView;
use operation::operation;
use operation_id::operation_id;

const DEFINITIONS: &str = "/components/schemas";

/// The groups of operations, in the order in which people meet them, each with what it is about.
const TAGS: [(&str, &str); 20] = [
    ("tenants", "The owners of events and endpoints."),
    ("find", "Searching by id, key, URL or description."),
    ("endpoints", "URLs that events are delivered to, with their policies and secrets."),
    ("event-types", "Types of events and the JSON Schemas of their payloads."),
    ("events", "Events: publishing and reading them."),
    ("deliveries", "One event for one endpoint each, and the attempts that were made."),
    ("lanes", "Deliveries with the same key, one after the other; those that are held."),
    ("dead-letters", "Deliveries that failed for good."),
    ("replays", "Jobs that replay, skip, discard or redeliver many deliveries."),
    ("figures", "Figures over time: counts, rates and durations."),
    ("overview", "Backlog, held lanes and endpoints that need attention."),
    ("keys", "API keys and their scopes."),
    ("audit", "The audit trail."),
    ("whoami", "The API key of the request."),
    ("thin", "Events behind signed URLs."),
    ("health", "Liveness and readiness of the server."),
    ("metrics", "Figures for Prometheus."),
    ("outbox", "Databases that events are relayed from, and rows that were refused."),
    ("maintenance", "Maintenance of the store."),
    ("docs", "This documentation."),
];

/// The OpenAPI 3.1 document of the API.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = DEFINITIONS.into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<ProblemView<'static>>();
    let routes = super::routes();
    let mut paths: Map<String, Value> = Map::new();
    for route in &routes {
        let described = (route.describe)(&mut schemas);
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        let mut operation = operation(route, &described, &schemas);
        operation["operationId"] = operation_id(route, &routes).into();
        operations[route.method.as_str().to_lowercase()] = operation;
    }
    links::add(&mut paths);
    let mut document = document(paths, schemas.take_definitions(true));
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

/// The document as it stands in `openapi.json`.
pub fn openapi_text() -> String {
    let text = serde_json::to_string_pretty(&openapi()).expect("a JSON value is JSON");
    format!("{text}\n")
}

fn document(paths: Map<String, Value>, mut definitions: Map<String, Value>) -> Value {
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
        "tags": tags(&paths),
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
fn tags(paths: &Value) -> Vec<Value> {
    let operations = paths.as_object().into_iter().flatten().flat_map(|(_, item)| item.as_object());
    let used: BTreeSet<&str> = operations
        .flat_map(|item| item.values())
        .filter_map(|one| one["tags"][0].as_str())
        .collect();
    let known = TAGS.iter().filter(|(name, _)| used.contains(name));
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
fn references(value: &Value) -> Vec<String> {
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
pub(super) fn referred_name(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// What a route needs, in words.
pub(crate) fn needs_text(needs: Needs) -> &'static str {
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
pub(super) fn without_null(mut schema: Value) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_a_group_that_is_described() {
        let document = openapi();
        let mut names = BTreeSet::new();
        let known: Vec<&str> = TAGS.iter().map(|(name, _)| *name).collect();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
                assert!(names.insert(name.clone()), "{method} {path}: `{name}` is taken");
                let tag = operation["tags"][0].as_str().unwrap_or_default();
                assert!(known.contains(&tag), "{method} {path}: say in TAGS what `{tag}` is about");
            }
        }
    }

    #[test]
    fn every_schema_that_is_referred_to_is_there() {
        let document = openapi();
        let schemas = &document["components"]["schemas"];
        for name in references(&document) {
            let known = schemas.get(&name).or(document["components"]["responses"].get(&name));
            assert!(known.is_some(), "{name}");
        }
    }
}
