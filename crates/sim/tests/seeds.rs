//! The world as a whole: promises are kept, runs repeat to the byte, defects are caught, and nothing
//! that should happen is left out.

use std::sync::LazyLock;

use railpost_sim::{Options, PlantedDefect, Summary, run, run_all};

/// The seeds that every change has to pass, run once for all tests here.
static FIRST_SEEDS: LazyLock<Summary> =
    LazyLock::new(|| run_all(0..200, Options::default(), |_| {}));

#[test]
fn every_promise_is_kept_on_the_first_seeds() {
    let broken: Vec<_> = FIRST_SEEDS.broken.iter().map(|it| (it.seed, &it.breach)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_same_seed_twice_gives_the_same_trace_to_the_byte() {
    let options = Options { trace: true, ..Options::default() };
    for seed in 0..10 {
        let (once, again) = (run(seed, options), run(seed, options));
        assert!(once.trace.lines().count() > 100, "seed {seed} has little to tell");
        assert!(once == again, "seed {seed} went two ways");
    }
}

#[test]
fn each_planted_defect_is_caught_within_two_hundred_seeds() {
    let follows = "a delivery's state follows from what happened to it";
    let idles = "nothing idles while work is due and allowed";
    let in_order = "within a lane nothing starts while the one before is open";
    let applied = "what is delivered was applied";
    let misses = "a receiver that forgot nothing misses nothing";
    let ends = "when faults stop, everything ends delivered, dead or discarded";
    let expected = [
        ("release-before-acknowledgement", follows),
        ("forget-in-flight", in_order),
        ("advance-on-dead-letter", follows),
        ("retry-at-most-once", "at most once: never sent twice"),
        ("ignore-retry-after", "a receiver that asked for time is left alone"),
        ("exceed-cap", "no more is under way than an endpoint takes"),
        ("drop-held-lane", in_order),
        (
            "burn-attempts-while-open",
            "an open breaker lets one probe pass, and a closed one ramps up",
        ),
        ("ignore-rate", "no endpoint's rate is exceeded"),
        ("try-once-more", follows),
        ("forget-waits", "only what is due is sent"),
        ("ignore-pause", "nothing starts where it is switched off"),
        ("wake-late", idles),
        ("replay-untold", follows),
        ("send-unrecorded", "at most once: recorded as sent before it is sent"),
        ("lose-accepted", idles),
        ("place-by-key", applied),
        ("roll-back-duplicates", misses),
        ("keep-lines", applied),
        ("share-lines", applied),
        ("omit-after", misses),
        ("count-early", "409 and 425 are never held against an endpoint"),
        ("redeliver-unmarked", "what a person asked for says so"),
        ("never-sweep", idles),
        ("ratchet-sweeps", idles),
        ("ratchet-clock", ends),
        ("believe-instants", ends),
        ("overwrite-status", "a pause stays until a person lifts it"),
        ("drop-at-stop", "a graceful stop leaves nothing in doubt"),
    ];
    assert_eq!(expected.map(|(name, _)| name), PlantedDefect::ALL.map(|(name, _)| name));
    for ((name, promise), (_, plant)) in expected.into_iter().zip(PlantedDefect::ALL) {
        let options = Options { plant, ..Options::default() };
        let breaks_it = |seed| run(seed, options).breach.is_some_and(|it| it.promise == promise);
        assert!((0..200).any(breaks_it), "{name} went unnoticed");
    }
}

#[test]
fn nothing_that_can_happen_is_left_out_of_the_first_seeds() {
    let missing: Vec<String> = EXPECTED
        .iter()
        .flat_map(|(topic, kinds)| kinds.split(", ").map(move |kind| format!("{topic}: {kind}")))
        .filter(|name| FIRST_SEEDS.tally.of(name) == 0)
        .collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
}

/// Every kind of fault, receiver, result, effect and decision, by topic.
const EXPECTED: &[(&str, &str)] = &[
    ("fault", "crash, unreachable, request lost, answer lost, delayed, duplicated, reset"),
    ("fault", "hint lost, hint late, hint twice, load failed, slow flush, handed over, vanished"),
    ("fault", "commit answer lost, change unread, sweep failed, graceful stop, store restored"),
    ("fault", "receiver crash, receiver restored, receiver lost everything"),
    ("fault", "clock set ahead, clock set back"),
    ("clock", "instant cut"),
    ("receiver", "up, down, flapping, slow, rate-limiting, failing, early, rejecting, gone"),
    ("inbox", "fresh, duplicate, stale, gap held, gap accepted, busy, not asked"),
    ("world", "endpoint appeared, endpoint changed, endpoint paused, endpoint resumed"),
    ("world", "published twice, store copied, receiver copied, lane pruned"),
    ("result", "200, 302, 400, 401, 403, 404, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503"),
    ("result", "Dns, BlockedAddress, Refused, ConnectTimeout, Tls, Reset, Timeout, BadResponse"),
    ("result", "PayloadMissing, NotSent"),
    ("command", "Replay, Skip, Discard, Redeliver"),
    ("effect", "record first, load, sweep"),
    ("notice", "breaker opened, breaker closed, lane held, switched off"),
    ("endpoint", "Active, Quarantined, Gone, Failing"),
    ("decision", "delivered, waiting, discarded, pending"),
    ("decision", "Permanent holds, AttemptsExhausted holds, Expired holds"),
    ("decision", "Permanent moves on, AttemptsExhausted moves on, Expired moves on"),
    ("decision", "SingleAttemptFailed moves on, OutcomeUnknown moves on"),
    ("ignored", "EndpointUnknown, DeliveryKnown, NotDead, NotHeld, Closed, SentOnce, NotLoaded"),
];
