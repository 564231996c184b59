//! From publish to receiver: order within a key, retries, dead letters and what releases them.

use railpost::config::Config;
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::{column, of_tenant, text};
use crate::world::World;

fn webhook_ids(receiver: &Receiver, count: usize) -> Vec<String> {
    let ids = (0..count).map(|_| receiver.next().header("webhook-id").unwrap().to_owned());
    ids.collect()
}

#[test]
fn what_has_not_landed_keeps_the_next_of_its_key_waiting_and_nobody_else() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let later = receiver.answers_later();
    world.publish("order-1-created", "order.created", Some("1"));
    assert_eq!(webhook_ids(&receiver, 1), ["order-1-created"]);
    world.publish("order-1-updated", "order.updated", Some("1"));
    world.publish("order-2-created", "order.created", Some("2"));
    assert_eq!(webhook_ids(&receiver, 1), ["order-2-created"]);
    assert!(receiver.arrived().is_empty());
    later.send(500).unwrap();
    let rest: Vec<_> = (0..2).map(|_| receiver.next()).collect();
    let seen: Vec<_> = rest
        .iter()
        .map(|arrived| {
            ["webhook-id", "x-seq", "x-attempt"].map(|name| arrived.header(name).unwrap())
        })
        .collect();
    assert_eq!(seen, [["order-1-created", "1", "2"], ["order-1-updated", "2", "1"]]);
    world.delivery_in("order-1-updated", "delivered");
}

#[test]
fn an_endpoint_that_fails_three_times_and_recovers_gets_it_with_the_fourth() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[500, 503, 429]);
    world.publish("e", "a", Some("k"));
    assert_eq!(webhook_ids(&receiver, 4), ["e"; 4]);
    let delivery = world.delivery_in("e", "delivered");
    assert_eq!(delivery["attempts"], 4);
    let path = format!("deliveries/{}/attempts", text(&delivery["id"]));
    let attempts = world.look(&path);
    assert_eq!(
        column(&attempts, "outcome"),
        ["retryable", "retryable", "retryable", "acknowledged"]
    );
    assert_eq!(column(&attempts, "led_to"), ["waiting", "waiting", "waiting", "delivered"]);
    let first = &attempts["items"][0];
    assert_eq!((&first["status"], &first["response_body"]), (&json!(500), &json!("told")));
    assert!(first["response_headers"].to_string().contains("x-told"));
    assert!(first["timing"]["connect_us"].is_u64() && first["timing"]["tls_us"].is_null());
}

#[test]
fn the_endpoint_s_own_outcomes_say_what_an_attempt_was() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({"outcomes": {"404": "retryable"}}));
    receiver.answers(&[404]);
    world.publish("e", "a", None);
    let delivery = world.delivery_in("e", "delivered");
    let attempts = world.look(&format!("deliveries/{}/attempts", text(&delivery["id"])));
    assert_eq!(column(&attempts, "outcome"), ["retryable", "acknowledged"]);
}

/// A lane that the first of its three events holds as a dead letter.
fn held() -> (World, Receiver) {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    for id in ["first", "second", "third"] {
        world.publish(id, "a", Some("k"));
    }
    assert_eq!(webhook_ids(&receiver, 1), ["first"]);
    world.delivery_in("first", "dead");
    (world, receiver)
}

#[test]
fn a_dead_letter_holds_its_lane_and_both_say_why() {
    let (world, receiver) = held();
    let dead = world.look("dead-letters");
    let letter = &dead["items"][0];
    assert_eq!((&letter["event"], &letter["reason"]), (&json!("first"), &json!("permanent")));
    assert_eq!(
        (&letter["last_answer"]["status"], &letter["holds_lane"]),
        (&json!(400), &json!(true))
    );
    // The SHA-256 of `"first"`, quotes and all.
    let hash = "de5f2cbf4c10a0d146f2a671aac363e8640fefc469ad42ac25364f19e4bc194f";
    let mut one = world.look(&format!("dead-letters/{}", text(&letter["id"])));
    assert_eq!(one.as_object_mut().unwrap().remove("body_sha256"), Some(json!(hash)));
    assert_eq!(one, *letter, "a list shows all but what only the payload tells");
    let lanes = world.look("lanes");
    let lane = &lanes["items"][0];
    assert_eq!((&lane["key"], &lane["held_by"]), (&json!("k"), &letter["id"]));
    assert_eq!(
        (&lane["reason"], &lane["last_answer"]["status"]),
        (&json!("permanent"), &json!(400))
    );
    assert_eq!((&lane["held_at_seq"], &lane["waiting_behind"]), (&json!(1), &json!(2)));
    assert!(receiver.arrived().is_empty());
}

