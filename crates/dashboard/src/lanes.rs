//! Lanes, live: what waits, what is on the wire, what landed, and which lanes are held.
//!
//! A lane is a row: the sender's queue on the left, the wire, the consumer on the right. The picture is
//! drawn from the API's own lists, again after each change.

mod board;

use maud::{Markup, html};

use super::layout::Tab;
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};

pub(super) async fn page(visit: PageVisit) -> PageResult {
    let board = live(&visit).await?;
    let body = html! {
        h1 { "Lanes" }
        p.lead {
            "Each key is a lane: a delivery leaves when the one before it was acknowledged. Held lanes "
            "come first, then those that moved last."
        }
        div id="board" data-live=(visit.path("/live/lanes")) { (board) }
        p.hidden role="status" aria-live="polite" id="board-status" {}
    };
    Reply::page("Lanes", Tab::Lanes, body)
}

/// The part of the page that changes.
pub(super) async fn live(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let lanes = board::load_board(visit).await?;
    Ok(board::render(visit, &lanes))
}

/// What can be done to a held lane.
pub(super) const ACTIONS: [&str; 3] = ["replay", "skip", "discard"];

/// Does one of [`ACTIONS`] to the dead letter that holds a lane.
pub(super) async fn act(visit: PageVisit, action: &'static str) -> PageResult {
    let lane = visit.param("id");
    let answered = visit.post(&format!("/lanes/{lane}/{action}"), None).await;
    match visit.or_redirect("/lanes", answered)? {
        Ok(_) => Ok(visit.redirect("/lanes", format!("The lane is released: {}.", done(action)))),
        Err(back) => Ok(back),
    }
}

/// What was done to the dead letter that held the lane.
pub(super) fn done(action: &str) -> &'static str {
    match action {
        "replay" => "its dead letter is sent again",
        "skip" => "it moves on without its dead letter, which stays on record",
        _ => "its dead letter was discarded",
    }
}
