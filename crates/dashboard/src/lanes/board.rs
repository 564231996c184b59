//! The board: lanes as rows, with their deliveries.

use std::collections::BTreeMap;

use maud::{Markup, html};
use railpost_api::Needs;
use railpost_engine::Timestamp;
use serde_json::{Value, json};

use crate::form::button;
use crate::limits::{LANE_DELIVERIES_SHOWN_MAX, LANES_SHOWN_MAX, LIVE_DELIVERIES_MAX};
use crate::shown::{self, badge, count, instant, items, number, text};
use crate::table::empty;
use crate::visit::{ApiRefusal, PageVisit};

/// The lanes to show, and the endpoints by their ids.
pub(super) struct Board {
    lanes: Vec<Lane>,
    left_off: usize,
    endpoints: BTreeMap<String, Value>,
}

/// One lane, as far as it is known.
#[derive(Default)]
struct Lane {
    endpoint: String,
    key: Value,
    /// Why it is held and by what, if it is.
    held: Option<Value>,
    /// What has not landed, the next to go first.
    open: Vec<Value>,
    /// What landed, the latest first.
    landed: Vec<Value>,
    /// Seqs that were discarded or given up on without holding the lane.
    passed: Vec<u64>,
    /// Whether its endpoint is sent to.
    is_active: bool,
    moved_at: Timestamp,
}

/// Where a delivery is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliverySpot {
    Queue,
    Wire,
    BackingOff,
    Parked,
    Landed,
}

/// Looks up what the board shows.
pub(super) async fn load_board(visit: &PageVisit) -> Result<Board, ApiRefusal> {
    let mut lanes: BTreeMap<(String, String), Lane> = BTreeMap::new();
    let held = visit.get(&format!("/lanes?limit={LIVE_DELIVERIES_MAX}")).await?;
    for lane in items(&held) {
        let entry = lane_of(&mut lanes, lane);
        entry.held = Some(lane.clone());
        entry.moved_at = instant(&lane["since"]).unwrap_or_default();
    }
    // The newest deliveries of all states: a look-up by state would read the whole backlog.
    let newest = visit.get(&format!("/deliveries?limit={LIVE_DELIVERIES_MAX}")).await?;
    for delivery in items(&newest).iter().filter(|delivery| !delivery["lane"].is_null()) {
        lane_of(&mut lanes, delivery).add(delivery);
    }
    let endpoints = visit.get("/endpoints?limit=500").await?;
    let endpoints = items(&endpoints).iter().map(|it| (text(it, "id").to_owned(), it.clone()));
    Ok(chosen(lanes.into_values().collect(), endpoints.collect()))
}

fn lane_of<'a>(lanes: &'a mut BTreeMap<(String, String), Lane>, of: &Value) -> &'a mut Lane {
    let endpoint = text(of, "endpoint").to_owned();
    let lane = lanes.entry((endpoint.clone(), of["lane"].to_string())).or_default();
    if lane.key.is_null() {
        lane.key = of["key"].clone();
    }
    lane.endpoint = endpoint;
    lane
}

/// Held lanes first, then those that moved last.
fn chosen(mut lanes: Vec<Lane>, endpoints: BTreeMap<String, Value>) -> Board {
    for lane in &mut lanes {
        let sends = |it: &Value| text(it, "status") == "active" && it["blocked"].is_null();
        lane.is_active = endpoints.get(&lane.endpoint).is_some_and(sends);
        lane.show_what_holds();
        // By id: seqs of a new line begin again, ids ascend.
        lane.open.sort_by(|a, b| text(a, "id").cmp(text(b, "id")));
        lane.landed.sort_by(|a, b| text(b, "id").cmp(text(a, "id")));
    }
    lanes.sort_by_key(|lane| (lane.held.is_none(), std::cmp::Reverse(lane.moved_at)));
    let left_off = lanes.len().saturating_sub(LANES_SHOWN_MAX);
    lanes.truncate(LANES_SHOWN_MAX);
    // Rows that keep their place are easier to watch.
    lanes.sort_by(|a, b| {
        let place =
            |lane: &Lane| (lane.held.is_none(), lane.endpoint.clone(), lane.key.to_string());
        place(a).cmp(&place(b))
    });
    Board { lanes, left_off, endpoints }
}

