//! One operation: its parameters, body and responses.

use http::Method;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::responses::responses;
use super::{needs_text, referred_name, without_null};
use crate::limits::IDEMPOTENCY_KEY_LEN_MAX;
use crate::needs::Needs;
use crate::operation::{HandlerTypes, Operation};

pub(super) fn describe(
    operation: &Operation,
    handler: &HandlerTypes,
    schemas: &SchemaGenerator,
) -> Value {
    let mut described = json!({
        "summary": operation.summary,
        "tags": [tag(operation.path)],
        "parameters": parameters(operation, handler, schemas),
        "responses": responses(operation, handler),
        "security": [],
    });
    if operation.needs != Needs::Nothing {
        described["security"] = json!([{ "api_key": [] }]);
        described["description"] = format!("Needs {}.", needs_text(operation.needs)).into();
    }
    if !handler.body.is_empty() {
        described["requestBody"] = request_body(handler, schemas);
    }
    described
}

/// A body may be left out where all of its fields may.
fn request_body(handler: &HandlerTypes, schemas: &SchemaGenerator) -> Value {
    let required = |schema: &Schema| {
        let name = schema.get("$ref").and_then(Value::as_str).map(referred_name);
        let named = name.and_then(|name| schemas.definitions().get(&name));
        named.is_none_or(|schema| schema.get("required").is_some())
    };
    let content: Map<String, Value> = handler
        .body
        .iter()
        .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema })))
        .collect();
    let required = handler.body.iter().any(|(_, schema)| required(schema));
    json!({ "required": required, "content": content })
}

/// The group an operation is shown in: the first word of its path that is not about whose it is.
fn tag(path: &str) -> &str {
    let inside = path.strip_prefix("/v1/tenants/{tenant}/").or(path.strip_prefix("/v1/"));
    let first = inside.unwrap_or(path.trim_start_matches('/')).split('/').next();
    match first.unwrap_or_default() {
        "openapi.json" => "docs",
        "backup" | "prune" | "store" | "lines" | "master-key" => "maintenance",
        first => first,
    }
}

fn parameters(
    operation: &Operation,
    handler: &HandlerTypes,
    schemas: &SchemaGenerator,
) -> Vec<Value> {
    let in_path = handler.path.iter().map(|(name, about, schema)| {
        json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
    });
    let mut parameters: Vec<Value> = in_path.collect();
    for schema in &handler.query {
        parameters.extend(query_parameters(schema, schemas));
    }
    if handler.repeatable && operation.method != Method::GET {
        parameters.push(idempotency_key());
    }
    parameters
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": false,
        "description": "Makes it safe to send the request again: the same answer, the work done once.",
        "schema": {
            "type": "string",
            "pattern": format!("^[!-~]{{1,{IDEMPOTENCY_KEY_LEN_MAX}}}$"),
        },
    })
}

/// The properties of an object, as parameters of a query.
fn query_parameters(schema: &Schema, schemas: &SchemaGenerator) -> Vec<Value> {
    let name = schema.get("$ref").and_then(Value::as_str).map(referred_name).unwrap_or_default();
    let object = schemas.definitions().get(&name).cloned().unwrap_or_default();
    let properties = object["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let required = object["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let about = about.unwrap_or_else(|| "".into());
        let schema = without_null(schema);
        json!({ "name": name, "in": "query", "required": required, "description": about, "schema": schema })
    };
    properties.into_iter().map(parameter).collect()
}
