//! The rules of `vectors/inbox.json`, run against every inbox.

use crate::support::{NOW, event};
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{OnGap, Policy, Replays, Start, Verdict};
use serde_json::Value;
use std::time::Duration;

/// An inbox under test. Each case has its own, empty.
pub(crate) trait InboxUnderTest {
    /// Judges an event, and if the verdict applies, applies it with success or without.
    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict;

    /// The last seq of a line that was applied.
    async fn applied(&mut self, line: &LineId) -> Option<Seq>;

    /// Offers an event whose effect succeeds.
    async fn take(&mut self, received: &Received) -> Verdict {
        self.offer(received, NOW, true).await
    }
}

fn cases() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/inbox.json")).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn policy(case: &Value) -> Policy {
    let chosen = |name: &str| case["policy"].get(name).map(|value| value.as_str().unwrap());
    let timeout = case["policy"].get("gap_timeout").map_or(60, |value| value.as_u64().unwrap());
    Policy {
        start: match chosen("start") {
            None | Some("at_one") => Start::AtOne,
            Some("anywhere") => Start::Anywhere,
            other => panic!("{other:?}"),
        },
        on_gap: match chosen("on_gap") {
            None | Some("wait") => OnGap::Wait { timeout: Duration::from_secs(timeout) },
            Some("hold") => OnGap::Hold,
            Some("accept") => OnGap::Accept,
            other => panic!("{other:?}"),
        },
        replays: match chosen("replays") {
            None | Some("keep_order") => Replays::KeepOrder,
            Some("apply") => Replays::Apply,
            other => panic!("{other:?}"),
        },
    }
}

/// The wait for a gap needs no commit of a transaction that applied nothing.
pub(crate) async fn remembers_a_gap_without_a_commit<I: InboxUnderTest>(mut inbox: I) {
    let received = event("2", Some(("A", 2)));
    let held = Verdict::Gap { applied: None, accepted: false };
    assert_eq!(inbox.offer(&received, NOW, false).await, held);
    assert_eq!(inbox.offer(&received, NOW + 59, false).await, held);
    let accepted = Verdict::Gap { applied: None, accepted: true };
    assert_eq!(inbox.offer(&received, NOW + 60, true).await, accepted);
    assert_eq!(inbox.take(&received).await, Verdict::Duplicate);
}

/// A number, or its text where it is too large for a double.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().map(|text| text.parse().unwrap()))
}

fn received(step: &Value) -> Received {
    Received {
        event_id: step["id"].as_str().unwrap().parse().unwrap(),
        event_type: None,
        event_unix_ms: None,
        schema_version: None,
        key: step["key"].as_str().map(|key| key.parse().unwrap()),
        line: step["line"].as_str().map(|line| line.parse().unwrap()),
        seq: number(&step["seq"]).and_then(Seq::new),
        after: number(&step["after"]),
        attempt: Some(1),
        replay: step["replay"].as_bool().unwrap_or(false),
        thin: false,
        timestamp: NOW,
    }
}

/// A verdict in the words of the vectors.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fresh => "fresh",
        Verdict::Duplicate => "duplicate",
        Verdict::Stale { .. } => "stale",
        Verdict::Gap { accepted: false, .. } => "gap_held",
        Verdict::Gap { accepted: true, .. } => "gap_accepted",
        Verdict::Busy => "busy",
    }
}

/// The place that a verdict tells of, if it does: what was applied before the event.
fn place_told(verdict: Verdict) -> Option<Option<Seq>> {
    match verdict {
        Verdict::Stale { applied } => Some(Some(applied)),
        Verdict::Gap { applied, .. } => Some(applied),
        _ => None,
    }
}

/// Runs all cases, each on an inbox that `make` makes.
pub(crate) async fn follows_the_rules<I: InboxUnderTest>(mut make: impl AsyncFnMut(Policy) -> I) {
    for case in cases() {
        let mut inbox = make(policy(&case)).await;
        for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let shown = format!("{}, step {at}: {step}", case["name"]);
            let received = received(step);
            let before = match &received.line {
                Some(line) => inbox.applied(line).await,
                None => None,
            };
            let now = step["now"].as_i64().unwrap_or(0);
            let succeeds = !step["fails"].as_bool().unwrap_or(false);
            let verdict = inbox.offer(&received, now, succeeds).await;
            assert_eq!(word(verdict), step["verdict"], "{shown}");
            assert!(
                place_told(verdict).is_none_or(|place| place == before),
                "{shown}: {verdict:?}"
            );
            if let Some(line) = &received.line {
                let applied = inbox.applied(line).await.map(Seq::get);
                assert_eq!(applied, number(&step["applied"]), "{shown}");
            }
        }
    }
}
