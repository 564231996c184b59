//! `railpost find`: events, deliveries, endpoints, lanes, tenants and replays by what people know of them.

use serde_json::{Value, json};

use super::Session;
use super::failure::Outcome;
use super::list;
use super::out::{Column, cut_column, field, full_column};
use crate::limits::{FIND_ID_LEN_MIN, FIND_RESULTS_MAX};

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
        [] => out.hint(&nothing(client.tenant(), &words, arguments.everywhere)),
        [one] => out.hint(&format!("Show it: {}", command(one, client.tenant()))),
        several => {
            out.hint(&format!("Show one: {}", commands(several, client.tenant())));
            cut_kinds(several).into_iter().for_each(|kind| out.hint(&may_be_more(kind)));
        }
    }
    Ok(())
}

fn nothing(tenant: &str, words: &str, everywhere: bool) -> String {
    let nothing = match everywhere {
        true => format!("Nothing found for `{words}` in any tenant."),
        false => format!(
            "Nothing found for `{words}` in tenant `{tenant}`. With an admin key, --everywhere searches all tenants."
        ),
    };
    match words.trim().len() < FIND_ID_LEN_MIN {
        true => format!(
            "{nothing} An id is found by its beginning from {FIND_ID_LEN_MIN} characters on."
        ),
        false => nothing,
    }
}

/// The kinds of what was found, each once.
fn kinds(found: &[Value]) -> Vec<&str> {
    let mut kinds = Vec::new();
    for kind in found.iter().filter_map(|item| item["kind"].as_str()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Kinds of which as many were found as a server finds.
fn cut_kinds(found: &[Value]) -> Vec<&str> {
    let count = |kind: &str| found.iter().filter(|item| item["kind"] == kind).count();
    kinds(found).into_iter().filter(|kind| count(kind) >= FIND_RESULTS_MAX).collect()
}

fn may_be_more(kind: &str) -> String {
    format!(
        "There may be more of the kind `{kind}`: at most {FIND_RESULTS_MAX} of a kind are shown. More characters find fewer."
    )
}

/// The commands that show what was found, one for each kind.
fn commands(found: &[Value], tenant: &str) -> String {
    let of_kind =
        |kind: &str| command(&json!({ "kind": kind, "id": "ID", "endpoint": "ENDPOINT" }), tenant);
    let commands: Vec<String> = kinds(found).into_iter().map(of_kind).collect();
    let is_elsewhere = |item: &Value| item["tenant"].as_str().is_some_and(|other| other != tenant);
    let elsewhere = match found.iter().any(is_elsewhere) {
        true => " (with --tenant TENANT)",
        false => "",
    };
    format!("{}{elsewhere}", commands.join(", "))
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

    fn found(kind: &str, tenant: &str) -> Value {
        json!({ "kind": kind, "id": "x", "tenant": tenant })
    }

    #[test]
    fn few_characters_that_find_nothing_say_from_how_many_on_ids_are_found() {
        for (words, is_short) in [("dlv_1", true), ("dlv_12", false)] {
            for everywhere in [false, true] {
                let hint = nothing("acme", words, everywhere);
                assert_eq!(hint.contains("from 6 characters on"), is_short, "{hint}");
            }
        }
    }

    #[test]
    fn several_hits_come_with_a_command_for_each_kind() {
        let own = [found("event", "acme"), found("event", "acme"), found("delivery", "acme")];
        let shown = "railpost events story ID, railpost deliveries show ID";
        assert_eq!(commands(&own, "acme"), shown);
        assert_eq!(commands(&own, "other"), format!("{shown} (with --tenant TENANT)"));
    }

    #[test]
    fn a_kind_with_as_many_hits_as_a_server_finds_may_have_more() {
        let mut all = vec![found("event", "acme"); FIND_RESULTS_MAX - 1];
        all.push(found("lane", "acme"));
        assert_eq!(cut_kinds(&all), Vec::<&str>::new());
        all.insert(0, found("event", "acme"));
        assert_eq!(cut_kinds(&all), ["event"]);
    }

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