impl Lane {
    fn add(&mut self, delivery: &Value) {
        self.moved_at = self.moved_at.max(instant(&delivery["changed_at"]).unwrap_or_default());
        match text(delivery, "state") {
            "delivered" => self.landed.push(delivery.clone()),
            "discarded" => self.passed.push(number(delivery, "seq")),
            "dead" if delivery["holds_lane"] != true => self.passed.push(number(delivery, "seq")),
            _ => self.open.push(delivery.clone()),
        }
    }

    /// Adds the dead letter that holds the lane, if it is not among the newest deliveries.
    fn show_what_holds(&mut self) {
        let is_shown = self.open.iter().any(|delivery| text(delivery, "state") == "dead");
        if let Some(held) = self.held.as_ref().filter(|_| !is_shown) {
            let (id, seq) = (&held["held_by"], &held["held_at_seq"]);
            self.open.push(json!({ "id": id, "seq": seq, "state": "dead" }));
        }
    }

    /// Where an open delivery is. The head of a lane that nothing holds back is on the wire: the API
    /// tells of an attempt when it has ended.
    fn spot(&self, index: usize, now: Timestamp) -> DeliverySpot {
        let delivery = &self.open[index];
        match text(delivery, "state") {
            "dead" => DeliverySpot::Parked,
            "in_flight" => DeliverySpot::Wire,
            "waiting" if instant(&delivery["until"]).is_some_and(|until| until > now) => {
                DeliverySpot::BackingOff
            }
            _ if index == 0 && self.is_free() && self.is_head(delivery) => DeliverySpot::Wire,
            _ => DeliverySpot::Queue,
        }
    }

    fn is_free(&self) -> bool {
        self.held.is_none() && self.is_active
    }

    /// Whether nothing before it in the lane is open, as far as is known.
    fn is_head(&self, delivery: &Value) -> bool {
        let before = number(delivery, "seq").saturating_sub(1);
        before == 0
            || number(delivery, "attempts") > 0
            || self.passed.contains(&before)
            || self.landed.iter().any(|landed| number(landed, "seq") == before)
    }

    /// How many wait in the queue, those included that are not among the newest deliveries.
    fn queued(&self, known: usize) -> usize {
        let behind = self.held.as_ref().map_or(0, |held| number(held, "waiting_behind"));
        known.max(usize::try_from(behind).unwrap_or(usize::MAX))
    }
}

pub(super) fn render(visit: &PageVisit, board: &Board) -> Markup {
    let held = board.lanes.iter().filter(|lane| lane.held.is_some()).count();
    html! {
        @if board.lanes.is_empty() {
            (empty(
                "No lane has moved yet. A lane begins with the first event that has a key:",
                Some("railpost send order.created --key order-1 --data '{\"total\": 42}'"),
            ))
        } @else {
            p.summary data-announce { (summary(board.lanes.len(), held)) }
            div.board {
                div.board-head aria-hidden="true" {
                    span { "Lane" } span { "Sender queue" } span { "Wire" } span { "Consumer" }
                }
                @for lane in &board.lanes { (row(visit, board, lane)) }
            }
            @if board.left_off > 0 {
                p.hint { (count(board.left_off as u64)) " more lanes are not shown." }
            }
        }
    }
}

fn summary(lanes: usize, held: usize) -> String {
    match held {
        0 => format!("{lanes} lanes, none held."),
        1 => format!("{lanes} lanes, 1 held."),
        held => format!("{lanes} lanes, {held} held."),
    }
}