#[test]
fn replay_skip_and_discard_release_a_held_lane_each_in_its_way() {
    for (command, arrive, first_is) in [
        ("replay", vec!["first", "second", "third"], "delivered"),
        ("skip", vec!["second", "third"], "dead"),
        ("discard", vec!["second", "third"], "discarded"),
    ] {
        for by_lane in [true, false] {
            let (world, receiver) = held();
            let lane = world.look("lanes")["items"][0].clone();
            let path = match by_lane {
                true => format!("lanes/{}/{command}", lane["lane"]),
                false => format!("dead-letters/{}/{command}", text(&lane["held_by"])),
            };
            let answer = world.act(&path).expect(200).json();
            let delivery = if by_lane { &answer["delivery"] } else { &answer };
            assert_eq!(delivery["id"], lane["held_by"]);
            assert_eq!(webhook_ids(&receiver, arrive.len()), arrive, "{command}");
            let first = world.look_until("events/first/deliveries", |found| {
                found["items"][0]["state"] == first_is && found["items"][0]["holds_lane"] != true
            });
            assert_eq!(first["items"][0]["state"], first_is);
            assert_eq!(world.look("lanes")["items"], json!([]));
            world.act(&path).expect(if by_lane { 404 } else { 409 });
        }
    }
}

#[test]
fn a_delivery_that_waits_can_be_discarded_and_its_lane_goes_on() {
    let (world, receiver) = (World::new(), Receiver::new());
    let minutes = json!({"backoff": {"strategy": "fixed", "delay": "10m"}});
    world.endpoint(&receiver, &json!({"retry": minutes}));
    receiver.answers(&[500]);
    world.publish("first", "a", Some("k"));
    world.publish("second", "a", Some("k"));
    let waiting = world.delivery_in("first", "waiting");
    assert!(waiting["until"].is_string());
    let id = text(&waiting["id"]);
    let discarded = world.act(&format!("deliveries/{id}/discard")).expect(200).json();
    assert_eq!(discarded["state"], "discarded");
    assert_eq!(webhook_ids(&receiver, 2), ["first", "second"]);
    world.delivery_in("first", "discarded");
    let again = world.act(&format!("deliveries/{id}/discard")).expect(409);
    assert_eq!(again.code(), "wrong_state");
}

#[test]
fn a_delivery_far_back_in_a_held_lane_can_be_discarded() {
    let (world, receiver) = held();
    let event = |n| json!({"id": format!("far-{n}"), "type": "a", "key": "k", "payload": n});
    let events: Vec<_> = (0..300).map(event).collect();
    world.post(&of_tenant("events/batch"), &json!({"events": events})).expect(202);
    let last = world.look("events/far-299/deliveries")["items"][0].clone();
    world.act(&format!("deliveries/{}/discard", text(&last["id"]))).expect(200);
    world.delivery_in("far-299", "discarded");
    world.act(&format!("lanes/{}/skip", last["lane"])).expect(200);
    let arrived = webhook_ids(&receiver, 301);
    assert_eq!((arrived[0].as_str(), arrived[300].as_str()), ("second", "far-298"));
}

#[test]
fn a_held_lane_can_be_released_right_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().to_owned();
    let (world, receiver) = (World::stored(config.clone()), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("first", "a", Some("k"));
    assert_eq!(webhook_ids(&receiver, 1), ["first"]);
    let dead = text(&world.delivery_in("first", "dead")["id"]);
    let admin = world.admin.clone();
    drop(world);
    let world = World::again(config, admin);
    world.act(&format!("dead-letters/{dead}/replay")).expect(200);
    assert_eq!(webhook_ids(&receiver, 1), ["first"]);
    world.delivery_in("first", "delivered");
}

#[test]
fn an_event_goes_once_more_to_an_endpoint_of_choice() {
    let (world, receiver, elsewhere) = (World::new(), Receiver::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    world.publish("e", "a", Some("k"));
    assert_eq!(webhook_ids(&receiver, 1), ["e"]);
    let other = world.endpoint(&elsewhere, &json!({}));
    let path = "/v1/tenants/default/events/e/redeliver";
    world.post(path, &json!({"endpoint": other})).expect(202);
    assert_eq!(webhook_ids(&elsewhere, 1), ["e"]);
    let stranger = json!({"endpoint": "ep_00000000000000000000000001"});
    let refused = world.post(path, &stranger).expect(404).json();
    assert_eq!(refused["field"], "endpoint");
}

#[test]
fn what_is_another_tenant_s_is_not_found() {
    let (world, _receiver) = held();
    let lane = world.look("lanes")["items"][0].clone();
    let (delivery, lane) = (text(&lane["held_by"]), lane["lane"].to_string());
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    for (method, path) in [
        ("GET", format!("deliveries/{delivery}")),
        ("GET", format!("deliveries/{delivery}/attempts")),
        ("POST", format!("deliveries/{delivery}/discard")),
        ("GET", format!("dead-letters/{delivery}")),
        ("POST", format!("dead-letters/{delivery}/replay")),
        ("POST", format!("dead-letters/{delivery}/skip")),
        ("POST", format!("dead-letters/{delivery}/discard")),
        ("POST", format!("lanes/{lane}/replay")),
        ("GET", "events/first".to_owned()),
        ("GET", "events/first/payload".to_owned()),
        ("GET", "events/first/deliveries".to_owned()),
    ] {
        let path = format!("/v1/tenants/other/{path}");
        let answer = world.call(method, &path, &world.admin, &[], b"").expect(404);
        assert_eq!(answer.code(), "not_found", "{path}");
    }
    for list in ["deliveries", "dead-letters", "lanes", "events", "replays"] {
        let found = world.get(&format!("/v1/tenants/other/{list}")).expect(200).json();
        assert_eq!(found["items"], json!([]), "{list}");
    }
}
