//! How endpoints and lanes are doing: what the API says in each state is what the engine does.

use std::net::TcpListener;

use railpost::config::Config;
use railpost_engine::Timestamp;
use railpost_store::Write;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::World;

/// Opens after two failures out of two, for an hour; retries after a second.
fn nervous() -> Value {
    json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}},
        "breaker": {"min_attempts": 2, "window": 2, "open_for": "1h", "open_for_max": "1h"},
    })
}

/// What the list, the endpoint itself and its health say, once they are in this state: all the same.
#[track_caller]
fn health_in(world: &World, endpoint: &str, state: &str) -> Value {
    let path = format!("endpoints/{endpoint}");
    let health =
        world.look_until(&path, |found| found["health"]["state"] == state)["health"].clone();
    let alone = world.look(&format!("{path}/health"));
    for (name, value) in health.as_object().unwrap() {
        assert_eq!(&alone[name], value, "{name}");
    }
    let list = world.look("endpoints");
    let listed = list["items"].as_array().unwrap().iter().find(|one| one["id"] == endpoint);
    assert_eq!(listed.unwrap()["health"], health);
    health
}

/// The endpoint with an open breaker, behind which these keys wait.
fn opened(world: &World, receiver: &Receiver, keys: usize) -> String {
    receiver.answers(&vec![503; keys]);
    let endpoint = world.endpoint(receiver, &nervous());
    for number in 1..=keys {
        world.publish(&format!("evt-{number}"), "order.paid", Some(&format!("key-{number}")));
    }
    health_in(world, &endpoint, "waiting");
    endpoint
}

fn act(world: &World, endpoint: &str, action: &str) -> Value {
    world.act(&format!("endpoints/{endpoint}/{action}")).expect(200).json()
}

#[test]
fn a_new_endpoint_is_active_and_a_success_is_noted() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let health = health_in(&world, &endpoint, "active");
    assert_eq!((&health["last_error"], &health["last_success_at"]), (&json!(null), &json!(null)));
    assert_eq!(health["next"], "Deliveries are sent as they come.");
    world.publish("evt-1", "order.paid", None);
    world.delivery_in("evt-1", "delivered");
    assert!(health_in(&world, &endpoint, "active")["last_success_at"].is_string());
}

#[test]
fn an_open_breaker_is_waited_for_and_says_when_the_next_attempt_goes() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = opened(&world, &receiver, 2);
    let health = health_in(&world, &endpoint, "waiting");
    assert_eq!(health["waits_for"], "breaker");
    let until = text(&health["until"]);
    let next = format!("One attempt goes at {until}; if it is acknowledged, sending goes on.");
    assert_eq!(health["next"], next);
    let error = &health["last_error"];
    assert_eq!((&error["status"], &error["message"]), (&json!(503), &json!("answered 503")));
    assert!(health["since"].is_string());
    let shown = world.look(&format!("endpoints/{endpoint}"));
    let alone = world.look(&format!("endpoints/{endpoint}/health"));
    assert_eq!(shown["failing_since"], alone["failing_since"]);
    assert!(shown["failing_since"].is_string(), "{shown}");
    let overview = world.look("overview");
    assert_eq!(
        (&overview["endpoints"]["waiting"], &overview["endpoints"]["active"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(overview["attention"][0]["health"], health);
}

#[test]
fn retry_after_is_waited_for_and_resume_lifts_it() {
    let (world, receiver) = (World::new(), Receiver::new());
    receiver.answers_with_header(429, "retry-after: 600");
    let endpoint = world.endpoint(
        &receiver,
        &json!({"retry": {"backoff": {"strategy": "fixed", "delay": "1ms"}, "max_delay": "1h"}}),
    );
    world.publish("evt-1", "order.paid", None);
    let health = health_in(&world, &endpoint, "waiting");
    assert_eq!(health["waits_for"], "retry_after");
    assert!(text(&health["next"]).starts_with("The receiver asked to wait: sending goes on at 20"));
    assert_eq!(act(&world, &endpoint, "resume")["resumed"], "retry_after_lifted");
    world.delivery_in("evt-1", "delivered");
    health_in(&world, &endpoint, "active");
}

#[test]
fn what_is_switched_off_says_why_and_resume_switches_it_on() {
    for (state, answers, policy) in [
        ("gone", vec![410], json!({})),
        ("quarantined", vec![400, 400], json!({"quarantine_after": 2})),
        ("paused", vec![], json!({})),
    ] {
        let (world, receiver) = (World::new(), Receiver::new());
        let endpoint = world.endpoint(&receiver, &policy);
        receiver.answers(&answers);
        for number in 0..answers.len() {
            world.publish(&format!("evt-{number}"), "order.paid", None);
        }
        if state == "paused" {
            act(&world, &endpoint, "pause");
        }
        let health = health_in(&world, &endpoint, state);
        assert!(text(&health["next"]).contains("until someone resumes it"), "{health}");
        assert!(health["since"].is_string());
        assert_eq!(world.look("overview")["endpoints"][state], 1);
        assert_eq!(act(&world, &endpoint, "resume")["resumed"], "switched_on");
        health_in(&world, &endpoint, "active");
        assert_eq!(act(&world, &endpoint, "resume")["resumed"], "nothing_to_do");
    }
}

#[test]
fn an_endpoint_without_a_secret_is_blocked() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let secrets = world.look(&format!("endpoints/{endpoint}/secrets"));
    let id = text(&secrets["items"][0]["id"]).parse().unwrap();
    let at = Timestamp::from_millis(1);
    let expire = Write::ExpireSecret { endpoint: endpoint.parse().unwrap(), id, at };
    let app = world.server().app().clone();
    world.wait_for(app.dispatcher.commit(expire.into())).unwrap();
    let health = health_in(&world, &endpoint, "blocked");
    assert!(text(&health["next"]).contains("it must sign, and has no secret that is valid"));
    assert_eq!(world.look("overview")["attention"][0]["health"]["state"], "blocked");
    let probed = act(&world, &endpoint, "probe");
    assert_eq!((&probed["succeeded"], &probed["failure"]), (&json!(false), &json!("not_sent")));
    assert!(text(&probed["message"]).contains("no secret that is valid"));
    world.act(&format!("endpoints/{endpoint}/secrets")).expect(201);
    health_in(&world, &endpoint, "active");
}

#[test]
fn after_a_restart_what_was_switched_off_says_since_when() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().join("data");
    let (world, receiver) = (World::stored(config.clone()), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[410]);
    world.publish("evt-1", "order.paid", None);
    let before = health_in(&world, &endpoint, "gone");
    assert_eq!(before["last_error"]["status"], 410);
    let admin = world.admin.clone();
    assert!(world.drain());
    let world = World::again(config, admin);
    let after = health_in(&world, &endpoint, "gone");
    assert_eq!(after["since"], before["since"]);
    assert_eq!(after["last_error"], json!(null), "the list of attempts has it");
}

