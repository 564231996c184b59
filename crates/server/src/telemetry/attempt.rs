//! The wide line of an attempt: all that is worth knowing of it in one place. An event's key may be
//! personal data, and so may its payload: neither is in it.

use railpost_dispatch::AttemptEnded;
use railpost_engine::{AttemptResult, DeliveryState};

use super::log::{Level, Log, Value};
use super::words;
use crate::api::time::Time;

pub(super) fn write(log: &Log, ended: &AttemptEnded<'_>) {
    let level = level_of(ended);
    if !log.takes(level) {
        return;
    }
    let AttemptEnded { transition, detail, parcel, replay, trace } = *ended;
    let mut fields: Vec<(&str, Value<'_>)> = Vec::with_capacity(24);
    if let Some(parcel) = parcel {
        fields.push(("tenant", Value::Shown(&parcel.tenant)));
    }
    fields.push(("endpoint", Value::Shown(&transition.endpoint)));
    if let Some(parcel) = parcel {
        fields.push(("event_id", Value::Shown(&parcel.event.id)));
        fields.push(("event_type", Value::Shown(&parcel.event.event_type)));
    }
    fields.push(("delivery", Value::Shown(&transition.delivery)));
    let seq = transition.place.map(|place| place.seq);
    fields.extend(seq.map(|seq| ("seq", Value::Number(seq.get()))));
    fields.push(("attempt", Value::Number(u64::from(detail.number))));
    fields.push(("outcome", Value::Text(words::outcome_name(words::outcome(transition)))));
    fields.push(match detail.result {
        AttemptResult::Response { status, .. } => ("http_status", Value::Number(status.into())),
        AttemptResult::Failed(failure) => ("failure", Value::Text(words::failure_name(failure))),
    });
    fields.extend(detail.message.as_ref().map(|message| ("message", Value::Text(message))));
    push_timing(&mut fields, &detail.timing);
    let until = match transition.state {
        DeliveryState::Waiting { until } => Some(Time(until)),
        _ => None,
    };
    fields.extend(until.as_ref().map(|until| ("next_retry_at", Value::Shown(until))));
    if let DeliveryState::Dead { reason, holds } = transition.state {
        fields.push(("dead", Value::Text(words::dead_reason_name(reason))));
        fields.push(("holds_lane", Value::Truth(holds)));
    }
    fields.push(("replay", Value::Truth(replay)));
    let trace_id = trace.map(|trace| format!("{:032x}", trace.trace_id()));
    fields.extend(trace_id.as_ref().map(|id| ("trace_id", Value::Text(id))));
    log.line(level, "attempt", &fields);
}

/// What was given up on wants someone to look.
fn level_of(ended: &AttemptEnded<'_>) -> Level {
    match ended.transition.state {
        DeliveryState::Dead { .. } => Level::Warn,
        _ => Level::Info,
    }
}

fn push_timing(fields: &mut Vec<(&str, Value<'_>)>, timing: &railpost_store::Timing) {
    let millis = |micros: u32| Value::Millis(micros.into());
    fields.push(("latency_ms", millis(timing.total_us)));
    for (name, micros) in [
        ("dns_ms", timing.dns_us),
        ("connect_ms", timing.connect_us),
        ("tls_ms", timing.tls_us),
        ("first_byte_ms", timing.first_byte_us),
    ] {
        fields.extend(micros.map(|micros| (name, millis(micros))));
    }
}
