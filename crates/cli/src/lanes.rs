//! `railpost lanes`: keys with deliveries that wait, and what they wait for.

use serde_json::Value;

use super::Session;
use super::attempts::last_answer;
use super::confirm::{Confirmation, count};
use super::dead_letters;
use super::deliveries;
use super::failure::Outcome;
use super::list::{self, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be done with lanes. All but `list` act on the dead letter that holds the lane.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List lanes with anything open, and what each waits for; the held ones first
    List {
        /// Only held ones, the longest held first
        #[arg(long)]
        held: bool,
        /// Only of this endpoint
        #[arg(long, value_name = "ENDPOINT")]
        endpoint: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Replay the dead letter; the lane continues when it is acknowledged
    Replay { lane: String },
    /// Skip the dead letter: the lane continues, and the dead letter stays
    Skip {
        lane: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Discard the dead letter: it is not sent again, and the lane continues
    Discard {
        lane: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

const OPEN: [Column; 6] = [
    full_column("lane", |item| field(item, "lane")),
    cut_column("key", |item| field(item, "key")),
    cut_column("endpoint", |item| deliveries::endpoint(&item["head"])),
    cut_column("state", state),
    full_column("open", |item| field(item, "open")),
    cut_column("last answer", |item| last_answer(&item["head"])),
];

const HELD: [Column; 7] = [
    full_column("lane", |item| field(item, "lane")),
    cut_column("key", |item| field(item, "key")),
    cut_column("endpoint", deliveries::endpoint),
    full_column("held by", |item| field(item, "held_by")),
    full_column("behind", |item| field(item, "waiting_behind")),
    full_column("since", |item| age(item, "since")),
    cut_column("why", |item| match last_answer(item).as_str() {
        "-" => field(item, "reason"),
        answer => format!("{} ({answer})", field(item, "reason")),
    }),
];

/// What a lane waits for, and how long.
fn state(lane: &Value) -> String {
    let words = match lane["state"].as_str() {
        Some("in_flight") => "in flight",
        Some("backing_off") => "next attempt",
        Some("waiting_for_breaker") => "waits for the breaker",
        Some("waiting_for_retry_after") => "waits for Retry-After",
        Some("waiting_for_limit") => "waits for a limit",
        Some("endpoint_off") => "endpoint is off (paused, switched off or blocked)",
        Some("held") => "held by a dead letter",
        Some("loading") => "loading",
        _ => return field(lane, "state"),
    };
    match lane["until"].as_str() {
        Some(_) => format!("{words}, {}", age(lane, "until")),
        None => words.to_owned(),
    }
}

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let act = |lane: &str, what: &str| -> Outcome<Value> {
        let url = session.client.of_tenant(&["lanes", lane, what]);
        Ok(session.client.act(&url)?["delivery"].clone())
    };
    match action {
        Action::List { held: true, endpoint, paging } => {
            let url = session.client.of_tenant(&["lanes"]);
            let url = list::with_query(url, &[("endpoint", &endpoint)]);
            list::show(session, &url, &paging, &HELD)
        }
        Action::List { held: false, endpoint, paging } => open(session, &endpoint, &paging),
        Action::Replay { lane } => dead_letters::replayed(session, &act(&lane, "replay")?),
        Action::Skip { lane, confirmation } => {
            confirmation.ask(session.out, &effect(session, &lane, deliveries::skips)?)?;
            deliveries::skipped(session, &act(&lane, "skip")?)
        }
        Action::Discard { lane, confirmation } => {
            confirmation.ask(session.out, &effect(session, &lane, deliveries::discards)?)?;
            deliveries::discarded(session, &act(&lane, "discard")?)
        }
    }
}

/// Lists lanes with anything open.
fn open(session: &Session, endpoint: &Option<String>, paging: &Paging) -> Outcome {
    let url = session.client.of_tenant(&["lanes", "open"]);
    let url = list::with_query(url, &[("endpoint", endpoint)]);
    let limited = list::with_query(url.clone(), &[("limit", &paging.limit())]);
    let answer = session.client.get(&limited)?;
    if session.out.json {
        return session.out.value(&answer);
    }
    let lanes = answer["lanes"].as_u64().unwrap_or(0);
    if lanes == 0 {
        session.out.hint(&session.client.why_nothing(&url));
        return Ok(());
    }
    list::show_items(session, &answer, &OPEN)?;
    session.out.hint(&summary(&answer, lanes));
    Ok(())
}

/// How many lanes there are, by what they do.
fn summary(answer: &Value, lanes: u64) -> String {
    let shown = answer["items"].as_array().map_or(0, Vec::len) as u64;
    let all = count(lanes, "lane with anything open", "lanes with anything open");
    let cut =
        if shown < lanes { format!(" ({shown} shown; --limit shows more)") } else { String::new() };
    let parts = [
        ("held", "held"),
        ("in_flight", "in flight"),
        ("backing_off", "backing off"),
        ("ready", "ready"),
    ];
    let parts = parts.map(|(name, words)| (answer[name].as_u64().unwrap_or(0), words));
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, words)| format!("{number} {words}")).collect();
    format!("{all}{cut}: {}.", parts.join(", "))
}

/// What acting on the dead letter that holds a lane does, and to how many.
fn effect(session: &Session, lane: &str, does: fn(&Value) -> String) -> Outcome<String> {
    let Some(held) = find_held(session, lane)? else {
        let text = format!("This lets lane {lane} continue without the dead letter that holds it.");
        return Ok(text);
    };
    let url = session.client.of_tenant(&["deliveries", &field(&held, "held_by")]);
    let behind = held["waiting_behind"].as_u64().unwrap_or(0);
    let behind = count(behind, "delivery waits", "deliveries wait");
    Ok(format!("{} {behind} behind it.", does(&session.client.get(&url)?)))
}

/// The held lane of this number, if it is among the longest held.
fn find_held(session: &Session, lane: &str) -> Outcome<Option<Value>> {
    let url = session.client.of_tenant(&["lanes"]);
    let page = session.client.get(&list::with_query(url, &[("limit", &Some("500".to_owned()))]))?;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().find(|held| field(held, "lane") == lane))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lane_says_what_it_waits_for() {
        for (name, shown) in [
            ("in_flight", "in flight"),
            ("waiting_for_breaker", "waits for the breaker"),
            ("held", "held by a dead letter"),
            ("endpoint_off", "endpoint is off (paused, switched off or blocked)"),
        ] {
            assert_eq!(state(&json!({ "state": name, "until": null })), shown);
        }
        let later = json!({ "state": "backing_off", "until": "2100-01-01T00:00:00Z" });
        assert!(state(&later).starts_with("next attempt, in "), "{}", state(&later));
    }

    #[test]
    fn a_summary_counts_all_lanes_and_says_how_many_are_shown() {
        let answer =
            json!({ "items": [{}], "held": 1, "in_flight": 0, "backing_off": 2, "ready": 0 });
        assert_eq!(
            summary(&answer, 3),
            "3 lanes with anything open (1 shown; --limit shows more): 1 held, 2 backing off."
        );
    }
}