#[test]
fn resume_half_opens_the_breaker_and_one_delivery_goes_at_once() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = opened(&world, &receiver, 2);
    world.publish("evt-3", "order.paid", Some("key-3"));
    let resumed = act(&world, &endpoint, "resume");
    assert_eq!((&resumed["resumed"], &resumed["status"]), (&json!("half_open"), &json!("active")));
    for number in 1..=3 {
        world.delivery_in(&format!("evt-{number}"), "delivered");
    }
    health_in(&world, &endpoint, "active");
    let trail = world.look("audit");
    let entry = trail["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["action"] == "endpoint.resume");
    assert_eq!(entry.unwrap()["detail"]["resumed"], "half_open");
}

#[test]
fn lanes_behind_an_open_breaker_are_listed_and_none_is_in_flight() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = opened(&world, &receiver, 32);
    let until = health_in(&world, &endpoint, "waiting")["until"].clone();
    let path = format!("lanes/open?endpoint={endpoint}&limit=100");
    let open = world.look_until(&path, |open| open["in_flight"] == 0);
    assert_eq!((&open["lanes"], &open["held"]), (&json!(32), &json!(0)), "{open}");
    let items = open["items"].as_array().unwrap();
    assert_eq!(items.len(), 32);
    for item in items {
        assert_eq!(
            (&item["state"], &item["until"]),
            (&json!("waiting_for_breaker"), &until),
            "{item}"
        );
        assert_eq!(item["key"], item["head"]["key"]);
        assert_eq!(item["open"], 1);
    }
    let first = text(&items[0]["head"]["id"]);
    world.act(&format!("deliveries/{first}/discard")).expect(200);
    let open = world.look(&path);
    assert_eq!(open["lanes"], 31, "at once");
    assert!(
        open["items"].as_array().unwrap().iter().all(|item| item["head"]["id"] != first.as_str())
    );
}

#[test]
fn a_held_lane_comes_first_and_leaves_at_once_when_it_is_skipped() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    act(&world, &endpoint, "pause");
    world.publish("evt-1", "order.paid", Some("a"));
    world.publish("evt-2", "order.paid", Some("b"));
    world.publish("evt-3", "order.paid", Some("b"));
    let off = world.look("lanes/open");
    assert_eq!((&off["lanes"], &off["ready"]), (&json!(2), &json!(2)));
    assert!(off["items"].as_array().unwrap().iter().all(|item| item["state"] == "endpoint_off"));
    let (first, second) = (receiver.answers_later(), receiver.answers_later());
    act(&world, &endpoint, "resume");
    receiver.next();
    first.send(400).unwrap();
    receiver.next();
    let open = world.look_until("lanes/open", |open| open["held"] == 1);
    let items = &open["items"];
    assert_eq!(
        (&items[0]["state"], &items[1]["state"]),
        (&json!("held"), &json!("in_flight")),
        "{open}"
    );
    let lane = items[0]["lane"].clone();
    // The record of it is written a moment later, and skipping looks there.
    world.look_until("lanes", |held| held["items"][0]["lane"] == lane);
    world.act(&format!("lanes/{lane}/skip")).expect(200);
    assert_eq!(world.look("lanes/open")["held"], 0, "at once");
    second.send(200).unwrap();
    world.look_until("lanes/open", |open| open["lanes"] == 0);
    world.get(&of_tenant("lanes/open?limit=0")).expect(400);
}

