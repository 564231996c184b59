//! `railpost dead-letters`: deliveries that failed for good.

use super::Session;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, Filter, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with dead letters, one at a time. `railpost replay` does it to many.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the newest first
    List {
        /// Only of this endpoint
        #[arg(long)]
        endpoint: Option<String>,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with the last answer
    Show { id: String },
    /// Send it again, with the same event id
    Replay { id: String },
    /// Skip it: its lane continues, and it stays a dead letter
    Skip { id: String },
    /// Discard it for good; its lane continues
    Discard { id: String },
}

const COLUMNS: [Column; 6] = [
    full_column("id", |item| field(item, "id")),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    cut_column("reason", |item| field(item, "reason")),
    cut_column("last answer", |item| match &item["last_status"] {
        serde_json::Value::Null => field(item, "last_failure"),
        status => status.to_string(),
    }),
    full_column("died", |item| age(item, "changed_at")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let client = &session.client;
    let act = |id: &str, what: &str| {
        let url = client.of_tenant(&["dead-letters", id, what]);
        deliveries::print_state(session, &client.act(&url)?)
    };
    match action {
        Action::List { endpoint, filter, paging } => {
            let url = list::with_query(client.of_tenant(&["dead-letters"]), &filter.fields());
            let url = list::with_query(url, &[("endpoint", &endpoint)]);
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => {
            session.out.record(&client.get(&client.of_tenant(&["dead-letters", &id]))?)
        }
        Action::Replay { id } => act(&id, "replay"),
        Action::Skip { id } => act(&id, "skip"),
        Action::Discard { id } => act(&id, "discard"),
    }
}
