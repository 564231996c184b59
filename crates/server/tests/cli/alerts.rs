//! Alerts on the command line: rules, silences, tests, and what is open.

use serde_json::json;

use crate::world::World;

#[test]
fn rules_say_their_thresholds_and_whether_they_hold() {
    let world = World::new();
    let shown = world.run(&["alerts", "rules"]).expect(0).out;
    for part in ["retries_exhausted", "critical", "quiet", "More than 5 %"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let rules = world.json(&["alerts", "rules"]);
    assert_eq!(rules["items"][0]["settings"]["window"], "15m");
}

#[test]
fn alerts_are_silenced_for_a_time_and_told_of_again() {
    let world = World::new();
    assert!(world.run(&["alerts", "silences"]).expect(0).err.contains("Nothing is silenced."));
    let silence = ["alerts", "silence", "--rule", "breaker_open", "--for", "2h"];
    let silenced = world.json(&[&silence[..], &["--reason", "the receiver is moved"]].concat());
    let id = silenced["id"].as_str().unwrap();
    let listed = world.run(&["alerts", "silences"]).expect(0).out;
    for part in [id, "breaker_open", "all", "the receiver is moved"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert_eq!(world.run(&["alerts", "unsilence", id]).expect(0).out.trim(), format!("ended {id}"));
    let gone = world.run(&["alerts", "unsilence", id]).expect(1);
    assert!(gone.err.contains("railpost alerts silences"), "{}", gone.err);
    assert_eq!(world.json(&["alerts", "silences"])["items"], json!([]));
}

#[test]
fn what_silences_more_than_it_says_is_refused_or_asks() {
    let world = World::new();
    let rest = ["--for", "1h", "--reason", "a"];
    world.run(&[&["alerts", "silence"], &rest[..]].concat()).expect(2);
    let everything = [&["alerts", "silence", "--everything"], &rest[..]].concat();
    let asked = world.run(&everything).expect(2);
    assert!(asked.err.contains("all alerts") && asked.err.contains("--yes"), "{}", asked.err);
    world.run(&[&everything[..], &["--yes"]].concat()).expect(0);
    let without_reason = ["alerts", "silence", "--rule", "disk", "--for", "1h"];
    world.run(&without_reason).expect(2);
    let unknown =
        world.run(&[&["alerts", "silence", "--rule", "nothing"], &rest[..]].concat()).expect(1);
    assert!(unknown.err.contains("expected the name of a rule"), "{}", unknown.err);
}

#[test]
fn a_test_says_whom_it_reaches() {
    let world = World::new();
    let nobody = world.run(&["alerts", "test"]).expect(0);
    assert!(nobody.out.contains("to 0 endpoints"), "{}", nobody.out);
    assert!(nobody.err.contains("[[notices]]"), "{}", nobody.err);
    let endpoint = [
        "endpoints",
        "create",
        "--tenant",
        "railpost",
        "--url",
        "http://127.0.0.1:9999/",
        "--type",
        "railpost.*",
    ];
    world.run(&endpoint).expect(0);
    let reached = world.run(&["alert", "test", "breaker_open"]).expect(0);
    assert!(reached.out.contains("to 1 endpoint\n"), "{}", reached.out);
    let story = reached.err.split("railpost events story ").nth(1).unwrap();
    let words: Vec<&str> = story.split_whitespace().collect();
    world.run(&[&["events", "story"], &words[..]].concat()).expect(0);
    world.run(&["alerts", "test", "nothing"]).expect(1);
}

#[test]
fn an_alert_is_listed_shown_and_silenced_by_its_id() {
    let world = World::new();
    let id = world.fire();
    let listed = world.run(&["alerts", "ls", "--open"]).expect(0).out;
    for part in [id.as_str(), "disk", "critical", "open, fired", "The disk is nearly full."] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(world.run(&["alerts", "list", "--resolved"]).expect(0).out.is_empty());
    let shown = world.run(&["alerts", "get", &id]).expect(0);
    assert!(shown.out.contains("The disk is nearly full."), "{}", shown.out);
    world.run(&["alerts", "silence", &id, "--for", "1d", "--reason", "a new disk comes"]).expect(0);
    let silences = world.json(&["alerts", "silences"]);
    let silence = &silences["items"][0];
    assert_eq!((&silence["rule"], &silence["subject"]), (&json!("disk"), &json!("")));
    let listed = world.run(&["alerts", "list"]).expect(0).out;
    assert!(listed.contains("silence ends in"), "{listed}");
    let made = world.json(&["keys", "create", "reader", "--scope", "read-only"]);
    let mut own = world.command(&["alerts", "list", "--json"]);
    own.env("RAILPOST_API_KEY", made["key"].as_str().unwrap());
    let own = crate::world::run_with(own, b"").expect(0).json();
    assert_eq!(own["items"], json!([]), "the server's alerts are not a tenant's");
    let unknown = world.run(&["alerts", "show", "alr_01h455vb4pex5vsknk084sn02q"]).expect(1);
    assert!(unknown.err.contains("railpost alerts list"), "{}", unknown.err);
}
