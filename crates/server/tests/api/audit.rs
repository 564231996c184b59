use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::{JSON, World};

fn actions(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|e| e["action"].as_str().unwrap()).collect()
}

#[test]
fn the_trail_says_who_did_what_to_what() {
    let world = World::new();
    let endpoints = "/v1/tenants/default/endpoints";
    let made = world.post(endpoints, &json!({"url": "https://example.com"})).expect(201).json();
    let id = made["id"].as_str().unwrap();
    world.post(&format!("{endpoints}/{id}/pause"), &json!({})).expect(200);
    world.post("/v1/keys", &json!({"name": "a", "scope": "admin"})).expect(201);
    let of_tenant = world.get("/v1/tenants/default/audit").expect(200).json();
    assert_eq!(actions(&of_tenant), ["endpoint.pause", "endpoint.create"]);
    let who = world.get("/v1/whoami").expect(200).json();
    assert_eq!(of_tenant["items"][0]["actor"], who["key"]["id"]);
    assert_eq!(of_tenant["items"][0]["target"], json!(id));
    let all = world.get("/v1/audit").expect(200).json();
    assert_eq!(actions(&all), ["key.create", "endpoint.pause", "endpoint.create"]);
    let about = world.get(&format!("/v1/audit?target={id}&limit=1")).expect(200).json();
    assert_eq!(actions(&about), ["endpoint.pause"]);
    let next = about["next"].as_str().unwrap();
    let rest = world.get(&format!("/v1/audit?target={id}&cursor={next}")).expect(200).json();
    assert_eq!(actions(&rest), ["endpoint.create"]);
    let earlier = world.get("/v1/audit?created_before=2020-01-01T00:00:00Z").expect(200).json();
    assert!(actions(&earlier).is_empty());
    let refused = world.get("/v1/audit?created_after=noon").expect(400);
    assert_eq!(refused.json()["field"], json!("created_after"));
}

/// The latest entry about something.
fn latest(world: &World, target: &str) -> Value {
    world.get(&format!("/v1/audit?target={target}&limit=1")).expect(200).json()["items"][0].clone()
}

fn change(from: impl Into<Value>, to: impl Into<Value>) -> Value {
    json!({"from": from.into(), "to": to.into()})
}

#[test]
fn a_change_of_an_endpoint_says_what_was_what_and_tells_no_secret() {
    let world = World::new();
    let new = json!({
        "url": "https://example.com/a",
        "timeout": "9s",
        "headers": {"X-Old": "s3cret-old", "X-Same": "s3cret-same", "X-Other": "s3cret-a"},
        "policy": {"retry": {"max_attempts": 7}},
    });
    let id = world.endpoint_with(&new);
    let made = latest(&world, &id);
    assert_eq!(
        made["detail"]["changes"],
        json!({
            "url": change(Value::Null, "https://example.com/a"),
            "timeout": change(Value::Null, "9s"),
            "headers.X-Old": change(Value::Null, "(secret)"),
            "headers.X-Same": change(Value::Null, "(secret)"),
            "headers.X-Other": change(Value::Null, "(secret)"),
            "policy.retry.max_attempts": change(100, 7),
        })
    );
    let path = of_tenant(&format!("endpoints/{id}"));
    let edit = json!({
        "url": "https://example.com/b",
        "types": ["order.*"],
        "timeout": null,
        "headers": {"X-Old": null, "X-New": "s3cret-new", "X-Other": "s3cret-b"},
        "policy": {
            "retry": {"max_attempts": 7, "backoff": {"strategy": "fixed", "delay": "3s"}},
            "outcomes": {"404": "retryable"},
        },
    });
    world.patch(&path, &edit).expect(200);
    let changed = latest(&world, &id);
    assert_eq!(changed["action"], "endpoint.change");
    assert_eq!(changed["detail"]["revision"], 2);
    assert_eq!(
        changed["detail"]["changes"],
        json!({
            "url": change("https://example.com/a", "https://example.com/b"),
            "types": change(json!(["*"]), json!(["order.*"])),
            "timeout": change("9s", Value::Null),
            "headers.X-Old": change("(secret)", Value::Null),
            "headers.X-New": change(Value::Null, "(secret)"),
            "headers.X-Other": change("(secret)", "(another secret)"),
            "policy.retry.backoff.strategy": change("exponential", "fixed"),
            "policy.retry.backoff.base": change("2s", Value::Null),
            "policy.retry.backoff.jitter": change("full", Value::Null),
            "policy.retry.backoff.delay": change(Value::Null, "3s"),
            "policy.outcomes.404": change(Value::Null, "retryable"),
        })
    );
    world.act(&format!("endpoints/{id}/pause")).expect(200);
    let status = json!({"status": change("active", "paused")});
    assert_eq!(latest(&world, &id)["detail"]["changes"], status);
    world.delete(&path).expect(200);
    assert_eq!(latest(&world, &id)["detail"]["url"], "https://example.com/b");
    let all = world.get("/v1/audit").expect(200);
    assert!(!all.text.contains("s3cret"), "{}", all.text);
}

