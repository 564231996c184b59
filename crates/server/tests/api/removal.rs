//! What becomes of an endpoint's open deliveries when it is removed.

use railpost::config::Config;
use railpost_store::{Change, Write};
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::World;

#[test]
fn the_open_deliveries_of_a_removed_endpoint_are_counted_and_discarded() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.publish("landed", "a", Some("k"));
    world.delivery_in("landed", "delivered");
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    for id in ["e1", "e2", "e3"] {
        world.publish(id, "a", Some("k"));
    }
    let path = of_tenant(&format!("endpoints/{endpoint}"));
    assert_eq!(world.get(&format!("{path}/health")).json()["open"], 3);
    let removed = world.delete(&path).expect(200).json();
    assert_eq!(removed, json!({"id": endpoint, "open_deliveries": 3}));
    for id in ["e1", "e2", "e3"] {
        let delivery = world.delivery_in(id, "discarded");
        assert_eq!(delivery["reason"], "endpoint_removed");
        let shown = world.look(&format!("deliveries/{}", text(&delivery["id"])));
        assert_eq!((&shown["state"], &shown["seq"]), (&json!("discarded"), &delivery["seq"]));
    }
    assert!(world.delivery_in("landed", "delivered")["reason"].is_null());
    let audit = world.look(&format!("audit?target={endpoint}"));
    assert_eq!(audit["items"][0]["detail"]["open_deliveries"], 3);
}

#[test]
fn a_delivery_that_a_person_discards_says_so() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    world.publish("e", "a", None);
    let delivery = text(&world.delivery_in("e", "pending")["id"]);
    let discarded = world.act(&format!("deliveries/{delivery}/discard")).expect(200).json();
    assert_eq!(
        (&discarded["state"], &discarded["reason"]),
        (&json!("discarded"), &json!("person"))
    );
    assert_eq!(world.delivery_in("e", "discarded")["reason"], "person");
}

#[test]
fn what_was_interrupted_is_discarded_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().join("data");
    let (world, receiver) = (World::stored(config.clone()), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.act(&format!("endpoints/{endpoint}/pause")).expect(200);
    world.publish("e", "a", Some("k"));
    // As if the process had died right after the commit.
    let remove = Write::RemoveEndpoint(endpoint.parse().unwrap());
    world.wait_for(world.server().app().store.commit(Change::from(remove))).unwrap();
    assert_eq!(world.delivery_in("e", "pending")["state"], "pending");
    let admin = world.admin.clone();
    drop(world);
    let world = World::again(config, admin);
    assert_eq!(world.delivery_in("e", "discarded")["reason"], "endpoint_removed");
}
