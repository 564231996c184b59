//! Alerts as the API shows them: lists, notices, rules, silences and tests of who is reached.

use railpost::config::Config;
use railpost_store::{AcceptBatch, AcceptedBy, Event};
use railpost_wire::ContentType;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::world::World;

/// A server with two tenants. How full the disk of this machine is does not matter to it.
fn world() -> World {
    let mut config = Config::default();
    config.alerts.disk.enabled = false;
    let world = World::with(config);
    for tenant in ["acme", "umbra"] {
        world.post("/v1/tenants", &json!({ "id": tenant })).expect(201);
    }
    world
}

const ENDPOINT: &str = "ep_01h455vb4pex5vsknk084sn02q";

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[test]
fn alerts_are_listed_by_rule_tenant_state_and_time() {
    let world = world();
    let (acme, umbra) = (world.fire("acme", ENDPOINT), world.fire("umbra", ENDPOINT));
    world.resolve(&umbra);
    // Both may have fired in one millisecond: then their ids decide.
    let mut all = [umbra.as_str(), &acme];
    all.sort_by(|one, other| other.cmp(one));
    let (acme, umbra) = ([acme.as_str()], [umbra.as_str()]);
    let list = |query: &str| world.get(&format!("/v1/alerts{query}")).expect(200).json();
    for (query, expected) in [
        ("", &all[..]),
        ("?open=true", &acme[..]),
        ("?open=false", &umbra[..]),
        ("?tenant=acme", &acme[..]),
        ("?rule=breaker_open", &all[..]),
        ("?rule=disk", &[]),
        ("?before=2020-01-01T00:00:00Z", &[]),
        ("?from=2020-01-01T00:00:00Z", &all[..]),
    ] {
        assert_eq!(ids(&list(query)), expected, "{query}");
    }
    let first = list("?limit=1");
    let next = first["next"].as_str().unwrap();
    assert_eq!(ids(&list(&format!("?limit=1&cursor={next}"))), all[1..]);
    let unknown = world.get("/v1/alerts?rule=nothing").expect(400);
    assert!(unknown.text.contains("breaker_open"), "it names the rules: {}", unknown.text);
    let count = world.get("/v1/alerts/open-count").expect(200).json();
    assert_eq!((&count["total"], &count["warning"]), (&json!(1), &json!(1)));
}

#[test]
fn a_tenants_key_sees_its_own_alerts_only() {
    let world = world();
    let (own, other) = (world.fire("acme", ENDPOINT), world.fire("umbra", ENDPOINT));
    let key = world.key("acme", "read-only");
    let get = |path: &str| world.call("GET", path, &key, &[], b"");
    assert_eq!(ids(&get("/v1/tenants/acme/alerts").expect(200).json()), [own.as_str()]);
    get(&format!("/v1/tenants/acme/alerts/{own}")).expect(200);
    get(&format!("/v1/tenants/acme/alerts/{other}")).expect(404);
    get(&format!("/v1/tenants/umbra/alerts/{other}")).expect(404);
    let count = get("/v1/tenants/acme/alerts/open-count").expect(200).json();
    assert_eq!(count["total"], 1);
    for path in ["/v1/alerts", "/v1/alert-rules", "/v1/silences", "/v1/alerts/open-count"] {
        get(path).expect(403);
    }
}

#[test]
fn an_alert_shows_the_notices_that_told_of_it() {
    let world = world();
    let alert = world.fire("acme", ENDPOINT);
    let shown = world.get(&format!("/v1/alerts/{alert}")).expect(200).json();
    assert_eq!((&shown["notices"], &shown["endpoint"]), (&json!([]), &json!(ENDPOINT)));
    for tenant in ["railpost", "acme"] {
        publish_fired(&world, tenant, &alert);
    }
    let told = |path: &str| {
        let notices = world.get(path).expect(200).json()["notices"].clone();
        let tenants = notices.as_array().unwrap().iter().map(|it| it["tenant"].clone());
        (tenants.collect::<Vec<_>>(), notices)
    };
    let (tenants, notices) = told(&format!("/v1/alerts/{alert}"));
    assert_eq!(tenants, ["railpost", "acme"]);
    assert_eq!(notices[0]["event"], format!("{alert}:fired"));
    for notice in notices.as_array().unwrap() {
        world.get(notice["story"].as_str().unwrap()).expect(200);
    }
    let (tenants, _) = told(&format!("/v1/tenants/acme/alerts/{alert}"));
    assert_eq!(tenants, ["acme"], "a tenant does not see the operator's events");
}

fn publish_fired(world: &World, tenant: &str, alert: &str) {
    let event = Event {
        id: format!("{alert}:fired").parse().unwrap(),
        event_type: "railpost.breaker.opened".parse().unwrap(),
        key: None,
        payload: b"{}".to_vec().into(),
        content_type: ContentType::JSON,
        schema_version: None,
        time: world.server().app().source.now(),
        traceparent: None,
        cloudevent: None,
    };
    let batch = AcceptBatch {
        tenant: tenant.parse().unwrap(),
        events: vec![event],
        accepted_by: Some(AcceptedBy::Server),
        idempotency: None,
    };
    world.wait_for(world.server().app().dispatcher.accept(batch)).unwrap();
}

