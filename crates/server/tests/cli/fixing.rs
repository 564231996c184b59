//! "I fixed it": health, probe and resume; lanes and replays that wait.

use crate::world::{Running, World};

/// An endpoint at a receiver that answers this; the receiver and the endpoint's id.
fn endpoint(world: &World, status: &str, policy: &[&str]) -> (Running, String) {
    let listen = ["listen", "--port", "0", "--register", "--json", "--status", status];
    let mut running = Running::start(world.command(&[&listen[..], policy].concat()));
    let id = running.json()["endpoint"].as_str().unwrap().to_owned();
    (running, id)
}

/// An endpoint whose breaker is open, with deliveries that wait for it.
fn broken(world: &World) -> (Running, String) {
    let policy = r#"{"breaker": {"min_attempts": 1, "open_for": "5m", "open_for_max": "5m"}}"#;
    let (running, id) = endpoint(world, "503", &["--policy", policy, "--retry-fixed", "10ms"]);
    for key in ["order-1", "order-2"] {
        world.run(&["send", "order.paid", "--key", key]).expect(0);
    }
    while world.json(&["endpoints", "show", &id])["health"]["state"] != "waiting" {}
    (running, id)
}

#[test]
fn an_open_breaker_is_said_in_words_by_every_command() {
    let world = World::new();
    let (_running, id) = broken(&world);
    let listed = world.run(&["endpoints", "list"]).expect(0).out;
    assert!(listed.contains("waiting (breaker open)") && listed.contains("503"), "{listed}");
    let shown = world.run(&["endpoints", "show", &id]).expect(0).out;
    for line in ["health", "last error", "next"] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line}: {shown}");
    }
    assert!(!shown.contains("failing_since  -"), "{shown}");
    let health = world.run(&["endpoints", "health", &id]).expect(0).out;
    assert!(health.contains("waiting (breaker open)"), "{health}");
    let lanes = world.run(&["lanes", "list"]).expect(0);
    assert!(lanes.out.contains("waits for the breaker, in "), "{lanes:?}");
    assert!(lanes.err.starts_with("2 lanes with anything open"), "{lanes:?}");
    let held = world.run(&["lanes", "list", "--held"]).expect(0);
    assert!(held.err.starts_with("There is nothing to show"), "{held:?}");
}

#[test]
fn a_probe_that_fails_says_what_came_and_ends_with_1() {
    let world = World::new();
    let (_running, id) = broken(&world);
    let probed = world.run(&["endpoints", "probe", &id]).expect(1);
    assert!(
        probed.out.starts_with("503 in ") && probed.out.contains("not acknowledged"),
        "{probed:?}"
    );
    assert!(probed.err.contains("fix the receiver"), "{probed:?}");
}

#[test]
fn a_probe_that_succeeds_offers_to_resume_and_resume_says_what_it_did() {
    let world = World::new();
    let (_running, id) = endpoint(&world, "200", &[]);
    let state = || world.json(&["endpoints", "show", &id])["health"]["state"].clone();
    let active = world.run(&["endpoints", "probe", &id]).expect(0);
    assert!(active.out.contains(": acknowledged") && !active.err.contains("resume"), "{active:?}");
    world.run(&["endpoints", "pause", &id]).expect(0);
    let told = world.run(&["endpoints", "probe", &id]).expect(0);
    assert!(told.err.contains(&format!("railpost endpoints resume {id}")), "{told:?}");
    assert_eq!(state(), "paused");
    let kept = world.run_on_terminal(&["endpoints", "probe", &id], "n\n").expect(0);
    assert!(kept.out.contains("Resume it? [y/N]"), "{kept:?}");
    assert_eq!(state(), "paused");
    let resumed = world.run(&["endpoints", "probe", &id, "--resume"]).expect(0);
    assert!(resumed.out.contains("is switched on"), "{resumed:?}");
    assert!(resumed.out.contains(&format!("railpost replay --endpoint {id}")), "{resumed:?}");
    assert_eq!(state(), "active");
    let nothing = world.run(&["endpoints", "resume", &id]).expect(0).out;
    assert!(nothing.starts_with("nothing to do"), "{nothing}");
}

#[test]
fn resuming_an_endpoint_with_an_open_breaker_makes_it_half_open() {
    let world = World::new();
    let (_running, id) = broken(&world);
    let resumed = world.run(&["endpoints", "resume", &id]).expect(0).out;
    assert!(resumed.contains("is half-open"), "{resumed}");
}

#[test]
fn a_replay_that_waits_for_its_endpoint_says_so() {
    let world = World::new();
    let (_running, id) = endpoint(&world, "422", &[]);
    world.run(&["send", "order.paid", "--key", "1", "--wait"]).expect(1);
    world.run(&["endpoints", "pause", &id]).expect(0);
    let counted = world.run(&["replay", "--endpoint", &id, "--dry-run"]).expect(0).out;
    assert!(counted.starts_with("dry run: 1 would be replayed"), "{counted}");
    let replayed = world.run(&["replay", "--endpoint", &id, "--yes"]).expect(0);
    assert!(replayed.out.contains("handed over 1 of 1"), "{replayed:?}");
    assert!(replayed.err.contains(&format!("waits for {id}: paused")), "{replayed:?}");
    let listed = world.run(&["replay", "list"]).expect(0).out;
    assert!(listed.contains("handed over 1 of 1"), "{listed}");
    assert!(listed.contains("dry run: 1 would be replayed"), "{listed}");
}
