use std::time::{SystemTime, UNIX_EPOCH};

use railpost_engine::Timestamp;
use railpost_store::{Change, Write};
use railpost_wire::Verifier;
use serde_json::json;

use crate::receiver::{Arrived, Receiver};
use crate::scene::text;
use crate::world::World;

const ENDPOINTS: &str = "/v1/tenants/default/endpoints";
const EVENTS: &str = "/v1/tenants/default/events";

/// An endpoint's path, and its first secret's id and value.
fn endpoint(world: &World, url: &str) -> (String, String, String) {
    let made = world.post(ENDPOINTS, &json!({ "url": url })).expect(201).json();
    let secret = &made["secret"];
    (format!("{ENDPOINTS}/{}", text(&made["id"])), text(&secret["id"]), text(&secret["value"]))
}

fn publish_and_receive(world: &World, receiver: &Receiver) -> Arrived {
    world.post(EVENTS, &json!({"type": "a", "payload": {"n": 1}})).expect(202);
    receiver.next()
}

/// Whether one that trusts this secret or public key alone believes what arrived.
fn believes(trusted: &str, arrived: &Arrived) -> bool {
    let verifier = match trusted.starts_with("whpk_") {
        true => Verifier::new(vec![], vec![trusted.parse().unwrap()]),
        false => Verifier::new(vec![trusted.parse().unwrap()], vec![]),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    verifier
        .verify(|name: &str| arrived.header(name).map(str::as_bytes), &arrived.body, now)
        .is_ok()
}

#[test]
fn both_secrets_sign_during_the_overlap_of_a_rotation() {
    let (world, receiver) = (World::new(), Receiver::new());
    let (path, old_id, old) = endpoint(&world, &receiver.url());
    let rotate = format!("{path}/secrets/rotate");
    let made = world.post(&rotate, &json!({"overlap": "1h"})).expect(201).json();
    let new = text(&made["value"]);
    let arrived = publish_and_receive(&world, &receiver);
    assert!(believes(&old, &arrived) && believes(&new, &arrived));
    let stranger = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert!(!believes(stranger, &arrived));
    let listed = world.get(&format!("{path}/secrets")).expect(200);
    assert!(!listed.text.contains("whsec_"), "{}", listed.text);
    let listed = listed.json();
    assert_eq!(listed["items"][0]["id"], json!(old_id));
    assert!(
        listed["items"][0]["expires_at"].is_string() && listed["items"][1]["expires_at"].is_null()
    );
    // Without an overlap the others cease at once.
    let last = world.post(&rotate, &json!({"overlap": "0s"})).expect(201).json();
    let arrived = publish_and_receive(&world, &receiver);
    assert!(!believes(&old, &arrived) && !believes(&new, &arrived));
    assert!(believes(&text(&last["value"]), &arrived));
}

#[test]
fn a_signing_key_signs_beside_the_shared_secret() {
    let (world, receiver) = (World::new(), Receiver::new());
    let (path, _, shared) = endpoint(&world, &receiver.url());
    let secrets = format!("{path}/secrets");
    let made = world.post(&secrets, &json!({"kind": "signing"})).expect(201).json();
    assert!(text(&made["value"]).starts_with("whsk_"));
    let arrived = publish_and_receive(&world, &receiver);
    assert!(believes(&shared, &arrived) && believes(&text(&made["public_key"]), &arrived));
    // A rotation of one kind leaves the other alone.
    let body = json!({"kind": "signing", "overlap": "0s"});
    let rotated = world.post(&format!("{secrets}/rotate"), &body).expect(201).json();
    let arrived = publish_and_receive(&world, &receiver);
    assert!(believes(&shared, &arrived) && believes(&text(&rotated["public_key"]), &arrived));
    assert!(!believes(&text(&made["public_key"]), &arrived));
}

#[test]
fn a_secret_of_the_clients_own_is_taken_if_it_is_one() {
    let (world, receiver) = (World::new(), Receiver::new());
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let new = json!({"url": receiver.url(), "secret": own});
    let made = world.post(ENDPOINTS, &new).expect(201).json();
    assert_eq!(made["secret"]["value"], json!(own));
    assert!(believes(own, &publish_and_receive(&world, &receiver)));
    let secrets = format!("{ENDPOINTS}/{}/secrets", text(&made["id"]));
    for body in [json!({"value": "whsk_x"}), json!({"kind": "signing", "value": own})] {
        let refused = world.post(&secrets, &body).expect(422);
        assert_eq!(refused.json()["field"], json!("value"));
        assert!(!refused.text.contains("MfKQ9"), "{}", refused.text);
    }
    let refused = world.post(&format!("{secrets}/rotate"), &json!({"overlap": "31d"})).expect(422);
    assert_eq!(refused.json()["field"], json!("overlap"));
}

#[test]
fn to_see_a_secret_again_leaves_a_trace() {
    let world = World::new();
    let (path, id, value) = endpoint(&world, "https://example.com");
    let reveal = format!("{path}/secrets/{id}/reveal");
    let shown = world.post(&reveal, &json!({})).expect(200).json();
    assert_eq!(shown, json!({"id": id, "value": value}));
    let audit = world.get(&format!("/v1/tenants/default/audit?target={id}")).expect(200);
    assert!(!audit.text.contains("whsec_"));
    assert_eq!(audit.json()["items"][0]["action"], json!("secret.reveal"));
}

#[test]
fn the_last_active_secret_of_a_signed_endpoint_stays() {
    let world = World::new();
    let (path, id, _) = endpoint(&world, "https://example.com");
    let secret = format!("{path}/secrets/{id}");
    assert_eq!(world.delete(&secret).expect(409).code(), "last_secret");
    let other = world.post(&format!("{path}/secrets"), &json!({})).expect(201).json();
    world.delete(&secret).expect(204);
    assert_eq!(world.delete(&secret).expect(404).code(), "not_found");
    // One that is not signed needs none, and may not be signed without.
    world.patch(&path, &json!({"policy": {"signed": false}})).expect(200);
    world.delete(&format!("{path}/secrets/{}", text(&other["id"]))).expect(204);
    let refused = world.patch(&path, &json!({"policy": {"signed": true}})).expect(422);
    assert_eq!(refused.json()["field"], json!("policy.signed"));
}

#[test]
fn an_endpoint_has_so_many_secrets_and_expired_ones_make_room() {
    let world = World::new();
    let (path, _, _) = endpoint(&world, "https://example.com");
    let secrets = format!("{path}/secrets");
    for _ in 1..16 {
        world.post(&secrets, &json!({})).expect(201);
    }
    assert_eq!(world.post(&secrets, &json!({})).expect(422).code(), "limit_reached");
    let listed = world.get(&secrets).json();
    world.delete(&format!("{secrets}/{}", text(&listed["items"][0]["id"]))).expect(204);
    world.post(&format!("{secrets}/rotate"), &json!({"overlap": "0s"})).expect(201);
    world.post(&secrets, &json!({})).expect(201);
    assert_eq!(world.get(&secrets).json()["items"].as_array().unwrap().len(), 2);
}

#[test]
fn the_last_secret_that_stays_valid_cannot_be_deleted_during_an_overlap() {
    let world = World::new();
    let (path, old, _) = endpoint(&world, "https://example.com");
    let rotate = format!("{path}/secrets/rotate");
    let new = text(&world.post(&rotate, &json!({"overlap": "1h"})).expect(201).json()["id"]);
    let refused = world.delete(&format!("{path}/secrets/{new}")).expect(409);
    assert_eq!(refused.code(), "last_secret");
    assert!(refused.text.contains("rotate"), "{}", refused.text);
    // The one that expires may go early, and then the new one is the last.
    world.delete(&format!("{path}/secrets/{old}")).expect(204);
    world.delete(&format!("{path}/secrets/{new}")).expect(409);
    // An endpoint whose only secret expires may not be told to sign.
    world.patch(&path, &json!({"policy": {"signed": false}})).expect(200);
    world.post(&rotate, &json!({"overlap": "1h"})).expect(201);
    let listed = world.get(&format!("{path}/secrets")).json();
    let lasting = text(&listed["items"][1]["id"]);
    world.delete(&format!("{path}/secrets/{lasting}")).expect(204);
    let refused = world.patch(&path, &json!({"policy": {"signed": true}})).expect(422);
    assert_eq!(refused.json()["field"], json!("policy.signed"));
}

#[test]
fn of_two_secrets_deleted_at_once_one_stays() {
    let world = World::new();
    for _ in 0..10 {
        let (path, first, _) = endpoint(&world, "https://example.com");
        let second = world.post(&format!("{path}/secrets"), &json!({})).expect(201).json();
        let delete = |id: &str| world.delete(&format!("{path}/secrets/{id}")).status;
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| delete(&first));
            (delete(&text(&second["id"])), one.join().unwrap())
        });
        let mut answered = [one, other];
        answered.sort_unstable();
        assert_eq!(answered, [204, 409]);
    }
}

