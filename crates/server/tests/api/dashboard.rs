//! The dashboard without a browser: who may sign in, and who stays signed in.

use railpost::config::Config;

use crate::faults::flaky_world;
use crate::sign_in::{cookie, send_form, sign_in, signed_in};
use crate::world::{Answer, World};

fn look(world: &World, cookie: &str) -> Answer {
    world.call("GET", "/dashboard/t/default/events", "", &[("cookie", cookie)], b"")
}

#[test]
fn a_session_survives_a_store_that_is_down() {
    let (world, store) = flaky_world();
    let cookie = signed_in(&world);
    assert!(look(&world, &cookie).expect(200).text.contains("<h1>Events</h1>"));
    store.set_down(true);
    // For a few seconds the key is believed without the store.
    let refused = loop {
        let answer = look(&world, &cookie);
        if !answer.text.contains("Sign out") {
            break answer;
        }
        assert_ne!(answer.status, 200, "events came out of a store that is down");
        std::thread::yield_now();
    };
    let refused = refused.expect(503);
    assert!(refused.text.contains("Store unavailable"), "{}", refused.text);
    store.set_down(false);
    assert!(look(&world, &cookie).expect(200).text.contains("<h1>Events</h1>"));
}

#[test]
fn a_store_that_is_down_is_no_failed_sign_in() {
    let (world, store) = flaky_world();
    let key = world.key("default", "tenant");
    let other = "rp_not-seen-before-0123456789abcdefgh";
    store.set_down(true);
    for _ in 0..11 {
        assert!(sign_in(&world, other).expect(503).text.contains("unavailable"));
    }
    store.set_down(false);
    sign_in(&world, other).expect(401);
    sign_in(&world, &key).expect(303);
}

#[test]
fn failed_sign_ins_lock_out_those_who_show_such_a_key_and_nobody_else() {
    let world = World::new();
    for number in 0..10 {
        sign_in(&world, &format!("rp_wrong-one-{number}")).expect(401);
    }
    let refused = sign_in(&world, "rp_wrong-one-10").expect(429);
    assert!(refused.text.contains("Try again in"), "{}", refused.text);
    sign_in(&world, "rp_another").expect(401);
    assert!(cookie(&sign_in(&world, &world.admin).expect(303)).starts_with("railpost_session="));
}

#[test]
fn behind_a_trusted_proxy_failed_sign_ins_are_those_of_one_client() {
    for (trusted, other_client) in [(vec!["127.0.0.0/8".to_owned()], 401), (Vec::new(), 429)] {
        let mut config = Config::default();
        config.server.trusted_proxies = trusted;
        let world = World::with(config);
        let attempt = |client: &str| {
            send_form(&world, "key=rp_wrong-one", &[("x-forwarded-for", client)]).status
        };
        for _ in 0..10 {
            assert_eq!(attempt("198.51.100.7"), 401);
        }
        assert_eq!(attempt("198.51.100.7"), 429);
        assert_eq!(attempt("198.51.100.8"), other_client);
    }
}

#[test]
fn the_audit_trail_says_from_which_address_something_was_done() {
    let mut config = Config::default();
    config.server.trusted_proxies = vec!["127.0.0.0/8".to_owned()];
    let world = World::with(config);
    let address = |headers: &[(&str, &str)]| {
        let headers = [headers, &crate::world::JSON].concat();
        let body = br#"{"name": "a", "scope": "tenant"}"#;
        world.call("POST", "/v1/tenants/default/keys", &world.admin, &headers, body).expect(201);
        world.get("/v1/audit").expect(200).json()["items"][0]["address"].clone()
    };
    assert_eq!(address(&[]), "127.0.0.1");
    assert_eq!(address(&[("x-forwarded-for", "198.51.100.7")]), "198.51.100.7");
    assert_eq!(address(&[("forwarded", "for=\"[2001:db8::7]:80\"")]), "2001:db8::7");
}
