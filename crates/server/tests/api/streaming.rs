use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use railpost::config::Config;
use railpost_engine::Span;
use serde_json::{Value, json};

use crate::scene::of_tenant;
use crate::world::World;

/// A client that sends and hears at once, as a program with a socket can.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    /// What came of the answer's body and is no whole line yet.
    body: Vec<u8>,
}

impl Client {
    fn new(world: &World) -> Self {
        let address = world.url("").trim_start_matches("http://").to_owned();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
            of_tenant("events/stream"),
            world.admin
        );
        stream.write_all(head.as_bytes()).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader, body: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        let size = format!("{:x}\r\n", bytes.len());
        self.stream.write_all(&[size.as_bytes(), bytes, b"\r\n"].concat()).unwrap();
    }

    fn event(&mut self, id: &str) {
        let event = json!({"id": id, "type": "a", "payload": id});
        self.send(format!("{event}\n").as_bytes());
    }

    fn finish(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").unwrap();
    }

    /// Reads the answer's head and says its status.
    fn status(&mut self) -> String {
        let status = self.head_line();
        while !self.head_line().is_empty() {}
        status
    }

    fn head_line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of the answer; nothing at its end.
    fn answer(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.body.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.body.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let size = usize::from_str_radix(&self.head_line(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).unwrap();
            if size == 0 {
                return None;
            }
            self.body.extend_from_slice(&chunk[..size]);
        }
    }
}

#[test]
fn each_line_is_answered_while_the_client_still_sends() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.event("e1");
    assert_eq!(client.status(), "HTTP/1.1 200 OK");
    let first = client.answer().unwrap();
    assert_eq!(
        (&first["line"], &first["id"], &first["duplicate"]),
        (&json!(1), &json!("e1"), &json!(false))
    );
    world.get(&of_tenant("events/e1")).expect(200);
    client.event("e2");
    assert_eq!(client.answer().unwrap()["id"], "e2");
    client.event("e1");
    assert_eq!(client.answer().unwrap()["duplicate"], true);
    client.finish();
    assert_eq!(client.answer(), None);
}

#[test]
fn a_bad_line_is_answered_so_and_does_not_stop_the_others() {
    let world = World::new();
    world.publish("taken", "other", None);
    let mut client = Client::new(&world);
    let lines = [
        r#"{"id":"e1","type":"a","payload":1}"#,
        "not json",
        r#"{"type":"a"}"#,
        "",
        r#"{"id":"taken","type":"a","payload":1}"#,
        r#"{"id":"e2","type":"a","payload":1}"#,
    ];
    client.send(lines.join("\n").as_bytes());
    client.finish();
    client.status();
    let answers: Vec<Value> = std::iter::from_fn(|| client.answer()).collect();
    let seen: Vec<_> = answers
        .iter()
        .map(|answer| (answer["line"].as_u64().unwrap(), answer["problem"]["code"].as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (1, None),
            (2, Some("malformed_body")),
            (3, Some("invalid_field")),
            (5, Some("conflict")),
            (6, None),
        ]
    );
    world.get(&of_tenant("events/e2")).expect(200);
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_is_heard() {
    let world = World::new();
    let mut client = Client::new(&world);
    let piece = vec![b'x'; 256 * 1024];
    for _ in 0..5 {
        client.send(&piece);
    }
    client.send(b"\n");
    client.event("e1");
    client.finish();
    client.status();
    assert_eq!(client.answer().unwrap()["problem"]["code"], "too_large");
    assert_eq!(client.answer().unwrap()["id"], "e1");
    assert_eq!(client.answer(), None);
}

#[test]
fn thousands_of_lines_are_answered_in_order() {
    let world = World::new();
    let mut client = Client::new(&world);
    let lines: Vec<String> = (0..3000)
        .map(|n| json!({"id": format!("e{n}"), "type": "a", "key": "k", "payload": n}).to_string())
        .collect();
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        reader: BufReader::new(client.stream.try_clone().unwrap()),
        body: Vec::new(),
    };
    let sending = std::thread::spawn(move || {
        for part in lines.chunks(700) {
            sender.send(format!("{}\n", part.join("\n")).as_bytes());
        }
        sender.finish();
    });
    client.status();
    for n in 0..3000 {
        assert_eq!(client.answer().unwrap()["id"], format!("e{n}"));
    }
    assert_eq!(client.answer(), None);
    sending.join().unwrap();
}

#[test]
fn a_client_that_falls_silent_is_cut() {
    let mut config = Config::default();
    config.limits.request_timeout = Span::from_millis(50);
    let world = World::with(config);
    let mut client = Client::new(&world);
    client.event("e1");
    client.status();
    assert_eq!(client.answer().unwrap()["id"], "e1");
    let last = client.answer().unwrap();
    assert_eq!((&last["line"], &last["problem"]["code"]), (&json!(2), &json!("request_timeout")));
    assert_eq!(client.answer(), None);
}

#[test]
fn a_client_that_goes_away_leaves_what_was_answered_and_a_server_that_stops_at_once() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.event("e1");
    client.status();
    client.answer().unwrap();
    client.stream.shutdown(Shutdown::Both).unwrap();
    world.get(&of_tenant("events/e1")).expect(200);
    drop(world);
}

#[test]
fn a_stream_takes_no_idempotency_key() {
    let world = World::new();
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", "k")];
    let path = of_tenant("events/stream");
    let refused = world.call("POST", &path, &world.admin, &headers, b"").expect(400);
    assert_eq!(refused.json()["field"], "idempotency-key");
}
