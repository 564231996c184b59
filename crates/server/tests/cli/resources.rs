//! Endpoints, events, deliveries, lanes, dead letters, keys, event types and the audit trail.

use serde_json::{Value, json};

use crate::world::{Running, World};

/// A receiver that is registered with this world's server, and its endpoint.
fn listener(world: &World, flags: &[&str]) -> (Running, String) {
    let arguments = [&["listen", "--port", "0", "--register", "--json"], flags].concat();
    let mut running = Running::start(world.command(&arguments));
    let endpoint = running.json()["endpoint"].as_str().unwrap().to_owned();
    (running, endpoint)
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

#[test]
fn an_endpoint_is_created_shown_changed_and_deleted() {
    let world = World::new();
    let create = ["endpoints", "create", "--url", "http://127.0.0.1:9999/", "--type", "order.*"];
    let flags = ["--description", "orders", "--retry-max-attempts", "7", "--header", "x-a: b"];
    let created = world.json(&[&create[..], &flags].concat());
    let id = created["id"].as_str().unwrap();
    assert!(created["secret"]["value"].as_str().unwrap().starts_with("whsec_"), "{created}");
    assert_eq!(created["policy"]["retry"]["max_attempts"], 7);
    let changed =
        world.json(&["endpoints", "update", id, "--ordering", "none", "--envelope", "thin"]);
    assert_eq!((&changed["envelope"], &changed["types"]), (&json!("thin"), &json!(["order.*"])));
    let retry = &changed["policy"]["retry"]["max_attempts"];
    assert_eq!((&changed["policy"]["ordering"], retry), (&json!("none"), &json!(7)));
    let changed =
        world.json(&["endpoints", "update", id, "--envelope", "event", "--thin-above", "65536"]);
    assert_eq!((&changed["envelope"], &changed["thin_above"]), (&json!("event"), &json!(65_536)));
    let changed = world.json(&["endpoints", "update", id, "--thin-above", "none"]);
    assert!(changed["thin_above"].is_null(), "{changed}");
    for refused in ["many", "-1", "4294967296"] {
        let flag = format!("--thin-above={refused}");
        let refused = world.run(&["endpoints", "update", id, &flag]).expect(2);
        assert!(refused.err.contains("expected a number of bytes, or `none`"), "{}", refused.err);
    }
    assert_eq!(world.json(&["endpoints", "show", id])["description"], "orders");
    assert_eq!(world.json(&["endpoints", "pause", id])["status"], "paused");
    assert!(world.run(&["endpoints", "resume", id]).expect(0).out.contains("is switched on"));
    assert_eq!(world.json(&["endpoints", "health", id])["open"], 0);
    assert_eq!(world.run(&["endpoints", "schedule", id]).expect(0).out.lines().count(), 7);
    assert_eq!(world.run(&["schedule", id, "--attempts", "3"]).expect(0).out.lines().count(), 3);
    assert!(world.run(&["endpoints", "list"]).expect(0).out.contains(id));
    world.run(&["endpoints", "update", id]).expect(2);
    world.run(&["endpoints", "delete", id, "--yes"]).expect(0);
    let gone = world.run(&["endpoints", "show", id]).expect(1);
    assert!(gone.err.contains("railpost endpoints list"), "{}", gone.err);
}

#[test]
fn an_update_of_a_policy_changes_what_is_given_and_nothing_else() {
    let world = World::new();
    let create = ["endpoints", "create", "--url", "http://127.0.0.1:9999/"];
    let flags =
        ["--retry-base", "5s", "--retry-jitter", "none", "--policy", r#"{"signed": false}"#];
    let created = world.json(&[&create[..], &flags].concat());
    let id = created["id"].as_str().unwrap();
    let mut policy = created["policy"].clone();
    for (flags, path, value) in [
        (["--retry-base", "1s"], "/retry/backoff/base", json!("1s")),
        (["--retry-jitter", "equal"], "/retry/backoff/jitter", json!("equal")),
        (["--policy", r#"{"retry": {"ttl": "1h"}}"#], "/retry/ttl", json!("1h")),
        (["--policy", r#"{"breaker": null}"#], "/breaker", json!(null)),
        (["--retry-fixed", "3s"], "/retry/backoff", json!({"strategy": "fixed", "delay": "3s"})),
        (["--header", "x-b: c"], "/breaker", json!(null)),
    ] {
        let changed = world.json(&[&["endpoints", "update", id][..], &flags].concat());
        *policy.pointer_mut(path).unwrap() = value;
        assert_eq!(changed["policy"], policy, "{flags:?}");
    }
    let refused = world.run(&["endpoints", "update", id, "--policy", "[]"]).expect(2);
    assert!(refused.err.contains("object"), "{}", refused.err);
    let refused = world.run(&["endpoints", "update", id, "--in-flight-max", "0"]).expect(1);
    assert!(refused.err.contains("policy.in_flight_max"), "{}", refused.err);
}

#[test]
fn secrets_are_listed_without_values_rotated_and_revealed() {
    let world = World::new();
    let created = world.json(&["endpoints", "create", "--url", "http://127.0.0.1:9999/"]);
    let id = created["id"].as_str().unwrap();
    let made = world.json(&["endpoints", "rotate", id, "--overlap", "1h"]);
    let value = made["value"].as_str().unwrap();
    let listed = world.run(&["endpoints", "secrets", id, "--json"]).expect(0);
    assert_eq!(items(&listed.json()).len(), 2);
    assert!(!listed.out.contains(value));
    let revealed = world.json(&["endpoints", "reveal", id, made["id"].as_str().unwrap()]);
    assert_eq!(revealed["value"], value);
}

#[test]
fn a_delivery_is_followed_from_send_to_its_attempts() {
    let world = World::new();
    let (mut running, endpoint) = listener(&world, &["--fail-first", "1", "--retry-fixed", "10ms"]);
    let sent = world.json(&[
        "send",
        "order.paid",
        "--key",
        "42",
        "--data",
        r#"{"b": 1, "a": 2}"#,
        "--wait",
    ]);
    let delivery = &sent["deliveries"][0];
    assert_eq!(
        (&delivery["state"], &delivery["endpoint"]),
        (&json!("delivered"), &json!(endpoint))
    );
    let outcomes: Vec<&Value> = delivery["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["outcome"])
        .collect();
    assert_eq!(outcomes, ["retryable", "acknowledged"]);
    let (first, second) = (running.json(), running.json());
    assert_eq!((&first["answer"], &second["answer"]), (&json!("500"), &json!("200")));
    assert_eq!((&first["verified"], &second["verified"]), (&json!(true), &json!(true)));
    let (id, event) = (delivery["id"].as_str().unwrap(), sent["receipt"]["id"].as_str().unwrap());
    assert_eq!(world.run(&["events", "payload", event]).expect(0).out, r#"{"b": 1, "a": 2}"#);
    assert_eq!(world.json(&["events", "show", event])["key"], "42");
    assert_eq!(items(&world.json(&["events", "list", "--type", "order.paid"])).len(), 1);
    assert_eq!(items(&world.json(&["events", "deliveries", event]))[0]["id"], id);
    assert_eq!(items(&world.json(&["deliveries", "list", "--state", "delivered"]))[0]["id"], id);
    assert_eq!(world.json(&["deliveries", "show", id])["attempts"], 2);
    let table = world.run(&["deliveries", "attempts", id]).expect(0).out;
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    world.run(&["events", "redeliver", event, "--to", &endpoint]).expect(0);
    assert_eq!(running.json()["remark"], "duplicate");
    assert_eq!(running.interrupt(), 0);
    assert_eq!(items(&world.json(&["endpoints", "list"])).len(), 0);
}

#[test]
fn a_dead_letter_holds_its_lane_until_it_is_replayed() {
    let world = World::new();
    let flags = ["--fail-first", "1", "--retry-max-attempts", "1"];
    let (mut running, _) = listener(&world, &flags);
    let failed = world.run(&["send", "order.placed", "--key", "7", "--wait"]).expect(1);
    assert!(failed.err.contains("railpost dead-letters list"), "{}", failed.err);
    world.run(&["send", "order.paid", "--key", "7"]).expect(0);
    let lanes = world.json(&["lanes", "list", "--held"]);
    let held_by = items(&lanes)[0]["held_by"].as_str().unwrap();
    let dead = world.json(&["dead-letters", "list"]);
    assert_eq!((items(&dead).len(), &items(&dead)[0]["id"]), (1, &json!(held_by)));
    assert_eq!(world.json(&["dead-letters", "show", held_by])["last_answer"]["status"], 500);
    for list in [&["lanes", "list"][..], &["lanes", "list", "--held"], &["dead-letters", "list"]] {
        let table = world.run(list).expect(0).out;
        assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    }
    world.run(&["dead-letters", "replay", held_by]).expect(0);
    let arrived: Vec<Value> = (0..3).map(|_| running.json()["seq"].clone()).collect();
    assert_eq!(arrived, [1, 1, 2]);
}

#[test]
fn many_dead_letters_are_counted_first_and_then_replayed_as_a_job() {
    let world = World::new();
    let flags = ["--fail-first", "2", "--retry-max-attempts", "1"];
    let (mut running, _) = listener(&world, &flags);
    for key in ["1", "2"] {
        world.run(&["send", "order.placed", "--key", key, "--wait"]).expect(1);
    }
    let counted = world.run(&["replay", "--dry-run"]).expect(0).out;
    assert!(counted.starts_with("dry run: 2 would be replayed ("), "{counted}");
    assert_eq!(items(&world.json(&["dead-letters", "list"])).len(), 2);
    let replayed = world.run(&["replay", "--yes"]).expect(0).out;
    assert!(replayed.contains("handed over 2 of 2"), "{replayed}");
    let arrived: Vec<Value> = (0..4).map(|_| running.json()["attempt"].clone()).collect();
    assert_eq!(arrived, [1, 1, 2, 2]);
    let jobs = world.json(&["replay", "list"]);
    assert_eq!((&items(&jobs)[0]["state"], &items(&jobs)[0]["done"]), (&json!("done"), &json!(2)));
}

#[test]
fn keys_are_created_used_and_revoked() {
    let world = World::new();
    let created = world.json(&["keys", "create", "ci", "--scope", "publish-only"]);
    let (id, key) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    world.run(&["send", "a.b", "--api-key", key]).expect(0);
    let refused = world.run(&["endpoints", "list", "--api-key", key]).expect(1);
    assert!(refused.err.contains("railpost whoami"), "{}", refused.err);
    assert_eq!(world.json(&["whoami", "--api-key", key])["key"]["scope"], "publish-only");
    assert!(!world.run(&["keys", "list", "--json"]).expect(0).out.contains(key));
    world.run(&["keys", "revoke", id, "--yes"]).expect(0);
    world.run(&["send", "a.b", "--api-key", key]).expect(1);
}

#[test]
fn an_event_type_refuses_what_does_not_fit_its_schema() {
    let world = World::new();
    let schema = r#"1={"type": "object", "required": ["total"]}"#;
    world.json(&["event-types", "put", "order.paid", "--validation", "reject", "--schema", schema]);
    let refused = world.run(&["send", "order.paid", "--schema-version", "1"]).expect(1);
    assert!(refused.err.contains("railpost event-types show"), "{}", refused.err);
    assert!(world.run(&["event-types", "list"]).expect(0).out.contains("order.paid"));
    assert_eq!(world.json(&["event-types", "show", "order.paid"])["validation"], "reject");
    world.run(&["event-types", "delete", "order.paid", "--yes"]).expect(0);
}

#[test]
fn the_audit_trail_says_what_was_done() {
    let world = World::new();
    world.run(&["keys", "create", "ci"]).expect(0);
    let entries = world.json(&["audit", "list"]);
    assert_eq!(items(&entries)[0]["action"], "key.create");
    let table = world.run(&["audit", "list", "--everywhere"]).expect(0).out;
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
}

#[test]
fn the_audit_trail_shows_what_was_what_on_lines_that_fit() {
    let world = World::new();
    let url = |path: &str| format!("http://127.0.0.1:9999/{path}");
    let made = world.json(&["endpoints", "create", "--url", &url("old")]);
    let id = made["id"].as_str().unwrap();
    world.json(&[
        "endpoints",
        "update",
        id,
        "--url",
        &url("new"),
        "--description",
        &"long ".repeat(60),
    ]);
    let table = world.run(&["audit", "list", "--target", id]).expect(0).out;
    let difference = format!("    url: {} -> {}", url("old"), url("new"));
    assert!(table.lines().any(|line| line == difference), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("    description: nothing -> long long")),
        "{table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
}

#[test]
fn deleting_an_endpoint_says_how_many_deliveries_it_discards() {
    let world = World::new();
    let made = world.json(&["endpoints", "create", "--url", "http://127.0.0.1:1234/"]);
    let id = made["id"].as_str().unwrap();
    world.run(&["endpoints", "pause", id]).expect(0);
    for _ in 0..2 {
        world.run(&["send", "order.paid", "--key", "1"]).expect(0);
    }
    let delivery = world.json(&["deliveries", "list"])["items"][0]["id"].clone();
    assert!(world.run(&["endpoints", "delete", id]).expect(2).err.contains("--yes"));
    let deleted = world.run(&["endpoints", "delete", id, "--yes"]).expect(0);
    assert_eq!(deleted.out, format!("deleted {id}; this closes 2 open deliveries\n"));
    let show = ["deliveries", "show", delivery.as_str().unwrap()];
    let shown = loop {
        let shown = world.run(&show).expect(0).out;
        if shown.contains("discarded") {
            break shown;
        }
    };
    assert!(shown.contains("endpoint_removed"), "{shown}");
    let listed = world.run(&["deliveries", "list", "--endpoint", id]).expect(0).out;
    assert!(listed.contains("discarded (endpoint removed)"), "{listed}");
}

#[test]
fn a_lane_that_one_of_four_endpoints_holds_is_listed() {
    let world = World::new();
    let mut listeners = Vec::new();
    for status in ["200", "200", "422", "200"] {
        let listen = ["listen", "--port", "0", "--register", "--json", "--status", status];
        let mut listener = Running::start(world.command(&listen));
        listener.json();
        listeners.push(listener);
    }
    world.run(&["send", "order.paid", "--key", "order-1"]).expect(0);
    let listed = loop {
        let listed = world.run(&["lanes", "list", "--held"]).expect(0).out;
        if listed.contains("order-1") {
            break listed;
        }
    };
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("permanent (422)"), "{listed}");
    let held = &world.json(&["lanes", "list", "--held"])["items"][0];
    assert_eq!(held["held_at_seq"], 1);
    let endpoint = world.json(&["endpoints", "show", held["endpoint"].as_str().unwrap()]);
    let url = endpoint["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
    assert!(listed.contains(&url), "{listed}");
    let deliveries = world.run(&["deliveries", "list"]).expect(0).out;
    let line = deliveries.lines().find(|line| line.contains(&url)).unwrap();
    assert!(line.contains("dead (holds)") && line.contains("422"), "{deliveries}");
}
