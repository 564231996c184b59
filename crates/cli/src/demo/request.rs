//! One request with its headers, each with what it is for.

use super::receiver::DemoRequest;

/// What each header is for, in the order in which people need them.
const MEANINGS: [(&str, &str); 10] = [
    ("webhook-id", "the event's id: the same in every attempt, so a duplicate is recognized by it"),
    (
        "webhook-timestamp",
        "when this attempt was signed: an old request cannot be sent again later",
    ),
    ("webhook-signature", "made with the endpoint's secret over id, timestamp and body"),
    ("x-event-type", "what happened"),
    ("x-event-time", "when it happened"),
    ("x-key", "what it happened to: events of one key arrive in order"),
    ("x-lane", "which run of numbers the next header counts in"),
    ("x-seq", "the number in it: 1, 2, 3 … without gaps"),
    ("x-attempt", "which attempt this is"),
    ("content-type", "what kind of bytes the body is"),
];

/// Characters of a value that are shown: a signature is longer than a line.
const VALUE_CHARS_MAX: usize = 44;

/// The headers that came, each with its meaning below it.
pub(super) fn explained(request: &DemoRequest) -> String {
    let mut text = String::new();
    for (name, meaning) in MEANINGS {
        let found = request.headers.iter().find(|(known, _)| known == name);
        if let Some((_, value)) = found {
            text.push_str(&format!("\n      {name}: {}\n          {meaning}", shortened(value)));
        }
    }
    text
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}
