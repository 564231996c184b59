use serde_json::json;

use crate::scene::text;
use crate::world::World;

#[test]
fn a_tenant_is_created_shown_changed_and_erased() {
    let world = World::new();
    let made = world.post("/v1/tenants", &json!({"id": "acme", "name": "Acme"})).expect(201).json();
    assert_eq!((&made["id"], &made["name"]), (&json!("acme"), &json!("Acme")));
    let changed = world.patch("/v1/tenants/acme", &json!({"backlog_max": 7})).expect(200).json();
    assert_eq!((&changed["name"], &changed["backlog_max"]), (&json!("Acme"), &json!(7)));
    let changed = world.patch("/v1/tenants/acme", &json!({"backlog_max": null})).expect(200).json();
    assert_eq!(changed["backlog_max"], json!(null));
    assert_eq!(world.get("/v1/tenants/acme").expect(200).json()["name"], json!("Acme"));
    assert_eq!(world.delete("/v1/tenants/acme").expect(202).json()["id"], "acme");
}

#[test]
fn a_bad_tenant_is_refused_with_the_field() {
    let world = World::new();
    for (body, field) in [
        (json!({}), None),
        (json!({"id": "Not A Slug"}), Some("id")),
        (json!({"id": "a", "colour": 1}), Some("colour")),
        (
            json!({"id": "a", "rate_limit": {"count": 1, "per": "1 s", "burst": 1}}),
            Some("rate_limit.per"),
        ),
        (
            json!({"id": "a", "rate_limit": {"count": 0, "per": "1s", "burst": 1}}),
            Some("rate_limit.count"),
        ),
    ] {
        let refused = world.post("/v1/tenants", &body).expect(422);
        assert_eq!(refused.json()["field"].as_str(), field, "{body}: {}", refused.text);
    }
}

#[test]
fn a_tenant_that_exists_is_a_conflict() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    assert_eq!(world.post("/v1/tenants", &json!({"id": "acme"})).expect(409).code(), "conflict");
}

#[test]
fn the_endpoints_of_an_erased_tenant_are_served_no_more() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    let new = json!({"url": "http://127.0.0.1:1234/"});
    let made = world.post("/v1/tenants/acme/endpoints", &new).expect(201).json();
    let id = text(&made["id"]).parse().unwrap();
    let app = world.server().app().clone();
    assert!(world.wait_for(app.dispatcher.health(id)).unwrap().is_some());
    world.delete("/v1/tenants/acme").expect(202);
    assert!(world.wait_for(app.dispatcher.health(id)).unwrap().is_none());
}
