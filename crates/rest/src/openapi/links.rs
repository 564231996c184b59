//! Links: where the answer of an operation that makes something leads.

use serde_json::{Map, Value, json};

/// Adds to every operation that makes something the operations on what it made: those whose path goes on with
/// its id.
pub(super) fn add(paths: &mut Map<String, Value>) {
    let operations: Vec<(String, String, String)> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().into_iter().flatten().map(move |one| (path, one)))
        .map(|(path, (method, operation))| {
            let id = operation["operationId"].as_str().unwrap_or_default();
            (path.clone(), method.clone(), id.to_owned())
        })
        .collect();
    for (path, method, id) in &operations {
        let targets = operations.iter().filter(|(_, _, other)| other != id);
        let links: Map<String, Value> = targets
            .filter_map(|(target, _, name)| {
                let parameters = parameters(path, method, target)?;
                Some((name.clone(), json!({ "operationId": name, "parameters": parameters })))
            })
            .collect();
        let responses = &mut paths[path][method]["responses"];
        for status in ["200", "201", "202"] {
            if let Some(response) = responses.get_mut(status).filter(|_| !links.is_empty()) {
                response["links"] = links.clone().into();
            }
        }
    }
}

/// The parameters of the target's path, if it is about what the operation makes: its own, and the id of what
/// was made.
fn parameters(path: &str, method: &str, target: &str) -> Option<Map<String, Value>> {
    let made = match method {
        "post" => id_of(path, target)?,
        // What is put has its id in the path.
        "put" if target == path => None,
        _ => return None,
    };
    let own = names(path).map(|name| (name.to_owned(), format!("$request.path.{name}").into()));
    let made = made.map(|name| (name.to_owned(), "$response.body#/id".into()));
    Some(own.chain(made).collect())
}

/// The name of the one parameter by which the target's path goes on.
fn id_of<'t>(path: &str, target: &'t str) -> Option<Option<&'t str>> {
    let rest = target.strip_prefix(path)?.strip_prefix('/')?;
    let mut names = names(rest);
    let name = names.next().filter(|_| rest.starts_with('{'))?;
    names.next().is_none().then_some(Some(name))
}

/// The names of a path's parameters.
fn names(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.split('/');
    segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_leads_to_what_can_be_done_with_it() {
        let endpoints = "/v1/tenants/{tenant}/endpoints";
        let all =
            |id: &str| Some(json!({ "tenant": "$request.path.tenant", id: "$response.body#/id" }));
        for (method, target, expected) in [
            ("post", format!("{endpoints}/{{endpoint}}"), all("endpoint")),
            ("post", format!("{endpoints}/{{endpoint}}/pause"), all("endpoint")),
            ("post", format!("{endpoints}/{{endpoint}}/secrets/{{secret}}"), None),
            ("get", format!("{endpoints}/{{endpoint}}"), None),
            ("post", "/v1/tenants/{tenant}/events".to_owned(), None),
        ] {
            let found = parameters(endpoints, method, &target).map(Value::from);
            assert_eq!(found, expected, "{method} {target}");
        }
    }
}