#[test]
fn every_rule_is_listed_with_its_settings_and_whether_it_holds() {
    let world = world();
    world.fire("acme", ENDPOINT);
    let rules = world.get("/v1/alert-rules").expect(200).json();
    let rules = rules["items"].as_array().unwrap();
    assert_eq!(rules.len(), railpost_alerts::Rule::ALL.len());
    let rule = |name: &str| rules.iter().find(|rule| rule["name"] == name).unwrap();
    assert_eq!(rule("breaker_open")["open"], 1);
    let exhausted = rule("retries_exhausted");
    assert_eq!(exhausted["settings"]["percent"], 5);
    assert_eq!(exhausted["severity"], "critical");
    assert!(exhausted["holds_when"].as_str().unwrap().starts_with("More than 5 %"));
    assert_eq!(rule("lane_held")["resolve_after"], "0s");
}

#[test]
fn a_silence_covers_alerts_until_it_ends() {
    let world = world();
    let alert = world.fire("acme", ENDPOINT);
    let until = || {
        let shown = world.get(&format!("/v1/alerts/{alert}")).expect(200).json();
        shown["silenced_until"].clone()
    };
    assert_eq!(until(), Value::Null);
    let new =
        json!({"rule": "breaker_open", "tenant": "acme", "for": "2h", "reason": "maintenance"});
    let silence = world.post("/v1/silences", &new).expect(201).json();
    assert_eq!(until(), silence["until"]);
    let listed = world.get("/v1/silences").expect(200).json();
    assert_eq!(listed["items"], json!([silence]));
    let id = silence["id"].as_str().unwrap();
    world.post(&format!("/v1/silences/{id}/end"), &json!({})).expect(200);
    assert_eq!(until(), Value::Null);
    world.post(&format!("/v1/silences/{id}/end"), &json!({})).expect(404);
    assert_eq!(world.get("/v1/silences").expect(200).json()["items"], json!([]));
    let entries = world.get(&format!("/v1/audit?target={id}")).expect(200).json();
    let actions = entries["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone());
    assert_eq!(actions.collect::<Vec<_>>(), ["silence.end", "silence.create"]);
    assert_eq!(entries["items"][1]["detail"]["reason"], "maintenance");
}

#[test]
fn a_silence_says_what_is_wrong_with_it() {
    let world = World::new();
    for (body, status, field) in [
        (json!({"for": "1h", "reason": " "}), 422, "reason"),
        (json!({"for": "31d", "reason": "a"}), 422, "for"),
        (json!({"for": "0s", "reason": "a"}), 422, "for"),
        (json!({"rule": "nothing", "for": "1h", "reason": "a"}), 422, "rule"),
        (json!({"subject": "s".repeat(257), "for": "1h", "reason": "a"}), 422, "subject"),
    ] {
        let refused = world.post("/v1/silences", &body).expect(status).json();
        assert_eq!(refused["field"], field, "{body}");
    }
    let body = json!({"tenant": "nobody", "for": "1h", "reason": "a"});
    world.post("/v1/silences", &body).expect(404);
}

#[test]
fn a_test_reaches_the_endpoints_that_want_notices_first_fired_then_resolved() {
    let world = World::new();
    let reach = |body: Value| world.post("/v1/alerts/test", &body).expect(202).json();
    let nobody = reach(json!({}));
    assert_eq!(
        (&nobody["fired"]["endpoints"], &nobody["resolved"]["endpoints"]),
        (&json!(0), &json!(0))
    );
    let receiver = Receiver::new();
    let endpoint =
        json!({"url": receiver.url(), "types": ["railpost.alert.test.*", "railpost.breaker.*"]});
    world.post("/v1/tenants/railpost/endpoints", &endpoint).expect(201);
    for (body, types) in [
        (json!({}), ["railpost.alert.test.fired", "railpost.alert.test.resolved"]),
        (json!({"rule": "breaker_open"}), ["railpost.breaker.opened", "railpost.breaker.closed"]),
    ] {
        let test = reach(body);
        assert_eq!(
            (&test["fired"]["endpoints"], &test["resolved"]["endpoints"]),
            (&json!(1), &json!(1))
        );
        for (status, event_type) in ["fired", "resolved"].into_iter().zip(types) {
            let request = receiver.next();
            let notice: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!((&notice["status"], &notice["test"]), (&json!(status), &json!(true)));
            assert_eq!(request.header("x-event-type"), Some(event_type));
            world.get(test[status]["story"].as_str().unwrap()).expect(200);
        }
    }
    world.post("/v1/alerts/test", &json!({"rule": "nothing"})).expect(422);
    let entries = world.get("/v1/audit").expect(200).json();
    assert_eq!(entries["items"][0]["action"], "alert.test");
}