#[test]
fn an_endpoint_that_cannot_sign_sends_nothing_and_says_why() {
    let (world, receiver) = (World::new(), Receiver::new());
    let (path, id, _) = endpoint(&world, &receiver.url());
    let endpoint = path.rsplit('/').next().unwrap().parse().unwrap();
    let id = id.parse().unwrap();
    // No request leads here: an earlier version let the last secret expire.
    let expire = Write::ExpireSecret { endpoint, id, at: Timestamp::from_millis(1) };
    let app = world.server().app().clone();
    world.wait_for(app.dispatcher.commit(Change::from(expire))).unwrap();
    let reason = text(&world.get(&path).expect(200).json()["blocked"]);
    assert!(reason.contains("no secret that is valid"), "{reason}");
    assert_eq!(world.get(ENDPOINTS).json()["items"][0]["blocked"], json!(reason));
    assert_eq!(world.get(&format!("{path}/health")).json()["blocked"], json!(reason));
    let metrics = world.get("/metrics").text;
    assert!(metrics.contains("\nrailpost_endpoints_blocked 1\n"), "{metrics}");
    world.post(EVENTS, &json!({"type": "a", "payload": 1})).expect(202);
    assert!(receiver.arrived().is_empty());
    let made = world.post(&format!("{path}/secrets"), &json!({})).expect(201).json();
    assert!(believes(&text(&made["value"]), &receiver.next()));
    assert!(world.get(&path).json()["blocked"].is_null());
}
