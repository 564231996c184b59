//! A store that loses answers, or cannot be read for a moment.

use std::sync::Arc;

use railpost::config::Config;
use railpost::serve::{OpenStore, Server};
use railpost_engine::IgnoredReason;
use railpost_store::{MasterKey, MemoryStore, Setup, Store, SystemSource};
use railpost_telemetry::{Level, Log};
use serde_json::json;

use crate::flaky::Flaky;
use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::{JSON, World};

const MASTER: [u8; 32] = [7; 32];

fn memory() -> Arc<dyn Store> {
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&MASTER) };
    Arc::new(MemoryStore::new(setup))
}

/// A server on a store that fails on demand.
pub(crate) fn flaky_world() -> (World, Arc<Flaky>) {
    flaky_world_with(Config::default())
}

/// The same with this configuration.
pub(crate) fn flaky_world_with(config: Config) -> (World, Arc<Flaky>) {
    let store = Flaky::new(memory());
    (configured_world_on(store.clone(), config, None), store)
}

/// A server on this store, with the admin key of the one before it.
fn world_on(store: Arc<dyn Store>, admin: Option<String>) -> World {
    configured_world_on(store, Config::default(), admin)
}

fn configured_world_on(store: Arc<dyn Store>, mut config: Config, admin: Option<String>) -> World {
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    let log = Log::new(Level::Error, std::io::sink());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (master_key, source) = (MasterKey::new(&MASTER), Arc::new(SystemSource));
    let opened = OpenStore { store, master_key, source };
    let server = runtime.block_on(Server::start_on(opened, config, log)).unwrap();
    World::of(runtime, server, admin)
}

#[test]
fn a_new_endpoint_is_served_although_the_read_after_its_commit_failed() {
    let ((world, store), receiver) = (flaky_world(), Receiver::new());
    store.fail_endpoint_reads(1);
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.publish("e1", "a", Some("k"));
    assert_eq!(receiver.next().header("webhook-id"), Some("e1"));
    // The same for a pause: the request reads the endpoint once before it commits.
    let path = of_tenant(&format!("endpoints/{endpoint}"));
    store.lose_answers(1);
    let pause = || world.call("POST", &format!("{path}/pause"), &world.admin, &AGAIN, b"");
    assert_eq!(pause().expect(503).code(), "store_unavailable");
    assert_eq!(pause().expect(200).json()["status"], "paused");
    world.get_until(&format!("{path}/health"), |health| health["status"] == "paused");
}

const AGAIN: [(&str, &str); 1] = [("idempotency-key", "again")];

#[test]
fn a_new_secret_whose_answer_was_lost_signs_all_the_same() {
    let ((world, store), receiver) = (flaky_world(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let path = of_tenant(&format!("endpoints/{endpoint}/secrets"));
    store.lose_answers(1);
    let create = || world.call("POST", &path, &world.admin, &[JSON[0], AGAIN[0]], b"{}");
    create().expect(503);
    let made = create().expect(201);
    assert_eq!(made.headers["idempotency-replayed"], "true");
    let secret = text(&made.json()["value"]);
    let signatures = || {
        world.post(&of_tenant("events"), &json!({"type": "a", "payload": 1})).expect(202);
        receiver.next().header("webhook-signature").unwrap().split(' ').count()
    };
    assert!(secret.starts_with("whsec_"));
    while signatures() != 2 {}
}

/// A delivery of a world in which everything is refused for good.
fn dead_letter(world: &World, receiver: &Receiver, event: &str) -> String {
    receiver.answers(&[422]);
    world.publish(event, "a", Some(event));
    text(&world.delivery_in(event, "dead")["id"])
}

#[test]
fn what_people_do_is_on_record_with_it_and_not_after_it() {
    let ((world, store), receiver) = (flaky_world(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let letters = ["e1", "e2", "e3"].map(|event| dead_letter(&world, &receiver, event));
    let to = json!({"endpoint": endpoint});
    let calls = [
        (format!("dead-letters/{}/replay", letters[0]), json!({}), "delivery.replay"),
        (format!("dead-letters/{}/skip", letters[1]), json!({}), "delivery.skip"),
        (format!("dead-letters/{}/discard", letters[2]), json!({}), "delivery.discard"),
        ("events/e1/redeliver".to_owned(), to, "event.redeliver"),
        (format!("endpoints/{endpoint}/test"), json!({}), "endpoint.test"),
    ];
    // The one commit that each of them had after its work fails.
    store.refuse_commits(true);
    for (path, body, action) in calls {
        let done = world.post(&of_tenant(&path), &body);
        assert!(matches!(done.status, 200 | 202), "{path}: {}", done.text);
        assert_eq!(world.look("audit?limit=1")["items"][0]["action"], action);
    }
}

#[test]
fn a_discard_of_what_is_on_the_wire_is_on_record_too() {
    let ((world, store), receiver) = (flaky_world(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let later = receiver.answers_later();
    world.publish("e1", "a", Some("k"));
    receiver.next();
    let delivery = text(&world.look("events/e1/deliveries")["items"][0]["id"]);
    store.refuse_commits(true);
    world.act(&format!("deliveries/{delivery}/discard")).expect(200);
    let entry = &world.look("audit?limit=1")["items"][0];
    assert_eq!(
        (&entry["action"], &entry["target"]),
        (&json!("delivery.discard"), &json!(delivery))
    );
    later.send(503).unwrap();
    world.delivery_in("e1", "discarded");
}

#[test]
fn a_refused_command_leaves_no_entry() {
    let ((world, _store), receiver) = (flaky_world(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    world.publish("e1", "a", Some("k"));
    let delivered = text(&world.delivery_in("e1", "delivered")["id"]);
    world.act(&format!("deliveries/{delivered}/discard")).expect(409);
    assert_eq!(world.look("audit?limit=1")["items"][0]["action"], "endpoint.create");
}

/// How often the engine was told to act on a delivery whose lane was not loaded.
fn not_loaded(world: &World) -> u64 {
    let counters = world.wait_for(world.server().app().dispatcher.counters()).unwrap();
    let index =
        IgnoredReason::ALL.iter().position(|because| *because == IgnoredReason::NotLoaded).unwrap();
    counters.ignored[index]
}

#[test]
fn a_replay_waits_for_lanes_that_are_not_loaded_yet() {
    let (inner, receiver) = (memory(), Receiver::new());
    let world = world_on(inner.clone(), None);
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("dead", "a", Some("k"));
    receiver.next();
    world.delivery_in("dead", "dead");
    let admin = world.admin.clone();
    assert!(world.drain());

    let flaky = Flaky::new(inner);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let held = runtime.block_on(flaky.hold_loads());
    let world = world_on(flaky.clone(), Some(admin));
    let asked = world.post(&of_tenant("replays"), &json!({"action": "replay"})).expect(202).json();
    let path = format!("replays/{}", text(&asked["id"]));
    // More often than one request asks before it gives up.
    while not_loaded(&world) <= 2 * u64::from(railpost_api::limits::COMMAND_RETRIES_MAX) {
        let found = world.look(&path);
        assert_eq!(found["state"], "running", "{found}");
    }
    drop(held);
    let done = world.look_until(&path, |found| found["state"] == "done");
    assert_eq!((&done["done"], &done["refused"]), (&json!(1), &json!(0)));
    assert_eq!(receiver.next().header("webhook-id"), Some("dead"));
}
