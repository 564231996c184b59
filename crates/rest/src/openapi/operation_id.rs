//! The operation ids of the specification: `list_endpoints`, `rotate_endpoint_secrets`.

use http::Method;

use crate::operation::Operation;

/// The name of an operation: a verb, and what the path names. Whose it is goes without saying,
/// unless the same exists for all tenants.
pub(super) fn operation_id(operation: &Operation, all: &[Operation]) -> String {
    let inside = inside(operation.path);
    let has_global = inside != operation.path && {
        let global = format!("/v1/{inside}");
        all.iter().any(|other| other.path == global)
    };
    let mut words = words(inside);
    if has_global {
        words.insert(0, "tenant".to_owned());
    }
    let (first, rest) = verb(operation, all, &mut words);
    let name = [vec![first], rest].concat().join("_");
    name.replace(['-', '.'], "_")
}

fn inside(path: &str) -> &str {
    path.strip_prefix("/v1/tenants/{tenant}/").unwrap_or(path)
}

/// The names in a path; one that a parameter follows is about one thing.
fn words(path: &str) -> Vec<String> {
    let segments: Vec<&str> =
        path.split('/').filter(|segment| !segment.is_empty() && *segment != "v1").collect();
    let is_param = |segment: &&str| segment.starts_with('{');
    let named = segments.iter().enumerate().filter(|(_, segment)| !is_param(segment));
    let words = named.map(|(index, word)| match segments.get(index + 1).is_some_and(is_param) {
        true => singular(word),
        false => (*word).to_owned(),
    });
    words.collect()
}

fn singular(word: &str) -> String {
    match (word.strip_suffix("ies"), word.strip_suffix('s')) {
        (Some(stem), _) => format!("{stem}y"),
        (None, Some(stem)) => stem.to_owned(),
        (None, None) => word.to_owned(),
    }
}

/// The verb, and the words that are left.
fn verb(
    operation: &Operation,
    all: &[Operation],
    words: &mut Vec<String>,
) -> (String, Vec<String>) {
    let ends_with_name = !operation.path.ends_with('}');
    let last = words.last().cloned().unwrap_or_default();
    let is_list = |method: &Method| *method == Method::GET && is_plural(&last);
    let listed = || all.iter().any(|other| other.path == operation.path && is_list(&other.method));
    let verb = match operation.method {
        Method::GET
            if ends_with_name
                && operation.path.starts_with("/v1/")
                && is_list(&operation.method) =>
        {
            "list"
        }
        Method::GET => "get",
        Method::PATCH => "change",
        Method::PUT => "put",
        Method::DELETE => "remove",
        _ if listed() || (words.len() == 1 && last.ends_with('s')) => {
            if let Some(word) = words.last_mut() {
                *word = singular(word);
            }
            "create"
        }
        // The last word says what is done: `pause`, `rotate`, `batch`.
        _ => {
            words.pop();
            return (last, std::mem::take(words));
        }
    };
    (verb.to_owned(), std::mem::take(words))
}

fn is_plural(word: &str) -> bool {
    LISTED.contains(&word) || (word.ends_with('s') && !COUNTED.contains(&word))
}

/// Lists whose names are no plurals.
const LISTED: [&str; 2] = ["outbox", "parked"];

/// Plurals that are no lists.
const COUNTED: [&str; 1] = ["figures"];
