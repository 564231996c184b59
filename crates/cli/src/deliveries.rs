//! `railpost deliveries`: each event on its way to each endpoint.

use serde_json::Value;

use super::Session;
use super::attempts::{self, last_answer};
use super::confirm::Confirmation;
use super::failure::Outcome;
use super::list::{self, DeliveryFilter, Paging};
use super::out::{Column, age, cut_column, facts, field, full_column};

/// What can be done with deliveries.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the newest first
    List {
        /// Only in this state: pending, in_flight, waiting, delivered, dead or discarded
        #[arg(long, value_parser = STATES, hide_possible_values = true)]
        state: Option<String>,
        #[command(flatten)]
        filter: DeliveryFilter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one
    Show { id: String },
    /// List its attempts with what the receiver answered
    Attempts {
        id: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Discard it: it is not sent again, and its lane continues
    Discard {
        id: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

pub(super) const STATES: [&str; 6] =
    ["pending", "in_flight", "waiting", "delivered", "dead", "discarded"];

const COLUMNS: [Column; 7] = [
    full_column("id", |item| field(item, "id")),
    full_column("state", state),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    cut_column("endpoint", endpoint),
    cut_column("last answer", last_answer),
    full_column("created", |item| age(item, "created_at")),
];

/// Deliveries of one event: they differ in their endpoint.
pub(super) const OF_EVENT: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    full_column("state", state),
    full_column("seq", |item| field(item, "seq")),
    cut_column("endpoint", endpoint),
    cut_column("last answer", last_answer),
];

/// Where a delivery goes: people know an endpoint by its URL.
pub(super) fn endpoint(item: &Value) -> String {
    match item["endpoint_url"].as_str() {
        Some(url) => short_url(url).to_owned(),
        None => field(item, "endpoint"),
    }
}

/// A URL without its scheme.
pub(super) fn short_url(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest)
}

/// The state, and what holds or ended it.
pub(super) fn state(item: &Value) -> String {
    match (item["state"].as_str(), item["holds_lane"].as_bool()) {
        (Some("dead"), Some(true)) => "dead (holds)".to_owned(),
        (Some("waiting"), _) => match age(item, "until") {
            until if until.starts_with("in ") => format!("waiting ({until})"),
            _ => "waiting (due)".to_owned(),
        },
        (Some("discarded"), _) if item["reason"] == "endpoint_removed" => {
            "discarded (endpoint removed)".to_owned()
        }
        _ => field(item, "state"),
    }
}

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let client = &session.client;
    match action {
        Action::List { state, filter, paging } => {
            let url = list::with_query(client.of_tenant(&["deliveries"]), &filter.fields());
            let url = list::with_query(url, &[("state", &state)]);
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => show(session, &client.get(&client.of_tenant(&["deliveries", &id]))?),
        Action::Attempts { id, paging } => {
            let url = client.of_tenant(&["deliveries", &id, "attempts"]);
            list::show_with_lines(session, &url, &paging, &attempts::COLUMNS, attempts::below)
        }
        Action::Discard { id, confirmation } => {
            let delivery = client.get(&client.of_tenant(&["deliveries", &id]))?;
            confirmation.ask(session.out, &discards(&delivery))?;
            let url = client.of_tenant(&["deliveries", &id, "discard"]);
            discarded(session, &client.act(&url)?)
        }
    }
}

/// Shows a delivery, with its last answer in words.
pub(super) fn show(session: &Session, delivery: &Value) -> Outcome {
    if session.out.json {
        return session.out.value(delivery);
    }
    let mut shown = facts(delivery, &["last_answer", "response_headers"]);
    let last = &delivery["last_answer"];
    if last.is_object() {
        let (message, number) = (field(last, "message"), field(last, "attempt"));
        let words = format!("{message} (attempt {number}, {})", age(last, "at"));
        shown.push(("last answer".to_owned(), words));
    }
    session.out.facts(&shown)?;
    let (id, event) = (field(delivery, "id"), field(delivery, "event"));
    session.out.hint(&format!("Its attempts: railpost deliveries attempts {id}"));
    session.out.hint(&format!("The whole story: railpost events story {event}"));
    Ok(())
}

/// Says in which state a delivery is.
pub(super) fn print_state(session: &Session, delivery: &Value) -> Outcome {
    let (id, state) = (field(delivery, "id"), state(delivery));
    session.out.done(delivery, &format!("{id} is {state}"))
}

/// A delivery as a question names it.
pub(super) fn named(delivery: &Value) -> String {
    let key = delivery["key"].as_str().map(|key| format!(", key {key}")).unwrap_or_default();
    format!("{} ({}{key})", field(delivery, "id"), field(delivery, "type"))
}

/// What discarding a delivery does.
pub(super) fn discards(delivery: &Value) -> String {
    let lane = if delivery["lane"].is_null() { "" } else { ", and its lane continues" };
    format!("This discards the delivery {}: it is not sent again{lane}.", named(delivery))
}

/// What skipping a dead letter does.
pub(super) fn skips(delivery: &Value) -> String {
    format!(
        "This skips the dead letter {}: its lane continues, and later events overtake it.",
        named(delivery)
    )
}

/// Says that a delivery was discarded, and what sends it after all.
pub(super) fn discarded(session: &Session, delivery: &Value) -> Outcome {
    print_state(session, delivery)?;
    session.out.hint(&format!(
        "To send it after all, at the end of its lane: railpost events redeliver {} --to {}",
        field(delivery, "event"),
        field(delivery, "endpoint")
    ));
    Ok(())
}

/// Says that a dead letter was skipped, and what sends it after all.
pub(super) fn skipped(session: &Session, delivery: &Value) -> Outcome {
    print_state(session, delivery)?;
    session.out.hint(&format!(
        "It stays a dead letter. To send it after all: railpost dead-letters replay {}",
        field(delivery, "id")
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_delivery_whose_retry_is_due_is_not_said_to_have_been_tried() {
        let waiting = |until: &str| state(&json!({ "state": "waiting", "until": until }));
        assert_eq!(waiting("2020-01-01T00:00:00Z"), "waiting (due)");
        assert!(waiting("2100-01-01T00:00:00Z").starts_with("waiting (in "));
    }
}
