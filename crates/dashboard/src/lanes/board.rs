//! The board: lanes as rows, with their deliveries.

use std::collections::BTreeMap;

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::Value;

use crate::filters::{OF_LANES, set_filters};
use crate::form::button;
use crate::limits::{
    FINISHED_LANES_SHOWN_MAX, HELD_LANES_MAX, LANE_DELIVERIES_SHOWN_MAX, LANES_SHOWN_MAX,
    LIVE_DELIVERIES_MAX,
};
use crate::shown::{self, count, instant, items, moment, number, text};
use crate::table::{empty, query};
use crate::visit::{ApiRefusal, PageVisit};

/// The lanes to show.
pub(super) struct Board {
    /// The engine's counts over all lanes with anything open.
    counts: Value,
    open: Vec<Lane>,
    /// Lanes in which nothing is open, those that moved last first.
    finished: Vec<Lane>,
}

/// One lane, as far as it is known.
#[derive(Default)]
struct Lane {
    /// What the engine says of it: its state, its head, how many are open. Nothing when nothing is open.
    open: Value,
    /// Why it is held and by what, if it is.
    held: Option<Value>,
    /// Open deliveries behind the head that are on record, the next to go first.
    queue: Vec<Value>,
    /// What landed, the latest first.
    landed: Vec<Value>,
}

type Lanes = BTreeMap<(String, String), Lane>;

/// Looks up what the board shows.
pub(super) async fn load_board(visit: &PageVisit) -> Result<Board, ApiRefusal> {
    let of = |limit: u32| {
        let mut pairs = set_filters(visit, &OF_LANES);
        pairs.push(("limit".to_owned(), limit.to_string()));
        query(&pairs)
    };
    let counts = visit.get(&format!("/lanes/open?{}", of(LANES_SHOWN_MAX))).await?;
    let held = visit.get(&format!("/lanes?{}", of(HELD_LANES_MAX))).await?;
    let newest = visit.get(&format!("/deliveries?{}", of(LIVE_DELIVERIES_MAX))).await?;
    let mut lanes = recorded(items(&newest));
    let open = items(&counts).iter().map(|lane| {
        let mut known = lanes.remove(&key_of(lane)).unwrap_or_default();
        known.held = items(&held).iter().find(|held| key_of(held) == key_of(lane)).cloned();
        known.queue.retain(|delivery| delivery["id"] != lane["head"]["id"]);
        known.open = lane.clone();
        known
    });
    let open = open.collect();
    Ok(Board { open, finished: finished(lanes), counts })
}

fn key_of(lane: &Value) -> (String, String) {
    (text(lane, "endpoint").to_owned(), lane["lane"].to_string())
}

/// The lanes of these deliveries.
fn recorded(deliveries: &[Value]) -> Lanes {
    let mut lanes = Lanes::new();
    for delivery in deliveries.iter().filter(|delivery| !delivery["lane"].is_null()) {
        let lane = lanes.entry(key_of(delivery)).or_default();
        match text(delivery, "state") {
            "delivered" => lane.landed.push(delivery.clone()),
            "pending" | "waiting" | "in_flight" => lane.queue.push(delivery.clone()),
            _ => {}
        }
    }
    for lane in lanes.values_mut() {
        // By id: seqs of a new line begin again, ids ascend.
        lane.queue.sort_by(|a, b| text(a, "id").cmp(text(b, "id")));
        lane.landed.sort_by(|a, b| text(b, "id").cmp(text(a, "id")));
    }
    lanes
}

/// The lanes without anything open that moved last.
fn finished(lanes: Lanes) -> Vec<Lane> {
    let is_finished = |lane: &Lane| lane.queue.is_empty() && !lane.landed.is_empty();
    let mut lanes: Vec<_> = lanes.into_values().filter(is_finished).collect();
    let moved_at = |lane: &Lane| instant(&lane.landed[0]["changed_at"]);
    lanes.sort_by_key(|lane| std::cmp::Reverse(moved_at(lane)));
    lanes.truncate(FINISHED_LANES_SHOWN_MAX);
    lanes
}

