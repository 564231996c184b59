//! Changes merge: what is left out stays, at every depth.

use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::World;

fn endpoint(world: &World, policy: &Value) -> String {
    let new = json!({
        "url": "https://example.com",
        "policy": policy,
        "types": ["order.*", "user.*"],
        "headers": {"X-One": "1", "X-Two": "2"},
        "renamed_headers": {"x_key": "X-Order", "x_seq": "X-Number"},
        "timeout": "3s",
    });
    let made = world.post(&of_tenant("endpoints"), &new).expect(201).json();
    of_tenant(&format!("endpoints/{}", text(&made["id"])))
}

/// The value at a path such as `policy.retry.ttl`.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, name| &value[name])
}

/// The same without what every change changes.
fn settings(endpoint: &Value) -> Value {
    let mut settings = endpoint.clone();
    for name in ["updated_at", "revision", "blocked", "health"] {
        settings.as_object_mut().unwrap().remove(name);
    }
    settings
}

#[test]
fn what_a_change_leaves_out_stays_at_every_depth() {
    let world = World::new();
    let policy = json!({
        "in_flight_max": 3,
        "retry": {"max_attempts": 7, "backoff": {"strategy": "exponential", "base": "5s", "jitter": "none"}},
        "outcomes": {"404": "retryable", "500": "permanent"},
        "breaker": {"window": 30},
        "quarantine_after": 9,
    });
    let path = endpoint(&world, &policy);
    for (change, changed) in [
        (json!({"policy": {"retry": {"ttl": "1h"}}}), vec![("policy.retry.ttl", json!("1h"))]),
        (
            json!({"policy": {"retry": {"backoff": {"base": "1s"}}}}),
            vec![("policy.retry.backoff.base", json!("1s"))],
        ),
        // Another strategy begins with nothing of the one before.
        (
            json!({"policy": {"retry": {"backoff": {"strategy": "fixed", "delay": "2s"}}}}),
            vec![("policy.retry.backoff", json!({"strategy": "fixed", "delay": "2s"}))],
        ),
        (
            json!({"policy": {"outcomes": {"404": null, "410": "retryable", "411": null}}}),
            vec![("policy.outcomes", json!({"410": "retryable", "500": "permanent"}))],
        ),
        (
            json!({"policy": {"breaker": {"window": 40}}}),
            vec![("policy.breaker.window", json!(40))],
        ),
        // `null` takes away what may be absent, and sets anything else back to its default.
        (
            json!({"policy": {"breaker": {"window": null}}}),
            vec![("policy.breaker.window", json!(20))],
        ),
        (json!({"policy": {"breaker": null}}), vec![("policy.breaker", json!(null))]),
        (
            json!({"policy": {"breaker": {"min_attempts": 4}}}),
            vec![(
                "policy.breaker",
                json!({"failure_percent": 50, "min_attempts": 4, "window": 20, "open_for": "10s", "open_for_max": "10m"}),
            )],
        ),
        (
            json!({"policy": {"quarantine_after": null}}),
            vec![("policy.quarantine_after", json!(null))],
        ),
        (json!({"policy": {"in_flight_max": null}}), vec![("policy.in_flight_max", json!(64))]),
        (json!({"types": ["*"]}), vec![("types", json!(["*"]))]),
        (
            json!({"headers": {"X-Two": null, "X-Three": "3"}}),
            vec![("headers", json!(["X-One", "X-Three"]))],
        ),
        (json!({"headers": null}), vec![("headers", json!([]))]),
        (
            json!({"renamed_headers": {"x_seq": null}}),
            vec![("renamed_headers", json!({"x_key": "X-Order"}))],
        ),
        (
            json!({"timeout": null, "description": "d"}),
            vec![("timeout", json!(null)), ("description", json!("d"))],
        ),
        (json!({"description": null}), vec![("description", json!(""))]),
        (json!({}), vec![]),
    ] {
        let before = settings(&world.get(&path).expect(200).json());
        let after = settings(&world.patch(&path, &change).expect(200).json());
        let mut expected = before;
        for (path, value) in changed {
            let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
            let parent = match parent {
                "" => &mut expected,
                parent => parent.split('.').fold(&mut expected, |value, name| &mut value[name]),
            };
            parent[name] = value;
        }
        assert_eq!(after, expected, "{change}");
        assert_eq!(settings(&world.get(&path).expect(200).json()), expected, "{change}");
    }
}

#[test]
fn what_is_shown_of_an_endpoint_changes_nothing_when_it_is_sent_back() {
    let world = World::new();
    let path = endpoint(
        &world,
        &json!({"breaker": null, "disable_after": null, "outcomes": {"404": "retryable"}}),
    );
    let shown = world.get(&path).expect(200).json();
    let names = [
        "url",
        "description",
        "types",
        "policy",
        "envelope",
        "renamed_headers",
        "tls_min",
        "timeout",
    ];
    let names = names.into_iter().chain(["authorities_pem"]);
    let body: serde_json::Map<String, Value> =
        names.map(|name| (name.to_owned(), shown[name].clone())).collect();
    let after = world.patch(&path, &body.into()).expect(200).json();
    assert_eq!(settings(&after), settings(&shown));
}

