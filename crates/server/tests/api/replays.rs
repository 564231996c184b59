use railpost::config::Config;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{column, of_tenant, text};
use crate::world::World;

const KEYS: [&str; 4] = ["k1", "k2", "k3", "k4"];

/// One dead letter per key that lets its lane go on, and then four more that were delivered.
fn dead_letters() -> (World, Receiver, String) {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({"on_dead_letter": "advance"}));
    receiver.answers(&[400; 4]);
    for key in KEYS {
        world.publish(&format!("dead-{key}"), "a", Some(key));
        receiver.next();
        world.delivery_in(&format!("dead-{key}"), "dead");
    }
    for key in KEYS {
        world.publish(&format!("good-{key}"), "b", Some(key));
        receiver.next();
    }
    (world, receiver, endpoint)
}

fn ask(world: &World, new: &Value) -> Value {
    world.post(&of_tenant("replays"), new).expect(202).json()
}

fn ended(world: &World, replay: &Value) -> Value {
    let path = format!("replays/{}", text(&replay["id"]));
    world.look_until(&path, |found| found["state"] != "running")
}

fn counts(replay: &Value) -> [u64; 3] {
    ["matched", "done", "refused"].map(|field| replay[field].as_u64().unwrap())
}

fn arrivals(receiver: &Receiver, count: usize) -> Vec<String> {
    (0..count).map(|_| receiver.next().header("webhook-id").unwrap().to_owned()).collect()
}

#[test]
fn a_dry_run_counts_and_shows_the_order_and_does_nothing() {
    let (world, receiver, _) = dead_letters();
    let asked = ask(&world, &json!({"action": "replay", "dry_run": true}));
    let done = ended(&world, &asked);
    assert_eq!((&done["state"], counts(&done)), (&json!("done"), [4, 0, 0]));
    let dead = world.look("dead-letters");
    let oldest_first: Vec<_> = column(&dead, "id").into_iter().rev().collect();
    assert_eq!(done["preview"], json!(oldest_first));
    assert!(done["looked_at"].as_u64() >= Some(4) && done["took_ms"].is_u64(), "{done}");
    // It is what the job found, and not what is there when somebody looks.
    world.act(&format!("dead-letters/{}/discard", oldest_first[0])).expect(200);
    world.delivery_in("dead-k1", "discarded");
    assert_eq!(world.look(&format!("replays/{}", text(&asked["id"]))), done);
    assert_eq!(column(&dead, "event").len(), 4);
    assert!(receiver.arrived().is_empty());
}

#[test]
fn a_preview_does_not_wait_for_the_replay_before_it() {
    let (world, stuck) = stuck();
    let asked = ask(&world, &json!({"action": "discard", "dry_run": true}));
    assert_eq!((&asked["preview"], &asked["state"]), (&json!([]), &json!("running")));
    assert_eq!(ended(&world, &asked)["state"], "done");
    let path = format!("replays/{}", text(&stuck["id"]));
    assert_eq!(world.look(&path)["state"], "running");
}

#[test]
fn a_tenant_that_has_as_many_replays_as_it_may_leaves_room_for_others() {
    let (world, first) = stuck();
    let new = json!({"action": "redeliver", "to": first["to"], "filter": first["filter"]});
    for _ in 1..railpost_store::limits::REPLAYS_RUNNING_PER_TENANT_MAX {
        ask(&world, &new);
    }
    let refused = world.post(&of_tenant("replays"), &new).expect(422);
    assert_eq!(refused.code(), "limit_reached");
    assert!(refused.json()["detail"].as_str().unwrap().contains("at most 10"), "{}", refused.text);
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let theirs = json!({"action": "replay"});
    world.post("/v1/tenants/other/replays", &theirs).expect(202);
}

#[test]
fn a_replay_does_it_to_what_the_filter_finds() {
    let (world, receiver, endpoint) = dead_letters();
    let filter = json!({"key": "k2", "endpoint": endpoint, "type": "a", "state": "dead"});
    let one = ended(&world, &ask(&world, &json!({"action": "replay", "filter": filter})));
    assert_eq!((counts(&one), &one["filter"]["key"]), ([1, 1, 0], &json!("k2")));
    assert_eq!(arrivals(&receiver, 1), ["dead-k2"]);
    world.delivery_in("dead-k2", "delivered");
    let rest = ended(&world, &ask(&world, &json!({"action": "discard"})));
    assert_eq!(counts(&rest), [3, 3, 0]);
    world.look_until("dead-letters", |found| found["items"] == json!([]));
    assert_eq!(column(&world.look("replays"), "action"), ["discard", "replay"]);
}

#[test]
fn what_its_state_does_not_allow_is_refused_and_the_rest_goes_on() {
    let (world, _receiver, _) = dead_letters();
    // None of them holds its lane, so none can be skipped.
    let skipped = ended(&world, &ask(&world, &json!({"action": "skip"})));
    assert_eq!((&skipped["state"], counts(&skipped)), (&json!("done"), [4, 0, 4]));
}

#[test]
fn held_lanes_are_released_together() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400; 4]);
    for key in KEYS {
        world.publish(&format!("dead-{key}"), "a", Some(key));
        receiver.next();
        world.publish(&format!("next-{key}"), "a", Some(key));
    }
    world.look_until("lanes", |found| found["items"].as_array().unwrap().len() == 4);
    let done =
        ended(&world, &ask(&world, &json!({"action": "replay", "filter": {"state": "dead"}})));
    assert_eq!(counts(&done), [4, 4, 0]);
    let arrived = arrivals(&receiver, 8);
    for key in KEYS {
        let of_key: Vec<_> = arrived.iter().filter(|id| id.ends_with(key)).cloned().collect();
        assert_eq!(of_key, [format!("dead-{key}"), format!("next-{key}")]);
    }
}

