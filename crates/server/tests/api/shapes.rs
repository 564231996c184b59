//! The shapes of requests: an object is an object and a word a word, at every depth of every operation.

use railpost_api::{Route, openapi, routes};
use serde_json::{Value, json};

use crate::things::{Things, filled, furnish};
use crate::world::{Answer, World};

/// A place in a request's body: the names and indices that lead to it.
#[derive(Clone, Debug, Default)]
struct Place(Vec<String>);

impl Place {
    /// An element of a list has the name of none.
    const ELEMENT: &str = "[]";

    fn then(&self, name: &str) -> Self {
        Self(self.0.iter().map(String::as_str).chain([name]).map(str::to_owned).collect())
    }

    /// A body that holds nothing but this value, at this place.
    fn body(&self, value: &Value) -> Value {
        self.0.iter().rev().fold(value.clone(), |inner, name| match name.as_str() {
            Self::ELEMENT => json!([inner]),
            name => json!({ name: inner }),
        })
    }

    /// The place as an answer names it: `events[0].key`.
    fn field(&self) -> String {
        let names = self.0.iter().map(|name| match name.as_str() {
            Self::ELEMENT => "[0]".to_owned(),
            name => format!(".{name}"),
        });
        names.collect::<String>().trim_start_matches('.').to_owned()
    }
}

/// What a place has to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Object,
    Word,
}

/// All places within a schema that have to hold an object or one of a few words.
fn places(document: &Value, schema: &Value, at: &Place, found: &mut Vec<(Place, Kind, Value)>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return places(document, &document["components"]["schemas"][name], at, found);
    }
    let is = |kind: &str| match &schema["type"] {
        Value::Array(kinds) => kinds.contains(&json!(kind)),
        one => one == kind,
    };
    if is("object") {
        found.push((at.clone(), Kind::Object, schema.clone()));
    }
    if is("string") && (schema["enum"].is_array() || schema["const"].is_string()) {
        found.push((at.clone(), Kind::Word, schema.clone()));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        places(document, property, &at.then(name), found);
    }
    if schema["items"].is_object() {
        places(document, &schema["items"], &at.then(Place::ELEMENT), found);
    }
    for choices in ["anyOf", "oneOf", "allOf"] {
        for choice in schema[choices].as_array().into_iter().flatten() {
            places(document, choice, at, found);
        }
    }
}

/// What must not stand there, though a lenient reader takes it for what must.
fn impostors(kind: Kind, schema: &Value) -> Vec<Value> {
    match kind {
        Kind::Object => {
            let fields = schema["properties"].as_object().map_or(0, serde_json::Map::len);
            vec![json!([]), json!([null, null]), json!(vec![Value::Null; fields])]
        }
        Kind::Word => {
            let word = schema["enum"][0].as_str().or(schema["const"].as_str()).unwrap();
            vec![json!({ word: null }), json!([word])]
        }
    }
}

fn send(world: &World, route: &Route, things: &Things, media_type: &str, body: &Value) -> Answer {
    let (path, headers) = (filled(route, things), [("content-type", media_type)]);
    let body = body.to_string();
    world.call(route.operation.method.as_str(), &path, &world.admin, &headers, body.as_bytes())
}

/// The problem with a request; a stream names the problem in its line.
fn problem(media_type: &str, answer: &Answer) -> Value {
    match media_type {
        "application/x-ndjson" => answer.json()["problem"].clone(),
        _ => answer.json(),
    }
}

#[test]
fn a_whole_number_is_one_however_it_is_written() {
    let world = World::new();
    let json = [("content-type", "application/json")];
    let change = |text: &str| {
        let body = format!("{{\"backlog_max\": {text}}}");
        world.call("PATCH", "/v1/tenants/default", &world.admin, &json, body.as_bytes())
    };
    let publish = |text: &str| {
        let body = format!("{{\"type\": \"a\", \"payload\": 1, \"schema_version\": {text}}}");
        world.call("POST", "/v1/tenants/default/events", &world.admin, &json, body.as_bytes())
    };
    for text in ["100", "100.0", "1e2", "1.0e+2"] {
        assert_eq!(change(text).expect(200).json()["backlog_max"], 100, "{text}");
        publish(text).expect(202);
    }
    for text in ["1.5", "-1", "-1.0", "1e30", "1e-1", "\"1\"", "true"] {
        assert_eq!(change(text).expect(422).json()["field"], "backlog_max", "{text}");
        assert_eq!(publish(text).expect(422).json()["field"], "schema_version", "{text}");
    }
}

#[test]
fn an_array_is_never_an_object_and_an_object_never_a_word() {
    let world = World::new();
    let things = furnish(&world, "own");
    let document = openapi();
    let mut refused = 0;
    for route in routes() {
        let operation = &document["paths"][route.operation.path]
            [route.operation.method.as_str().to_lowercase()];
        let content = operation["requestBody"]["content"].as_object();
        for (media_type, described) in content.into_iter().flatten() {
            let mut found = Vec::new();
            places(&document, &described["schema"], &Place::default(), &mut found);
            for (place, kind, schema) in found {
                for impostor in impostors(kind, &schema) {
                    let body = place.body(&impostor);
                    let answer = send(&world, &route, &things, media_type, &body);
                    let asked = format!(
                        "{} {} {body}: {}",
                        route.operation.method, route.operation.path, answer.text
                    );
                    let problem = problem(media_type, &answer);
                    assert_eq!(problem["status"], 422, "{asked}");
                    // The whole of a CloudEvent is called its body.
                    let named = problem["field"].as_str().unwrap_or_default();
                    let named = named.strip_suffix("body").unwrap_or(named).trim_end_matches('.');
                    assert_eq!(named, place.field(), "{asked}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
    println!("wrong shapes: {refused} refused");
}
