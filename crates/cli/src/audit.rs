//! `railpost audit`: who changed what.

use serde_json::Value;

use super::Session;
use super::failure::Outcome;
use super::list::{self, Paging, Period};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with the audit trail.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List its entries, the newest first
    List {
        /// Of all tenants (needs an admin key)
        #[arg(long)]
        everywhere: bool,
        /// Only what was done to this
        #[arg(long, value_name = "ID")]
        target: Option<String>,
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        paging: Paging,
    },
}

const COLUMNS: [Column; 4] = [
    full_column("when", |item| age(item, "at")),
    full_column("action", |item| field(item, "action")),
    full_column("target", |item| field(item, "target")),
    cut_column("actor", |item| field(item, "actor")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let Action::List { everywhere, target, period, paging } = action;
    let client = &session.client;
    let url = if everywhere { client.of_server(&["audit"]) } else { client.of_tenant(&["audit"]) };
    let url = list::with_query(url, &[("target", &target)]);
    let url = list::with_query(url, &period.fields());
    list::show_with_lines(session, &url, &paging, &COLUMNS, differences)
}

/// Characters of a value on a line.
const VALUE_CHARS_MAX: usize = 40;

/// What an entry tells beside its columns: what changed, and what else there is to know.
fn differences(entry: &Value) -> Vec<String> {
    let detail = &entry["detail"];
    let changes = detail["changes"].as_object().into_iter().flatten();
    let changed = |(field, change): (&String, &Value)| {
        format!("{field}: {} -> {}", shown(&change["from"]), shown(&change["to"]))
    };
    let mut lines: Vec<String> = changes.map(changed).collect();
    for (name, value) in detail.as_object().into_iter().flatten() {
        if name != "changes" {
            add_lines(&mut lines, name, value);
        }
    }
    lines
}

/// Adds what an entry tells beside the changes, without fields that are null.
fn add_lines(lines: &mut Vec<String>, field: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                add_lines(lines, &format!("{field}.{name}"), value);
            }
        }
        value => lines.push(format!("{}: {}", field.replace('_', " "), shown(value))),
    }
}

/// A value on one line, cut where it is long.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => plain(other),
    };
    let text = text.replace(['\r', '\n'], " ");
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        _ if text.is_empty() => "nothing".to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_tells_its_changes_and_the_rest_of_its_detail() {
        let detail = json!({
            "changes": {
                "url": {"from": "", "to": "x".repeat(VALUE_CHARS_MAX + 1)},
                "types": {"from": ["*"], "to": ["a", "b"]},
            },
            "filter": {"state": "dead", "key": null},
            "open_deliveries": 3,
        });
        let long = format!("url: nothing -> {}…", "x".repeat(VALUE_CHARS_MAX));
        let lines = ["types: * -> a, b", &long, "filter.state: dead", "open deliveries: 3"]
            .map(str::to_owned);
        assert_eq!(differences(&json!({ "detail": detail })), lines);
        assert_eq!(differences(&json!({})), Vec::<String>::new());
    }
}
