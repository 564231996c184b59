//! Verification, new lines and retention, on request.

use railpost::config::Config;
use railpost_engine::Span;
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::text;
use crate::world::World;

#[test]
fn a_store_that_nothing_is_wrong_with_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().join("data");
    for world in [World::new(), World::stored(config)] {
        world.publish("e", "a", Some("k"));
        let found = world.post("/v1/store/verify", &json!({})).expect(200).json();
        assert_eq!(found, json!({"whole": true}));
        let tenant = world.key("default", "tenant");
        let refused = world.call("POST", "/v1/store/verify", &tenant, &[], b"").expect(403);
        assert_eq!(refused.code(), "forbidden");
    }
}

#[test]
fn renewed_lines_begin_at_1_and_the_audit_trail_says_who_asked() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let publish = |id: &str| {
        world.publish(id, "a", Some("k"));
        let arrived = receiver.next();
        let delivery = world.delivery_in(id, "delivered");
        let header = |name: &str| arrived.header(name).unwrap().to_owned();
        assert_eq!(delivery["line"], header("x-lane"));
        assert_eq!(delivery["seq"].to_string(), header("x-seq"));
        (delivery["lane"].clone(), header("x-lane"), header("x-seq"))
    };
    let (lane, line, seq) = publish("e1");
    assert_eq!((publish("e2"), seq), ((lane.clone(), line.clone(), "2".into()), "1".into()));
    world.post("/v1/lines/renew", &json!({})).expect(200);
    let (same_lane, new_line, seq) = publish("e3");
    assert_eq!((same_lane, seq), (lane, "1".to_owned()));
    assert_ne!(new_line, line);
    let audit = world.get("/v1/audit").expect(200).json();
    assert_eq!(audit["items"][0]["action"], "lines.renew");
    let tenant = world.key("default", "tenant");
    world.call("POST", "/v1/lines/renew", &tenant, &[], b"").expect(403);
}

#[test]
fn a_lane_past_its_retention_goes_and_the_next_event_begins_a_new_line() {
    let mut config = Config::default();
    (config.retention.closed, config.retention.lanes) = (Span::ZERO, Span::ZERO);
    let (world, receiver) = (World::with(config), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let publish = |id: &str| {
        world.publish(id, "a", Some("k"));
        receiver.next();
        world.delivery_in(id, "delivered")
    };
    let first = publish("e1");
    let pruned = world.post("/v1/prune", &json!({})).expect(200).json();
    assert_eq!((&pruned["events"], &pruned["lanes"]), (&json!(1), &json!(1)));
    let second = publish("e2");
    assert_ne!(text(&first["line"]), text(&second["line"]));
    assert_eq!(second["seq"], 1);
}
