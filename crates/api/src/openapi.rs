//! The specification of the API.

mod answers;

use railpost_rest::openapi::document;
use railpost_rest::operation::Operation;
use serde_json::Value;

pub(crate) use answers::meaning;

/// The groups of operations, in the order in which people meet them, each with what it is about.
const TAGS: &[(&str, &str)] = &[
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
    ("report", "How the objective was met in a period, with incidents."),
    ("overview", "Backlog, held lanes and endpoints that need attention."),
    ("keys", "API keys and their scopes."),
    ("audit", "The audit trail."),
    ("whoami", "The API key of the request."),
    ("thin", "Events behind signed URLs."),
    ("health", "Liveness and readiness of the server."),
    ("metrics", "Figures for Prometheus."),
    ("egress", "The networks that deliveries come from."),
    ("outbox", "Databases that events are relayed from, and rows that were refused."),
    ("maintenance", "Maintenance of the store."),
    ("docs", "This documentation."),
];

/// The OpenAPI 3.1 document of the API.
pub fn openapi() -> Value {
    let operations: Vec<Operation> =
        super::routes().into_iter().map(|route| route.operation).collect();
    document(&operations, TAGS)
}

/// The document as it stands in `openapi.json`.
pub fn openapi_text() -> String {
    let text = serde_json::to_string_pretty(&openapi()).expect("a JSON value is JSON");
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use railpost_rest::openapi::{UNSAID, references};

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
    fn every_answer_says_what_it_means() {
        let document = openapi();
        let own = document["paths"].as_object().into_iter().flatten().flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            operations.map(move |(method, one)| (format!("{method} {path}"), &one["responses"]))
        });
        let shared = ("components".to_owned(), &document["components"]["responses"]);
        for (place, responses) in own.chain([shared]) {
            for (status, response) in responses.as_object().into_iter().flatten() {
                let Some(about) = response["description"].as_str() else {
                    assert!(response["$ref"].is_string(), "{place} {status} is not described");
                    continue;
                };
                let said = about != UNSAID && about.ends_with('.') && about.contains(' ');
                assert!(said, "{place} {status}: say in openapi/answers.rs what it means");
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
