//! Tenants cannot see each other, and a key opens what its scope says: every route is tried.

use railpost_api::{Needs, Route, routes};
use railpost_store::{ApiKey, Change, Scope, Write};
use railpost_wire::ApiKeyId;
use ring::digest::{SHA256, digest};

use crate::things::{Things, body, filled, furnish};
use crate::world::{Answer, JSON, World};

const SCOPES: [&str; 3] = ["tenant", "read-only", "publish-only"];

fn call(world: &World, route: &Route, things: &Things, key: &str) -> Answer {
    let (path, body) = (filled(route, things), body(route, things));
    let headers: &[(&str, &str)] = if body.is_empty() { &[] } else { &JSON };
    world.call(route.operation.method.as_str(), &path, key, headers, body.as_bytes())
}

/// The routes of a tenant's own, but for the one whose URL is its credential.
fn of_tenant() -> Vec<Route> {
    let routes = routes().into_iter().filter(|route| route.operation.path.contains("{tenant}"));
    let (keyed, open): (Vec<Route>, Vec<Route>) =
        routes.partition(|r| r.operation.needs != Needs::Nothing);
    let open: Vec<&str> = open.iter().map(|route| route.operation.path).collect();
    assert_eq!(open, ["/v1/thin/{tenant}/{endpoint}/{event}"], "no other needs no key");
    keyed
}

#[test]
fn a_key_of_another_tenant_finds_nothing_anywhere() {
    let world = World::new();
    let victim = furnish(&world, "victim");
    world.post("/v1/tenants", &serde_json::json!({"id": "other"})).expect(201);
    let keys = SCOPES.map(|scope| world.key("other", scope));
    let routes = of_tenant();
    let mut refused = 0;
    for route in &routes {
        for key in &keys {
            let answer = call(&world, route, &victim, key);
            let what =
                format!("{} {}: {}", route.operation.method, route.operation.path, answer.text);
            assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{what}");
            refused += 1;
        }
    }
    assert_eq!(refused, routes.len() * SCOPES.len());
    println!("wrong tenant: {} routes with {} keys: {refused} refused", routes.len(), keys.len());
    let thin = "/v1/thin/{tenant}/{endpoint}/{event}";
    let thin =
        railpost_api::routes().into_iter().find(|route| route.operation.path == thin).unwrap();
    let forged = format!("{}?expires=99999999999&signature=AAAA", filled(&thin, &victim));
    assert_eq!(world.call("GET", &forged, &keys[0], &[], b"").expect(404).code(), "not_found");
}

#[test]
fn nobody_learns_whether_a_tenant_exists() {
    let world = World::new();
    let victim = furnish(&world, "victim");
    let key = world.key("default", "tenant");
    let mut missing = victim.clone();
    missing.insert("tenant", "nobody".to_owned());
    for route in of_tenant() {
        let (there, absent) =
            (call(&world, &route, &victim, &key), call(&world, &route, &missing, &key));
        assert_eq!(there.text.replace("victim", "nobody"), absent.text, "{}", route.operation.path);
    }
}

#[test]
fn what_is_another_tenants_is_not_found_under_ones_own_path() {
    let world = World::new();
    let (own, victim) = (furnish(&world, "own"), furnish(&world, "victim"));
    let key = world.key("own", "tenant");
    // An event type is known by a name of the tenant's choosing: to describe one is to make it.
    let makes = |route: &Route| {
        route.operation.method == "PUT" && route.operation.path.ends_with("/event-types/{name}")
    };
    let named = |route: &Route| route.operation.path.matches('{').count() > 1 && !makes(route);
    let may = |route: &Route| route.operation.needs != Needs::Admin;
    let routes: Vec<Route> = of_tenant().into_iter().filter(|r| named(r) && may(r)).collect();
    let mut mixed = victim.clone();
    mixed.insert("tenant", own["tenant"].clone());
    for route in &routes {
        let answer = call(&world, route, &mixed, &key);
        let what = format!("{} {}: {}", route.operation.method, route.operation.path, answer.text);
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{what}");
    }
    // A secret of one's own endpoint, but the other's secret.
    let path = "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/{secret}";
    let secrets: Vec<&Route> =
        routes.iter().filter(|r| r.operation.path.starts_with(path)).collect();
    assert!(!secrets.is_empty());
    mixed.insert("endpoint", own["endpoint"].clone());
    for route in secrets {
        call(&world, route, &mixed, &key).expect(404);
    }
    println!("wrong id: {} routes refused", routes.len());
}

