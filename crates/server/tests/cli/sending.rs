//! `railpost send`.

use serde_json::json;

use crate::world::{World, run_with};

#[test]
fn an_event_is_accepted_and_whoever_sent_it_learns_that_nobody_wants_it() {
    let world = World::new();
    let sent = world.run(&["send", "order.paid", "--data", r#"{"total": 12}"#]).expect(0);
    assert!(
        sent.out.starts_with("evt_") && sent.out.contains("accepted, 0 deliveries"),
        "{sent:?}"
    );
    let id = sent.out.split_whitespace().next().unwrap();
    assert!(sent.err.contains(&format!("railpost events story {id}")), "{sent:?}");
    assert!(sent.err.contains("railpost listen --register"), "{sent:?}");
}

#[test]
fn an_id_of_ones_own_is_accepted_once() {
    let world = World::new();
    let send = ["send", "order.paid", "--id", "order-1", "--key", "42"];
    assert_eq!(world.json(&send)["duplicate"], false);
    assert_eq!(world.json(&send)["duplicate"], true);
}

#[test]
fn data_comes_from_the_line_a_file_or_stdin() {
    let world = World::new();
    let file = world.folder.path().join("payload.json");
    std::fs::write(&file, r#"{"from": "file"}"#).unwrap();
    let at = format!("@{}", file.display());
    for (data, stdin) in [(r#"{"from": "line"}"#, ""), (&*at, ""), ("-", r#"{"from": "stdin"}"#)] {
        let command = world.command(&["send", "order.paid", "--data", data, "--json"]);
        assert_eq!(run_with(command, stdin.as_bytes()).expect(0).json()["duplicate"], false);
    }
}

#[test]
fn many_events_are_streamed_and_counted() {
    let world = World::new();
    let sent = world.run(&["send", "order.paid", "--count", "1200", "--keys", "7"]).expect(0);
    assert!(sent.out.starts_with("1200 accepted, 0 duplicates,"), "{sent:?}");
}

#[test]
fn lines_that_are_refused_are_named_and_the_rest_is_accepted() {
    let world = World::new();
    let lines = [
        json!({"type": "order.paid", "payload": 1}).to_string(),
        json!({"type": "no type", "payload": 2}).to_string(),
        json!({"type": "order.paid", "payload": 3}).to_string(),
    ];
    let command = world.command(&["send", "--ndjson", "-"]);
    let sent = run_with(command, lines.join("\n").as_bytes()).expect(1);
    assert!(sent.out.starts_with("2 accepted"), "{sent:?}");
    assert!(sent.err.contains("line 2") && sent.err.contains("1 events were rejected"), "{sent:?}");
}
