//! The story of an event, and what lists show of where it is.

use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::text;
use crate::world::{JSON, World};

fn kinds(story: &Value) -> Vec<&str> {
    let entries = story["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect()
}

fn entry<'s>(story: &'s Value, kind: &str) -> &'s Value {
    let mut entries = story["entries"].as_array().unwrap().iter();
    entries.find(|entry| entry["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {story:#}"))
}

fn header<'s>(attempt: &'s Value, name: &str) -> Option<&'s str> {
    let mut headers = attempt["request_headers"].as_array().unwrap().iter();
    headers.find(|pair| pair[0] == name).and_then(|pair| pair[1].as_str())
}

/// An event that failed, was held, replayed and delivered, published with the key `backend`.
fn eventful(world: &World, receiver: &Receiver) -> String {
    let endpoint = world.endpoint_with(&json!({
        "url": receiver.url(),
        "headers": {"X-Own": "do not show"},
        "policy": {"retry": {"max_attempts": 2, "backoff": {"strategy": "fixed", "delay": "1ms"}}},
    }));
    receiver.answers(&[503, 500]);
    let new = json!({"name": "backend", "scope": "publish-only"});
    let key = world.post("/v1/tenants/default/keys", &new).expect(201).json();
    let event = json!({"id": "order-1-paid", "type": "order.paid", "key": "order-1", "payload": 1});
    let path = "/v1/tenants/default/events";
    let body = event.to_string();
    world.call("POST", path, &text(&key["key"]), &JSON, body.as_bytes()).expect(202);
    world.delivery_in("order-1-paid", "dead");
    let held = world.look("lanes")["items"][0].clone();
    world.act(&format!("dead-letters/{}/replay", text(&held["held_by"]))).expect(200);
    world.delivery_in("order-1-paid", "delivered");
    endpoint
}

#[test]
fn the_story_of_an_event_that_failed_was_held_replayed_and_delivered() {
    let (world, receiver, other) = (World::new(), Receiver::new(), Receiver::new());
    let invoices = json!({"url": other.url(), "types": ["invoice.*"]});
    let uninterested = world.endpoint_with(&invoices);
    let endpoint = eventful(&world, &receiver);
    let late = world.endpoint(&other, &json!({}));
    let story = world.look("events/order-1-paid/story");
    let expected = [
        "accepted",
        "matched",
        "attempt",
        "waiting",
        "attempt",
        "dead",
        "held",
        "replayed",
        "attempt",
        "delivered",
    ];
    assert_eq!(kinds(&story), expected, "{story:#}");
    assert_eq!(
        entry(&story, "accepted")["text"],
        "Accepted, published with the API key `backend`."
    );
    assert_eq!(entry(&story, "accepted")["by"]["name"], "backend");
    assert_eq!(story["event"]["accepted_by"], entry(&story, "accepted")["by"]);
    assert_eq!(story["event"]["deliveries"]["delivered"], 1);
    assert_eq!(
        (&story["left_off"], &story["matched"][0]["endpoint"]),
        (&json!(0), &json!(endpoint))
    );
    let replayed = entry(&story, "replayed");
    assert!(text(&replayed["by"]["id"]).starts_with("key_"), "{replayed}");
    assert_eq!(replayed["delivery"], story["matched"][0]["delivery"]);
    assert!(text(&entry(&story, "held")["text"]).contains("`order-1`"), "{story:#}");
    let whys = story["not_matched"].as_array().unwrap();
    let why = |id: &str| {
        let found = whys.iter().find(|other| other["endpoint"] == id);
        text(&found.unwrap_or_else(|| panic!("{id}: {whys:?}"))["why"])
    };
    assert_eq!(why(&uninterested), "its types are invoice.*; this event is order.paid");
    assert!(why(&late).starts_with("it was made at "), "{}", why(&late));
    assert_eq!(whys.len(), 2);
}

