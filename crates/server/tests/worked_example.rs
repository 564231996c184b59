//! The worked example, end to end: the real server, the real order service of the receiver library with
//! its PostgreSQL inbox, and a network between them that fails.
//!
//! `order.created` is lost on its way at first, then its acknowledgement is lost; `order.updated` waits;
//! `payment.settled` of another key does not. The duplicate changes nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

const SECRET: &str = "whsec_cmFpbHBvc3Qtd29ya2VkLWV4YW1wbGUtc2VjcmV0";
const ADMIN_KEY: &str = "rp_worked_example_worked_example_worked_example";
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn the_worked_example_applies_each_event_once_and_in_order() {
    let schema = Schema::new();
    let shop = Process::start(
        Command::new(example("axum_postgres"))
            .env("LISTEN", "127.0.0.1:0")
            .env("WEBHOOK_SECRET", SECRET)
            .env("DATABASE_URL", schema.url()),
    );
    let network = Network::between(shop.address);
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(
        Command::new(env!("CARGO_BIN_EXE_railpost"))
            .arg("serve")
            .current_dir(&folder)
            .env("RAILPOST_SERVER_LISTEN", "127.0.0.1:0")
            .env("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY),
    );
    server.post(
        "endpoints",
        &json!({
            "url": network.url(),
            "secret": SECRET,
            "timeout": "1s",
            "policy": {
                "guarantee": "effectively_once",
                "retry": {"backoff": {"strategy": "fixed", "delay": "10ms"}},
            },
        }),
    );
    server.post("events/batch", &json!({"events": [
        event("order.created", "A", &json!({"type": "order.created", "order": "A", "total": 10})),
        event("order.updated", "A", &json!({"type": "order.updated", "order": "A", "total": 12})),
        event("payment.settled", "B", &json!({"type": "payment.settled", "payment": "P"})),
    ]}));

    let lines: Vec<String> = (0..5).map(|_| network.next()).collect();
    println!("{}", lines.join("\n"));
    let of_a: Vec<&str> = lines.iter().filter(|line| line.starts_with('A')).map(|s| &**s).collect();
    assert_eq!(
        of_a,
        [
            "A seq 1 attempt 1 order.created: no answer comes",
            "A seq 1 attempt 2 order.created: answered 200, and the answer is lost",
            "A seq 1 attempt 3 order.created: answered 200",
            "A seq 2 attempt 1 order.updated: answered 200",
        ]
    );
    // The network let go of the first attempt only after it had seen the payment: it never waited.
    assert!(lines.iter().any(|line| line == "B seq 1 attempt 1 payment.settled: answered 200"));
    // A second insert of the order would have failed: the duplicate was recognised.
    assert_eq!(schema.orders(), ["A 12"]);
    assert_eq!(schema.payments(), ["P"]);
}

fn event(event_type: &str, key: &str, payload: &Value) -> Value {
    json!({"type": event_type, "key": key, "payload": payload})
}

/// An example of the receiver library. `cargo test --workspace` builds it beside the tests.
fn example(name: &str) -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_railpost")).with_file_name("examples");
    let program = beside.join(name);
    assert!(
        program.exists(),
        "build it: cargo build -p railpost-receiver --all-features --examples"
    );
    program
}

/// A child process that says where it listens. It ends with the test.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse().ok()
        });
        // What it goes on to say is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("it says where it listens") }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("http://{}/v1/tenants/default/{path}", self.address);
        let request = ureq::post(url)
            .header("authorization", format!("Bearer {ADMIN_KEY}"))
            .header("content-type", "application/json");
        let text = request.send(body.to_string()).unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What lies between sender and receiver, and fails as the example has it.
struct Network {
    address: SocketAddr,
    told: Receiver<String>,
}

impl Network {
    fn between(shop: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = channel();
        let paid = Arc::new((Mutex::new(false), Condvar::new()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tell, paid) = (tell.clone(), paid.clone());
                std::thread::spawn(move || carry(stream, shop, &tell, &paid));
            }
        });
        Self { address, told }
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn next(&self) -> String {
        self.told.recv_timeout(PATIENCE).expect("something should have come by")
    }
}

fn carry(
    mut stream: TcpStream,
    shop: SocketAddr,
    tell: &Sender<String>,
    paid: &(Mutex<bool>, Condvar),
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (head, body) = read_message(&mut reader)?;
        let payload: Value = serde_json::from_slice(&body).ok()?;
        let event_type = payload["type"].as_str()?;
        let (key, seq, attempt) =
            (header(&head, "x-key")?, header(&head, "x-seq")?, header(&head, "x-attempt")?);
        let line = format!("{key} seq {seq} attempt {attempt} {event_type}");
        if (event_type, &*attempt) == ("order.created", "1") {
            let (seen, signal) = paid;
            drop(signal.wait_while(seen.lock().unwrap(), |seen| !*seen).unwrap());
            tell.send(format!("{line}: no answer comes")).ok()?;
            // The sender gives up and closes the connection.
            let _ = reader.read(&mut [0]);
            return None;
        }
        let (status, answer) = ask(shop, &head, &body)?;
        if (event_type, &*attempt) == ("order.created", "2") {
            tell.send(format!("{line}: answered {status}, and the answer is lost")).ok()?;
            return None;
        }
        tell.send(format!("{line}: answered {status}")).ok()?;
        if event_type == "payment.settled" {
            *paid.0.lock().unwrap() = true;
            paid.1.notify_all();
        }
        stream.write_all(&answer).ok()?;
    }
}

/// Hands a request on, and brings back the status and the whole answer.
fn ask(shop: SocketAddr, head: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(shop).ok()?;
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let (head, body) = read_message(&mut BufReader::new(stream))?;
    let status = head.split(' ').nth(1)?.to_owned();
    Some((status, [head.as_bytes(), &body].concat()))
}

/// A message's head, with the empty line that ends it, and its body.
fn read_message(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let len = header(&head, "content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn header(head: &str, name: &str) -> Option<String> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(candidate, _)| candidate.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim().to_owned())
}

/// A schema of the test's own in the throwaway PostgreSQL.
struct Schema {
    name: String,
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Schema {
    fn new() -> Self {
        let name = format!("worked_example_{}", std::process::id());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&postgres(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&format!("create schema {name}")).await.unwrap();
            client
        });
        Self { name, runtime, client }
    }

    fn url(&self) -> String {
        format!("{}?options=-csearch_path%3D{}", postgres(), self.name)
    }

    fn orders(&self) -> Vec<String> {
        self.texts(&format!("select id || ' ' || total from {}.orders order by id", self.name))
    }

    fn payments(&self) -> Vec<String> {
        self.texts(&format!("select id from {}.payments order by id", self.name))
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.runtime.block_on(self.client.query(sql, &[])).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!("drop schema {} cascade", self.name);
        let _ = self.runtime.block_on(self.client.batch_execute(&sql));
    }
}

fn postgres() -> String {
    let help =
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask with-services test -p railpost`";
    std::env::var("RAILPOST_TEST_POSTGRES").expect(help)
}
