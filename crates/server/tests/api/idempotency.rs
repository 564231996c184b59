//! Requests that come again: at once, later, elsewhere, and after a crash.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use railpost::config::Config;
use railpost::serve::Server;
use railpost_engine::Span;
use railpost_telemetry::{Level, Log};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::{Answer, JSON, World, request};

fn publish(world: &World, key: &str, path: &str, idempotency_key: &str, body: &Value) -> Answer {
    let headers = [JSON[0], ("idempotency-key", idempotency_key)];
    world.call("POST", path, key, &headers, body.to_string().as_bytes())
}

#[test]
fn of_many_requests_at_once_one_does_the_work() {
    let world = World::new();
    let (count, event) = (16, json!({"type": "a", "payload": 1}));
    for round in 0..10 {
        let barrier = Barrier::new(count);
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let send = || {
                barrier.wait();
                publish(&world, &world.admin, &of_tenant("events"), &format!("k{round}"), &event)
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(send)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (good, busy): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.status == 202);
        assert!(good.iter().all(|answer| answer.text == good[0].text), "{good:?}");
        assert!(!good.is_empty());
        for answer in busy {
            assert_eq!((answer.status, answer.code().as_str()), (409, "idempotency_in_progress"));
            assert_eq!(answer.headers["retry-after"], "1");
        }
        assert_eq!(world.look("events")["items"].as_array().unwrap().len(), round + 1);
    }
}

