//! Erasing a tenant, as a job that survives restarts.

use std::sync::Arc;

use railpost::config::Config;
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{Change, Write};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{column, text};
use crate::world::World;

const ACME: &str = "/v1/tenants/acme";

/// What is found of the tenant as soon as nothing is.
fn gone(world: &World) {
    while world.get(ACME).status != 404 {
        std::thread::yield_now();
    }
}

/// The audit entries about the tenant, the latest first.
fn audited(world: &World) -> Vec<String> {
    column(&world.get("/v1/audit?target=acme").expect(200).json(), "action")
}

/// A tenant with an endpoint and more events than one step erases.
fn fill(world: &World) {
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    world.post(&format!("{ACME}/endpoints"), &json!({"url": "http://127.0.0.1:1234/"})).expect(201);
    let events: Vec<Value> =
        (0..500).map(|n| json!({"type": "a", "key": format!("k{n}"), "payload": n})).collect();
    for _ in 0..=UPKEEP_STEP_MAX / 500 {
        world.post(&format!("{ACME}/events/batch"), &json!({"events": events})).expect(202);
    }
}

#[test]
fn erasing_a_tenant_is_accepted_at_once_and_seen_until_it_is_done() {
    let world = World::new();
    fill(&world);
    let asked = world.delete(ACME).expect(202).json();
    assert_eq!(asked["id"], "acme");
    assert!(asked["erasing"]["since"].is_string(), "{asked}");
    gone(&world);
    assert_eq!(audited(&world), ["tenant.erased", "tenant.erase"]);
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    assert_eq!(world.get(&format!("{ACME}/events")).expect(200).json()["items"], json!([]));
}

/// Marks the tenant as a request does, without the job hearing of it: as if the process had died then.
fn mark(world: &World) {
    let write = Write::EraseTenant("acme".parse().unwrap());
    world.wait_for(world.server().app().store.commit(Change::from(write))).unwrap();
}

#[test]
fn a_tenant_that_is_being_erased_takes_nothing_and_is_shown_to_admins() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    world.post(&format!("{ACME}/endpoints"), &json!({"url": receiver.url()})).expect(201);
    mark(&world);
    let shown = world.get(ACME).expect(200).json();
    assert_eq!((&shown["id"], &shown["erasing"]["erased"]), (&json!("acme"), &json!(0)));
    let again = world.delete(ACME).expect(202).json();
    assert_eq!(again, shown, "to ask again changes nothing");
    let taken = world.post("/v1/tenants", &json!({"id": "acme"})).expect(409);
    assert!(taken.text.contains("is being erased"), "{}", taken.text);
    let event = json!({"type": "a", "payload": 1});
    world.post(&format!("{ACME}/events"), &event).expect(404);
    world.patch(ACME, &json!({"name": "x"})).expect(404);
    assert!(column(&world.get("/v1/tenants").json(), "id").iter().all(|id| id != "acme"));
    assert!(receiver.arrived().is_empty());
}

#[test]
fn a_request_that_erases_takes_the_keys_of_the_tenant_with_it() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    let key = world.key("acme", "tenant");
    let own = || world.call("GET", &format!("{ACME}/events"), &key, &[], b"");
    own().expect(200);
    world.delete(ACME).expect(202);
    assert_eq!(own().expect(401).code(), "unauthorized");
}

#[test]
fn what_was_interrupted_is_erased_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().join("data");
    let world = World::stored(config.clone());
    fill(&world);
    mark(&world);
    let store = Arc::clone(&world.server().app().store);
    let entry = railpost_store::AuditEntry {
        id: railpost_wire::AuditId::from_u128(1),
        at: railpost_engine::Timestamp::default(),
        tenant: None,
        actor: String::new(),
        address: None,
        action: "never written".to_owned(),
        target: "acme".to_owned(),
        detail: Value::Null,
    };
    let done = world.wait_for(store.erase_tenant(&"acme".parse().unwrap(), &entry)).unwrap();
    assert!(!done, "the first step leaves something");
    let shown = world.get(ACME).expect(200).json();
    assert_eq!(shown["erasing"]["erased"], json!(UPKEEP_STEP_MAX));
    let admin = text(&json!(world.admin));
    drop(store);
    drop(world);
    let world = World::again(config, admin);
    gone(&world);
    assert_eq!(audited(&world), ["tenant.erased"]);
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
}
