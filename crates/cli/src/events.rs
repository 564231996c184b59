//! `railpost events`: what was published.

use serde_json::json;

use super::Session;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, Filter, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with events.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the newest first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload
    Show { id: String },
    /// Print its payload, byte for byte
    Payload { id: String },
    /// List its deliveries
    Deliveries { id: String },
    /// Send it to an endpoint once more, at the end of its lane
    Redeliver {
        id: String,
        /// The endpoint
        #[arg(long)]
        to: String,
    },
}

const COLUMNS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    full_column("bytes", |item| field(item, "payload_bytes")),
    full_column("accepted", |item| age(item, "accepted_at")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let part = |id: &str, part: &str| client.of_tenant(&["events", id, part]);
    match action {
        Action::List { filter, paging } => {
            let url = list::with_query(client.of_tenant(&["events"]), &filter.fields());
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => out.record(&client.get(&client.of_tenant(&["events", &id]))?),
        Action::Payload { id } => out.bytes(&client.bytes(&part(&id, "payload"))?),
        Action::Deliveries { id } => {
            let answer = client.get(&part(&id, "deliveries"))?;
            list::show_items(session, &answer, &deliveries::OF_EVENT)
        }
        Action::Redeliver { id, to } => {
            out.record(&client.post(&part(&id, "redeliver"), &json!({ "endpoint": to }))?)
        }
    }
}
