use serde_json::{Value, json};

use crate::world::World;

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
