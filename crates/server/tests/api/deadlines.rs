//! No client keeps a connection by doing nothing, and no client that does something loses one.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use railpost::config::Config;
use railpost_engine::Span;
use serde_json::json;

use crate::http2::{END_HEADERS, GOAWAY, HEADERS, Http2, POST, head};
use crate::receiver::Receiver;
use crate::sign_in::signed_in;
use crate::world::{PATIENCE, World};

const MOMENT: Span = Span::from_millis(300);

/// A server with this many places for connections.
fn world(places: u32, change: impl FnOnce(&mut Config)) -> World {
    let mut config = Config::default();
    config.limits.connections_max = places;
    change(&mut config);
    World::with(config)
}

fn connect(world: &World, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.server().address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    stream
}

/// All that comes until the server hangs up.
#[track_caller]
fn rest(mut stream: impl Read) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server did not hang up: {error}"),
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether somebody else is served: waits for a place.
#[track_caller]
fn assert_reachable(world: &World) {
    let sent = "GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = rest(connect(world, sent));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

const LIVE: &str = "GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n";

/// A connection on which one request was answered.
fn answered(world: &World) -> TcpStream {
    let mut stream = connect(world, LIVE);
    stream.read_exact(&mut [0; 15]).unwrap();
    stream
}

#[test]
fn a_sign_in_that_is_never_finished_gives_its_place_back() {
    let world = world(2, |config| config.limits.request_timeout = MOMENT);
    let form = "POST /dashboard/sign-in HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nkey=";
    let begun = [connect(&world, form), connect(&world, form)];
    assert_reachable(&world);
    for stream in begun {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[test]
fn a_form_of_somebody_who_signed_in_has_a_deadline_too() {
    let world = world(1, |config| config.limits.request_timeout = MOMENT);
    let cookie = signed_in(&world);
    let form = format!(
        "POST /dashboard/t/default/keys HTTP/1.1\r\nhost: a\r\ncookie: {cookie}\r\n\
         content-length: 9\r\n\r\nname="
    );
    let answer = rest(connect(&world, &form));
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_body_that_nobody_asked_for_and_that_never_ends_gives_its_place_back() {
    let world = world(1, |config| config.limits.request_timeout = MOMENT);
    let _begun =
        connect(&world, "GET /health/live HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n");
    assert_reachable(&world);
}

#[test]
fn an_idle_connection_gives_its_place_back() {
    let world = world(2, |config| config.limits.idle_timeout = MOMENT);
    let idle = [answered(&world), answered(&world)];
    assert_reachable(&world);
    for stream in idle {
        rest(stream);
    }
}

#[test]
fn an_idle_http2_connection_is_told_to_go_and_gives_its_place_back() {
    let world = world(2, |config| config.limits.idle_timeout = MOMENT);
    let mut idle = [Http2::connect(&world), Http2::connect(&world)];
    for connection in &mut idle {
        connection.get(1, "/health/live", &[]);
        connection.answer(1);
    }
    assert_reachable(&world);
    for mut connection in idle {
        let frames: Vec<_> = std::iter::from_fn(|| connection.next()).collect();
        assert!(frames.iter().any(|frame| frame.kind == GOAWAY), "{frames:?}");
    }
}

#[test]
fn an_http2_connection_that_asks_for_nothing_gives_its_place_back() {
    let world = world(1, |config| config.limits.idle_timeout = MOMENT);
    let _silent = Http2::connect(&world);
    assert_reachable(&world);
}

#[test]
fn a_body_of_http2_that_is_never_finished_gives_its_place_back() {
    let world = world(1, |config| {
        (config.limits.request_timeout, config.limits.idle_timeout) = (MOMENT, MOMENT);
    });
    let mut begun = Http2::connect(&world);
    let bearer = format!("Bearer {}", world.admin);
    let fields = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    begun.send(HEADERS, END_HEADERS, 1, &head(POST, "/v1/tenants", &fields));
    let problem = String::from_utf8(begun.answer(1)).unwrap();
    assert!(problem.contains("request_timeout"), "{problem}");
    assert_reachable(&world);
}

#[test]
fn a_head_that_is_never_finished_gives_its_place_back() {
    let world = world(1, |config| config.limits.head_timeout = MOMENT);
    let begun = connect(&world, "GET /health/live HTTP/1.1\r\nhost: a\r\n");
    assert_reachable(&world);
    assert!(rest(begun).starts_with("HTTP/1.1 408 "));
    let mut second = answered(&world);
    second.write_all(b"GET /health").unwrap();
    assert_reachable(&world);
    assert!(rest(second).contains("HTTP/1.1 408 "));
}

#[test]
fn a_tls_handshake_that_is_never_finished_gives_its_place_back() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let world = world(1, |config| {
        config.limits.head_timeout = MOMENT;
        config.server.tls_certificate = file("cert.pem", made.cert.pem());
        config.server.tls_key = file("key.pem", made.signing_key.serialize_pem());
    });
    let first = connect(&world, "\x16\x03\x01");
    let second = connect(&world, "\x16\x03\x01");
    rest(first);
    rest(second);
}

#[test]
fn a_client_that_does_not_read_its_answer_gives_its_place_back() {
    let world = world(1, |config| config.limits.answer_timeout = MOMENT);
    let page = "GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n";
    let _unread = connect(&world, &page.repeat(200));
    assert_reachable(&world);
}

#[test]
fn a_client_of_http2_that_takes_nothing_of_its_answer_gives_its_place_back() {
    let world = world(1, |config| config.limits.answer_timeout = MOMENT);
    let mut unread = Http2::connect(&world);
    // More than the 65535 bytes that may be sent before the client says that it took some.
    unread.get(1, "/openapi.json", &[]);
    assert_reachable(&world);
}

#[test]
fn a_live_page_on_which_nothing_happens_is_not_cut() {
    let world = world(10, |config| {
        (config.limits.idle_timeout, config.limits.answer_timeout) = (MOMENT, MOMENT);
        config.limits.request_timeout = MOMENT;
    });
    let path = "/dashboard/t/default/live/lanes";
    let ask = format!("GET {path} HTTP/1.1\r\nhost: a\r\ncookie: {}\r\n\r\n", signed_in(&world));
    let mut live = BufReader::new(connect(&world, &ask));
    let mut seen = String::new();
    while !seen.contains("data: ") {
        live.read_line(&mut seen).unwrap();
    }
    // Somebody who came later is cut, twice over.
    rest(answered(&world));
    rest(answered(&world));
    let receiver = Receiver::new();
    world.endpoint(&receiver, &json!({}));
    world.publish("e1", "order.paid", Some("k"));
    seen.clear();
    while !seen.contains("data: ") {
        assert_ne!(live.read_line(&mut seen).unwrap(), 0, "it was cut: {seen}");
    }
}

#[test]
fn a_stream_of_events_is_kept_while_lines_come_and_cut_when_a_line_does_not_end() {
    let world = world(10, |config| {
        (config.limits.idle_timeout, config.limits.answer_timeout) = (MOMENT, MOMENT);
        config.limits.request_timeout = Span::from_secs(2);
    });
    let ask = format!(
        "POST /v1/tenants/default/events/stream HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\
         content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
        world.admin
    );
    let mut stream = connect(&world, &ask);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for number in 1..=2 {
        let line = format!("{{\"id\": \"e{number}\", \"type\": \"a\", \"payload\": 1}}\n");
        write!(stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
        let mut seen = String::new();
        while !seen.contains(&format!("\"line\":{number}")) {
            assert_ne!(answers.read_line(&mut seen).unwrap(), 0, "it was cut: {seen}");
        }
        rest(answered(&world));
    }
    // A byte now and then is no progress.
    let mut end = String::new();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while !end.contains("request_timeout") {
        stream.write_all(b"1\r\nx\r\n").unwrap();
        match answers.read_line(&mut end) {
            Ok(len) => assert_ne!(len, 0, "it was cut without a word: {end}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}
