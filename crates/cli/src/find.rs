//! `railpost find`: events, deliveries, endpoints, lanes, tenants and replays by what people know of them.

use serde_json::Value;

use super::Session;
use super::failure::Outcome;
use super::list;
use super::out::{Column, cut_column, field, full_column};

/// The arguments of `find`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// An id or its beginning (6 characters or more), a key, an endpoint's URL, the id of a CloudEvent
    #[arg(required = true)]
    words: Vec<String>,
    /// In all tenants (needs an admin key)
    #[arg(long)]
    everywhere: bool,
}

const COLUMNS: [Column; 4] = [
    full_column("kind", |item| field(item, "kind")),
    full_column("id", |item| field(item, "id")),
    cut_column("what", |item| field(item, "title")),
    full_column("found by", |item| field(item, "why").replace('_', " ")),
];

const EVERYWHERE: [Column; 5] = [
    full_column("kind", |item| field(item, "kind")),
    full_column("id", |item| field(item, "id")),
    cut_column("tenant", |item| field(item, "tenant")),
    cut_column("what", |item| field(item, "title")),
    full_column("found by", |item| field(item, "why").replace('_', " ")),
];

pub(super) fn run(arguments: &Arguments, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let words = arguments.words.join(" ");
    let url = match arguments.everywhere {
        true => client.of_server(&["find"]),
        false => client.of_tenant(&["find"]),
    };
    let found = client.get(&list::with_query(url, &[("q", &Some(words.clone()))]))?;
    let columns: &[Column] = if arguments.everywhere { &EVERYWHERE } else { &COLUMNS };
    list::show_items(session, &found, columns)?;
    match found["items"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => out.hint(&nothing(session, &words, arguments.everywhere)),
        [one] => out.hint(&format!("Show it: {}", command(one, client.tenant()))),
        _ => {}
    }
    Ok(())
}

fn nothing(session: &Session, words: &str, everywhere: bool) -> String {
    match everywhere {
        true => format!("Nothing found for `{words}` in any tenant."),
        false => format!(
            "Nothing found for `{words}` in tenant `{}`. With an admin key, --everywhere searches all tenants.",
            session.client.tenant()
        ),
    }
}

/// The command that shows what was found.
fn command(found: &Value, tenant: &str) -> String {
    let id = field(found, "id");
    let command = match found["kind"].as_str() {
        Some("event") => format!("events story {id}"),
        Some("delivery") => format!("deliveries show {id}"),
        Some("endpoint") => format!("endpoints show {id}"),
        Some("lane") => format!("lanes list --endpoint {}", field(found, "endpoint")),
        Some("tenant") => return format!("railpost tenants show {id}"),
        _ => format!("replay show {id}"),
    };
    match found["tenant"].as_str().filter(|other| *other != tenant) {
        Some(other) => format!("railpost {command} --tenant {other}"),
        None => format!("railpost {command}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_thing_has_a_command_that_shows_it() {
        for (kind, wanted) in [
            ("event", "railpost events story x"),
            ("delivery", "railpost deliveries show x"),
            ("endpoint", "railpost endpoints show x"),
            ("lane", "railpost lanes list --endpoint ep"),
            ("tenant", "railpost tenants show x"),
            ("replay", "railpost replay show x"),
        ] {
            let found = json!({ "kind": kind, "id": "x", "tenant": "acme", "endpoint": "ep" });
            assert_eq!(command(&found, "acme"), wanted);
            let elsewhere = command(&found, "other");
            assert!(kind == "tenant" || elsewhere.ends_with(" --tenant acme"), "{elsewhere}");
        }
    }
}
