use railpost::config::Config;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::world::World;

const ENDPOINTS: &str = "/v1/tenants/default/endpoints";
const EVENTS: &str = "/v1/tenants/default/events";

fn create(world: &World, new: &Value) -> String {
    let made = world.post(ENDPOINTS, new).expect(201).json();
    format!("{ENDPOINTS}/{}", made["id"].as_str().unwrap())
}

#[test]
fn an_endpoint_is_created_shown_changed_and_removed() {
    let world = World::new();
    let new = json!({"url": "https://example.com/a", "headers": {"X-Token": "hush"}});
    let made = world.post(ENDPOINTS, &new).expect(201).json();
    assert!(made["secret"]["value"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(made["headers"], json!(["X-Token"]));
    assert_eq!((&made["types"], &made["status"]), (&json!(["*"]), &json!("active")));
    let path = format!("{ENDPOINTS}/{}", made["id"].as_str().unwrap());
    let shown = world.get(&path).expect(200);
    assert!(!shown.text.contains("hush") && !shown.text.contains("whsec_"), "{}", shown.text);
    let change = json!({"url": "https://example.com/b", "types": ["order.*"], "timeout": "5s"});
    let changed = world.patch(&path, &change).expect(200).json();
    assert_eq!(changed["revision"], json!(2));
    let mut stored = world.get(&path).expect(200).json();
    stored["updated_at"] = changed["updated_at"].clone();
    let health = stored.as_object_mut().unwrap().remove("health");
    assert_eq!(health.unwrap()["state"], "active", "answers to changes leave it out");
    assert_eq!(stored, changed);
    assert_eq!(world.patch(&path, &json!({"timeout": null})).json()["timeout"], json!(null));
    assert_eq!(world.get(ENDPOINTS).expect(200).json()["items"].as_array().unwrap().len(), 1);
    let removed = world.delete(&path).expect(200).json();
    assert_eq!(removed, json!({"id": made["id"], "open_deliveries": 0}));
    assert_eq!(world.get(&path).expect(404).code(), "not_found");
    assert_eq!(world.get(ENDPOINTS).json()["items"], json!([]));
}

#[test]
fn a_change_made_from_an_old_revision_is_refused() {
    let world = World::new();
    let path = create(&world, &json!({"url": "https://example.com"}));
    world.patch(&path, &json!({"description": "first", "revision": 1})).expect(200);
    let refused = world.patch(&path, &json!({"description": "second", "revision": 1})).expect(409);
    assert_eq!(refused.code(), "revision_mismatch");
    assert_eq!(world.get(&path).json()["description"], json!("first"));
}

#[test]
fn what_could_never_be_sent_is_refused_with_its_field() {
    let world = World::new();
    let url = "https://example.com";
    let many: Vec<String> = (0..101).map(|n| format!("a{n}")).collect();
    for (body, field) in [
        (json!({}), ""),
        (json!({"url": "nonsense"}), "url"),
        (json!({"url": "ftp://example.com"}), "url"),
        (json!({"url": "http://10.0.0.1/"}), "url"),
        (json!({"url": "http://169.254.169.254/latest"}), "url"),
        (json!({"url": "https://user:word@example.com"}), "url"),
        (json!({"url": url, "colour": "red"}), "colour"),
        (json!({"url": url, "types": []}), "types"),
        (json!({"url": url, "types": many}), "types"),
        (json!({"url": url, "types": ["order.*", "a b"]}), "types[1]"),
        (json!({"url": url, "timeout": "0s"}), "timeout"),
        (json!({"url": url, "timeout": "soon"}), "timeout"),
        (json!({"url": url, "tls_min": "1.1"}), "tls_min"),
        (json!({"url": url, "envelope": "sealed"}), "envelope"),
        (json!({"url": url, "description": "x".repeat(2000)}), "description"),
        (json!({"url": url, "renamed_headers": {"x_key": "Host"}}), "renamed_headers"),
        (json!({"url": url, "headers": {"Content-Length": "1"}}), "headers.Content-Length"),
        (json!({"url": url, "headers": {"a b": "1"}}), "headers.a b"),
        (json!({"url": url, "headers": {"X-A": "a\r\nb"}}), "headers.X-A"),
        (json!({"url": url, "headers": {"X-A": "a".repeat(5000)}}), "headers.X-A"),
        (json!({"url": url, "authorities_pem": "no pem"}), "authorities_pem"),
        (
            json!({"url": url, "client_identity": {"certificate_pem": "", "key_pem": ""}}),
            "client_identity",
        ),
        (json!({"url": url, "secret": "whsec_short"}), "secret"),
        (json!({"url": url, "policy": {"colour": 1}}), "policy.colour"),
        (json!({"url": url, "policy": {"in_flight_max": 0}}), "policy.in_flight_max"),
        (
            json!({"url": url, "policy": {"retry": {"max_attempts": 0}}}),
            "policy.retry.max_attempts",
        ),
        (
            json!({"url": url, "policy": {"rate_limit": {"count": 0, "per": "1s", "burst": 1}}}),
            "policy.rate_limit.count",
        ),
    ] {
        let refused = world.post(ENDPOINTS, &body).expect(422);
        assert_eq!(refused.json()["field"].as_str().unwrap_or_default(), field, "{}", refused.text);
    }
    assert_eq!(world.get(ENDPOINTS).json()["items"], json!([]));
}

#[test]
fn a_tenant_may_have_so_many_endpoints_and_no_more() {
    let mut config = Config::default();
    config.limits.endpoints_per_tenant = 2;
    let world = World::with(config);
    let first = create(&world, &json!({"url": "https://example.com"}));
    create(&world, &json!({"url": "https://example.com"}));
    let refused = world.post(ENDPOINTS, &json!({"url": "https://example.com"})).expect(422);
    assert_eq!(refused.code(), "limit_reached");
    world.delete(&first).expect(200);
    create(&world, &json!({"url": "https://example.com"}));
}

#[test]
fn a_paused_endpoint_keeps_its_backlog_until_it_is_resumed() {
    let (world, receiver) = (World::new(), Receiver::new());
    let path = create(&world, &json!({"url": receiver.url(), "headers": {"X-Token": "hush"}}));
    let paused = world.post(&format!("{path}/pause"), &json!({})).expect(200).json();
    assert_eq!(paused["status"], json!("paused"));
    world.post(EVENTS, &json!({"type": "a", "payload": 1})).expect(202);
    let health = world.get(&format!("{path}/health")).expect(200).json();
    assert_eq!((&health["status"], &health["open"]), (&json!("paused"), &json!(1)));
    assert_eq!(health["breaker"], json!({"state": "closed"}));
    assert!(health["oldest_open_at"].is_string() && health["lag_s"].is_u64(), "{health}");
    let resumed = world.post(&format!("{path}/resume"), &json!({})).expect(200).json();
    assert_eq!(resumed["status"], json!("active"));
    let arrived = receiver.next();
    assert_eq!((arrived.text().as_str(), arrived.header("x-token")), ("1", Some("hush")));
}

#[test]
fn a_test_event_goes_to_its_endpoint_alone() {
    let (world, tested, other) = (World::new(), Receiver::new(), Receiver::new());
    let path = create(&world, &json!({"url": tested.url(), "types": ["order.*"]}));
    create(&world, &json!({"url": other.url()}));
    let sent = world.post(&format!("{path}/test"), &json!({})).expect(202).json();
    let arrived = tested.next();
    assert_eq!(arrived.header("webhook-id"), sent["event"].as_str());
    assert!(sent["delivery"].as_str().unwrap().starts_with("dlv_"));
    let body = json!({"type": "railpost.test.order", "payload": {"order": 1}});
    world.post(&format!("{path}/test"), &body).expect(202);
    assert_eq!(tested.next().text(), r#"{"order":1}"#);
    let refused = world.post(&format!("{path}/test"), &json!({"type": "order.paid"})).expect(422);
    assert_eq!(refused.json()["field"], json!("type"));
    // What comes next at the other endpoint is the first that ever came there.
    world.post(EVENTS, &json!({"id": "real", "type": "user.created", "payload": 1})).expect(202);
    assert_eq!(other.next().header("webhook-id"), Some("real"));
    assert!(other.arrived().is_empty());
}

#[test]
fn the_planned_schedule_follows_the_policy() {
    let world = World::new();
    let backoff = json!({"strategy": "schedule", "delays": ["1s", "10s"], "repeat_last": true});
    let policy = json!({"retry": {"backoff": backoff, "max_attempts": 4}});
    let path = create(&world, &json!({"url": "https://example.com", "policy": policy}));
    let plan = world.get(&format!("{path}/schedule")).expect(200).json();
    let at: Vec<&Value> =
        plan["attempts"].as_array().unwrap().iter().map(|a| &a["earliest"]).collect();
    assert_eq!(at, ["0s", "1s", "11s", "21s"]);
    let short = world.get(&format!("{path}/schedule?attempts=2")).expect(200).json();
    assert_eq!(short["attempts"].as_array().unwrap().len(), 2);
    for bad in ["0", "1001", "some"] {
        let refused = world.get(&format!("{path}/schedule?attempts={bad}")).expect(400);
        assert_eq!(refused.json()["field"], json!("attempts"));
    }
}
