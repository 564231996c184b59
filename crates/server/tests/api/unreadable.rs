//! What is refused before any route is looked for has a problem's form too.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use railpost::config::Config;
use railpost::limits::{REQUEST_HEAD_LEN_MAX, REQUEST_HEADERS_MAX};
use railpost_engine::Span;
use serde_json::Value;

use crate::http2::Http2;
use crate::world::{PATIENCE, World};

/// A server that waits for a head for a moment only.
fn world() -> World {
    let mut config = Config::default();
    config.limits.head_timeout = Span::from_millis(300);
    World::with(config)
}

/// All that the server says to this, until it hangs up.
fn answer_to(world: &World, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(world.server().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the code of an answer that is a problem.
#[track_caller]
fn problem(answer: &str) -> (u16, String) {
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let body_of: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
    for expected in [
        "content-type: application/problem+json",
        "cache-control: no-store",
        &format!("content-length: {}", body.len()),
        "connection: close",
    ] {
        assert!(head.contains(expected), "{expected} is not in {head}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert_eq!(body_of["status"], status);
    (status, body_of["code"].as_str().unwrap().to_owned())
}

fn fields(count: usize) -> String {
    (0..count).map(|n| format!("x-{n}: 1\r\n")).collect()
}

#[test]
fn what_cannot_be_read_as_http_is_answered_with_a_problem() {
    let world = world();
    let line = "GET /health/live HTTP/1.1\r\n";
    let long = format!("{line}x-long: {}\r\n\r\n", "a".repeat(REQUEST_HEAD_LEN_MAX));
    let many = format!("{line}{}\r\n", fields(REQUEST_HEADERS_MAX + 1));
    for (sent, status, code) in [
        ("hello\r\n\r\n", 400, "malformed_request"),
        ("GET\r\n\r\n", 400, "malformed_request"),
        ("GET /\0 HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n", 400, "malformed_request"),
        ("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400, "malformed_request"),
        ("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505, "unsupported_http_version"),
        ("GET / HTTP/9.9\r\n\r\n", 505, "unsupported_http_version"),
        (&long, 431, "head_too_large"),
        (&many, 431, "head_too_large"),
        ("P", 408, "request_timeout"),
        ("PRI * HTTP/2.0\r\n\r\n", 408, "request_timeout"),
        ("GET /health/live HTTP/1.1\r\nhost: a\r\n", 408, "request_timeout"),
    ] {
        let shown = &sent[..sent.len().min(60)];
        let answer = answer_to(&world, sent.as_bytes());
        assert_eq!(problem(&answer), (status, code.to_owned()), "{shown:?}");
    }
    world.get("/health/ready").expect(200);
}

#[test]
fn a_head_that_is_as_large_as_it_may_be_is_read() {
    let world = world();
    let head = format!(
        "GET /health/live HTTP/1.1\r\nconnection: close\r\n{}\r\n",
        fields(REQUEST_HEADERS_MAX - 1)
    );
    let answer = answer_to(&world, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_second_request_that_cannot_be_read_is_answered_behind_the_first() {
    let world = world();
    let sent = "GET /health/live HTTP/1.1\r\nhost: a\r\n\r\nnonsense\r\n\r\n";
    let answer = answer_to(&world, sent.as_bytes());
    let at = answer.rfind("HTTP/1.1 ").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer[..at].ends_with("\"live\"}"), "{answer}");
    assert_eq!(problem(&answer[at..]), (400, "malformed_request".to_owned()));
}

#[test]
fn a_client_that_says_nothing_is_told_nothing() {
    assert_eq!(answer_to(&world(), b""), "");
}

#[test]
fn a_head_of_http2_that_is_too_large_is_answered_with_a_problem() {
    let world = world();
    let mut connection = Http2::connect(&world);
    // The largest that fits into one frame, and more fields than there may be.
    let fields = vec![("x-field", "a"); REQUEST_HEADERS_MAX + 1];
    let long = "a".repeat(16_000);
    let parts = [("x-long", long.as_str())];
    connection.get(1, "/health/live", &parts);
    assert!(String::from_utf8(connection.answer(1)).unwrap().contains("live"));
    connection.get(3, "/health/live", &fields);
    let refused: Value = serde_json::from_slice(&connection.answer(3)).unwrap();
    assert_eq!((&refused["status"], &refused["code"]), (&431.into(), &"head_too_large".into()));
}

#[test]
fn a_client_that_ends_without_a_request_is_let_go() {
    let world = world();
    let stream = TcpStream::connect(world.server().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    (&stream).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}
