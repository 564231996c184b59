//! What every backend does alike with what it found: pages for the engine, attempts for people.

use railpost_engine::{Delivery, DeliveryState, LaneId, LanePage, Transition};
use railpost_wire::Seq;

use crate::limits::{ATTEMPT_MESSAGE_LEN_MAX, RESPONSE_BODY_LEN_MAX, RESPONSE_HEADERS_LEN_MAX};
use crate::{AttemptDetail, AttemptView};

/// The stretch of a lane that starts at `from` and has these open deliveries, of which at most
/// `limit` were asked for. If there may be more, it ends with the last one listed; otherwise with
/// the lane. Of `follows` it takes those that belong to it.
pub fn lane_page(
    lane: LaneId,
    from: Seq,
    last: Option<Seq>,
    limit: usize,
    deliveries: Vec<Delivery>,
    mut follows: Vec<(Seq, u64)>,
) -> LanePage {
    let last_listed = deliveries.last().and_then(|delivery| delivery.place).map(|place| place.seq);
    let end = last.filter(|last| *last >= from);
    let through = if deliveries.len() < limit { end } else { last_listed.or(end) };
    let end = through.map_or(0, Seq::get) + 1;
    follows.retain(|(seq, _)| *seq >= from && seq.get() <= end);
    LanePage { lane, from, through, last, deliveries, follows }
}

/// An attempt as it is recorded with the transition it led to, cut to its bounds.
pub fn attempt_view(detail: &AttemptDetail, transition: &Transition) -> AttemptView {
    let mut detail = detail.clone();
    detail.response_body.truncate(RESPONSE_BODY_LEN_MAX);
    detail.message = detail.message.map(|message| fit_message(&message));
    let mut room = RESPONSE_HEADERS_LEN_MAX;
    detail.response_headers.retain(|(name, value)| {
        let len = name.len() + value.len();
        let fits = len <= room;
        room -= if fits { len } else { 0 };
        fits
    });
    let next_at = match transition.state {
        DeliveryState::Waiting { until } => Some(until),
        _ => None,
    };
    AttemptView { detail, led_to: transition.state.stage(), next_at }
}

/// Words that every database can hold.
fn fit_message(message: &str) -> String {
    let end = message.floor_char_boundary(ATTEMPT_MESSAGE_LEN_MAX);
    message[..end].replace('\0', "\u{fffd}")
}