#[test]
fn a_probe_says_what_came_back_and_changes_nothing() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = opened(&world, &receiver, 2);
    receiver.arrived();
    let probed = act(&world, &endpoint, "probe");
    assert_eq!((&probed["succeeded"], &probed["outcome"]), (&json!(true), &json!("acknowledged")));
    assert_eq!((&probed["status"], &probed["message"]), (&json!(200), &json!(null)));
    assert!(probed["timing"]["total_us"].as_u64().unwrap() > 0);
    assert_eq!(probed["health"]["state"], "waiting", "it does not feed the breaker");
    assert!(text(&probed["advice"]).starts_with("The endpoint answers. Resume it:"), "{probed}");
    let request = receiver.next();
    for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert!(request.header(header).is_some(), "{header}");
    }
    assert_eq!((request.header("x-lane"), request.header("x-seq")), (None, None));
    assert!(request.text().contains("a test from Railpost"));
    assert_eq!(world.look("deliveries")["items"].as_array().unwrap().len(), 2, "it is no delivery");
    let trail = world.look("audit");
    assert!(
        trail["items"].as_array().unwrap().iter().any(|entry| entry["action"] == "endpoint.probe")
    );
}

#[test]
fn a_probe_reaches_a_paused_endpoint_and_offers_to_resume_it() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    assert_eq!(act(&world, &endpoint, "probe")["advice"], json!(null), "nothing is to be done");
    act(&world, &endpoint, "pause");
    let probed = act(&world, &endpoint, "probe");
    assert_eq!(
        (&probed["succeeded"], &probed["health"]["state"]),
        (&json!(true), &json!("paused"))
    );
    assert!(text(&probed["advice"]).contains("Resume it"));
}

#[test]
fn a_probe_that_fails_says_why_in_words() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[500]);
    let probed = act(&world, &endpoint, "probe");
    assert_eq!((&probed["succeeded"], &probed["status"]), (&json!(false), &json!(500)));
    assert_eq!(
        (&probed["message"], &probed["response_body"]),
        (&json!("answered 500"), &json!("told"))
    );
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = world.endpoint_with(&json!({"url": format!("http://{closed}/hooks")}));
    let probed = act(&world, &nobody, "probe");
    assert_eq!((&probed["failure"], &probed["status"]), (&json!("refused"), &json!(null)));
    assert!(probed["message"].is_string() && probed["advice"].is_string(), "{probed}");
    let health = health_in(&world, &nobody, "active");
    assert_eq!(health["last_error"], json!(null), "the engine does not hear of it");
}

#[test]
fn one_probe_of_an_endpoint_is_in_flight_at_a_time() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let later = receiver.answers_later();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| act(&world, &endpoint, "probe"));
        receiver.next();
        let refused = world.act(&format!("endpoints/{endpoint}/probe")).expect(409);
        assert_eq!(refused.code(), "conflict");
        later.send(200).unwrap();
        assert_eq!(first.join().unwrap()["succeeded"], true);
    });
    act(&world, &endpoint, "probe");
}

#[test]
fn soon_after_a_rotation_a_401_is_retried_and_lands() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[401]);
    world.publish("evt-1", "order.paid", None);
    world.delivery_in("evt-1", "dead");
    world.act(&format!("endpoints/{endpoint}/secrets")).expect(201);
    receiver.answers(&[401, 403]);
    world.publish("evt-2", "order.paid", None);
    let delivered = world.delivery_in("evt-2", "delivered");
    assert_eq!(delivered["attempts"], 3);
    let attempts = world.look(&format!("deliveries/{}/attempts", text(&delivered["id"])));
    let outcomes = crate::scene::column(&attempts, "outcome");
    assert_eq!(outcomes, ["retryable", "retryable", "acknowledged"]);
}

#[test]
fn a_replay_names_the_endpoint_that_gets_nothing_just_now() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("evt-1", "order.paid", None);
    world.delivery_in("evt-1", "dead");
    act(&world, &endpoint, "pause");
    let replay = json!({"action": "replay", "filter": {"endpoint": endpoint}});
    let created = world.post(&of_tenant("replays"), &replay).expect(202).json();
    let waits = &created["waits_for"][0];
    assert_eq!(
        (&waits["endpoint"], &waits["health"]["state"]),
        (&json!(endpoint), &json!("paused"))
    );
    let path = format!("replays/{}", text(&created["id"]));
    let done = world.look_until(&path, |replay| replay["state"] == "done");
    assert_eq!((&done["done"], &done["waits_for"][0]["endpoint"]), (&json!(1), &json!(endpoint)));
    act(&world, &endpoint, "resume");
    assert_eq!(world.look(&path)["waits_for"], json!([]));
    world.delivery_in("evt-1", "delivered");
}
