//! Searching through the API.

use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::text;
use crate::things::furnish;
use crate::world::World;

/// The kinds and titles of what is found.
fn found(world: &World, path: &str, key: &str) -> Vec<(String, String)> {
    let answer = world.call("GET", path, key, &[], b"").expect(200).json();
    let items = answer["items"].as_array().unwrap().clone();
    items.iter().map(|item| (text(&item["kind"]), text(&item["title"]))).collect()
}

fn kinds(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(kind, _)| kind.as_str()).collect()
}

#[test]
fn each_kind_of_thing_is_found() {
    let world = World::new();
    let things = furnish(&world, "acme");
    let own =
        |words: &str| found(&world, &format!("/v1/tenants/acme/find?q={words}"), &world.admin);
    assert_eq!(own("acme-1"), [("event".into(), "acme.created, key k".into())]);
    let delivery = own(&things["delivery"]);
    assert_eq!(kinds(&delivery), ["delivery"]);
    assert!(delivery[0].1.starts_with("acme.created (acme-1) to http://"), "{delivery:?}");
    assert_eq!(kinds(&own(&things["endpoint"])), ["endpoint"]);
    assert_eq!(kinds(&own("127.0.0.1")), ["endpoint"]);
    assert_eq!(kinds(&own(&things["replay"])), ["replay"]);
    assert_eq!(own("acme"), [("tenant".into(), "tenant acme".into())]);
    assert_eq!(kinds(&own("k")), ["event", "lane"]);
    assert_eq!(kinds(&own("%20k%20")), ["event", "lane"], "spaces around are left out");
    let lane = world.get("/v1/tenants/acme/find?q=k").expect(200).json()["items"][1].clone();
    assert_eq!(
        (text(&lane["id"]), text(&lane["endpoint"])),
        (things["lane"].clone(), things["endpoint"].clone())
    );
    assert_eq!(lane["why"], "key");
}

#[test]
fn a_tenants_key_finds_its_own_things_alone_and_an_admins_all() {
    let world = World::new();
    furnish(&world, "acme");
    furnish(&world, "globex");
    let key = world.key("acme", "read-only");
    let own = found(&world, "/v1/tenants/acme/find?q=k", &key);
    assert_eq!(kinds(&own), ["event", "lane"]);
    let all = found(&world, "/v1/find?q=k", &world.admin);
    assert_eq!(kinds(&all), ["event", "event", "lane", "lane"]);
    assert_eq!(found(&world, "/v1/tenants/acme/find?q=globex-1", &key), []);
    world.call("GET", "/v1/find?q=k", &key, &[], b"").expect(403);
    world.call("GET", "/v1/tenants/globex/find?q=k", &key, &[], b"").expect(404);
}

#[test]
fn words_that_cannot_be_looked_for_are_refused_by_name() {
    let world = World::new();
    for query in ["", "?q=", "?q=%20", &format!("?q={}", "x".repeat(257)), "?words=x"] {
        let refused = world.get(&format!("/v1/find{query}"));
        assert_eq!(refused.status, 400, "{query}: {}", refused.text);
    }
    assert_eq!(world.get("/v1/find?q=").json()["field"], "q");
}

#[test]
fn a_cloudevent_is_found_by_its_own_id_and_a_key_without_an_endpoint_too() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.publish("lonely", "a", Some("customer 7"));
    world.endpoint(&receiver, &json!({}));
    let event = json!({
        "specversion": "1.0", "id": "A234-1234-1234", "source": "/shop", "type": "a", "data": 1,
    });
    let headers = [("content-type", "application/cloudevents+json")];
    let body = event.to_string();
    let path = "/v1/tenants/default/events";
    world.call("POST", path, &world.admin, &headers, body.as_bytes()).expect(202);
    let why = |words: &str| -> Vec<Value> {
        let answer = world.look(&format!("find?q={words}"));
        answer["items"].as_array().unwrap().iter().map(|item| item["why"].clone()).collect()
    };
    assert_eq!(why("A234-1234-1234"), ["cloudevent_id"]);
    assert_eq!(why("customer%207"), ["key"]);
    assert_eq!(why("customer"), ["key"]);
}
