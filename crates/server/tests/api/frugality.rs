//! What anybody may ask for costs the store next to nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use railpost_api::limits::{KEY_LOOK_UPS_AT_ONCE, UNKNOWN_KEYS_BURST};
use serde_json::json;

use crate::faults::flaky_world;
use crate::flaky::Flaky;
use crate::world::{PATIENCE, World};

const TENANT: &str = "/v1/tenants/default";

fn unknown_key(number: usize) -> String {
    format!("rp_nobody-has-this-key-{number:0>20}")
}

fn ask_with(world: &World, key: &str) -> crate::world::Answer {
    world.call("GET", TENANT, key, &[], b"")
}

/// Sends these requests at once while the store answers nothing, then lets it answer.
fn at_once(world: &World, store: &Flaky, requests: Vec<(&str, String)>) -> Vec<String> {
    let held = world.wait_for(store.hold_calls());
    let asking: Vec<_> = requests
        .into_iter()
        .map(|(path, key)| {
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}");
            connect(world, &format!("{head}\r\n\r\n"))
        })
        .collect();
    // Connections are taken in order: who is answered now came behind the others.
    world.call("GET", "/health/live", "", &[], b"").expect(200);
    drop(held);
    asking.into_iter().map(|mut stream| first_line(&mut stream)).collect()
}

#[test]
fn readiness_is_checked_once_for_all_who_ask() {
    let (world, store) = flaky_world();
    let asked = vec![("/health/ready", String::new()); 20];
    assert_eq!(at_once(&world, &store, asked), ["HTTP/1.1 200"; 20]);
    let checked = store.calls("check");
    assert_eq!(checked.most_at_once, 1);
    // A second later there may be another one.
    assert!(checked.begun < 5, "{checked:?}");
}

#[test]
fn a_store_that_is_in_trouble_is_not_ready() {
    let (world, store) = flaky_world();
    store.set_down(true);
    let refused = world.call("GET", "/health/ready", "", &[], b"").expect(503).json();
    assert_eq!(refused["ready"], false);
    store.set_down(false);
    while world.call("GET", "/health/ready", "", &[], b"").status != 200 {
        thread::yield_now();
    }
}

#[test]
fn an_unknown_key_is_looked_up_once_in_a_while() {
    let (world, store) = flaky_world();
    let before = store.calls("api_key_by_hash").begun;
    for _ in 0..20 {
        assert_eq!(ask_with(&world, &unknown_key(1)).expect(401).code(), "unauthorized");
    }
    let look_ups = store.calls("api_key_by_hash").begun - before;
    assert!(look_ups < 5, "{look_ups}");
}

#[test]
fn few_unknown_keys_are_looked_up_at_once() {
    let (world, store) = flaky_world();
    let asked = (0..40).map(|number| (TENANT, unknown_key(number))).collect();
    assert_eq!(at_once(&world, &store, asked), ["HTTP/1.1 401"; 40]);
    let look_ups = store.calls("api_key_by_hash");
    assert!(look_ups.most_at_once <= KEY_LOOK_UPS_AT_ONCE, "{look_ups:?}");
}

#[test]
fn an_address_that_shows_many_unknown_keys_waits_and_those_that_have_one_do_not() {
    let (world, store) = flaky_world();
    ask_with(&world, &world.admin).expect(200);
    let before = store.calls("api_key_by_hash").begun;
    let answers: Vec<_> =
        (0..3 * UNKNOWN_KEYS_BURST as usize).map(|n| ask_with(&world, &unknown_key(n))).collect();
    let limited = answers.iter().find(|answer| answer.status == 429).expect("somebody to wait");
    assert_eq!(limited.code(), "rate_limited");
    assert_eq!(limited.headers["retry-after"], "1");
    let look_ups = store.calls("api_key_by_hash").begun - before;
    let refused = answers.iter().filter(|answer| answer.status == 401).count();
    assert!(look_ups <= refused + 2, "{look_ups} look-ups for {refused} keys");
    // Keys that are known go on, and one that is made counts at once.
    ask_with(&world, &world.admin).expect(200);
    ask_with(&world, &world.key("default", "tenant")).expect(200);
}

#[test]
fn a_revoked_key_counts_no_more_and_is_looked_up_once_in_a_while() {
    let (world, store) = flaky_world();
    let made = world.post(&format!("{TENANT}/keys"), &json!({"name": "a", "scope": "tenant"}));
    let made = made.expect(201).json();
    let key = made["key"].as_str().unwrap();
    ask_with(&world, key).expect(200);
    world.delete(&format!("{TENANT}/keys/{}", made["id"].as_str().unwrap())).expect(204);
    let before = store.calls("api_key_by_hash").begun;
    for _ in 0..20 {
        ask_with(&world, key).expect(401);
    }
    let look_ups = store.calls("api_key_by_hash").begun - before;
    assert!(look_ups < 5, "{look_ups}");
}

fn connect(world: &World, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.server().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    stream
}

#[track_caller]
fn first_line(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_body_that_nobody_asked_for_is_not_waited_for() {
    let world = World::new();
    let length = "content-length: 4000000\r\n\r\n";
    for (head, status) in [
        ("GET /health/live HTTP/1.1\r\nhost: a\r\n", "200"),
        ("GET /health/ready HTTP/1.1\r\nhost: a\r\n", "200"),
        ("GET /v1/tenants HTTP/1.1\r\nhost: a\r\n", "401"),
        ("POST /v1/tenants HTTP/1.1\r\nhost: a\r\n", "401"),
        ("POST /nowhere HTTP/1.1\r\nhost: a\r\n", "404"),
        ("DELETE /health/live HTTP/1.1\r\nhost: a\r\n", "405"),
    ] {
        let mut stream = connect(&world, &format!("{head}{length}"));
        assert_eq!(first_line(&mut stream), format!("HTTP/1.1 {status}"), "{head}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the connection should be closed");
    }
}

#[test]
fn a_client_that_sends_such_a_body_sees_the_answer() {
    let world = World::new();
    let body = vec![b'x'; 500_000];
    world.call("POST", "/v1/tenants", "", &[], &body).expect(401);
    world.call("DELETE", "/nowhere", "", &[], &body).expect(404);
}

#[test]
fn a_short_body_that_nobody_asked_for_leaves_the_connection_open() {
    let world = World::new();
    let ask = "GET /health/live HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n";
    let mut stream = connect(&world, ask);
    stream.write_all(b"{}").unwrap();
    let mut seen = String::new();
    let mut byte = [0];
    for answers in 1..=2 {
        while seen.matches("\"live\"}").count() < answers {
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "it was closed: {seen}");
            seen.push(byte[0].into());
        }
        stream.write_all(format!("{ask}{{}}").as_bytes()).unwrap();
    }
}
