use railpost::config::Config;
use railpost_engine::Span;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::{Answer, World};

/// The URL that an endpoint with thin envelopes got for an event, without the server's address.
fn delivered_url(world: &World) -> (String, String) {
    let receiver = Receiver::new();
    let new = json!({"url": receiver.url(), "envelope": "thin"});
    let endpoint = world.endpoint_with(&new);
    world.publish("e1", "a", Some("k"));
    let thin: Value = serde_json::from_str(&receiver.next().text()).unwrap();
    assert_eq!(
        (&thin["id"], &thin["type"], &thin["key"]),
        (&json!("e1"), &json!("a"), &json!("k"))
    );
    let url = text(&thin["url"]);
    (url.strip_prefix(&world.url("")).unwrap().to_owned(), endpoint)
}

fn fetch(world: &World, url: &str) -> Answer {
    world.call("GET", url, "", &[], b"")
}

#[test]
fn the_url_of_a_thin_envelope_opens_its_event() {
    let world = World::new();
    let (url, _) = delivered_url(&world);
    let answer = fetch(&world, &url).expect(200);
    assert_eq!(answer.text, "\"e1\"");
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["webhook-id"], "e1");
}

#[test]
fn a_url_that_was_changed_opens_nothing_and_does_not_say_why() {
    let world = World::new();
    let (url, _) = delivered_url(&world);
    world.publish("e2", "a", None);
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let last = url.chars().last().unwrap();
    let flipped = format!("{}{}", &url[..url.len() - 1], if last == 'A' { 'E' } else { 'A' });
    for forged in [
        flipped,
        url.replace("/e1?", "/e2?"),
        url.replace("/default/", "/other/"),
        url.replace("expires=", "expires=9"),
        url.replace("signature=", "signature=A"),
        url.split('&').next().unwrap().to_owned(),
        url.split('?').next().unwrap().to_owned(),
    ] {
        assert_eq!(fetch(&world, &forged).expect(404).code(), "not_found", "{forged}");
    }
}

#[test]
fn a_url_is_worth_nothing_after_its_time_or_its_endpoint_s() {
    let world = World::new();
    let (url, endpoint) = delivered_url(&world);
    world.delete(&of_tenant(&format!("endpoints/{endpoint}"))).expect(200);
    assert_eq!(fetch(&world, &url).expect(404).code(), "not_found");
    let mut config = Config::default();
    config.delivery.thin_url_ttl = Span::from_millis(1);
    let world = World::with(config);
    let (url, _) = delivered_url(&world);
    assert_eq!(fetch(&world, &url).expect(410).code(), "link_expired");
}
