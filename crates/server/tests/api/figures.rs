use railpost_store::{Figures, FiguresScope};
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::world::World;

fn figures() -> Figures {
    let mut figures =
        Figures { accepted: 2, attempts: 4, acknowledged: 3, retryable: 1, ..Figures::default() };
    figures.by_status.extend([(200, 3), (0, 1)]);
    figures.by_failure.insert("timeout".to_owned(), 1);
    figures.attempt_us.record(7_000);
    figures
}

#[test]
fn figures_of_all_a_tenant_and_an_endpoint_are_charted_over_each_range() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let scopes = [
        FiguresScope::All,
        FiguresScope::Tenant("default".parse().unwrap()),
        FiguresScope::Endpoint(endpoint.parse().unwrap()),
    ];
    let app = world.server().app();
    let now = app.source.now();
    let batch = scopes.map(|scope| (scope, now, figures())).to_vec();
    world.wait_for(app.store.add_figures(batch)).unwrap();
    for path in
        ["/v1/figures", &of_tenant("figures"), &of_tenant(&format!("endpoints/{endpoint}/figures"))]
    {
        for (range, points, step_s) in
            [("15m", 15, 60), ("1h", 60, 60), ("24h", 144, 600), ("7d", 168, 3600)]
        {
            let chart = world.get(&format!("{path}?range={range}")).expect(200).json();
            assert_eq!((&chart["range"], &chart["step_s"]), (&json!(range), &json!(step_s)));
            assert_eq!(chart["points"].as_array().unwrap().len(), points, "{path} {range}");
            let total = &chart["total"];
            assert_eq!((&total["accepted"], &total["success_rate"]), (&json!(2), &json!(0.75)));
            assert_eq!(
                (&total["by_status"]["200"], &total["by_failure"]["timeout"]),
                (&json!(3), &json!(1))
            );
            let p50 = total["attempt_ms"]["p50"].as_f64().unwrap();
            assert!((6.0..8.0).contains(&p50), "{p50}");
            assert_eq!(chart["points"][0]["attempt_ms"]["p50"], json!(null));
        }
    }
}

#[test]
fn figures_of_nobody_are_not_found() {
    let world = World::new();
    for path in [
        "/v1/tenants/nobody/figures",
        "/v1/tenants/nobody/overview",
        "/v1/tenants/default/endpoints/ep_00000000000000000000000001/figures",
    ] {
        world.get(path).expect(404);
    }
}

#[test]
fn an_overview_counts_what_is_open_and_names_who_needs_attention() {
    let (world, receiver, gone) = (World::new(), Receiver::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    world.publish("e1", "a", Some("k"));
    world.delivery_in("e1", "dead");
    world.publish("e2", "a", Some("k"));
    let away = world.endpoint(&gone, &json!({}));
    gone.answers(&[410]);
    world.publish("e3", "a", Some("l"));
    for path in ["/v1/overview", "/v1/tenants/default/overview"] {
        let overview = loop {
            let overview = world.get(path).expect(200).json();
            if overview["attention"] != json!([]) && overview["pending"] == 1 {
                break overview;
            }
        };
        assert_eq!((&overview["held"], &overview["open"]), (&json!(2), &json!(3)), "{overview}");
        assert!(overview["oldest_open_at"].is_string());
        assert_eq!(overview["endpoints"]["active"], 1);
        assert_eq!(overview["endpoints"]["gone"], 1);
        let needy = &overview["attention"][0];
        assert_eq!((&needy["endpoint"], &needy["health"]["state"]), (&json!(away), &json!("gone")));
    }
}