fn row(visit: &PageVisit, board: &Board, lane: &Lane) -> Markup {
    let endpoint = board.endpoints.get(&lane.endpoint).unwrap_or(&Value::Null);
    let key = lane.key.as_str().unwrap_or("everything");
    let in_spot = |wanted: &[DeliverySpot]| -> Vec<(usize, DeliverySpot)> {
        let spots = (0..lane.open.len()).map(|index| (index, lane.spot(index, visit.now)));
        spots.filter(|(_, spot)| wanted.contains(spot)).collect()
    };
    let (queue, wire) = (
        in_spot(&[DeliverySpot::Queue]),
        in_spot(&[DeliverySpot::Wire, DeliverySpot::BackingOff, DeliverySpot::Parked]),
    );
    html! {
        article.lane.held[lane.held.is_some()] data-key=(key)
            aria-label={ "Lane " (key) @if lane.held.is_some() { ", held" } } {
            div.name {
                code.key { (key) }
                a.url href=(visit.path(&format!("/endpoints/{}", lane.endpoint))) { (text(endpoint, "url")) }
                @if !lane.is_active { (badge(text(endpoint, "status"))) }
            }
            div.queue {
                span.part { "queue" }
                @let unseen = lane.queued(queue.len()) - queue.len().min(LANE_DELIVERIES_SHOWN_MAX);
                @if unseen > 0 { span.more { "+" (count(unseen as u64)) } }
                // The next to leave stands beside the wire.
                @for (index, spot) in queue.iter().take(LANE_DELIVERIES_SHOWN_MAX).rev() {
                    (chip(visit, &lane.open[*index], *spot))
                }
            }
            div.wire {
                span.part { "wire" }
                @for (index, spot) in &wire { (chip(visit, &lane.open[*index], *spot)) }
            }
            div.consumer {
                span.part { "consumer" }
                @for delivery in lane.landed.iter().take(LANE_DELIVERIES_SHOWN_MAX) {
                    (chip(visit, delivery, DeliverySpot::Landed))
                }
            }
            @if let Some(held) = &lane.held { (held_note(visit, held)) }
        }
    }
}

/// One delivery: its seq, where it is in a word, and a countdown if it backs off.
fn chip(visit: &PageVisit, delivery: &Value, spot: DeliverySpot) -> Markup {
    let (class, mark, word) = match spot {
        DeliverySpot::Queue => ("queued", "", "waits for its turn"),
        DeliverySpot::Wire => ("flying", "→", "is on the wire"),
        DeliverySpot::BackingOff => ("backing-off", "◷", "backs off"),
        DeliverySpot::Parked => ("parked", "✕", "is a dead letter"),
        DeliverySpot::Landed => ("landed", "✓", "has landed"),
    };
    let (id, seq) = (text(delivery, "id"), number(delivery, "seq"));
    let attempts = number(delivery, "attempts");
    html! {
        a class={ "chip " (class) } href=(visit.path(&format!("/deliveries/{id}")))
            title={ "seq " (seq) " " (word) ", attempts: " (attempts) } {
            span aria-hidden="true" { (mark) }
            span.hidden { "seq " } (seq) span.hidden { " " (word) }
            @if attempts > 1 && spot != DeliverySpot::Landed { small { "×" (attempts) } }
            @if spot == DeliverySpot::BackingOff { (countdown(&delivery["until"])) }
        }
    }
}

/// When it is tried again; the script counts it down. The text itself stays the same from one drawing
/// to the next: what did not change is not sent.
fn countdown(until: &Value) -> Markup {
    html! { small data-until=(until.as_str().unwrap_or_default()) { (shown::clock(until)) } }
}

/// Why a lane is held, and what one can do.
fn held_note(visit: &PageVisit, held: &Value) -> Markup {
    let action = |name: &str| visit.path(&format!("/lanes/{}/{name}", held["lane"]));
    let status = held["last_status"].as_u64();
    html! {
        div.held-note {
            p {
                strong { "✕ Held" } " by seq " (number(held, "held_at_seq")) ": "
                (shown::reason(text(held, "reason")))
                @if let Some(status) = status { ", last answer " (status) }
                ". " (count(number(held, "waiting_behind"))) " wait behind it, since "
                (shown::clock(&held["since"])) " UTC."
            }
            @if visit.may(Needs::Manage) {
                div.actions {
                    (button(visit, &action("replay"), "Replay", "primary"))
                    (button(visit, &action("skip"), "Skip", ""))
                    (button(visit, &action("discard"), "Discard", "danger"))
                }
            }
        }
    }
}