#[test]
fn an_attempt_in_a_story_has_the_headers_that_it_sent_without_what_is_secret() {
    let (world, receiver) = (World::new(), Receiver::new());
    eventful(&world, &receiver);
    let story = world.look("events/order-1-paid/story");
    let entries = story["entries"].as_array().unwrap();
    let attempts: Vec<&Value> =
        entries.iter().map(|entry| &entry["attempt"]).filter(|found| found.is_object()).collect();
    assert_eq!(attempts.len(), 3);
    for (number, attempt) in attempts.iter().enumerate() {
        let sent = receiver.next();
        assert_eq!(attempt["number"], number + 1);
        for (name, value) in attempt["request_headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        {
            let shown = value.trim_end_matches('…');
            let real = sent.header(name).unwrap_or_else(|| panic!("{name} was not sent"));
            let secret = name.to_ascii_lowercase().contains("signature") || name == "X-Own";
            assert_eq!(value.contains('…'), secret, "{name}: {value}");
            assert!(real.starts_with(shown) || secret, "{name}: {value} and {real}");
        }
        assert_eq!(header(attempt, "webhook-id"), Some("order-1-paid"));
        assert_eq!(header(attempt, "X-Own"), Some("…"));
        assert_eq!(header(attempt, "X-Replay"), (number == 2).then_some("true"));
    }
    assert!(!story.to_string().contains("do not show"));
}

#[test]
fn a_story_tells_of_redeliveries_replays_and_what_was_done_to_the_endpoint() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({"on_dead_letter": "advance"}));
    receiver.answers(&[400]);
    world.publish("e-1", "a", Some("k"));
    world.delivery_in("e-1", "dead");
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    let replay = json!({"action": "replay"});
    let replay = world.post("/v1/tenants/default/replays", &replay).expect(202).json();
    let replay = text(&replay["id"]);
    world.look_until(&format!("replays/{replay}"), |found| found["state"] == "done");
    world.act(&format!("endpoints/{endpoint}/resume")).expect(200);
    world.delivery_in("e-1", "delivered");
    let order = json!({"endpoint": endpoint});
    world.post("/v1/tenants/default/events/e-1/redeliver", &order).expect(202);
    let story = world.look_until("events/e-1/story", |story| {
        kinds(story).iter().filter(|kind| **kind == "delivered").count() == 2
    });
    let told = kinds(&story);
    assert!(!told.contains(&"held"), "it leaves its lane: {told:?}");
    let persons = told.iter().filter(|kind| **kind == "person").count();
    assert_eq!(persons, 2, "paused and resumed: {story:#}");
    assert!(text(&entry(&story, "replayed")["text"]).contains(&replay), "{story:#}");
    let again = entry(&story, "redelivered");
    assert!(text(&again["by"]["id"]).starts_with("key_"), "{again}");
    assert_eq!(story["matched"].as_array().unwrap().len(), 2);
}

#[test]
fn an_unknown_event_has_no_story() {
    let world = World::new();
    assert_eq!(world.get("/v1/tenants/default/events/none/story").expect(404).code(), "not_found");
}

