//! Where is my event: find, the story, attempts, lists with filters.

use serde_json::Value;

use crate::world::{Ran, Running, World};

/// A receiver that is registered with this world's server, and its endpoint.
fn listener(world: &World, flags: &[&str]) -> (Running, String) {
    let arguments = [&["listen", "--port", "0", "--register", "--json"], flags].concat();
    let mut running = Running::start(world.command(&arguments));
    let endpoint = running.json()["endpoint"].as_str().unwrap().to_owned();
    (running, endpoint)
}

/// Sends an event and waits until its deliveries have ended; the id of the event.
fn send(world: &World, event_type: &str, key: &str) -> String {
    let sent = world.run(&["send", event_type, "--key", key, "--wait"]);
    sent.err.split_whitespace().next().unwrap().to_owned()
}

/// Runs a command until it prints this.
fn wait_for(world: &World, arguments: &[&str], text: &str) -> Ran {
    loop {
        let ran = world.run(arguments).expect(0);
        if ran.out.contains(text) {
            return ran;
        }
    }
}

/// Whether these texts are in there, in this order.
#[track_caller]
fn assert_in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for part in wanted {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("`{part}` is missing or too early:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn a_story_tells_of_an_event_that_failed_was_held_replayed_and_delivered() {
    let world = World::new();
    let (_running, endpoint) =
        listener(&world, &["--fail-first", "1", "--status", "422", "--type", "order.*"]);
    let other = ["endpoints", "create", "--url", "http://127.0.0.1:9999/", "--type", "invoice.*"];
    let other = world.json(&other)["id"].as_str().unwrap().to_owned();
    let event = send(&world, "order.placed", "order-1");
    let dead = world.json(&["dead-letters", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    let replayed = world.run(&["dead-letters", "replay", &dead]).expect(0);
    assert!(replayed.err.contains(&format!("railpost events story {event}")), "{replayed:?}");
    let story = wait_for(&world, &["events", "story", &event], "Delivered").out;
    assert_in_order(
        &story,
        &[
            &event,
            "order.placed, key order-1",
            "Matched:",
            &endpoint,
            &dead,
            "Not matched:",
            &other,
            "invoice.*",
            "(UTC)",
            "Accepted",
            "> webhook-id: ",
            "> webhook-signature: ",
            "< 422 in ",
            "Its lane is held",
            "> X-Replay: true",
            "< 200 in ",
            "Delivered",
        ],
    );
    assert_in_order(&story, &["Its lane is held", "Replayed with the API key", "Delivered"]);
    assert!(story.lines().all(|line| line.chars().count() <= 120), "{story}");
    assert_eq!(world.json(&["events", "story", &event])["event"]["id"], event.as_str());
}

#[test]
fn a_story_says_why_no_endpoint_matched() {
    let world = World::new();
    world.json(&["endpoints", "create", "--url", "http://127.0.0.1:9999/", "--type", "invoice.*"]);
    let sent = world.run(&["send", "order.paid"]).expect(0);
    let event = sent.out.split_whitespace().next().unwrap();
    let story = world.run(&["events", "story", event]).expect(0).out;
    assert_in_order(
        &story,
        &["No endpoint matched it.", "Not matched:", "invoice.*", "order.paid"],
    );
    let none = world.run(&["events", "deliveries", event]).expect(0);
    assert!(none.err.contains("No endpoint matched this event"), "{none:?}");
    assert!(world.run(&["events", "list"]).expect(0).out.contains("no endpoint"));
}

#[test]
fn a_single_hit_comes_with_the_command_that_shows_it() {
    let world = World::new();
    let (_running, endpoint) = listener(&world, &[]);
    let event = send(&world, "order.paid", "order-77");
    let delivery = world.json(&["deliveries", "list"])["items"][0]["id"].clone();
    let delivery = delivery.as_str().unwrap();
    for (words, command) in [
        (event.as_str(), ["events", "story", event.as_str()]),
        (&event[..event.len() - 1], ["events", "story", &event]),
        (delivery, ["deliveries", "show", delivery]),
        (&endpoint, ["endpoints", "show", &endpoint]),
    ] {
        let found = world.run(&["find", words]).expect(0);
        let shown = format!("Show it: railpost {}\n", command.join(" "));
        assert!(found.err.contains(&shown), "{words}: {found:?}");
        world.run(&command).expect(0);
    }
    let by_key = world.run(&["find", "order-77"]).expect(0).out;
    assert!(by_key.contains(&event) && by_key.contains("order.paid"), "{by_key}");
    let nothing = world.run(&["find", "order-78"]).expect(0);
    assert!(nothing.err.contains("--everywhere"), "{nothing:?}");
    let short = world.run(&["find", &delivery[..5]]).expect(0);
    assert!(short.err.contains("from 6 characters on"), "{short:?}");
    let everywhere = world.run(&["find", "order-77", "--everywhere"]).expect(0).out;
    assert!(everywhere.contains("default") && everywhere.contains(&event), "{everywhere}");
}

#[test]
fn a_story_of_something_that_is_no_event_points_to_find() {
    let world = World::new();
    let (_running, endpoint) = listener(&world, &[]);
    send(&world, "order.paid", "order-77");
    let delivery = world.json(&["deliveries", "list"])["items"][0]["id"].clone();
    for id in [delivery.as_str().unwrap(), &endpoint, "order-77"] {
        let failed = world.run(&["events", "story", id]).expect(1);
        assert!(failed.err.contains(&format!("`railpost find {id}`")), "{failed:?}");
    }
}

#[test]
fn attempts_show_what_the_receiver_answered_and_why_nothing_was() {
    let world = World::new();
    let (url, _server) = answering(
        "HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 16\r\nconnection: close\r\n\r\ntotal is missing",
    );
    world.json(&["endpoints", "create", "--url", &url, "--type", "order.*"]);
    let create = ["endpoints", "create", "--url", "http://127.0.0.1:1234/", "--type", "invoice.*"];
    world.json(&[&create[..], &["--retry-max-attempts", "1"]].concat());
    let attempts = |event_type: &str| {
        let sent = world.run(&["send", event_type, "--wait"]).expect(1);
        let listed = world.json(&["deliveries", "list", "--type", event_type]);
        let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
        (sent.out, world.run(&["deliveries", "attempts", &id]).expect(0).out)
    };
    let (sent, listed) = attempts("order.paid");
    for text in [sent, listed] {
        assert!(text.contains("422") && text.contains("answered: total is missing"), "{text}");
    }
    let (_, refused) = attempts("invoice.sent");
    assert!(refused.contains("refused") && refused.contains("\n    "), "{refused}");
    let dead = world.json(&["dead-letters", "list", "--status", "422"]);
    assert_eq!(dead["items"].as_array().unwrap().len(), 1);
    let dead = world.run(&["dead-letters", "list", "--failure", "refused", "--since", "1h"]);
    let dead = dead.expect(0).out;
    assert!(dead.contains("127.0.0.1:1234") && dead.lines().count() == 2, "{dead}");
}

/// A server that answers every request with this, for as long as the test runs.
fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<()>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 8192]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, serving)
}

#[test]
fn events_are_listed_with_the_states_of_their_deliveries() {
    let world = World::new();
    let (_good, _) = listener(&world, &[]);
    let (_bad, _) = listener(&world, &["--status", "422"]);
    send(&world, "order.paid", "1");
    let listed = world.run(&["events", "list", "--since", "10m"]).expect(0).out;
    assert!(listed.contains("1 held, 1 delivered"), "{listed}");
    let none = world.run(&["events", "list", "--until", "10m"]).expect(0);
    assert!(none.err.starts_with("Nothing in tenant `default` matches."), "{none:?}");
    let shown: Value = world.json(&["events", "list"])["items"][0].clone();
    let shown = world.run(&["events", "get", shown["id"].as_str().unwrap()]).expect(0);
    assert!(shown.out.contains("accepted by") && shown.err.contains("events story"), "{shown:?}");
}
