//! The log line of an attempt, with all its fields in one place. It has neither the event's key nor its payload,
//! because both may be personal data.

use railpost_dispatch::AttemptEnded;
use railpost_engine::{AttemptResult, DeliveryState, Time};

use super::log::{Level, Log, Value};
use super::words;

pub(super) fn write(log: &Log, ended: &AttemptEnded<'_>) {
    let level = level_of(ended);
    if !log.is_enabled(level) {
        return;
    }
    let AttemptEnded { transition, detail, parcel, replay, trace, is_near_death } = *ended;
    let event = parcel.map(|parcel| &parcel.event);
    let place = parcel.and_then(|parcel| parcel.line.as_ref());
    let (until, dead) = match transition.state {
        DeliveryState::Waiting { until } => (Some(Time(until)), None),
        DeliveryState::Dead { reason, holds } => (None, Some((reason, holds))),
        _ => (None, None),
    };
    let trace_id = trace.map(|trace| format!("{:032x}", trace.trace_id()));
    let span_id = trace.map(|trace| format!("{:016x}", trace.span_id()));
    let timing = &detail.timing;
    let millis = |micros: u32| Value::Millis(micros.into());
    // An array, because there is a line for every attempt.
    let fields = [
        Some(("service", Value::Text(words::SERVICE))),
        parcel.map(|parcel| ("tenant", Value::Text(parcel.tenant.as_str()))),
        Some(("endpoint", Value::Display(&transition.endpoint))),
        event.map(|event| ("event_id", Value::Display(&event.id))),
        event.map(|event| ("idempotency_key", Value::Display(&event.id))),
        event.map(|event| ("event_type", Value::Text(event.event_type.as_str()))),
        Some(("delivery", Value::Display(&transition.delivery))),
        place.map(|place| ("line", Value::Text(place.line.as_str()))),
        place.map(|place| ("seq", Value::Number(place.seq.get()))),
        Some(("attempt", Value::Number(u64::from(detail.number)))),
        Some(("outcome", Value::Text(words::outcome_name(words::outcome(transition))))),
        Some(match detail.result {
            AttemptResult::Response { status, .. } => ("http_status", Value::Number(status.into())),
            AttemptResult::Failed(failure) => {
                ("failure", Value::Text(words::failure_name(failure)))
            }
        }),
        detail.message.as_ref().map(|message| ("message", Value::Text(message))),
        Some(("latency_ms", millis(timing.total_us))),
        timing.dns_us.map(|micros| ("dns_ms", millis(micros))),
        timing.connect_us.map(|micros| ("connect_ms", millis(micros))),
        timing.tls_us.map(|micros| ("tls_ms", millis(micros))),
        timing.first_byte_us.map(|micros| ("first_byte_ms", millis(micros))),
        until.as_ref().map(|until| ("next_retry_at", Value::Display(until))),
        dead.map(|(reason, _)| ("dead", Value::Text(words::dead_reason_name(reason)))),
        dead.map(|(_, holds)| ("holds_lane", Value::Truth(holds))),
        Some(("dlq_transition_pending", Value::Truth(is_near_death))),
        Some(("replay", Value::Truth(replay))),
        trace_id.as_ref().map(|id| ("trace_id", Value::Text(id))),
        span_id.as_ref().map(|id| ("span_id", Value::Text(id))),
    ];
    log.line(level, "attempt", fields.iter().flatten());
}

/// What was given up on wants someone to look.
fn level_of(ended: &AttemptEnded<'_>) -> Level {
    match ended.transition.state {
        DeliveryState::Dead { .. } => Level::Warn,
        _ => Level::Info,
    }
}
