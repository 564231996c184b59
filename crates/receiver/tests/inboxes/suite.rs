//! The rules, as one line per case, run against every inbox.

use crate::support::event;
use railpost_receiver::wire::{Received, Seq};
use railpost_receiver::{Lanes, OnGap, Policy, Replays, Start, Verdict};

/// An inbox under test. Each has its own, empty.
pub(crate) trait Desk {
    /// Judges an event, and if the verdict applies, applies it with success or without.
    async fn offer(&mut self, received: &Received, succeeds: bool) -> Verdict;
}

const FRESH: Verdict = Verdict::Fresh;
const DUPLICATE: Verdict = Verdict::Duplicate;

fn stale(applied: u64) -> Verdict {
    Verdict::Stale { applied: Seq::new(applied).unwrap() }
}

fn gap(applied: u64, accepted: bool) -> Verdict {
    Verdict::Gap { applied: Seq::new(applied), accepted }
}

fn replay(received: Received) -> Received {
    Received { replay: true, ..received }
}

fn attempt(number: u32, received: Received) -> Received {
    Received { attempt: Some(number), ..received }
}

/// A policy, and events in the order in which they come with what each of them is.
type Case = (&'static str, Policy, Vec<(Received, Verdict)>);

fn cases() -> Vec<Case> {
    let policy = Policy::default();
    let at = |key, seq| Some((key, seq));
    let forever = OnGap::Hold { attempts: u32::MAX };
    let keyed = |id: &str, seq: u64| event(id, at("A", seq));
    let no_seq = Received { seq: None, ..event("1", at("A", 1)) };
    vec![
        (
            "without a key, an event only deduplicates",
            policy,
            vec![
                (event("1", None), FRESH),
                (event("2", None), FRESH),
                (event("1", None), DUPLICATE),
            ],
        ),
        (
            "without a seq, an event only deduplicates",
            policy,
            vec![(no_seq.clone(), FRESH), (no_seq, DUPLICATE)],
        ),
        (
            "in order, all are fresh once",
            policy,
            vec![
                (keyed("1", 1), FRESH),
                (keyed("1", 1), DUPLICATE),
                (keyed("2", 2), FRESH),
                (keyed("1", 1), DUPLICATE),
                (keyed("2", 2), DUPLICATE),
                (event("3", at("B", 1)), FRESH),
            ],
        ),
        (
            "an id is known whatever key it comes under, and moves no other lane",
            policy,
            vec![
                (keyed("1", 1), FRESH),
                (event("1", at("B", 1)), DUPLICATE),
                (event("2", at("B", 1)), FRESH),
                (keyed("2", 2), DUPLICATE),
                (keyed("3", 2), FRESH),
                (event("1", None), DUPLICATE),
            ],
        ),
        (
            "an update before its creation is held, and fresh after it",
            policy,
            vec![(keyed("2", 2), gap(0, false)), (keyed("1", 1), FRESH), (keyed("2", 2), FRESH)],
        ),
        (
            "an unknown id with an old seq is stale",
            policy,
            vec![
                (keyed("1", 1), FRESH),
                (keyed("2", 2), FRESH),
                (keyed("other", 1), stale(2)),
                (keyed("other", 2), stale(2)),
                (keyed("3", 3), FRESH),
            ],
        ),
        (
            "what the sender insists on is accepted in the end",
            policy,
            vec![
                (keyed("1", 1), FRESH),
                (attempt(5, keyed("3", 3)), gap(1, false)),
                (attempt(6, keyed("3", 3)), gap(1, true)),
                (keyed("2", 2), stale(3)),
                (keyed("4", 4), FRESH),
            ],
        ),
        (
            "a sender that does not count is held off",
            policy,
            vec![(Received { attempt: None, ..keyed("2", 2) }, gap(0, false))],
        ),
        (
            "a gap can be held for ever",
            Policy { on_gap: forever, ..policy },
            vec![(attempt(1_000_000, keyed("2", 2)), gap(0, false))],
        ),
        (
            "a gap can be accepted at once",
            Policy { on_gap: OnGap::Accept, ..policy },
            vec![
                (keyed("3", 3), gap(0, true)),
                (keyed("7", 7), gap(3, true)),
                (keyed("7", 7), DUPLICATE),
                (keyed("8", 8), FRESH),
            ],
        ),
        (
            "a lane can begin anywhere",
            Policy { start: Start::Anywhere, ..policy },
            vec![(keyed("7", 7), FRESH), (keyed("9", 9), gap(7, false)), (keyed("8", 8), FRESH)],
        ),
        (
            "a replay of what was skipped keeps the order",
            policy,
            vec![
                (keyed("1", 1), FRESH),
                (attempt(6, keyed("3", 3)), gap(1, true)),
                (replay(keyed("2", 2)), stale(3)),
            ],
        ),
        (
            "a replay can be applied out of order",
            Policy { replays: Replays::Apply, ..policy },
            vec![
                (keyed("1", 1), FRESH),
                (attempt(6, keyed("3", 3)), gap(1, true)),
                (replay(keyed("2", 2)), FRESH),
                (replay(keyed("2", 2)), DUPLICATE),
                (replay(keyed("1", 1)), DUPLICATE),
                (keyed("4", 4), FRESH),
            ],
        ),
        (
            "one lane for everything counts across keys",
            Policy { lanes: Lanes::Global, ..policy },
            vec![
                (event("1", at("A", 1)), FRESH),
                (event("2", at("B", 2)), FRESH),
                (event("4", at("B", 4)), gap(2, false)),
                (event("3", at("A", 3)), FRESH),
            ],
        ),
        (
            "any character may be in a key",
            policy,
            vec![(event("1", at("\0'\"\n:é", 1)), FRESH), (event("2", at("\0'\"\n:é", 2)), FRESH)],
        ),
        (
            "the largest seq is one",
            Policy { start: Start::Anywhere, ..policy },
            vec![
                (keyed("1", i64::MAX as u64), FRESH),
                (keyed("2", i64::MAX as u64), stale(i64::MAX as u64)),
            ],
        ),
    ]
}

/// Runs all cases, each on an inbox that `make` makes.
pub(crate) async fn follows_the_rules<D: Desk>(mut make: impl AsyncFnMut(Policy) -> D) {
    for (name, policy, events) in cases() {
        let mut desk = make(policy).await;
        for (at, (received, expected)) in events.into_iter().enumerate() {
            let verdict = desk.offer(&received, true).await;
            assert_eq!(verdict, expected, "{name}: event {at}");
        }
    }
}

/// An effect that fails leaves the event to the next attempt.
pub(crate) async fn forgets_what_failed<D: Desk>(mut desk: D) {
    let (first, second) = (event("1", Some(("A", 1))), event("2", Some(("A", 2))));
    assert_eq!(desk.offer(&first, false).await, FRESH);
    assert_eq!(desk.offer(&second, true).await, gap(0, false));
    assert_eq!(desk.offer(&first, true).await, FRESH);
    assert_eq!(desk.offer(&second, false).await, FRESH);
    assert_eq!(desk.offer(&second, true).await, FRESH);
    assert_eq!(desk.offer(&second, true).await, DUPLICATE);
}
