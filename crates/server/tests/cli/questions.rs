//! What takes something away asks once, says what it does and to how many, and how to undo it.

use serde_json::Value;

use crate::world::World;

/// An endpoint that nothing is sent to, with deliveries of one key that wait.
fn paused_endpoint(world: &World, deliveries: usize) -> String {
    let made = world.json(&["endpoints", "create", "--url", "http://127.0.0.1:1234/"]);
    let id = made["id"].as_str().unwrap().to_owned();
    world.run(&["endpoints", "pause", &id]).expect(0);
    for _ in 0..deliveries {
        world.run(&["send", "order.paid", "--key", "1"]).expect(0);
    }
    id
}

fn delivery(world: &World) -> Value {
    world.json(&["deliveries", "list"])["items"][0].clone()
}

#[test]
fn without_a_terminal_it_is_refused_with_what_it_would_do() {
    let world = World::new();
    let endpoint = paused_endpoint(&world, 3);
    let delivery = delivery(&world)["id"].as_str().unwrap().to_owned();
    let key = world.json(&["keys", "create", "ci"])["id"].as_str().unwrap().to_owned();
    world.run(&["tenants", "create", "acme"]).expect(0);
    world.json(&["event-types", "put", "order.paid"]);
    for (command, effect) in [
        (&["endpoints", "delete", &endpoint][..], "closes 3 open deliveries"),
        (&["endpoints", "rotate", &endpoint, "--overlap", "0s"], "ends the old ones at once"),
        (&["deliveries", "discard", &delivery], "(order.paid, key 1): it is not sent again"),
        (&["tenants", "delete", "acme"], "erases tenant `acme` with 0 endpoints"),
        (&["keys", "revoke", &key], "revokes the API key"),
        (&["event-types", "delete", "order.paid"], "deletes the event type `order.paid`"),
        (&["replay", "--action", "discard", "--state", "pending"], "discards 3 deliveries"),
        (&["lines", "renew"], "begins a new line of every lane"),
    ] {
        let refused = world.run(command).expect(2);
        assert!(refused.err.contains(effect), "{command:?}: {}", refused.err);
        assert!(refused.err.contains("add --yes"), "{command:?}: {}", refused.err);
    }
    assert_eq!(world.json(&["endpoints", "health", &endpoint])["open"], 3);
}

#[test]
fn on_a_terminal_it_asks_once_and_enter_means_no() {
    let world = World::new();
    let endpoint = paused_endpoint(&world, 2);
    let delete = ["endpoints", "delete", &endpoint];
    let kept = world.run_on_terminal(&delete, "\n").expect(1);
    assert!(kept.out.contains("closes 2 open deliveries"), "{kept:?}");
    assert!(kept.out.contains("Go on? [y/N]") && kept.out.contains("nothing was done"), "{kept:?}");
    world.run(&["endpoints", "show", &endpoint]).expect(0);
    let deleted = world.run_on_terminal(&delete, "y\n").expect(0);
    assert_eq!(deleted.out.matches("[y/N]").count(), 1, "{deleted:?}");
    assert!(deleted.out.contains("this closes 2 open deliveries"), "{deleted:?}");
    world.run(&["endpoints", "show", &endpoint]).expect(1);
}

#[test]
fn yes_answers_beforehand_and_what_undoes_it_is_said() {
    let world = World::new();
    let endpoint = paused_endpoint(&world, 1);
    let (id, event) = (delivery(&world)["id"].clone(), delivery(&world)["event"].clone());
    let discarded = world.run(&["deliveries", "discard", id.as_str().unwrap(), "--yes"]).expect(0);
    assert!(discarded.out.ends_with("is discarded\n"), "{discarded:?}");
    let undo = ["events", "redeliver", event.as_str().unwrap(), "--to", &endpoint];
    assert!(discarded.err.contains(&format!("railpost {}", undo.join(" "))), "{discarded:?}");
    world.run(&undo).expect(0);
}

#[test]
fn a_rotation_with_an_overlap_asks_nothing_and_says_how_to_see_the_secret_again() {
    let world = World::new();
    let endpoint = paused_endpoint(&world, 0);
    for overlap in [&["--overlap", "1h"][..], &["--overlap", "0s", "--yes"]] {
        let rotated = world.run(&[&["endpoints", "rotate", &endpoint][..], overlap].concat());
        let rotated = rotated.expect(0);
        let reveal = rotated.err.split("railpost ").nth(1).unwrap();
        let reveal: Vec<&str> = reveal.lines().next().unwrap().split(' ').collect();
        let secret = world.json(&reveal)["value"].as_str().unwrap().to_owned();
        assert!(rotated.out.contains(&secret), "{rotated:?}");
        assert!(!rotated.err.contains("not shown again"), "{rotated:?}");
    }
}