#[test]
fn every_kind_of_work_is_done_once() {
    let world = World::new();
    world.publish("e1", "a", None);
    let receiver = Receiver::new();
    let endpoint = world.endpoint(&receiver, &json!({}));
    for (path, body) in [
        (of_tenant("events/batch"), json!({"events": [{"type": "a", "payload": 1}]})),
        (of_tenant("events/e1/redeliver"), json!({"endpoint": endpoint})),
        (of_tenant("replays"), json!({"action": "replay"})),
        ("/v1/tenants".to_owned(), json!({"id": "acme"})),
    ] {
        let first = publish(&world, &world.admin, &path, "k", &body);
        let again = publish(&world, &world.admin, &path, "k", &body);
        assert!((200..300).contains(&first.status), "{path}: {}", first.text);
        assert_eq!((again.status, &again.text), (first.status, &first.text), "{path}");
        assert_eq!(again.headers["idempotency-replayed"], "true", "{path}");
    }
    let deliveries = world.look("events/e1/deliveries");
    assert_eq!(deliveries["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_key_is_its_owner_s_and_its_route_s_own() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let (event, batch) =
        (json!({"type": "a", "payload": 1}), json!({"events": [{"type": "a", "payload": 1}]}));
    let (mine, theirs) = (world.key("default", "tenant"), world.key("other", "tenant"));
    let first = publish(&world, &mine, &of_tenant("events"), "k", &event).expect(202);
    for (key, path, body) in [
        (&theirs, "/v1/tenants/other/events", &event),
        (&world.admin, "/v1/tenants/default/events", &event),
        (&mine, "/v1/tenants/default/events/batch", &batch),
    ] {
        let answer = publish(&world, key, path, "k", body).expect(202);
        assert!(!answer.headers.contains_key("idempotency-replayed"), "{path}");
    }
    // Another key of the same tenant may go on where this one began.
    let successor = world.key("default", "publish-only");
    let again = publish(&world, &successor, &of_tenant("events"), "k", &event).expect(202);
    assert_eq!(again.text, first.text);
}

#[test]
fn a_key_that_has_expired_is_as_good_as_new() {
    let mut config = Config::default();
    config.retention.idempotency = Span::from_millis(0);
    let world = World::with(config);
    let event = json!({"type": "a", "payload": 1});
    let send = || publish(&world, &world.admin, &of_tenant("events"), "k", &event).expect(202);
    assert_ne!(send().text, send().text);
}

#[test]
fn a_request_that_was_refused_may_be_mended_under_the_same_key() {
    let world = World::new();
    let send = |body| publish(&world, &world.admin, &of_tenant("events"), "k", &body);
    send(json!({"type": "a"})).expect(422);
    send(json!({"type": "a", "payload": 1})).expect(202);
}

#[test]
fn a_bad_key_is_refused() {
    let world = World::new();
    let event = json!({"type": "a", "payload": 1});
    for key in ["with space", &"x".repeat(257)] {
        let refused = publish(&world, &world.admin, &of_tenant("events"), key, &event).expect(400);
        assert_eq!(refused.json()["field"], "idempotency-key");
    }
}

/// The names of an object's fields.
fn names(object: &Value) -> Vec<&String> {
    object.as_object().unwrap().keys().collect()
}

#[test]
fn a_receipt_has_the_same_fields_with_and_without_a_key() {
    let world = World::new();
    let receiver = Receiver::new();
    world.endpoint(&receiver, &json!({}));
    let event = |id: &str| json!({"id": id, "type": "a", "payload": 1});
    let with_key = |key: &str, event: &Value| {
        publish(&world, &world.admin, &of_tenant("events"), key, event).expect(202)
    };
    let plain = world.post(&of_tenant("events"), &event("e1")).expect(202).json();
    let first = with_key("k1", &event("e2"));
    assert_eq!(names(&first.json()), names(&plain));
    assert_eq!(
        (&first.json()["duplicate"], &first.json()["deliveries"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(with_key("k1", &event("e2")).text, first.text);
    // Of a duplicate it says so, and when the event was accepted.
    let plain = world.post(&of_tenant("events"), &event("e1")).expect(202).json();
    let duplicate = with_key("k2", &event("e1"));
    assert_eq!(duplicate.json(), plain);
    assert_eq!(duplicate.json()["duplicate"], true);
    assert_eq!(with_key("k2", &event("e1")).text, duplicate.text);
    let batch = json!({"events": [event("e1"), event("e3")]});
    let send =
        || publish(&world, &world.admin, &of_tenant("events/batch"), "k", &batch).expect(202);
    let receipts = send();
    let of_batch = receipts.json()["events"].clone();
    assert_eq!((&of_batch[0], names(&of_batch[1])), (&plain, names(&first.json())));
    assert_eq!(send().text, receipts.text);
}

#[test]
fn the_largest_answers_are_given_again() {
    let world = World::new();
    let rule = json!({"additionalProperties": {"type": "string"}});
    let described = json!({"validation": "warn", "schemas": {"1": rule}});
    world.put(&of_tenant("event-types/a"), &described).expect(200);
    // Of each event as many misfits are told as may be, and what is told of each is as long as it may be.
    let payload: BTreeMap<String, u8> =
        (0..10).map(|n| (format!("{n:02}{}", "\u{1}".repeat(250)), 1)).collect();
    let id = |n: usize| format!("{n:0>64}");
    let event = |n: usize| json!({"id": id(n), "type": "a", "payload": payload});
    let source = "/".repeat(2048);
    let cloud_event = |n: usize| {
        let id = format!("{n:0>3}{}", "\\".repeat(253));
        json!({"specversion": "1.0", "id": id, "source": source, "type": "a", "data": {}})
    };
    let events: Vec<Value> = (0..1000).map(event).collect();
    let cloud_events: Vec<Value> = (0..1000).map(cloud_event).collect();
    let batches = [
        ("application/json", json!({ "events": events })),
        ("application/cloudevents-batch+json", json!(cloud_events)),
    ];
    for (content_type, batch) in batches {
        let headers = [("content-type", content_type), ("idempotency-key", content_type)];
        let send = || {
            let path = of_tenant("events/batch");
            world.call("POST", &path, &world.admin, &headers, batch.to_string().as_bytes())
        };
        let first = send().expect(202);
        let again = send().expect(202);
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert!(again.text == first.text, "the answer should be the same");
    }
    assert_eq!(world.look("events?limit=500")["items"].as_array().unwrap().len(), 500);
}

#[test]
fn the_largest_event_type_is_described_under_a_key() {
    let world = World::new();
    let text = "x".repeat(255 * 1024);
    let schemas: BTreeMap<u32, Value> =
        (1..=10).map(|version| (version, json!({ "description": text }))).collect();
    let body = json!({ "schemas": schemas }).to_string();
    let headers = [JSON[0], ("idempotency-key", "k")];
    let path = of_tenant("event-types/a");
    let put = || world.call("PUT", &path, &world.admin, &headers, body.as_bytes()).expect(200);
    assert!(put().text == put().text, "the answer should be the same");
}

#[test]
fn headers_that_make_the_event_make_the_request() {
    let world = World::new();
    let send = |id: &str, source: &str, trace: &str| {
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
            ("ce-specversion", "1.0"),
            ("ce-type", "a"),
            ("ce-source", source),
            ("ce-id", id),
            ("traceparent", trace),
        ];
        world.call("POST", &of_tenant("events"), &world.admin, &headers, b"1")
    };
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let first = send("1", "/shop", trace).expect(202);
    for (id, source) in [("2", "/shop"), ("1", "/warehouse")] {
        let reused = send(id, source, trace).expect(409);
        assert_eq!(reused.code(), "idempotency_key_reused", "{id} {source}");
    }
    // A client that tries again is in another span, and often in another trace.
    let other = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01";
    let again = send("1", "/shop", other).expect(202);
    assert_eq!(
        (again.text, world.look("events")["items"].as_array().unwrap().len()),
        (first.text, 1)
    );
}

#[test]
fn a_path_is_the_same_however_it_is_written() {
    let world = World::new();
    let encoded = |text: &str| text.bytes().map(|c| format!("%{c:02X}")).collect::<String>();
    let event = json!({"type": "a", "payload": 1});
    let send = |path: &str| publish(&world, &world.admin, path, "k", &event).expect(202).text;
    let long = format!("/v1/tenants/{}/{}", encoded("default"), "events");
    assert_eq!(send(&long), send(&of_tenant("events")));
    // Names at their bounds fit, in whichever form they come.
    let name = "n".repeat(128);
    let headers = [JSON[0], ("idempotency-key", "k")];
    for name in [encoded(&name), name] {
        let path = of_tenant(&format!("event-types/{name}"));
        world.call("PUT", &path, &world.admin, &headers, b"{}").expect(200);
    }
}

/// Names the folder of a server that this process is to be.
const SERVE: &str = "RAILPOST_TEST_SERVE";

/// What a process that serves says before its address and its admin key.
const MARK: &str = "SERVING ";

/// The process that the crash test kills: this test, in a process that is told to serve.
#[test]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn a_process_that_is_told_to_serve_serves() {
    let Ok(folder) = std::env::var(SERVE) else { return };
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.server.data_dir = folder.into();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let log = Log::new(Level::Error, std::io::sink());
    let server = runtime.block_on(Server::start(config, log)).unwrap();
    println!("\n{MARK}{} {}", server.address(), server.admin_key().unwrap_or_default());
    // Ends with its parent, if that does not kill it before.
    let _ = std::io::read_to_string(std::io::stdin());
}

struct Process {
    child: Child,
    url: String,
    admin: String,
}

impl Process {
    fn new(folder: &Path) -> Self {
        let name = "idempotency::a_process_that_is_told_to_serve_serves";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SERVE, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with(MARK)).expect("the child should serve");
        let (address, admin) = line[MARK.len()..].split_once(' ').unwrap();
        Self { child, url: format!("http://{address}"), admin: admin.to_owned() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the request of this key; nothing if no answer came.
fn send(process: &Process, admin: &str, key: &str) -> Option<Answer> {
    let headers = [JSON[0], ("idempotency-key", key)];
    let url = format!("{}{}", process.url, of_tenant("events"));
    let event = json!({"type": "a", "payload": key}).to_string();
    request("POST", &url, admin, &headers, event.as_bytes())
}

#[test]
fn a_crash_between_work_and_answer_does_not_double_the_work() {
    const CLIENTS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::new(folder.path());
    let admin = process.admin.clone();
    let mut answered: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..3 {
        // Each client sends until the server dies under it; the last answer of each is lost or not.
        let sent: Vec<(String, Option<Answer>)> = std::thread::scope(|scope| {
            let (process, admin) = (&process, admin.as_str());
            let client = |client: usize| {
                let mut sent = Vec::new();
                for n in 0.. {
                    let key = format!("{round}-{client}-{n}");
                    let answer = send(process, admin, &key);
                    let lost = answer.is_none();
                    sent.push((key, answer));
                    if n == 20 && client == 0 {
                        let id = process.child.id().to_string();
                        Command::new("kill").args(["-9", &id]).status().unwrap();
                    }
                    if lost {
                        break;
                    }
                }
                sent
            };
            let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || client(n))).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        process.kill();
        process = Process::new(folder.path());
        for (key, answer) in sent {
            let again = send(&process, &admin, &key).unwrap().expect(202).text;
            if let Some(answer) = answer {
                assert_eq!(again, answer.expect(202).text, "{key}");
            }
            answered.insert(key, again);
        }
    }
    for (key, answer) in &answered {
        assert_eq!(send(&process, &admin, key).unwrap().text, *answer, "{key}");
    }
    assert_eq!(events(&process, &admin), answered.len());
}

/// How many events there are.
fn events(process: &Process, admin: &str) -> usize {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let url = format!("{}{}?limit=500{cursor}", process.url, of_tenant("events"));
        let page = request("GET", &url, admin, &[], b"").unwrap().expect(200).json();
        count += page["items"].as_array().unwrap().len();
        if page["next"].is_null() {
            return count;
        }
        cursor = format!("&cursor={}", text(&page["next"]));
    }
}
