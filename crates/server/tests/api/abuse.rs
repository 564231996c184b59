//! Requests that nobody should send: each gets an answer that says why, and the server stays up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use railpost::config::Config;
use railpost_engine::Span;
use serde_json::json;

use crate::world::{JSON, World};

/// Longer than the server waits for the head of a request.
const PATIENCE: Duration = Duration::from_secs(25);

const EVENTS: &str = "/v1/tenants/default/events";

fn connect(world: &World) -> TcpStream {
    let stream = TcpStream::connect(world.server().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that the server says to this, until it hangs up.
fn answer_to(mut stream: TcpStream, sent: &[u8]) -> String {
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_body_that_cannot_be_read_is_a_problem_of_the_clients() {
    let world = World::new();
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let deep_event = format!(r#"{{"type": "a", "payload": {deep}}}"#);
    let deep_schema = format!(r#"{{"schemas": {{"1": {deep}}}}}"#);
    let types = "/v1/tenants/default/event-types/a";
    for (method, path, body, statuses) in [
        ("POST", "/v1/tenants", "{".as_bytes(), &[400][..]),
        ("POST", "/v1/tenants", b"nonsense", &[400]),
        ("POST", "/v1/tenants", b"{\"id\": \"a\xff\"}", &[400, 422]),
        ("POST", "/v1/tenants", b"\xff\xfe", &[400]),
        ("POST", "/v1/tenants", b"[]", &[422]),
        ("POST", "/v1/tenants", b"null", &[422]),
        ("POST", "/v1/tenants", br#"{"id": "a", "backlog_max": 1e999}"#, &[400, 422]),
        ("POST", "/v1/tenants", br#"{"id": "a", "backlog_max": 99999999999999999999}"#, &[422]),
        ("POST", "/v1/tenants", br#"{"id": "a", "backlog_max": -1}"#, &[422]),
        ("POST", "/v1/tenants", deep.as_bytes(), &[400, 422]),
        ("POST", EVENTS, deep.as_bytes(), &[400, 422]),
        ("POST", EVENTS, b"{\"type\": \"a\", \"payload\": \"\xff\"}", &[400, 422]),
        ("POST", EVENTS, br#"{"type": "a", "payload": 1e999}"#, &[202]),
        ("POST", EVENTS, deep_event.as_bytes(), &[202, 400]),
        ("PUT", types, deep_schema.as_bytes(), &[400]),
    ] {
        let answer = world.call(method, path, &world.admin, &JSON, body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert!(statuses.contains(&answer.status), "{shown}: {} {}", answer.status, answer.text);
        if answer.status != 202 {
            assert_eq!(answer.headers["content-type"], "application/problem+json", "{shown}");
        }
    }
    world.get("/health/ready").expect(200);
}

#[test]
fn what_is_stored_and_deep_can_be_looked_at_and_held_against_a_schema() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let event = format!(r#"{{"id": "deep", "type": "a", "payload": {deep}}}"#);
    let publish = || world.call("POST", EVENTS, &world.admin, &JSON, event.as_bytes());
    if publish().status == 202 {
        world.get(&format!("{EVENTS}/deep")).expect(200);
    }
    let body = json!({"validation": "reject", "schemas": {"1": {"type": "object"}}});
    world.put("/v1/tenants/default/event-types/a", &body).expect(200);
    assert!([400, 422].contains(&publish().status));
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let mut config = Config::default();
    config.limits.body_bytes_max = 10_000;
    let world = World::with(config);
    let large = json!({"type": "a", "payload": "x".repeat(20_000)});
    assert_eq!(world.post(EVENTS, &large).expect(413).code(), "too_large");
    let huge = json!({"id": "a", "name": "x".repeat(5_000_000)});
    assert_eq!(world.post("/v1/tenants", &huge).expect(413).code(), "too_large");
}

#[test]
fn a_body_that_comes_too_slowly_is_cut() {
    let mut config = Config::default();
    config.limits.request_timeout = Span::from_millis(200);
    let world = World::with(config);
    let head = format!(
        "POST /v1/tenants HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        world.admin
    );
    let answer = answer_to(connect(&world), head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("request_timeout"), "{answer}");
}