pub(super) fn render(visit: &PageVisit, board: &Board) -> Markup {
    let left_off = number(&board.counts, "lanes").saturating_sub(board.open.len() as u64);
    html! {
        @if board.open.is_empty() && board.finished.is_empty() {
            (empty(
                "No lane has moved yet. A lane begins with the first event that has a key:",
                Some("railpost send order.created --key order-1 --data '{\"total\": 42}'"),
            ))
        } @else {
            p.summary data-announce { (summary(board)) }
            @if !board.open.is_empty() {
                div.board {
                    (head())
                    @for lane in &board.open { (open_row(visit, lane)) }
                }
            }
            @if left_off > 0 {
                p.hint { (count(left_off)) " more lanes with something open are not shown." }
            }
            @if !board.finished.is_empty() {
                h2 { "Nothing open, landed lately" }
                div.board { (head()) @for lane in &board.finished { (finished_row(visit, lane)) } }
            }
        }
    }
}

fn head() -> Markup {
    html! {
        div.board-head aria-hidden="true" {
            span { "Lane" } span { "Sender queue" } span { "Wire" } span { "Consumer" }
        }
    }
}

/// The engine's counts in a sentence. What the ready lanes wait for is known if all of them are shown.
fn summary(board: &Board) -> String {
    let counts = &board.counts;
    let mut parts = vec![
        format!("{} held", count(number(counts, "held"))),
        format!("{} on the wire", count(number(counts, "in_flight"))),
    ];
    if board.open.len() as u64 == number(counts, "lanes") {
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for lane in &board.open {
            *waiting.entry(text(&lane.open, "state")).or_default() += 1;
        }
        let waiting = waiting.into_iter().filter_map(|(state, lanes)| {
            Some(format!("{} {}", count(lanes), waits_for(state, lanes)?))
        });
        parts.extend(waiting);
    } else {
        parts.push(format!("{} backing off", count(number(counts, "backing_off"))));
        parts.push(format!(
            "{} ready or waiting for their endpoint",
            count(number(counts, "ready"))
        ));
    }
    let lanes = match number(counts, "lanes") {
        1 => "1 lane".to_owned(),
        lanes => format!("{} lanes", count(lanes)),
    };
    format!("{lanes} with something open: {}.", parts.join(", "))
}

/// What lanes in a state wait for, unless the counts say it already.
fn waits_for(state: &str, lanes: u64) -> Option<String> {
    let what = match state {
        "backing_off" => return Some("backing off".to_owned()),
        "waiting_for_breaker" => "for the breaker",
        "waiting_for_retry_after" => "for Retry-After",
        "waiting_for_limit" => "for a limit",
        "endpoint_off" => "for their endpoint, which is off",
        "loading" => "to be loaded",
        _ => return None,
    };
    Some(format!("{} {what}", if lanes == 1 { "waits" } else { "wait" }))
}

/// What a lane does, in words.
fn state(lane: &Value) -> Markup {
    let until = &lane["until"];
    html! {
        @match text(lane, "state") {
            "in_flight" => { "on the wire" }
            "backing_off" => { "backs off" }
            "waiting_for_breaker" => { "waits for the breaker" }
            "waiting_for_retry_after" => { "left alone (Retry-After)" }
            "waiting_for_limit" => { "waits for a limit" }
            "endpoint_off" => { "its endpoint is off" }
            "loading" => { "is being loaded" }
            other => { (shown::words(other)) }
        }
        @if !until.is_null() { " until " (moment(until)) }
    }
}

fn open_row(visit: &PageVisit, lane: &Lane) -> Markup {
    let (open, head) = (&lane.open, &lane.open["head"]);
    let key = open["key"].as_str().unwrap_or("everything");
    let spot = Spot::of(text(open, "state"));
    let behind = number(open, "open").saturating_sub(u64::from(!head.is_null()));
    let shown: Vec<_> = lane.queue.iter().take(LANE_DELIVERIES_SHOWN_MAX).collect();
    let unseen = behind.saturating_sub(shown.len() as u64);
    html! {
        article.lane.held[spot == Spot::Held] id={ "lane-" (open["lane"]) } data-lane=(key)
            data-state=(text(open, "state"))
            aria-label={ "Lane " (key) @if spot == Spot::Held { ", held" } } {
            (name(visit, key, head, open))
            div.queue {
                span.part { "queue" }
                @if unseen > 0 { span.more { "+" (count(unseen)) } }
                // The next to leave stands beside the wire.
                @for delivery in shown.into_iter().rev() { (chip(visit, delivery, Spot::Queue)) }
                @if spot == Spot::Queue && !head.is_null() { (chip(visit, head, spot)) }
            }
            div.wire {
                span.part { "wire" }
                @if spot != Spot::Queue && !head.is_null() { (chip(visit, head, spot)) }
                @if !matches!(spot, Spot::Held | Spot::Wire | Spot::BackingOff) { span.waits { (state(open)) } }
            }
            (consumer(visit, lane))
            @if let Some(held) = &lane.held { (held_note(visit, held, head)) }
        }
    }
}