#[test]
fn a_tenant_is_changed_the_same_way() {
    let world = World::new();
    let limit = json!({"count": 10, "per": "1s", "burst": 5});
    let new = json!({"id": "acme", "name": "Acme", "rate_limit": limit});
    world.post("/v1/tenants", &new).expect(201);
    let change = |change: Value| world.patch("/v1/tenants/acme", &change).expect(200).json();
    let changed = change(json!({"rate_limit": {"burst": 7}}));
    assert_eq!(changed["rate_limit"], json!({"count": 10, "per": "1s", "burst": 7}));
    let changed = change(json!({"rate_limit": null, "name": null}));
    assert_eq!((&changed["rate_limit"], &changed["name"]), (&json!(null), &json!("")));
    let refused = world.patch("/v1/tenants/acme", &json!({"rate_limit": {"burst": 7}})).expect(422);
    assert_eq!(refused.json()["field"], "rate_limit");
}

#[test]
fn what_no_settings_could_be_is_refused_by_name_and_changes_nothing() {
    let world = World::new();
    let path = endpoint(&world, &json!({}));
    let before = world.get(&path).expect(200).json();
    for (change, field) in [
        (json!({"url": null}), ""),
        (json!({"colour": null}), "colour"),
        (json!({"policy": {"colour": null}}), "policy.colour"),
        (json!({"policy": {"retry": {"backoff": {"delay": "1s"}}}}), "policy.retry.backoff"),
        (json!({"policy": {"retry": {"ttl": "soon"}}}), "policy.retry.ttl"),
        (json!({"policy": {"rate_limit": {"count": 1}}}), "policy.rate_limit"),
        (json!({"policy": []}), "policy"),
        (json!({"policy": {"outcomes": {"404": "perhaps"}}}), "policy.outcomes.404"),
        (json!({"headers": {"X-One": 1}}), "headers.X-One"),
        (json!({"types": [null]}), "types[0]"),
        (json!({"revision": "1"}), "revision"),
        (json!({"secret": "whsec_"}), "secret"),
        (json!([]), ""),
        (json!("text"), ""),
        (json!(null), ""),
    ] {
        let refused = world.patch(&path, &change).expect(422);
        assert_eq!(refused.json()["field"].as_str().unwrap_or_default(), field, "{}", refused.text);
    }
    let twice = br#"{"description": "a", "description": "b"}"#;
    let json = [("content-type", "application/json")];
    let refused = world.call("PATCH", &path, &world.admin, &json, twice).expect(422);
    assert!(refused.text.contains("duplicate field `description`"), "{}", refused.text);
    assert_eq!(world.get(&path).expect(200).json(), before);
}

#[test]
fn a_change_may_call_itself_a_merge_patch() {
    let world = World::new();
    let path = endpoint(&world, &json!({}));
    let send = |kind: &str| {
        world.call("PATCH", &path, &world.admin, &[("content-type", kind)], br#"{"timeout": "5s"}"#)
    };
    for kind in
        ["application/merge-patch+json", "application/json", "application/json; charset=utf-8"]
    {
        assert_eq!(send(kind).expect(200).json()["timeout"], "5s", "{kind}");
    }
    for kind in ["application/json-patch+json", "text/plain"] {
        assert_eq!(send(kind).expect(415).code(), "unsupported_media_type", "{kind}");
    }
    // Elsewhere a merge patch has nothing to merge with.
    let body = json!({"url": "https://example.com"}).to_string();
    let kind = [("content-type", "application/merge-patch+json")];
    let refused = world.call("POST", &of_tenant("endpoints"), &world.admin, &kind, body.as_bytes());
    assert_eq!(refused.expect(415).code(), "unsupported_media_type");
}

#[test]
fn a_merged_change_is_what_is_delivered_by() {
    let world = World::new();
    let receiver = Receiver::new();
    let id = world.endpoint(&receiver, &json!({"outcomes": {"500": "permanent"}}));
    let path = of_tenant(&format!("endpoints/{id}"));
    world.patch(&path, &json!({"policy": {"outcomes": {"501": "retryable"}}})).expect(200);
    let policy = world.get(&path).expect(200).json()["policy"].clone();
    assert_eq!(at(&policy, "outcomes"), &json!({"500": "permanent", "501": "retryable"}));
    receiver.answers(&[501, 500]);
    world.publish("e1", "a", None);
    assert_eq!(world.delivery_in("e1", "dead")["attempts"], 2);
}