#[test]
fn events_are_delivered_elsewhere_in_the_order_of_their_lanes() {
    let (world, receiver, elsewhere) = (World::new(), Receiver::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let ids: Vec<String> = (0..30).map(|n| format!("e{n}")).collect();
    for id in &ids {
        world.publish(id, "a", Some("k"));
    }
    arrivals(&receiver, ids.len());
    let other = world.endpoint(&elsewhere, &json!({}));
    let new = json!({"action": "redeliver", "to": other, "filter": {"endpoint": endpoint}});
    let done = ended(&world, &ask(&world, &new));
    assert_eq!((counts(&done), &done["to"]), ([30, 30, 0], &json!(other)));
    assert_eq!(arrivals(&elsewhere, ids.len()), ids);
}

#[test]
fn a_replay_that_is_cancelled_stops_and_the_next_one_begins() {
    let (world, receiver, _) = dead_letters();
    // It does the first at once, and would do the next in a second.
    let slow = ask(&world, &json!({"action": "replay", "rate_per_s": 1}));
    assert_eq!(arrivals(&receiver, 1), ["dead-k1"]);
    let queued = ask(&world, &json!({"action": "discard", "filter": {"key": "k4"}}));
    let path = of_tenant(&format!("replays/{}/cancel", text(&slow["id"])));
    let cancelled = world.post(&path, &json!({})).expect(200).json();
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(world.post(&path, &json!({})).expect(409).code(), "wrong_state");
    assert_eq!(counts(&ended(&world, &queued)), [1, 1, 0]);
    world.delivery_in("dead-k4", "discarded");
    assert_eq!(ended(&world, &slow)["state"], "cancelled");
}

#[test]
fn a_replay_goes_on_after_a_restart_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().to_owned();
    let (receiver, elsewhere) = (Receiver::new(), Receiver::new());
    let world = World::stored(config.clone());
    let admin = world.admin.clone();
    let endpoint = world.endpoint(&receiver, &json!({}));
    for id in KEYS {
        world.publish(id, "a", Some("k"));
    }
    arrivals(&receiver, KEYS.len());
    let to = world.endpoint(&elsewhere, &json!({}));
    let filter = json!({"endpoint": endpoint});
    let new = json!({"action": "redeliver", "to": to, "filter": filter, "rate_per_s": 2});
    let asked = ask(&world, &new);
    assert_eq!(arrivals(&elsewhere, 1), ["k1"]);
    drop(world);
    let world = World::again(config, admin);
    assert_eq!(arrivals(&elsewhere, 3), ["k2", "k3", "k4"]);
    let done = ended(&world, &asked);
    assert_eq!((&done["state"], counts(&done)), (&json!("done"), [4, 4, 0]));
}

/// A replay that meets a full backlog: what it is to make stands behind what a paused endpoint has.
fn stuck() -> (World, Value) {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.publish("landed", "a", None);
    world.delivery_in("landed", "delivered");
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    world.publish("waits", "a", None);
    world.patch("/v1/tenants/default", &json!({"backlog_max": 1})).expect(200);
    let new = json!({"action": "redeliver", "to": endpoint, "filter": {"state": "delivered"}});
    let asked = ask(&world, &new);
    (world, asked)
}

#[test]
fn a_replay_that_meets_a_full_backlog_does_not_keep_the_server_from_stopping() {
    let (world, _) = stuck();
    assert!(world.drain());
}

#[test]
fn a_replay_that_meets_a_full_backlog_can_be_cancelled_and_goes_on_when_there_is_room() {
    let (world, first) = stuck();
    let path = of_tenant(&format!("replays/{}/cancel", text(&first["id"])));
    world.post(&path, &json!({})).expect(200);
    let new = json!({"action": "redeliver", "to": first["to"], "filter": first["filter"]});
    let second = ask(&world, &new);
    world.patch("/v1/tenants/default", &json!({"backlog_max": 2})).expect(200);
    assert_eq!(counts(&ended(&world, &second)), [1, 1, 0]);
    assert_eq!(counts(&ended(&world, &first)), [0, 0, 0]);
}

#[test]
fn a_bad_replay_is_refused_with_its_field() {
    let world = World::new();
    for (new, status, field) in [
        (json!({}), 422, None),
        (json!({"action": "burn"}), 422, Some("action")),
        (json!({"action": "redeliver"}), 422, Some("to")),
        (json!({"action": "replay", "to": "ep_00000000000000000000000001"}), 422, Some("to")),
        (json!({"action": "redeliver", "to": "ep_00000000000000000000000001"}), 404, Some("to")),
        (json!({"action": "replay", "rate_per_s": 0}), 422, Some("rate_per_s")),
        (json!({"action": "replay", "filter": {"state": "lost"}}), 422, Some("filter.state")),
        (json!({"action": "replay", "filter": {"colour": 1}}), 422, Some("filter.colour")),
        (json!({"action": "skip", "filter": {"state": "pending"}}), 422, Some("filter.state")),
    ] {
        let refused = world.post(&of_tenant("replays"), &new).expect(status).json();
        assert_eq!(refused["field"].as_str(), field, "{new}: {refused}");
    }
    world.get(&of_tenant("replays/rpl_00000000000000000000000001")).expect(404);
}
