//! The bodies of a load generator's requests, and what their answers say.

use std::io::Write;

use bytes::Bytes;
use hyper::StatusCode;

use super::plan::{Form, Plan};
use crate::payload::Payload;

/// The body of a request with the events `numbers`, all sent at `sent_us`.
pub(crate) fn body(
    plan: &Plan,
    producer: u32,
    numbers: std::ops::Range<u64>,
    sent_us: u64,
) -> Bytes {
    let events = (numbers.end - numbers.start) as usize;
    let mut body = Vec::with_capacity(32 + events * (plan.payload_bytes + 64));
    let (before, between, after) = frame(plan.form);
    body.extend_from_slice(before);
    for number in numbers.clone() {
        if number > numbers.start {
            body.extend_from_slice(between);
        }
        let payload = Payload { number, producer: u64::from(producer), sent_us };
        write_event(plan, producer, payload, &mut body);
    }
    body.extend_from_slice(after);
    body.into()
}

/// What stands around and between the events of a request.
fn frame(form: Form) -> (&'static [u8], &'static [u8], &'static [u8]) {
    match form {
        Form::Bare | Form::Single => (b"", b"", b""),
        Form::Batch(_) => (br#"{"events":["#, b",", b"]}"),
        Form::Stream(_) => (b"", b"\n", b"\n"),
    }
}

fn write_event(plan: &Plan, producer: u32, payload: Payload, to: &mut Vec<u8>) {
    if plan.form == Form::Bare {
        return payload.write(plan.payload_bytes, to);
    }
    let key = plan.keys.pick(producer, plan.connections, payload.number);
    let spread = key.map_or(payload.number, u64::from);
    let event_type = u64::from(plan.first_type) + spread % u64::from(plan.types.max(1));
    // Writing to a vector cannot fail.
    let _ = write!(to, r#"{{"type":"{}","#, type_name(event_type));
    if let Some(key) = key {
        let _ = write!(to, r#""key":"k{key}","#);
    }
    to.extend_from_slice(br#""payload":"#);
    payload.write(plan.payload_bytes, to);
    to.push(b'}');
}

/// The type with a number, as endpoints subscribe to it.
pub(crate) fn type_name(number: u64) -> String {
    format!("bench.t{number}")
}

/// How many of a request's `events` were accepted.
pub(crate) fn accepted(form: Form, events: u64, status: StatusCode, body: &[u8]) -> u64 {
    match form {
        _ if !status.is_success() => 0,
        Form::Stream(_) => accepted_lines(body),
        Form::Bare | Form::Single | Form::Batch(_) => events,
    }
}

/// A line with a receipt is an accepted event; one with a problem is not.
fn accepted_lines(body: &[u8]) -> u64 {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter(|line| !has(line, br#""problem""#)).count() as u64
}

fn has(line: &[u8], needle: &[u8]) -> bool {
    line.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Keys;
    use serde_json::Value;

    fn plan(form: Form) -> Plan {
        Plan {
            address: String::new(),
            paths: vec!["/".to_owned()],
            token: None,
            form,
            payload_bytes: 512,
            keys: Keys::Many(4),
            types: 2,
            first_type: 5,
            connections: 1,
            per_s: None,
            first: 0,
            events: 0,
            millis: 0,
        }
    }

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn each_form_carries_its_events_in_order() {
        let bare = body(&plan(Form::Bare), 0, 7..8, 99);
        assert_eq!(parsed(&bare)["n"], 7);
        let single = parsed(&body(&plan(Form::Single), 0, 7..8, 99));
        assert_eq!(single["payload"]["sent_us"], 99);
        let batch = parsed(&body(&plan(Form::Batch(3)), 0, 7..10, 99));
        let stream = body(&plan(Form::Stream(3)), 0, 7..10, 99);
        let lines: Vec<Value> =
            stream.trim_ascii_end().split(|b| *b == b'\n').map(parsed).collect();
        for events in [batch["events"].as_array().unwrap(), &lines] {
            let numbers: Vec<u64> =
                events.iter().filter_map(|event| event["payload"]["n"].as_u64()).collect();
            assert_eq!(numbers, [7, 8, 9]);
        }
    }

    #[test]
    fn a_key_always_has_the_same_type() {
        let many = parsed(&body(&plan(Form::Batch(100)), 0, 0..100, 0));
        for event in many["events"].as_array().unwrap() {
            let key: u64 = event["key"].as_str().unwrap()[1..].parse().unwrap();
            assert_eq!(event["type"], format!("bench.t{}", 5 + key % 2));
        }
    }

    #[test]
    fn answers_are_counted_by_event() {
        let lines = b"{\"id\":\"a\",\"line\":1}\n{\"line\":2,\"problem\":{}}\n{\"id\":\"b\"}\n";
        for (form, events, status, body, expected) in [
            (Form::Single, 1, 202, &b"{}"[..], 1),
            (Form::Single, 1, 429, b"{}", 0),
            (Form::Batch(100), 100, 202, b"{}", 100),
            (Form::Batch(100), 40, 202, b"{}", 40),
            (Form::Batch(100), 100, 400, b"{}", 0),
            (Form::Stream(3), 3, 200, lines, 2),
            (Form::Stream(3), 3, 503, lines, 0),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(accepted(form, events, status, body), expected, "{form:?} {status}");
        }
    }
}
