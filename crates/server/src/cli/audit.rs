//! `railpost audit`: who changed what.

use serde_json::Value;

use super::Session;
use super::failure::Outcome;
use super::list::{self, Paging};
use super::out::{Column, age, cut, field, whole};
use crate::api::{DetailLine, detail_lines};

/// What can be done with the audit trail.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// List its entries, the newest first
    List {
        /// Of all tenants (needs an admin key)
        #[arg(long)]
        everywhere: bool,
        /// Only what was done to this
        #[arg(long, value_name = "ID")]
        target: Option<String>,
        /// Only from this time on (RFC 3339)
        #[arg(long, value_name = "TIME")]
        created_after: Option<String>,
        /// Only before this time (RFC 3339)
        #[arg(long, value_name = "TIME")]
        created_before: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
}

const COLUMNS: [Column; 4] = [
    whole("when", |item| age(item, "at")),
    cut("action", |item| field(item, "action")),
    whole("target", |item| field(item, "target")),
    whole("actor", |item| field(item, "actor")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let Action::List { everywhere, target, created_after, created_before, paging } = action;
    let client = &session.client;
    let url = if everywhere { client.of_server(&["audit"]) } else { client.of_tenant(&["audit"]) };
    let filter = [
        ("target", &target),
        ("created_after", &created_after),
        ("created_before", &created_before),
    ];
    let url = list::with_query(url, &filter);
    list::show_with_lines(session, &url, &paging, &COLUMNS, differences)
}

/// Characters of a value on a line.
const VALUE_CHARS_MAX: usize = 40;

/// What an entry tells beside its columns: what changed, and what else there is to know.
fn differences(entry: &Value) -> Vec<String> {
    let line = |line: DetailLine| match line.from {
        Some(from) => format!("{}: {from} -> {}", line.field, line.to),
        None => format!("{}: {}", line.field, line.to),
    };
    detail_lines(&entry["detail"], VALUE_CHARS_MAX).into_iter().map(line).collect()
}
