//! What every test holds every answer against: the specification.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use railpost_api::openapi;
use serde_json::Value;

use crate::world::Answer;

pub(crate) struct Contract {
    pub(crate) document: Value,
    validators: Mutex<HashMap<String, Validator>>,
}

pub(crate) fn contract() -> &'static Contract {
    static CONTRACT: OnceLock<Contract> = OnceLock::new();
    CONTRACT.get_or_init(|| Contract { document: openapi(), validators: Mutex::default() })
}

/// Checks that the answer is one that the specification has for this operation: its status, its content type,
/// its headers and its body.
#[track_caller]
pub(crate) fn check(method: &str, url: &str, answer: &Answer) {
    let path = url.split("://").nth(1).unwrap_or(url);
    let path = path.split_once('/').map_or("", |(_, path)| path).split('?').next().unwrap();
    let Some((name, operation)) = contract().operation(method, &format!("/{path}")) else { return };
    let asked = format!("{method} {name} answered {}: {}", answer.status, answer.text);
    // What is wrong before the operation is known is no answer of the operation's.
    if answer.status == 405 {
        return;
    }
    let response = contract().resolved(&operation["responses"][answer.status.to_string()]);
    assert!(response.is_object(), "a status that is not documented: {asked}");
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let is_there = answer.headers.contains_key(name.as_str());
        assert!(is_there || header["required"] != true, "without `{name}`: {asked}");
    }
    let Some(content) = response["content"].as_object() else {
        assert!(answer.text.is_empty(), "a body that is not documented: {asked}");
        return;
    };
    let kind = answer.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let essence = kind.split(';').next().unwrap();
    let media = content.get(essence).or(content.get("*/*"));
    let Some(media) = media else { panic!("`{kind}` is not documented: {asked}") };
    if essence.ends_with("json") && method != "HEAD" {
        // The schema of a stream is that of each line.
        let lines = essence == "application/x-ndjson";
        let parts = if lines { answer.text.lines().collect() } else { vec![&*answer.text] };
        for part in parts {
            check_json(&media["schema"], part, &asked);
        }
    }
}

#[track_caller]
fn check_json(schema: &Value, text: &str, asked: &str) {
    match serde_json::from_str(text) {
        Ok(body) => contract().validate(schema, &body, asked),
        // Too deep for this reader, not for others.
        Err(error) => {
            assert!(error.to_string().contains("recursion limit"), "{error}: {asked}");
        }
    }
}

impl Contract {
    fn operation(&self, method: &str, path: &str) -> Option<(&str, &Value)> {
        let fits = |pattern: &str| {
            let (wanted, got) = (pattern.split('/'), path.split('/'));
            wanted.clone().count() == got.clone().count()
                && wanted.zip(got).all(|(wanted, got)| wanted.starts_with('{') || wanted == got)
        };
        let mut paths: Vec<_> = self.document["paths"].as_object()?.iter().collect();
        // What is named exactly wins over a parameter.
        paths.sort_by_key(|(pattern, _)| pattern.matches('{').count());
        let (pattern, item) = paths.into_iter().find(|(pattern, _)| fits(pattern))?;
        let method = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
        item.get(&method).map(|operation| (pattern.as_str(), operation))
    }

    /// What a reference leads to, or the value itself.
    fn resolved<'v>(&'v self, value: &'v Value) -> &'v Value {
        let pointer = value["$ref"].as_str().map(|reference| reference.trim_start_matches('#'));
        pointer.map_or(value, |pointer| self.document.pointer(pointer).unwrap())
    }

    /// Checks that the instance is what the schema asks for.
    #[track_caller]
    pub(crate) fn validate(&self, schema: &Value, instance: &Value, asked: &str) {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let validator =
            validators.entry(schema.to_string()).or_insert_with(|| self.compiled(schema));
        let wrong: Vec<String> = validator
            .iter_errors(instance)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        drop(validators);
        assert!(wrong.is_empty(), "{wrong:#?} in what {asked}");
    }

    fn compiled(&self, schema: &Value) -> Validator {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
    }
}
