//! JSON Schemas as text, for the page of operations.

use std::fmt::Write as _;

use serde_json::Value;

use super::operations::{fields, items, text};
use super::{escape, prose};
use crate::openapi::referred_name;

/// The section of all schemas that have a name.
pub(super) fn section(schemas: &Value) -> String {
    let mut section = "<section id=\"schemas\">\n<h2>schemas</h2>\n".to_owned();
    for (name, schema) in fields(schemas) {
        section.push_str(&one(name, schema));
    }
    section + "</section>\n"
}

fn one(name: &str, schema: &Value) -> String {
    let (id, about) = (escape(name), prose(text(&schema["description"])));
    let mut article =
        format!("<article class=\"schema\" id=\"schema-{id}\">\n<h3>{id}</h3>\n<p>{about}</p>\n");
    let choices = choices(schema);
    if schema["properties"].is_object() {
        article.push_str(&properties(schema));
    } else if choices.is_empty() {
        let _ = writeln!(article, "<p>{}</p>", type_of(schema));
    }
    article.push_str(&choices);
    for example in items(&schema["examples"]) {
        let pretty = serde_json::to_string_pretty(example).unwrap_or_default();
        let _ = writeln!(article, "<pre><code>{}</code></pre>", escape(&pretty));
    }
    article + "</article>\n"
}

fn properties(schema: &Value) -> String {
    let mut rows = String::new();
    for (name, property) in fields(&schema["properties"]) {
        let required = items(&schema["required"]).any(|required| required == name.as_str());
        let mark = if required { "" } else { "<span class=\"optional\">optional</span>" };
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\"><code>{}</code> {mark}</th><td>{}</td><td>{}</td></tr>",
            escape(name),
            type_of(property),
            prose(text(&property["description"])),
        );
    }
    format!("<div class=\"wide\"><table>\n{rows}</table></div>\n")
}

/// The choices that say what each means.
fn choices(schema: &Value) -> String {
    let mut list = String::new();
    let all = items(&schema["oneOf"]).chain(items(&schema["anyOf"]));
    for choice in all.filter(|choice| choice["description"].is_string()) {
        let about = prose(text(&choice["description"]));
        let _ = match choice["properties"].is_object() {
            true => writeln!(list, "<li>{about}{}</li>", properties(choice)),
            false => writeln!(list, "<li>{}: {about}</li>", type_of(choice)),
        };
    }
    if list.is_empty() { list } else { format!("<ul>\n{list}</ul>\n") }
}

/// What kind of value a schema asks for.
pub(super) fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escape(&referred_name(reference));
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for key in ["const", "enum", "anyOf", "oneOf", "allOf"] {
        if let Some(found) = schema.get(key) {
            return choice_of(key, found);
        }
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let one = |kind: &Value| plain_type(schema, text(kind));
            kinds.iter().map(one).collect::<Vec<_>>().join(" or ")
        }
        kind => plain_type(schema, text(kind)),
    }
}

fn choice_of(key: &str, found: &Value) -> String {
    match key {
        "const" => format!("<code>{}</code>", escape(&found.to_string())),
        "enum" => {
            let values =
                items(found).map(|value| format!("<code>{}</code>", escape(&value.to_string())));
            values.collect::<Vec<_>>().join(" or ")
        }
        _ => items(found).map(type_of).collect::<Vec<_>>().join(" or "),
    }
}

fn plain_type(schema: &Value, kind: &str) -> String {
    match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&schema["additionalProperties"]))
        }
        "string" => schema["format"].as_str().unwrap_or("string").to_owned(),
        "" => "any JSON".to_owned(),
        kind => kind.to_owned(),
    }
}
