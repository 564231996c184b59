//! `railpost dead-letters`: deliveries that failed for good.

use serde_json::Value;

use super::Session;
use super::attempts::last_answer;
use super::confirm::Confirmation;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, DeliveryFilter, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with dead letters, one at a time. `railpost replay` does it to many.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the newest first
    List {
        #[command(flatten)]
        filter: DeliveryFilter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with the last answer
    Show { id: String },
    /// Send it again, with the same event id
    Replay { id: String },
    /// Skip it: its lane continues, and it stays a dead letter
    Skip {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Discard it: it is not sent again, and its lane continues
    Discard {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

const COLUMNS: [Column; 7] = [
    full_column("id", |item| field(item, "id")),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    cut_column("endpoint", deliveries::endpoint),
    cut_column("reason", |item| field(item, "reason")),
    cut_column("last answer", last_answer),
    full_column("died", |item| age(item, "changed_at")),
];

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let client = &session.client;
    let find = |id: &str| client.get(&client.of_tenant(&["dead-letters", id]));
    let act = |id: &str, what: &str| client.act(&client.of_tenant(&["dead-letters", id, what]));
    match action {
        Action::List { filter, paging } => {
            let url = list::with_query(client.of_tenant(&["dead-letters"]), &filter.fields());
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => deliveries::show(session, &find(&id)?),
        Action::Replay { id } => replayed(session, &act(&id, "replay")?),
        Action::Skip { id, confirmation } => {
            confirmation.ask(session.out, &deliveries::skips(&find(&id)?))?;
            deliveries::skipped(session, &act(&id, "skip")?)
        }
        Action::Discard { id, confirmation } => {
            confirmation.ask(session.out, &deliveries::discards(&find(&id)?))?;
            deliveries::discarded(session, &act(&id, "discard")?)
        }
    }
}

/// Says that a dead letter goes again, and how to watch it.
pub(super) fn replayed(session: &Session, delivery: &Value) -> Outcome {
    deliveries::print_state(session, delivery)?;
    let event = field(delivery, "event");
    session.out.hint(&format!("It is sent again. Watch it: railpost events story {event}"));
    Ok(())
}
