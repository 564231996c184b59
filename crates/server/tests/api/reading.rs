use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::{column, of_tenant, text};
use crate::world::World;

#[test]
fn events_are_listed_the_latest_first_by_type_key_and_time() {
    let world = World::new();
    for (id, event_type, key) in [("e1", "a", Some("k")), ("e2", "b", Some("k")), ("e3", "a", None)]
    {
        world.publish(id, event_type, key);
    }
    for (query, expected) in [
        ("", vec!["e3", "e2", "e1"]),
        ("?type=a", vec!["e3", "e1"]),
        ("?key=k", vec!["e2", "e1"]),
        ("?type=a&key=k", vec!["e1"]),
        ("?created_before=2020-01-01T00:00:00Z", vec![]),
        ("?created_after=2020-01-01T00:00:00Z&type=b", vec!["e2"]),
    ] {
        assert_eq!(column(&world.look(&format!("events{query}")), "id"), expected, "{query}");
    }
}

#[test]
fn a_list_comes_in_pages() {
    let world = World::new();
    for id in ["e1", "e2", "e3"] {
        world.publish(id, "a", None);
    }
    let first = world.look("events?limit=2");
    assert_eq!(column(&first, "id"), ["e3", "e2"]);
    let rest = world.look(&format!("events?limit=2&cursor={}", text(&first["next"])));
    assert_eq!((column(&rest, "id"), &rest["next"]), (vec!["e1".to_owned()], &json!(null)));
}

#[test]
fn a_bad_filter_is_refused_with_its_name() {
    let world = World::new();
    for (path, field) in [
        ("events?type=not%20a%20type", "type"),
        ("events?created_after=noon", "created_after"),
        ("events?colour=red", "colour"),
        ("events?limit=0", "limit"),
        ("deliveries?state=lost", "state"),
        ("deliveries?endpoint=ep_x", "endpoint"),
        ("deliveries?cursor=!", "cursor"),
        ("deliveries?cursor=AAAA", "cursor"),
        ("events?limit=0", "limit"),
        ("events?limit=501", "limit"),
        ("audit?target=%00", "target"),
        ("lanes?endpoint=x", "endpoint"),
        ("dead-letters?state=pending", "state"),
        ("figures?range=1y", "range"),
    ] {
        let answer = world.get(&of_tenant(path));
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{path}: {}", answer.text);
    }
}

#[test]
fn an_event_is_shown_with_its_payload() {
    let world = World::new();
    world.publish("e1", "a", Some("k"));
    let event = world.look("events/e1");
    assert_eq!((&event["payload"], &event["payload_bytes"]), (&json!("e1"), &json!(4)));
    assert_eq!((&event["type"], &event["key"]), (&json!("a"), &json!("k")));
}

#[test]
fn a_payload_comes_byte_for_byte_and_no_browser_runs_it() {
    let world = World::new();
    let page = b"<script>alert(1)</script>";
    let headers = [
        ("content-type", "text/html"),
        ("ce-specversion", "1.0"),
        ("ce-id", "e1"),
        ("ce-source", "/x"),
        ("ce-type", "a"),
    ];
    let sent = world.call("POST", &of_tenant("events"), &world.admin, &headers, page).expect(202);
    let id = text(&sent.json()["id"]);
    let answer = world.get(&of_tenant(&format!("events/{id}/payload"))).expect(200);
    assert_eq!(answer.text.as_bytes(), page);
    for (name, value) in [
        ("content-type", "text/html"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("webhook-id", &id),
    ] {
        assert_eq!(answer.headers[name], value, "{name}");
    }
}

#[test]
fn deliveries_are_listed_by_endpoint_state_type_and_key() {
    let (world, receiver, elsewhere) = (World::new(), Receiver::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("e1", "a", Some("k"));
    world.delivery_in("e1", "dead");
    world.publish("e2", "b", Some("l"));
    world.delivery_in("e2", "delivered");
    let other = world.endpoint(&elsewhere, &json!({}));
    world.publish("e3", "a", Some("m"));
    elsewhere.next();
    for (query, expected) in [
        (format!("endpoint={endpoint}"), vec!["e3", "e2", "e1"]),
        (format!("endpoint={other}"), vec!["e3"]),
        ("state=dead".to_owned(), vec!["e1"]),
        (format!("type=a&endpoint={endpoint}"), vec!["e3", "e1"]),
        ("key=l".to_owned(), vec!["e2"]),
        ("created_before=2020-01-01T00:00:00Z".to_owned(), vec![]),
    ] {
        assert_eq!(
            column(&world.look(&format!("deliveries?{query}")), "event"),
            expected,
            "{query}"
        );
    }
    for (query, expected) in [("", vec!["e1"]), ("?type=b", vec![]), ("?key=k", vec!["e1"])] {
        let found = world.look(&format!("dead-letters{query}"));
        assert_eq!(column(&found, "event"), expected, "{query}");
    }
    let one = world.look("dead-letters")["items"][0].clone();
    assert_eq!(world.look(&format!("deliveries/{}", text(&one["id"])))["seq"], 1);
    assert_eq!(world.look("lanes")["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.look(&format!("lanes?endpoint={other}"))["items"], json!([]));
}
