//! A process that is killed while it erases a tenant: the next one goes on.

use serde_json::{Value, json};

use super::postgres::fresh_url;
use super::process::{ADMIN_KEY, Running, call};

const ACME: &str = "/v1/tenants/acme";

#[test]
fn erasing_goes_on_after_a_kill_in_sqlite() {
    erasing_goes_on_after_a_kill(&[]);
}

#[test]
fn erasing_goes_on_after_a_kill_in_postgresql() {
    erasing_goes_on_after_a_kill(&["--store", &fresh_url("erasing")]);
}

fn erasing_goes_on_after_a_kill(store: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        // A second tenant closes loopback, unless the configuration opens it.
        let loopback = ("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "always");
        let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY), loopback];
        Running::start_with(folder.path(), store, &set)
    };
    let server = start();
    fill(&server);
    let request = http::Request::delete(server.url(ACME));
    let request = request.header("authorization", format!("Bearer {ADMIN_KEY}"));
    let (status, text) = call(request.body(Vec::new()).unwrap());
    assert_eq!(status, 202, "{text}");
    server.signal("KILL");
    server.ended();

    let server = start();
    while server.get(ACME, ADMIN_KEY).0 != 404 {}
    let (_, audit) = server.get("/v1/audit?target=acme", ADMIN_KEY);
    let audit: Value = serde_json::from_str(&audit).unwrap();
    let actions = audit["items"].as_array().unwrap().iter().map(|entry| &entry["action"]);
    assert_eq!(actions.collect::<Vec<_>>(), ["tenant.erased", "tenant.erase"]);
    assert_eq!(server.post("/v1/tenants", &json!({"id": "acme"})).0, 201);
    let (_, events) = server.get(&format!("{ACME}/events"), ADMIN_KEY);
    assert_eq!(serde_json::from_str::<Value>(&events).unwrap()["items"], json!([]));
}

/// A tenant that takes several steps to erase.
fn fill(server: &Running) {
    assert_eq!(server.post("/v1/tenants", &json!({"id": "acme"})).0, 201);
    let endpoint = json!({"url": "http://127.0.0.1:1234/"});
    assert_eq!(server.post(&format!("{ACME}/endpoints"), &endpoint).0, 201);
    let event = |n: usize| json!({"type": "a", "key": format!("k{}", n % 100), "payload": n});
    let events: Vec<Value> = (0..1_000).map(event).collect();
    for _ in 0..6 {
        let batch = json!({"events": events});
        assert_eq!(server.post(&format!("{ACME}/events/batch"), &batch).0, 202);
    }
}
