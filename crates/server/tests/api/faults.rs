//! A store that loses answers, or cannot be read for a moment.

use std::sync::Arc;

use railpost::config::Config;
use railpost::serve::Server;
use railpost::telemetry::{Level, Log};
use railpost_store::{MasterKey, MemoryStore, Setup, SystemSource};
use serde_json::json;

use crate::flaky::Flaky;
use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::{JSON, World};

/// A server on a store that fails on demand.
fn flaky_world() -> (World, Arc<Flaky>) {
    let master = [7; 32];
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&master) };
    let store = Flaky::new(Arc::new(MemoryStore::new(setup)));
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    let log = Log::new(Level::Error, std::io::sink());
    let (on, world) = (store.clone(), tokio::runtime::Runtime::new().unwrap());
    let server = world.block_on(Server::start_on(on, master, config, log)).unwrap();
    (World::of(world, server), store)
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
