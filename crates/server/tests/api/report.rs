//! The report of a period, made of what really happened.

use railpost::config::Config;
use railpost_engine::Timestamp;
use railpost_store::{Alert, Figures, FiguresScope, Severity, Told};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::{of_tenant, text};
use crate::world::World;

/// Writes what telemetry has counted, as the server does now and then.
fn write_figures(world: &World) {
    let app = world.server().app().clone();
    world.wait_for(app.telemetry.write_figures(&*app.store));
}

fn add_figures(world: &World, scope: FiguresScope, figures: Figures) {
    let app = world.server().app().clone();
    let now = app.source.now();
    world.wait_for(app.store.add_figures(vec![(scope, now, figures)])).unwrap();
}

fn alert(world: &World, number: u128, tenant: Option<&str>) -> Alert {
    let now = world.server().app().source.now();
    Alert {
        id: railpost_wire::AlertId::from_u128(number),
        rule: "endpoint_failing".to_owned(),
        tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        subject: "ep_1".to_owned(),
        severity: Severity::Warning,
        summary: format!("incident {number}"),
        details: json!({}),
        fired_at: Timestamp::from_millis(now.as_millis() - 120_000),
        last_held_at: now,
        resolved_at: Some(Timestamp::from_millis(now.as_millis() - 60_000)),
        told: Told::Resolved,
    }
}

fn report(world: &World, query: &str) -> Value {
    world.get(&of_tenant(&format!("report{query}"))).expect(200).json()
}

#[test]
fn what_was_acknowledged_in_time_is_on_time() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    world.publish("e1", "a", None);
    world.delivery_in("e1", "delivered");
    write_figures(&world);
    let report = report(&world, "");
    assert_eq!(report["objective"], json!({"share": 0.999, "within": "10m"}));
    let achieved = &report["achieved"];
    assert_eq!((&achieved["judged"], &achieved["on_time"]), (&json!(1), &json!(1)));
    assert_eq!((&achieved["share"], &achieved["met"]), (&json!(1.0), &json!(true)));
    let [part] = report["parts"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((text(&part["id"]), text(&part["name"])), (endpoint, receiver.url()));
    assert_eq!(part["achieved"], *achieved);
    let of_all = world.get("/v1/report").expect(200).json();
    assert_eq!(of_all["achieved"], *achieved);
    assert_eq!(of_all["parts"][0]["id"], "default");
}

#[test]
fn the_operators_part_is_told_from_the_receivers() {
    let world = World::new();
    let tenant = FiguresScope::Tenant("default".parse().unwrap());
    let figures =
        Figures { on_time: 9_980, late_operator: 5, late_receiver: 15, ..Figures::default() };
    add_figures(&world, tenant, figures);
    let achieved = report(&world, "")["achieved"].clone();
    assert_eq!((&achieved["late_operator"], &achieved["late_receiver"]), (&json!(5), &json!(15)));
    assert_eq!((&achieved["share"], &achieved["operator_share"]), (&json!(0.998), &json!(0.9995)));
    assert_eq!(achieved["met"], false);
}

#[test]
fn incidents_of_the_tenant_and_of_the_server_are_told_and_nobody_elses() {
    let world = World::new();
    world.post("/v1/tenants", &json!({"id": "other"})).expect(201);
    let alerts = [(1, Some("default")), (2, Some("other")), (3, None)];
    let alerts = alerts.map(|(number, tenant)| alert(&world, number, tenant)).to_vec();
    let app = world.server().app().clone();
    world.wait_for(app.store.save_alerts(alerts)).unwrap();
    let summaries = |report: &Value| -> Vec<Value> {
        let incidents = report["incidents"].as_array().unwrap().iter();
        incidents.map(|incident| incident["summary"].clone()).collect()
    };
    assert_eq!(summaries(&report(&world, "")), [json!("incident 3"), json!("incident 1")]);
    let key = world.key("default", "read-only");
    let seen = world.call("GET", &of_tenant("report"), &key, &[], b"").expect(200).json();
    assert_eq!(summaries(&seen), [Value::Null, json!("incident 1")], "others may be in it");
    assert_eq!(summaries(&world.get("/v1/report").expect(200).json()).len(), 3);
    world.call("GET", "/v1/report", &key, &[], b"").expect(403);
}

#[test]
fn a_period_that_cannot_be_told_is_refused() {
    let world = World::new();
    for (query, words) in [
        ("?from=2020-01-01T00:00:00Z", "figures are kept for 40d"),
        ("?from=2999-01-01T00:00:00Z", "expected a time before `to`"),
        ("?from=yesterday", "expected a time of RFC 3339"),
    ] {
        let refused = world.get(&of_tenant(&format!("report{query}"))).expect(400).json();
        assert_eq!(refused["field"], "from", "{refused}");
        assert!(text(&refused["detail"]).contains(words), "{refused}");
    }
}

#[test]
fn the_objective_is_the_configured_one() {
    let mut config = Config::default();
    config.objective.share = 0.5;
    let world = World::with(config);
    assert_eq!(report(&world, "")["objective"]["share"], 0.5);
}
