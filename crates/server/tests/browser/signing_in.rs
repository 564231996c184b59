//! Signing in and out, sessions, and what guards them.

use railpost::config::Config;

use serde_json::{Value, json};

use crate::sign_in::{cookie, send_form, sign_in};
use crate::webdriver::Browser;
use crate::world::World;

const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

#[test]
fn one_signs_in_with_a_key_lands_where_one_wanted_to_go_and_signs_out() {
    let world = World::new();
    let browser = Browser::new(&world);
    browser.go("/dashboard/t/default/events");
    assert_eq!(browser.path(), "/dashboard/sign-in");
    browser.fill("#key", &world.admin);
    browser.click("main button");
    browser.wait_for("nav.tabs");
    assert_eq!(browser.path(), "/dashboard/t/default/events");
    browser.click(".who button");
    browser.wait_for("#key");
    browser.go("/dashboard/t/default/events");
    assert_eq!(browser.path(), "/dashboard/sign-in");
}

#[test]
fn a_sign_in_link_opens_the_dashboard_once() {
    let world = World::new();
    let link = world.server().dashboard().one_time_link();
    let browser = Browser::new(&world);
    browser.go(&link);
    browser.wait_for("nav.tabs");
    assert_eq!(browser.path(), "/dashboard/t/default");
    browser.click(".who button");
    browser.wait_for("#key");
    browser.go(&link);
    browser.wait_for("#key-problem");
    assert!(browser.text("#key-problem").contains("used already"));
}

#[test]
fn looking_at_a_sign_in_link_does_not_use_it_up() {
    let world = World::new();
    let link = world.server().dashboard().one_time_link();
    for _ in 0..2 {
        world.call("GET", &link, "", &[], b"").expect(200);
    }
    let token = link.split("token=").nth(1).unwrap();
    let used = send_form(&world, &format!("token={token}"), &[]);
    assert!(cookie(&used).starts_with("railpost_session="), "{used:?}");
}

#[test]
fn the_session_cookie_is_for_this_server_alone_and_secure_behind_tls() {
    for (public_url, secure) in [("", false), ("https://hooks.example.com", true)] {
        let mut config = Config::default();
        config.server.public_url = public_url.to_owned();
        let world = World::with(config);
        let answer = sign_in(&world, &world.admin);
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert_eq!(cookie.contains("Secure"), secure, "{cookie}");
    }
}

/// The entries of the trail about signing in, the earliest first: action, target, actor and detail.
fn sign_ins(world: &World) -> Vec<(String, String, String, Value)> {
    let trail = world.get("/v1/audit?limit=500").expect(200).json();
    let entry = |entry: &Value| {
        let word = |field: &str| entry[field].as_str().unwrap().to_owned();
        (word("action"), word("target"), word("actor"), entry["detail"].clone())
    };
    let mut entries: Vec<_> = trail["items"].as_array().unwrap().iter().map(entry).collect();
    entries.retain(|(action, ..)| action.starts_with("session."));
    entries.reverse();
    entries
}

#[test]
fn signing_in_and_out_is_in_the_trail_with_the_address() {
    let world = World::new();
    let key = world.get("/v1/whoami").expect(200).json()["key"]["id"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.click(".who button");
    browser.wait_for("#key");
    let by_key = json!({"address": "127.0.0.1", "by": "key", "name": "first admin key"});
    let out = json!({"address": "127.0.0.1", "name": "first admin key"});
    let entry = |action: &str, detail: Value| (action.to_owned(), key.clone(), key.clone(), detail);
    assert_eq!(
        sign_ins(&world),
        [entry("session.sign_in", by_key), entry("session.sign_out", out)]
    );
    let link = world.server().dashboard().one_time_link();
    let token = link.split("token=").nth(1).unwrap();
    send_form(&world, &format!("token={token}"), &[]);
    let (action, target, actor, detail) = sign_ins(&world).pop().unwrap();
    assert_eq!(
        (action.as_str(), &target, &detail["by"]),
        ("session.sign_in", &actor, &json!("link"))
    );
}

#[test]
fn a_tenants_sign_ins_are_in_its_own_trail() {
    let world = World::new();
    cookie(&sign_in(&world, &world.key("default", "tenant")));
    let trail = world.get("/v1/tenants/default/audit?limit=1").expect(200).json();
    assert_eq!(trail["items"][0]["action"], "session.sign_in");
}

#[test]
fn failures_to_sign_in_are_told_together() {
    let world = World::new();
    for _ in 0..10 {
        sign_in(&world, "rp_wrong").expect(401);
    }
    for _ in 0..20 {
        sign_in(&world, "rp_wrong").expect(429);
    }
    let failed = |failures: u32| {
        let detail = json!({"address": "127.0.0.1", "failures": failures});
        ("session.sign_in_failed".to_owned(), "127.0.0.1".to_owned(), "nobody".to_owned(), detail)
    };
    assert_eq!(sign_ins(&world), [failed(1), failed(9)]);
}

#[test]
fn a_key_that_only_publishes_sees_nothing() {
    let world = World::new();
    let key = world.key("default", "publish-only");
    assert!(sign_in(&world, &key).expect(401).text.contains("only publish"));
}

#[test]
fn a_revoked_key_ends_its_sessions() {
    let world = World::new();
    let made = world.post("/v1/tenants/default/keys", &json!({"name": "ops", "scope": "tenant"}));
    let made = made.expect(201).json();
    let cookie = cookie(&sign_in(&world, made["key"].as_str().unwrap()));
    let headers = [("cookie", cookie.as_str())];
    let look = || world.call("GET", "/dashboard/t/default/events", "", &headers, b"");
    assert!(look().text.contains("<h1>Events</h1>"));
    world.delete(&format!("/v1/tenants/default/keys/{}", made["id"].as_str().unwrap())).expect(204);
    assert!(look().text.contains("<h1>Sign in</h1>"));
}

#[test]
fn a_tenants_key_sees_no_other_tenant() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    let cookie = cookie(&sign_in(&world, &world.key("acme", "tenant")));
    let headers = [("cookie", cookie.as_str())];
    let look = |path: &str| world.call("GET", path, "", &headers, b"").status;
    assert_eq!(look("/dashboard/t/acme"), 200);
    assert_eq!(look("/dashboard/t/default"), 404);
    assert_eq!(look("/dashboard/all"), 403);
}

#[test]
fn every_answer_says_what_a_page_may_do() {
    let world = World::new();
    for path in ["/dashboard/sign-in", "/dashboard/style.css", "/dashboard/script.js"] {
        let policy =
            world.call("GET", path, "", &[], b"").headers["content-security-policy"].clone();
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[test]
fn a_form_without_the_sessions_token_changes_nothing() {
    let world = World::new();
    let cookie = cookie(&sign_in(&world, &world.admin));
    for (token, headers) in [
        ("", vec![("cookie", cookie.as_str()), FORM[0]]),
        ("wrong", vec![("cookie", cookie.as_str()), FORM[0]]),
    ] {
        let form = format!("csrf={token}&name=k&scope=tenant");
        let refused =
            world.call("POST", "/dashboard/t/default/keys", "", &headers, form.as_bytes());
        refused.expect(403);
    }
    let keys = world.get("/v1/tenants/default/keys").expect(200).json();
    assert_eq!(keys["items"], json!([]));
}