fn finished_row(visit: &PageVisit, lane: &Lane) -> Markup {
    let last = &lane.landed[0];
    let key = last["key"].as_str().unwrap_or("everything");
    html! {
        article.lane id={ "lane-" (last["lane"]) } data-lane=(key) aria-label={ "Lane " (key) ", nothing open" } {
            (name(visit, key, last, last))
            div.queue {}
            div.wire {}
            (consumer(visit, lane))
        }
    }
}

fn name(visit: &PageVisit, key: &str, delivery: &Value, of: &Value) -> Markup {
    html! {
        div.name {
            code.key { (key) }
            a.url href=(visit.path(&format!("/endpoints/{}", text(of, "endpoint")))) { (text(delivery, "endpoint_url")) }
            @if !delivery["last_answer"].is_null() {
                small.muted { "last answer: " (shown::last_answer(&delivery["last_answer"])) }
            }
        }
    }
}

fn consumer(visit: &PageVisit, lane: &Lane) -> Markup {
    html! {
        div.consumer {
            span.part { "consumer" }
            @for delivery in lane.landed.iter().take(LANE_DELIVERIES_SHOWN_MAX) {
                (chip(visit, delivery, Spot::Landed))
            }
        }
    }
}

/// Where a delivery is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Queue,
    Wire,
    BackingOff,
    Held,
    Landed,
}

impl Spot {
    /// Where the head of a lane in this state is.
    fn of(state: &str) -> Self {
        match state {
            "in_flight" => Self::Wire,
            "backing_off" => Self::BackingOff,
            "held" => Self::Held,
            _ => Self::Queue,
        }
    }
}

/// One delivery: its seq, where it is in a word, and a countdown if it backs off.
fn chip(visit: &PageVisit, delivery: &Value, spot: Spot) -> Markup {
    let (class, mark, word) = match spot {
        Spot::Queue => ("queued", "", "waits for its turn"),
        Spot::Wire => ("flying", "→", "is on the wire"),
        Spot::BackingOff => ("backing-off", "◷", "backs off"),
        Spot::Held => ("parked", "✕", "is a dead letter"),
        Spot::Landed => ("landed", "✓", "has landed"),
    };
    let (id, seq) = (text(delivery, "id"), number(delivery, "seq"));
    let attempts = number(delivery, "attempts");
    html! {
        a class={ "chip " (class) } href=(visit.path(&format!("/deliveries/{id}"))) data-key=(id)
            title={ "seq " (seq) " " (word) ", attempts: " (attempts) } {
            span aria-hidden="true" { (mark) }
            span.hidden { "seq " } (seq) span.hidden { " " (word) }
            @if attempts > 1 && spot != Spot::Landed { small { "×" (attempts) } }
            @if spot == Spot::BackingOff { (countdown(&delivery["until"])) }
        }
    }
}

/// When it is tried again; the script counts it down. The text itself stays the same from one drawing
/// to the next: what did not change is not sent.
fn countdown(until: &Value) -> Markup {
    html! { small data-until=(until.as_str().unwrap_or_default()) { (shown::clock(until)) } }
}

/// Why a lane is held, and what one can do.
fn held_note(visit: &PageVisit, held: &Value, letter: &Value) -> Markup {
    let action = |name: &str| visit.path(&format!("/lanes/{}/{name}", held["lane"]));
    html! {
        div.held-note {
            p {
                strong { "✕ Held" } " by seq " (number(held, "held_at_seq")) ": "
                (shown::reason(text(held, "reason")))
                @if !letter["last_answer"].is_null() { ", last answer " (shown::last_answer(&letter["last_answer"])) }
                ". " (count(number(held, "waiting_behind"))) " wait behind it, since "
                (moment(&held["since"])) "."
            }
            @if visit.may(Needs::Manage) {
                div.actions {
                    (button(visit, &action("replay"), "Replay", "primary"))
                    (button(visit, &action("skip"), "Skip…", ""))
                    (button(visit, &action("discard"), "Discard…", "danger"))
                }
            }
        }
    }
}
