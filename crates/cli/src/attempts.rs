//! Attempts: what was sent, and what the receiver answered.

use serde_json::Value;

use super::out::{Column, age, cut_column, field, full_column, time};
use crate::limits::ANSWER_EXCERPT_CHARS;

pub(super) const COLUMNS: [Column; 6] = [
    full_column("no", |item| field(item, "number")),
    full_column("started", |item| time(item, "started_at")),
    full_column("outcome", |item| field(item, "outcome")),
    cut_column("answer", answer),
    full_column("took", |item| took(&item["timing"]["total_us"])),
    full_column("led to", |item| field(item, "led_to")),
];

/// What stands below an attempt: the receiver's words, and what else there is to know.
pub(super) fn below(attempt: &Value) -> Vec<String> {
    let message = attempt["message"].as_str().map(str::to_owned);
    let after = attempt["retry_after_s"].as_u64();
    let after = after.map(|seconds| format!("asked to be left alone for {seconds} s"));
    let next =
        attempt["next_at"].as_str().map(|_| format!("next attempt {}", age(attempt, "next_at")));
    let lines = message.into_iter().chain(body(attempt)).chain(after).chain(next);
    lines.chain(advice(attempt)).collect()
}

/// What helps against this failure.
pub(super) fn advice(attempt: &Value) -> Option<String> {
    (attempt["failure"] == "blocked_address").then(|| {
        "The server refuses this address. If the receiver is meant to be there, start the server with \
         `--allow-network NETWORK`."
            .to_owned()
    })
}

/// The status that was answered, or why there was none.
pub(super) fn answer(attempt: &Value) -> String {
    match (&attempt["status"], &attempt["failure"]) {
        (Value::Null, Value::Null) => field(attempt, "message"),
        (Value::Null, _) => field(attempt, "failure"),
        (status, _) => status.to_string(),
    }
}

/// The last answer to a delivery, and to which attempt it was.
pub(super) fn last_answer(item: &Value) -> String {
    let last = &item["last_answer"];
    match last["attempt"].as_u64() {
        None => "-".to_owned(),
        Some(1) => answer(last),
        Some(number) => format!("{} (attempt {number})", answer(last)),
    }
}

/// The beginning of what the receiver answered.
fn body(attempt: &Value) -> Option<String> {
    let body = attempt["response_body"].as_str().map(str::trim).filter(|body| !body.is_empty())?;
    let excerpt: String = body.chars().take(ANSWER_EXCERPT_CHARS).collect();
    let rest = body.chars().count().saturating_sub(ANSWER_EXCERPT_CHARS);
    let more =
        if rest > 0 { format!(" … {rest} characters more with --json") } else { String::new() };
    Some(format!("answered: {excerpt}{more}"))
}

/// Microseconds, for people.
pub(super) fn took(micros: &Value) -> String {
    micros.as_u64().map_or_else(
        || "-".to_owned(),
        |micros| format!("{}.{} ms", micros / 1000, micros / 100 % 10),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn below_an_attempt_stands_what_the_receiver_answered() {
        let attempt = json!({
            "status": 503,
            "response_body": "  not now\n",
            "message": "answered 503",
            "retry_after_s": 30,
        });
        let lines = ["answered 503", "answered: not now", "asked to be left alone for 30 s"];
        assert_eq!(below(&attempt), lines);
        let long = json!({ "response_body": "x".repeat(ANSWER_EXCERPT_CHARS + 7) });
        assert!(below(&long)[0].ends_with("x … 7 characters more with --json"));
        assert!(below(&json!({ "failure": "blocked_address" }))[0].contains("--allow-network"));
    }

    #[test]
    fn the_last_answer_names_its_attempt_from_the_second_on() {
        for (last, shown) in [
            (json!(null), "-"),
            (json!({ "attempt": 1, "status": 200 }), "200"),
            (json!({ "attempt": 3, "status": null, "failure": "timeout" }), "timeout (attempt 3)"),
        ] {
            assert_eq!(last_answer(&json!({ "last_answer": last })), shown);
        }
    }
}
