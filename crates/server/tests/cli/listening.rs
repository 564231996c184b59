//! `railpost listen`, without a server behind it.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::world::{Running, railpost, run, run_with};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A listener on a port of its own, and its address.
fn listen(arguments: &[&str]) -> (Running, String) {
    let mut command = railpost();
    command.args(["listen", "--port", "0", "--json"]).args(arguments);
    let mut running = Running::start(command);
    let greeting = running.json();
    let url = greeting["listening"].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    (running, address)
}

/// Sends a signed request and answers what came back, which may be nothing.
fn post(address: &str, id: &str, body: &str, secret: &str) -> String {
    post_with(address, (id, body, secret), "x-key: k\r\nx-attempt: 1\r\n")
}

/// The same with these headers.
fn post_with(address: &str, (id, body, secret): (&str, &str, &str), headers: &str) -> String {
    let mut sign = railpost();
    sign.args(["sign", "--json", "--id", id, "--secret", secret]);
    let signed = run_with(sign, body.as_bytes()).expect(0).json();
    let mut head = format!(
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in signed.as_object().unwrap() {
        head += &format!("{name}: {}\r\n", value.as_str().unwrap());
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    // A connection that is reset has no answer.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

#[test]
fn what_comes_is_verified_printed_and_acknowledged() {
    let (mut running, address) = listen(&["--secret", SECRET]);
    assert_eq!(status(&post(&address, "a", r#"{"type":"order.paid"}"#, SECRET)), "200");
    let line = running.json();
    assert_eq!(
        (&line["verified"], &line["id"], &line["key"]),
        (&Value::from(true), &Value::from("a"), &Value::from("k"))
    );
    assert_eq!(
        (&line["type"], &line["payload"]["type"]),
        (&Value::from("order.paid"), &Value::from("order.paid"))
    );
    let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    post(&address, "b", "{}", other);
    let line = running.json();
    assert_eq!(line["verified"], false);
    assert!(line["refusal"].as_str().unwrap().contains("no signature matches"), "{line}");
    post(&address, "a", "{}", SECRET);
    assert_eq!(running.json()["remark"], "duplicate");
    assert_eq!(running.interrupt(), 0);
}

#[test]
fn type_time_and_schema_version_are_read_from_the_headers_before_the_body() {
    let (mut running, address) = listen(&["--secret", SECRET]);
    let headers = "x-event-type: order.paid\r\nx-event-time: 2026-01-01T00:00:00.5Z\r\n\
                   x-schema-version: 3\r\n";
    post_with(&address, ("a", r#"{"type":"a field of the payload"}"#, SECRET), headers);
    let line = running.json();
    assert_eq!(
        [&line["type"], &line["event_time"], &line["schema_version"]],
        [&json!("order.paid"), &json!("2026-01-01T00:00:00.500Z"), &json!(3)]
    );
    post_with(&address, ("b", "{}", SECRET), "");
    let line = running.json();
    assert!(line["type"].is_null() && line["event_time"].is_null(), "{line}");
}

#[test]
fn it_misbehaves_as_it_is_told() {
    for (flags, statuses) in [
        (&["--fail-first", "2"][..], ["500", "500", "200"]),
        (&["--status", "404"], ["404", "404", "404"]),
        (&["--fail-rate", "0"], ["200", "200", "200"]),
        (&["--reset", "--fail-first", "1"], ["", "200", "200"]),
        (&["--delay", "10ms"], ["200", "200", "200"]),
    ] {
        let (_running, address) = listen(flags);
        for (at, wanted) in statuses.into_iter().enumerate() {
            let answer = post(&address, &format!("e{at}"), "{}", SECRET);
            assert_eq!(status(&answer), wanted, "{flags:?}: {answer}");
        }
    }
}

#[test]
fn it_asks_to_be_left_alone() {
    let (_running, address) = listen(&["--retry-after", "7"]);
    let answer = post(&address, "a", "{}", SECRET);
    assert_eq!(status(&answer), "503");
    assert!(answer.to_lowercase().contains("retry-after: 7"), "{answer}");
}

#[test]
fn it_hangs_until_the_sender_gives_up() {
    let (mut running, address) = listen(&["--hang"]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(running.json()["answer"], "hang");
    stream.set_nonblocking(true).unwrap();
    let unanswered = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(unanswered.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = run(&["listen", "--port", &port]).expect(1);
    assert!(refused.err.contains("--port"), "{}", refused.err);
}

#[test]
fn its_notes_are_by_line_and_it_prints_what_a_delivery_follows() {
    let (mut running, address) = listen(&["--secret", SECRET]);
    for (id, line, seq, after, remark) in [
        ("a", "one", 1, "", Value::Null),
        ("b", "one", 4, "x-after: 1\r\n", Value::Null),
        ("c", "one", 6, "", Value::from("ahead of seq 5")),
        // The same key in another line, such as after a restore.
        ("d", "two", 1, "", Value::Null),
    ] {
        let headers = format!("x-key: k\r\nx-lane: {line}\r\nx-seq: {seq}\r\n{after}");
        assert_eq!(status(&post_with(&address, (id, "1", SECRET), &headers)), "200");
        let shown = running.json();
        assert_eq!((&shown["line"], &shown["seq"]), (&Value::from(line), &Value::from(seq)));
        assert_eq!(shown["after"].as_u64(), (!after.is_empty()).then_some(1));
        assert_eq!(shown["remark"], remark, "{id}");
    }
}
