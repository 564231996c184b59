//! `railpost lanes`: keys that wait behind a dead letter.

use super::Session;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with lanes. Each acts on the dead letter that holds the lane.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List those that are held, the longest held first
    List {
        /// Only of this endpoint
        #[arg(long)]
        endpoint: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Replay the dead letter; the lane continues when it is acknowledged
    Replay { lane: String },
    /// Skip the dead letter: the lane continues, and the dead letter stays
    Skip { lane: String },
    /// Discard the dead letter; the lane continues
    Discard { lane: String },
}

const COLUMNS: [Column; 7] = [
    full_column("lane", |item| field(item, "lane")),
    full_column("endpoint", |item| field(item, "endpoint")),
    cut_column("key", |item| field(item, "key")),
    full_column("held by", |item| field(item, "held_by")),
    full_column("behind", |item| field(item, "waiting_behind")),
    full_column("since", |item| age(item, "since")),
    cut_column("why", |item| match &item["last_status"] {
        serde_json::Value::Null => field(item, "reason"),
        status => format!("{} ({status})", field(item, "reason")),
    }),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let act = |lane: &str, what: &str| {
        let url = session.client.of_tenant(&["lanes", lane, what]);
        deliveries::print_state(session, &session.client.act(&url)?["delivery"])
    };
    match action {
        Action::List { endpoint, paging } => {
            let url = session.client.of_tenant(&["lanes"]);
            let url = list::with_query(url, &[("endpoint", &endpoint)]);
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Replay { lane } => act(&lane, "replay"),
        Action::Skip { lane } => act(&lane, "skip"),
        Action::Discard { lane } => act(&lane, "discard"),
    }
}
