//! `railpost deliveries`: each event on its way to each endpoint.

use serde_json::Value;

use super::Session;
use super::failure::Outcome;
use super::list::{self, Filter, Paging};
use super::out::{Column, age, cut_column, field, full_column, time};

/// What can be done with deliveries.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the newest first
    List {
        /// Only of this endpoint
        #[arg(long)]
        endpoint: Option<String>,
        /// Only in this state: pending, in_flight, waiting, delivered, dead or discarded
        #[arg(long, value_parser = STATES, hide_possible_values = true)]
        state: Option<String>,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one
    Show { id: String },
    /// List its attempts
    Attempts {
        id: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Discard it; its lane continues
    Discard { id: String },
}

pub(super) const STATES: [&str; 6] =
    ["pending", "in_flight", "waiting", "delivered", "dead", "discarded"];

const COLUMNS: [Column; 8] = [
    full_column("id", |item| field(item, "id")),
    full_column("endpoint", |item| field(item, "endpoint")),
    full_column("state", state),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    full_column("seq", |item| field(item, "seq")),
    full_column("attempts", |item| field(item, "attempts")),
    full_column("created", |item| age(item, "created_at")),
];

/// Deliveries of one event: they differ in their endpoint.
pub(super) const OF_EVENT: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    full_column("endpoint", |item| field(item, "endpoint")),
    full_column("state", state),
    full_column("seq", |item| field(item, "seq")),
    full_column("attempts", |item| field(item, "attempts")),
];

/// The state, and what holds or ended it.
fn state(item: &Value) -> String {
    match (item["state"].as_str(), item["holds_lane"].as_bool()) {
        (Some("dead"), Some(true)) => "dead (holds)".to_owned(),
        (Some("discarded"), _) if item["reason"] == "endpoint_removed" => {
            "discarded (endpoint removed)".to_owned()
        }
        _ => field(item, "state"),
    }
}

pub(super) const ATTEMPTS: [Column; 6] = [
    full_column("no", |item| field(item, "number")),
    full_column("started", |item| time(item, "started_at")),
    full_column("outcome", |item| field(item, "outcome")),
    cut_column("answer", answer),
    full_column("took", took),
    full_column("led to", |item| field(item, "led_to")),
];

/// The status that was answered, or why there was none.
fn answer(attempt: &Value) -> String {
    match (&attempt["status"], &attempt["failure"]) {
        (Value::Null, Value::Null) => field(attempt, "message"),
        (Value::Null, _) => field(attempt, "failure"),
        (status, _) => status.to_string(),
    }
}

fn took(attempt: &Value) -> String {
    let total = attempt["timing"]["total_us"].as_u64();
    total.map_or_else(
        || "-".to_owned(),
        |micros| format!("{}.{}ms", micros / 1000, micros / 100 % 10),
    )
}

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match action {
        Action::List { endpoint, state, filter, paging } => {
            let url = list::with_query(client.of_tenant(&["deliveries"]), &filter.fields());
            let url = list::with_query(url, &[("endpoint", &endpoint), ("state", &state)]);
            list::show(session, &url, &paging, &COLUMNS)
        }
        Action::Show { id } => out.record(&client.get(&client.of_tenant(&["deliveries", &id]))?),
        Action::Attempts { id, paging } => {
            let url = client.of_tenant(&["deliveries", &id, "attempts"]);
            list::show(session, &url, &paging, &ATTEMPTS)
        }
        Action::Discard { id } => {
            print_state(session, &client.act(&client.of_tenant(&["deliveries", &id, "discard"]))?)
        }
    }
}

/// Says in which state a delivery is.
pub(super) fn print_state(session: &Session, delivery: &Value) -> Outcome {
    let (id, state) = (field(delivery, "id"), state(delivery));
    session.out.done(delivery, &format!("{id} is {state}"))
}
