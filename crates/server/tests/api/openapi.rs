//! The specification: the file in the repository is what the types say, and others can read it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::contract::contract;
use crate::world::World;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi.json")
}

#[test]
fn the_file_in_the_repository_is_what_the_types_say() {
    let stored = std::fs::read_to_string(golden()).unwrap_or_default();
    let advice = "openapi.json differs from the API: if that is meant, renew it with \
                  `cargo run -- openapi > openapi.json` and look at its diff";
    assert!(stored == railpost_api::openapi_text(), "{advice}");
}

#[test]
fn an_independent_validator_finds_nothing_wrong() {
    let advice = "run the tests with `cargo xtask with-services test -p railpost`";
    let folder = std::env::var("RAILPOST_TEST_INTEROP")
        .unwrap_or_else(|_| panic!("RAILPOST_TEST_INTEROP is not set: {advice}"));
    let python = Path::new(&folder).join("venv/bin/python");
    let checked =
        Command::new(python).args(["-m", "openapi_spec_validator"]).arg(golden()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
    assert!(said.contains("OK"), "{said}");
}

#[test]
fn the_server_shows_its_specification_and_pages_to_browse_it() {
    let world = World::new();
    let get = |path: &str| world.call("GET", path, "", &[], b"").expect(200);
    assert_eq!(get("/openapi.json").text, railpost_api::openapi_text());
    for path in ["/docs", "/docs/errors"] {
        let page = get(path);
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'"), "{policy}");
    }
    assert_eq!(get("/docs/style.css").headers["content-type"], "text/css; charset=utf-8");
    for route in railpost_api::routes() {
        assert!(
            get("/docs").text.contains(route.operation.path),
            "{} is not on the page",
            route.operation.path
        );
    }
}

/// Every schema that is named, and every place within that has examples.
fn examples(schema: &Value, found: &mut Vec<(Value, Value)>) {
    match schema {
        Value::Object(fields) => {
            for example in fields.get("examples").and_then(Value::as_array).into_iter().flatten() {
                found.push((schema.clone(), example.clone()));
            }
            fields.values().for_each(|within| examples(within, found));
        }
        Value::Array(items) => items.iter().for_each(|within| examples(within, found)),
        _ => {}
    }
}

#[test]
fn every_example_and_every_default_of_the_specification_is_valid() {
    let mut found = Vec::new();
    examples(&contract().document["components"]["schemas"], &mut found);
    examples(&contract().document["paths"], &mut found);
    assert!(found.len() >= 10, "{}", found.len());
    for (schema, example) in found {
        contract().validate(&schema, &example, &format!("the example {example} of {schema} says"));
    }
    let mut defaults = Vec::new();
    with_defaults(&contract().document["components"]["schemas"], &mut defaults);
    for schema in defaults {
        let default = schema["default"].clone();
        contract().validate(&schema, &default, &format!("the default {default} says"));
    }
}

fn with_defaults(schema: &Value, found: &mut Vec<Value>) {
    match schema {
        Value::Object(fields) => {
            let is_schema = fields.contains_key("type") || fields.contains_key("$ref");
            found.extend((is_schema && fields.contains_key("default")).then(|| json!(fields)));
            fields.values().for_each(|within| with_defaults(within, found));
        }
        Value::Array(items) => items.iter().for_each(|within| with_defaults(within, found)),
        _ => {}
    }
}

#[test]
fn every_operation_says_what_it_answers_when_it_refuses() {
    for (path, item) in contract().document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.contains_key("default"), "{method} {path}");
            let keyed = operation["security"] != json!([]);
            let body = operation["requestBody"].is_object();
            for (status, expected) in [
                ("400", true),
                ("401", keyed),
                ("429", keyed),
                ("404", path.contains('{')),
                ("409", method != "get"),
                ("413", method != "get"),
                ("415", body),
                ("422", body),
                ("503", true),
            ] {
                assert!(!expected || responses.contains_key(status), "{method} {path}: {status}");
            }
        }
    }
}
