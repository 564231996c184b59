//! `railpost events`: what was published.

use serde_json::{Value, json};

use super::Session;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, EventFilter, Paging};
use super::out::{Column, age, cut_column, facts, field, full_column};
use super::story;

/// What can be done with events.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them with the states of their deliveries, the newest first
    List {
        #[command(flatten)]
        filter: EventFilter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload
    Show { id: String },
    /// Tell what happened to it, in order: endpoints, attempts, answers, who did what
    Story { id: String },
    /// Print its payload, byte for byte
    Payload { id: String },
    /// List its deliveries
    Deliveries { id: String },
    /// Send it to an endpoint once more, at the end of its lane
    Redeliver {
        id: String,
        /// The endpoint
        #[arg(long, value_name = "ENDPOINT")]
        to: String,
    },
}

const COLUMNS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    full_column("deliveries", |item| states(&item["deliveries"])),
    full_column("accepted", |item| age(item, "accepted_at")),
];

/// In which states the deliveries of an event are.
fn states(counts: &Value) -> String {
    let order = ["held", "dead", "in_flight", "waiting", "pending", "delivered", "discarded"];
    let counted = order.iter().map(|state| (counts[state].as_u64().unwrap_or(0), state));
    let counted = counted.filter(|(count, _)| *count > 0);
    let words: Vec<String> =
        counted.map(|(count, state)| format!("{count} {}", state.replace('_', " "))).collect();
    if words.is_empty() { "no endpoint".to_owned() } else { words.join(", ") }
}

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let part = |id: &str, part: &str| client.of_tenant(&["events", id, part]);
    match action {
        Action::List { filter, paging } => {
            let url = list::with_query(client.of_tenant(&["events"]), &filter.fields());
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => show(session, &client.get(&client.of_tenant(&["events", &id]))?),
        Action::Story { id } => story::tell(session, &story::read(session, &id)?),
        Action::Payload { id } => out.bytes(&client.bytes(&part(&id, "payload"))?),
        Action::Deliveries { id } => {
            let answer = client.get(&part(&id, "deliveries"))?;
            if answer["items"].as_array().is_some_and(Vec::is_empty) {
                out.hint(&no_endpoint(&id));
            }
            list::show_items(session, &answer, &deliveries::OF_EVENT)
        }
        Action::Redeliver { id, to } => {
            let sent = client.post(&part(&id, "redeliver"), &json!({ "endpoint": to }))?;
            out.done(&sent, &format!("{id} goes to {to} once more, at the end of its lane"))?;
            out.hint(&format!("Watch it: railpost events story {id}"));
            Ok(())
        }
    }
}

fn show(session: &Session, event: &Value) -> Outcome {
    if session.out.json {
        return session.out.value(event);
    }
    let mut shown = facts(event, &["deliveries", "accepted_by", "payload"]);
    shown.push(("deliveries".to_owned(), states(&event["deliveries"])));
    if event["accepted_by"].is_object() {
        shown.push(("accepted by".to_owned(), story::actor(&event["accepted_by"])));
    }
    if let Some(payload) = event.get("payload") {
        shown.push(("payload".to_owned(), format!("{payload:#}")));
    }
    session.out.facts(&shown)?;
    session.out.hint(&format!("The whole story: railpost events story {}", field(event, "id")));
    Ok(())
}

/// Says that nothing was sent, and how to see why.
pub(super) fn no_endpoint(event: &str) -> String {
    format!("No endpoint matched this event. See why: railpost events story {event}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_deliveries_are_counted_the_worst_first() {
        let counts = json!({ "delivered": 2, "in_flight": 1, "held": 1, "dead": 0 });
        assert_eq!(states(&counts), "1 held, 1 in flight, 2 delivered");
        assert_eq!(states(&json!({ "delivered": 0 })), "no endpoint");
    }
}