#[test]
fn changes_of_tenants_event_types_and_keys_say_what_was_what() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "acme", "name": "Acme"})).expect(201);
    let name = json!({"name": change("", "Acme")});
    assert_eq!(latest(&world, "acme")["detail"]["changes"], name);
    world.patch("/v1/tenants/acme", &json!({"backlog_max": 5})).expect(200);
    let backlog = json!({"backlog_max": change(Value::Null, 5)});
    assert_eq!(latest(&world, "acme")["detail"]["changes"], backlog);
    let path = "/v1/tenants/acme/event-types/order.paid";
    world.put(path, &json!({"schemas": {"1": {"type": "object"}}})).expect(200);
    let schema = json!({"schemas.1": change(Value::Null, json!(r#"{"type":"object"}"#))});
    assert_eq!(latest(&world, "order.paid")["detail"]["changes"], schema);
    let again = json!({"validation": "reject", "schemas": {"1": {"type": "object"}, "2": true}});
    world.put(path, &again).expect(200);
    let changes = json!({
        "validation": change("warn", "reject"),
        "schemas.2": change(Value::Null, "true"),
    });
    assert_eq!(latest(&world, "order.paid")["detail"]["changes"], changes);
    let key = json!({"name": "ci", "scope": "read-only"});
    let key = world.post("/v1/tenants/acme/keys", &key).expect(201).json();
    let id = text(&key["id"]);
    let changes = json!({
        "name": change(Value::Null, "ci"),
        "scope": change(Value::Null, "read-only"),
    });
    assert_eq!(latest(&world, &id)["detail"]["changes"], changes);
    world.delete(&format!("/v1/keys/{id}")).expect(204);
    let revoked = latest(&world, &id);
    assert_eq!(revoked["detail"]["name"], "ci");
    assert!(revoked["detail"]["changes"]["revoked_at"]["to"].is_string(), "{revoked}");
    let all = world.get("/v1/audit").expect(200);
    assert!(!all.text.contains(&text(&key["key"])));
}

#[test]
fn long_and_many_changes_are_cut() {
    let world = World::new();
    let path = of_tenant("event-types/long");
    let schema = |word: &str| json!({"schemas": {"1": {"title": word.repeat(20_000)}}});
    world.put(&path, &schema("é")).expect(200);
    let described = json!({"schemas": {"1": {"title": "é".repeat(20_001)}}});
    world.put(&path, &described).expect(200);
    let entry = latest(&world, "long");
    let versions = &entry["detail"]["changes"]["schemas.1"];
    let (from, to) = (text(&versions["from"]), text(&versions["to"]));
    assert!(from.len() < 500 && from.contains("… (40012 bytes, sha256 "), "{from}");
    assert_ne!(from, to, "what differs past the cut looks different");
    let versions =
        (1..=100).map(|version| (version.to_string(), json!({"title": "t".repeat(300)})));
    let versions: serde_json::Map<String, Value> = versions.collect();
    world.put(&of_tenant("event-types/many"), &json!({"schemas": versions})).expect(200);
    let entry = latest(&world, "many");
    let told = entry["detail"]["changes"].as_object().unwrap().len() as u64;
    assert_eq!(told + entry["detail"]["more_changes"].as_u64().unwrap(), 100);
}

#[test]
fn each_reveal_is_on_record_the_repeated_one_too() {
    let world = World::new();
    let id = world.endpoint_with(&json!({"url": "https://example.com"}));
    let secrets = world.look(&format!("endpoints/{id}/secrets"));
    let secret = text(&secrets["items"][0]["id"]);
    let path = of_tenant(&format!("endpoints/{id}/secrets/{secret}/reveal"));
    let again = [("idempotency-key", "again")];
    for _ in 0..3 {
        let revealed = world.call("POST", &path, &world.admin, &again, b"").expect(200);
        assert!(text(&revealed.json()["value"]).starts_with("whsec_"));
    }
    let trail = world.look(&format!("audit?target={secret}"));
    assert_eq!(actions(&trail), ["secret.reveal"; 3]);
    assert_eq!(trail["items"][0]["detail"]["endpoint"], json!(id));
}

#[test]
fn what_railpost_switches_off_itself_is_in_the_trail() {
    let (world, receiver) = (World::new(), Receiver::new());
    for (answer, status) in [(410, "gone"), (422, "quarantined")] {
        let id = world.endpoint(&receiver, &json!({"quarantine_after": 1}));
        receiver.answers(&[answer]);
        let event = json!({"type": "a", "payload": 1});
        world.post(&of_tenant("events"), &event).expect(202);
        let off = |page: &Value| page["items"][0]["action"] == "endpoint.switch_off";
        let page = world.look_until(&format!("audit?target={id}"), off);
        let entry = &page["items"][0];
        assert_eq!((&entry["actor"], &entry["tenant"]), (&json!("railpost"), &json!("default")));
        let changes = json!({"status": change("active", status)});
        assert_eq!(entry["detail"], json!({ "changes": changes }));
        world.delete(&of_tenant(&format!("endpoints/{id}"))).expect(200);
    }
}

#[test]
fn a_rotation_names_the_secrets_that_expire() {
    let world = World::new();
    let id = world.endpoint_with(&json!({"url": "https://example.com"}));
    let secrets = format!("endpoints/{id}/secrets");
    let old = text(&world.look(&secrets)["items"][0]["id"]);
    let rotate = of_tenant(&format!("{secrets}/rotate"));
    let made = world.post(&rotate, &json!({"overlap": "1h"})).expect(201).json();
    let entry = latest(&world, &text(&made["id"]));
    assert_eq!(
        (&entry["action"], &entry["detail"]["kind"]),
        (&json!("secret.rotate"), &json!("shared"))
    );
    assert_eq!(entry["detail"]["expire"], json!([old]));
    let path = of_tenant(&format!("{secrets}/{old}"));
    world.call("DELETE", &path, &world.admin, &JSON, b"").expect(204);
    assert_eq!(latest(&world, &old)["action"], "secret.remove");
}
