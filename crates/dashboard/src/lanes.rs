//! Lanes, live: what waits and for what, what is on the wire, what landed, and which lanes are held.
//!
//! A lane is a row: the sender's queue on the left, the wire, the consumer on the right. Lanes with anything open
//! come from the engine; what landed comes from the newest deliveries on record.

mod board;

use maud::{Markup, html};
use serde_json::Value;

use super::confirm::Question;
use super::deliveries::{redelivery, replay};
use super::filters::{OF_LANES, filter_form};
use super::layout::Tab;
use super::live::live_part;
use super::shown::{count, items, number};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::HELD_LANES_MAX;

pub(super) async fn page(visit: PageVisit) -> PageResult {
    let board = live(visit.clone()).await?;
    let body = html! {
        h1 { "Lanes" }
        p.lead {
            "Each key is a lane: a delivery leaves when the one before it was acknowledged. Held lanes "
            "come first, then those whose first delivery waits longest."
        }
        (filter_form(&visit, &OF_LANES).await?)
        (live_part(&visit, "/lanes", &board))
    };
    Reply::page("Lanes", Tab::Lanes, body)
}

/// The part of the page that changes.
pub(super) async fn live(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let board = board::load_board(&visit).await?;
    Ok(board::render(&visit, &board))
}

/// What can be done to a held lane.
pub(super) const ACTIONS: [&str; 3] = ["replay", "skip", "discard"];

/// Does one of [`ACTIONS`] to the dead letter that holds a lane.
pub(super) async fn act(visit: PageVisit, action: &'static str) -> PageResult {
    let lane = visit.param("id");
    if action != "replay" && !visit.is_confirmed() {
        let held = visit.get(&format!("/lanes?limit={HELD_LANES_MAX}")).await?;
        let held = items(&held).iter().find(|held| held["lane"].as_u64() == lane.parse().ok());
        return question(action, held.unwrap_or(&Value::Null)).ask(&visit);
    }
    let answered = visit.post(&format!("/lanes/{lane}/{action}"), None).await;
    let released = match visit.or_redirect("/lanes", answered)? {
        Ok(released) => released,
        Err(back) => return Ok(back),
    };
    let letter = &released["delivery"];
    let said = format!("The lane is released: {}.", done(action));
    Ok(match action {
        "skip" => visit.redirect_with_undo("/lanes", said, replay(&visit, letter)),
        "discard" => visit.redirect_with_undo("/lanes", said, redelivery(&visit, letter)),
        _ => visit.redirect("/lanes", said),
    })
}

fn question(action: &str, held: &Value) -> Question {
    let (verb, effect, undo) = match action {
        "skip" => (
            "Skip",
            "The dead letter is not sent, and stays on record.",
            "The dead letter can be replayed later; it then arrives after the later deliveries of its key.",
        ),
        _ => (
            "Discard",
            "The dead letter is closed: its event does not arrive at this endpoint.",
            "The event stays: it can be redelivered, at the end of its lane.",
        ),
    };
    let behind = number(held, "waiting_behind");
    let key = held["key"].as_str().unwrap_or("everything");
    Question {
        title: format!("{verb} the dead letter that holds this lane?"),
        effect: html! {
            (effect) " The lane " code.key { (key) } " moves on with the " (count(behind)) " deliveries behind it."
        },
        undo,
        label: format!("{verb} 1 dead letter"),
        back: "/lanes".to_owned(),
        tab: Tab::Lanes,
    }
}

/// What was done to the dead letter that held the lane.
fn done(action: &str) -> &'static str {
    match action {
        "replay" => "its dead letter is sent again",
        "skip" => "it moves on without its dead letter, which stays on record",
        _ => "its dead letter was discarded",
    }
}
