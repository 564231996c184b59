use serde_json::json;

use crate::world::World;

const KEYS: &str = "/v1/tenants/default/keys";

#[test]
fn a_key_is_made_shown_once_and_revoked_at_once() {
    let world = World::new();
    let new = json!({"name": "shop", "scope": "read-only"});
    let made = world.post(KEYS, &new).expect(201).json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(key.starts_with("rp_"));
    let who = world.call("GET", "/v1/whoami", key, &[], b"").expect(200).json();
    assert_eq!((&who["key"]["id"], &who["tenant"]), (&json!(id), &json!("default")));
    let listed = world.get(KEYS).expect(200);
    assert!(listed.text.contains(id) && !listed.text.contains(key), "{}", listed.text);
    world.delete(&format!("{KEYS}/{id}")).expect(204);
    assert_eq!(world.call("GET", "/v1/whoami", key, &[], b"").expect(401).code(), "unauthorized");
    world.delete(&format!("{KEYS}/{id}")).expect(204);
    assert!(world.get(KEYS).json()["items"][0]["revoked_at"].is_string());
}

#[test]
fn nobody_makes_a_key_that_opens_more_than_their_own() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let own = world.key("default", "tenant");
    let post = |path: &str, body: serde_json::Value| {
        world.call("POST", path, &own, &crate::world::JSON, body.to_string().as_bytes())
    };
    post(KEYS, json!({"name": "a", "scope": "publish-only"})).expect(201);
    let refused = post(KEYS, json!({"name": "a", "scope": "admin"})).expect(422);
    assert_eq!(refused.json()["field"], json!("scope"));
    post("/v1/tenants/other/keys", json!({"name": "a", "scope": "tenant"})).expect(404);
    let refused = post(KEYS, json!({"name": "a", "scope": "tenant", "tenant": "other"}));
    assert_eq!(refused.expect(422).json()["field"], json!("tenant"));
    post("/v1/keys", json!({"name": "a", "scope": "admin"})).expect(403);
}

#[test]
fn an_admin_makes_keys_of_any_kind() {
    let world = World::new();
    let admin = world.post("/v1/keys", &json!({"name": "a", "scope": "admin"})).expect(201).json();
    let key = admin["key"].as_str().unwrap();
    world.call("GET", "/v1/tenants", key, &[], b"").expect(200);
    let of_tenant = json!({"name": "a", "scope": "read-only", "tenant": "default"});
    world.post("/v1/keys", &of_tenant).expect(201);
    assert_eq!(world.get("/v1/keys").expect(200).json()["items"].as_array().unwrap().len(), 3);
    for (body, status, field) in [
        (json!({"name": "a", "scope": "tenant"}), 422, Some("tenant")),
        (json!({"name": "a", "scope": "admin", "tenant": "default"}), 422, Some("tenant")),
        (json!({"name": "a", "scope": "tenant", "tenant": "nobody"}), 404, None),
        (json!({"name": " ", "scope": "admin"}), 422, Some("name")),
        (json!({"name": "a", "scope": "root"}), 422, Some("scope")),
        (
            json!({"name": "a", "scope": "admin", "expires_at": "2020-01-01T00:00:00Z"}),
            422,
            Some("expires_at"),
        ),
    ] {
        let refused = world.post("/v1/keys", &body).expect(status);
        assert_eq!(refused.json()["field"].as_str(), field, "{}", refused.text);
    }
    world.delete(&format!("/v1/keys/{}", admin["id"].as_str().unwrap())).expect(204);
    world.call("GET", "/v1/tenants", key, &[], b"").expect(401);
}

#[test]
fn a_key_made_twice_with_one_idempotency_key_is_the_same() {
    let world = World::new();
    let headers = [crate::world::JSON[0], ("idempotency-key", "k")];
    let body = br#"{"name": "a", "scope": "tenant"}"#;
    let make = || world.call("POST", KEYS, &world.admin, &headers, body).expect(201);
    assert_eq!(make().text, make().text);
    assert_eq!(world.get(KEYS).json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn the_last_admin_key_cannot_be_revoked() {
    let world = World::new();
    let own = || world.get("/v1/whoami").expect(200).json()["key"]["id"].clone();
    let path = |id: &serde_json::Value| format!("/v1/keys/{}", id.as_str().unwrap());
    let make = |body: serde_json::Value| world.post("/v1/keys", &body).expect(201).json();
    assert_eq!(world.delete(&path(&own())).expect(409).code(), "last_admin_key");
    // One with an end is no other one.
    make(json!({"name": "guest", "scope": "admin", "expires_at": "2100-01-01T00:00:00Z"}));
    assert_eq!(world.delete(&path(&own())).expect(409).code(), "last_admin_key");
    let other = make(json!({"name": "operations", "scope": "admin"}));
    world.delete(&path(&own())).expect(204);
    let key = other["key"].as_str().unwrap();
    let last = world.call("DELETE", &path(&other["id"]), key, &[], b"").expect(409);
    assert_eq!(last.code(), "last_admin_key");
    world.call("GET", "/v1/tenants", key, &[], b"").expect(200);
}

#[test]
fn the_name_of_the_configured_key_is_its_own() {
    let world = World::new();
    let refused = world.post("/v1/keys", &json!({"name": "server.admin_key", "scope": "admin"}));
    assert_eq!(refused.expect(422).json()["field"], "name");
}