#[test]
fn what_one_may_look_at_is_there() {
    let world = World::new();
    let own = furnish(&world, "own");
    let key = world.key("own", "read-only");
    let looks = |route: &&Route| route.operation.needs == Needs::Read;
    for route in of_tenant().iter().filter(looks) {
        let answer = call(&world, route, &own, &key);
        assert_eq!(answer.status, 200, "{}: {}", route.operation.path, answer.text);
    }
}

#[test]
fn of_a_tenant_that_does_not_exist_nothing_is_shown() {
    let world = World::new();
    let mut things = furnish(&world, "own");
    things.insert("tenant", "nobody".to_owned());
    let looks = |route: &&Route| route.operation.method == "GET";
    for route in of_tenant().iter().filter(looks) {
        let answer = call(&world, route, &things, &world.admin);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not_found"),
            "{}",
            route.operation.path
        );
    }
}

#[test]
fn without_a_valid_key_every_door_is_closed() {
    let world = World::new();
    let things = furnish(&world, "victim");
    let revoked = world.post("/v1/keys", &serde_json::json!({"name": "a", "scope": "admin"}));
    let revoked = revoked.expect(201).json();
    world.delete(&format!("/v1/keys/{}", revoked["id"].as_str().unwrap())).expect(204);
    let expired = "rp_this-key-was-valid-until-just-a-moment-ago";
    put_expired(&world, expired);
    let keys = ["", "rp_", "rp_unknown", "Bearer", expired, revoked["key"].as_str().unwrap()];
    let routes: Vec<Route> =
        routes().into_iter().filter(|r| r.operation.needs != Needs::Nothing).collect();
    for route in &routes {
        for key in keys {
            let answer = call(&world, route, &things, key);
            let what = format!("{} {} with `{key}`", route.operation.method, route.operation.path);
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{what}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
    println!("no valid key: {} routes with {} keys refused", routes.len(), keys.len());
}

/// An admin key that was valid until a moment ago.
fn put_expired(world: &World, text: &str) {
    let app = world.server().app();
    let now = app.source.now();
    let key = ApiKey {
        id: ApiKeyId::from_u128(1),
        tenant: None,
        name: "expired".to_owned(),
        scope: Scope::Admin,
        hash: digest(&SHA256, text.as_bytes()).as_ref().try_into().unwrap(),
        created_at: now,
        expires_at: Some(now),
        revoked_at: None,
        last_used_at: None,
    };
    world.wait_for(app.store.commit(Change::from(Write::CreateApiKey(key)))).unwrap();
}

#[test]
fn a_scope_that_is_too_small_is_forbidden() {
    let world = World::new();
    let things = furnish(&world, "own");
    let keys = SCOPES.map(|scope| (scope, world.key("own", scope)));
    let mut refused = 0;
    for route in routes() {
        let too_small: &[&str] = match route.operation.needs {
            Needs::Nothing | Needs::AnyKey => &[],
            Needs::Publish => &["read-only"],
            Needs::Read => &["publish-only"],
            Needs::Manage => &["read-only", "publish-only"],
            Needs::Admin => &["tenant", "read-only", "publish-only"],
        };
        for (scope, key) in keys.iter().filter(|(scope, _)| too_small.contains(scope)) {
            let answer = call(&world, &route, &things, key);
            let what = format!("{} {} as {scope}", route.operation.method, route.operation.path);
            assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{what}");
            refused += 1;
        }
    }
    println!("too small a scope: {refused} refused");
}

#[test]
fn no_answer_lets_other_sites_in_and_each_says_how_it_may_be_used() {
    let world = World::new();
    let things = furnish(&world, "victim");
    let mut answers: Vec<(String, Answer)> = Vec::new();
    let origin = [("origin", "https://elsewhere.example")];
    for route in routes() {
        let path = filled(&route, &things);
        let asked = format!("{} {path}", route.operation.method);
        answers.push((asked, world.call(route.operation.method.as_str(), &path, "", &origin, b"")));
        let preflight = [origin[0], ("access-control-request-method", "POST")];
        let asked = format!("OPTIONS {path}");
        answers.push((asked, world.call("OPTIONS", &path, "", &preflight, b"")));
    }
    answers.push(("GET /nowhere".to_owned(), world.call("GET", "/nowhere", "", &origin, b"")));
    for (asked, answer) in answers {
        let cors = answer.headers.keys().find(|name| name.as_str().starts_with("access-control"));
        assert_eq!(cors, None, "{asked}");
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(answer.headers[name], value, "{asked}");
        }
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{asked}: {policy}");
    }
}
