use railpost::config::Config;
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::world::World;

#[test]
fn a_body_that_is_too_large_is_refused() {
    let mut config = Config::default();
    config.limits.body_bytes_max = 1000;
    let world = World::with(config);
    for path in ["events", "events/batch"] {
        let event = json!({"type": "a", "payload": "x".repeat(1000)});
        assert_eq!(world.post(&of_tenant(path), &event).expect(413).code(), "too_large");
    }
}

#[test]
fn a_payload_that_is_too_large_is_refused_with_its_field() {
    let world = World::new();
    let event = json!({"type": "a", "payload": "x".repeat(1024 * 1024)});
    let refused = world.post(&of_tenant("events"), &event).expect(422).json();
    assert!(refused["field"].as_str().unwrap().contains("payload"), "{refused}");
}

#[test]
fn a_batch_of_too_many_bytes_is_refused_whole() {
    let world = World::new();
    let event = json!({"type": "a", "payload": "x".repeat(1_000_000)});
    let batch = json!({"events": vec![event; 17]});
    let refused = world.post(&of_tenant("events/batch"), &batch).expect(422).json();
    assert!(refused["detail"].as_str().unwrap().contains("16777216"), "{refused}");
    assert_eq!(world.look("events")["items"], json!([]));
}

#[test]
fn a_tenant_whose_backlog_is_full_hears_so_until_there_is_room() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.patch("/v1/tenants/default", &json!({"backlog_max": 2})).expect(200);
    world.endpoint(&receiver, &json!({}));
    let later = receiver.answers_later();
    for id in ["e1", "e2"] {
        world.publish(id, "a", Some("k"));
    }
    let third = json!({"id": "e3", "type": "a", "payload": 3});
    let refused = world.post(&of_tenant("events"), &third).expect(429);
    assert_eq!(
        (refused.code().as_str(), &refused.headers["retry-after"]),
        ("backlog_full", &"1".parse().unwrap())
    );
    world.get(&of_tenant("events/e3")).expect(404);
    later.send(200).unwrap();
    world.delivery_in("e2", "delivered");
    world.post(&of_tenant("events"), &third).expect(202);
}

#[test]
fn a_key_that_asks_too_fast_hears_when_to_come_back() {
    let mut config = Config::default();
    (config.limits.requests_per_second, config.limits.requests_burst) = (1, 3);
    let world = World::with(config);
    let answers = std::iter::repeat_with(|| world.get(&of_tenant("events")));
    let refused = answers.take(50).find(|answer| answer.status != 200).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
    assert_eq!(refused.headers["retry-after"], "1");
}