#[test]
fn deliveries_and_replays_are_filtered_by_reason_status_and_failure() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    for (id, status) in [("gone-wrong", 400), ("not-found", 404), ("fine", 200)] {
        receiver.answers(&[status]);
        world.publish(id, "a", Some(id));
        world.delivery_in(id, if status == 200 { "delivered" } else { "dead" });
    }
    let found = |path: &str| {
        let items = world.look(path)["items"].clone();
        let mut ids: Vec<String> =
            items.as_array().unwrap().iter().map(|item| text(&item["event"])).collect();
        ids.sort();
        ids
    };
    assert_eq!(found("deliveries?status=404"), ["not-found"]);
    assert_eq!(found("deliveries?status=200"), ["fine"]);
    assert_eq!(found("dead-letters?status=400"), ["gone-wrong"]);
    assert_eq!(found("deliveries?reason=permanent"), ["gone-wrong", "not-found"]);
    assert_eq!(found("deliveries?reason=person"), [""; 0]);
    assert_eq!(found("dead-letters?failure=timeout"), [""; 0]);
    for bad in ["status=99", "status=600", "status=x", "reason=broken", "failure=tired"] {
        let refused = world.get(&format!("/v1/tenants/default/deliveries?{bad}"));
        let (name, _) = bad.split_once('=').unwrap();
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text);
        assert_eq!(refused.json()["field"], name, "{}", refused.text);
    }
    let one = world.look("deliveries?status=404")["items"][0].clone();
    assert_eq!(one["endpoint_url"], receiver.url());
    let answer = &one["last_answer"];
    assert_eq!((&answer["status"], &answer["attempt"]), (&json!(404), &json!(1)));
    assert_eq!(
        (&answer["outcome"], &answer["message"]),
        (&json!("permanent"), &json!("answered 404"))
    );
    let replay = json!({"action": "discard", "filter": {"status": 404}});
    let replay = world.post("/v1/tenants/default/replays", &replay).expect(202).json();
    assert_eq!(replay["filter"]["status"], 404);
    let path = format!("replays/{}", text(&replay["id"]));
    let done = world.look_until(&path, |found| found["state"] == "done");
    assert_eq!((&done["matched"], &done["done"]), (&json!(1), &json!(1)));
    world.delivery_in("not-found", "discarded");
    world.delivery_in("gone-wrong", "dead");
    let attempts = world.look(&format!("endpoints/{endpoint}/attempts?limit=2"));
    let of: Vec<&Value> =
        attempts["items"].as_array().unwrap().iter().map(|item| &item["event"]).collect();
    assert_eq!(of, ["fine", "not-found"]);
    let unknown = "/v1/tenants/default/endpoints/ep_00000000000000000000000001/attempts";
    world.get(unknown).expect(404);
    world.get(&format!("/v1/tenants/default/endpoints/{endpoint}/attempts?limit=0")).expect(400);
}

#[test]
fn a_story_says_where_each_delivery_is_and_leaves_out_a_resume_that_did_nothing() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("stuck", "a", Some("k"));
    world.delivery_in("stuck", "dead");
    world.act(&format!("endpoints/{endpoint}/resume")).expect(200);
    let story = world.look("events/stuck/story");
    assert!(!kinds(&story).contains(&"person"), "{story:#}");
    assert_eq!(
        (&story["matched"][0]["state"], &story["matched"][0]["now"]),
        (&json!("dead"), &json!("a dead letter that holds its lane"))
    );
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    world.publish("kept", "a", Some("other"));
    let story = world.look("events/kept/story");
    let now = text(&story["matched"][0]["now"]);
    let expected =
        "waits for its turn, and for its endpoint: Nothing is sent until someone resumes";
    assert!(now.starts_with(expected), "{now}");
}

#[test]
fn an_old_delivery_that_was_tried_last_is_among_the_latest_attempts() {
    let (world, receiver) = (World::new(), Receiver::new());
    let policy = json!({"on_dead_letter": "advance", "quarantine_after": null});
    let endpoint = world.endpoint(&receiver, &policy);
    receiver.answers(&[400, 400, 200, 400]);
    for id in ["oldest", "second", "third"] {
        world.publish(id, "a", None);
        world.look_until(&format!("events/{id}/deliveries"), |found| {
            ["dead", "delivered"].contains(&text(&found["items"][0]["state"]).as_str())
        });
    }
    let oldest = world.look("events/oldest/deliveries")["items"][0]["id"].clone();
    world.act(&format!("dead-letters/{}/replay", text(&oldest))).expect(200);
    let path = format!("endpoints/{endpoint}/attempts?limit=1");
    let latest = world.look_until(&path, |found| found["items"][0]["event"] == "oldest");
    assert_eq!(latest["items"][0]["number"], 2);
}
