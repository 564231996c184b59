//! The page of all operations.

use std::fmt::Write as _;

use serde_json::Value;

use super::schemas::{self, type_of};
use super::{escape, html, links, prose};
use crate::openapi::referred_name;

/// The page for this OpenAPI document.
pub fn page(document: &Value) -> String {
    let tags: Vec<(&str, &str)> = items(&document["tags"])
        .map(|tag| (text(&tag["name"]), text(&tag["description"])))
        .collect();
    let groups = tags.iter().map(|(name, _)| (format!("#{name}"), *name));
    let more = [("#schemas".to_owned(), "schemas"), ("/docs/errors".to_owned(), "error codes")];
    let raw = [("/openapi.json".to_owned(), "openapi.json")];
    let navigation = links(groups.chain(more).chain(raw));
    let mut main = format!(
        "<h1>{}</h1>\n<p class=\"lead\">{}</p>\n<p>{}</p>\n",
        escape(text(&document["info"]["title"])),
        prose(text(&document["info"]["summary"])),
        prose(text(&document["info"]["description"])),
    );
    for (name, about) in tags {
        main.push_str(&group(document, name, about));
    }
    main.push_str(&schemas::section(&document["components"]["schemas"]));
    html("Railpost API", &navigation, &main)
}

fn group(document: &Value, name: &str, about: &str) -> String {
    let mut section =
        format!("<section id=\"{name}\">\n<h2>{name}</h2>\n<p>{}</p>\n", prose(about));
    for (path, item) in fields(&document["paths"]) {
        for (method, operation) in fields(item) {
            if operation["tags"][0] == name {
                section.push_str(&one(document, (path, method), operation));
            }
        }
    }
    section + "</section>\n"
}

/// One operation: its line is always to be seen, the rest on request.
fn one(document: &Value, (path, method): (&str, &str), operation: &Value) -> String {
    let id = text(&operation["operationId"]);
    let mut article = format!(
        "<details class=\"operation\" id=\"{id}\">\n<summary><span class=\"method {method}\">{}</span> \
         <code class=\"path\">{}</code> <span class=\"about\">{}</span></summary>\n",
        method.to_uppercase(),
        escape(path),
        prose(text(&operation["summary"])),
    );
    let needs = operation["description"].as_str().unwrap_or("Needs no key.");
    let _ = writeln!(article, "<p>{} <span class=\"id\">{id}</span></p>", prose(needs));
    article.push_str(&parameters(&operation["parameters"]));
    article.push_str(&body(&operation["requestBody"]));
    article.push_str(&answers(document, &operation["responses"]));
    article + "</details>\n"
}

fn parameters(parameters: &Value) -> String {
    let mut rows = String::new();
    for parameter in items(parameters) {
        let place = text(&parameter["in"]);
        let required = if parameter["required"] == true { ", required" } else { "" };
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{place}{required}</td><td>{}</td><td>{}</td></tr>",
            escape(text(&parameter["name"])),
            type_of(&parameter["schema"]),
            prose(text(&parameter["description"])),
        );
    }
    match rows.is_empty() {
        true => String::new(),
        false => {
            format!("<h3>Parameters</h3>\n<div class=\"wide\"><table>\n{rows}</table></div>\n")
        }
    }
}

fn body(body: &Value) -> String {
    if body.is_null() {
        return String::new();
    }
    format!("<h3>Body</h3>\n<ul>\n{}</ul>\n", contents(&body["content"]))
}

fn answers(document: &Value, responses: &Value) -> String {
    let mut list = String::new();
    for (status, response) in fields(responses) {
        let shared = response["$ref"].as_str().map(referred_name);
        let shared = shared.map(|name| &document["components"]["responses"][name]);
        let response = shared.unwrap_or(response);
        let about = prose(text(&response["description"]));
        let contents = contents(&response["content"]);
        let _ = writeln!(list, "<li><code>{status}</code> {about}<ul>\n{contents}</ul></li>");
    }
    format!("<h3>Answers</h3>\n<ul>\n{}</ul>\n", list.replace("<ul>\n</ul>", ""))
}

/// Content types and the type of each.
fn contents(content: &Value) -> String {
    let mut list = String::new();
    for (kind, media) in fields(content) {
        let of = type_of(&media["schema"]);
        let _ = writeln!(list, "<li>{of} as <code>{}</code></li>", escape(kind));
    }
    list
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
