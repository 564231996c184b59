//! Every page, in light and dark: no complaint of the browser, no serious finding of the accessibility
//! checker, nothing wider than the screen. Pictures of them, if a folder for them is named.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use railpost::config::Config;
use serde_json::{Value, json};

use crate::outbox_file::OutboxFile;
use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::webdriver::{Browser, setting};
use crate::world::World;

/// A world with something of everything, long keys and URLs included.
fn full_world(receiver: &Receiver, down: &Receiver, file: &OutboxFile) -> World {
    let world = World::with(file.config());
    let url = format!("{}/{}", receiver.url(), "a-path-that-goes-on-".repeat(8));
    let policy = json!({"quarantine_after": null, "breaker": null});
    world.endpoint_with(&json!({"url": url, "types": ["order.*"], "policy": policy, "description": "the shop's orders"}));
    let retrying = json!({
        "breaker": null,
        "retry": {"backoff": {"strategy": "exponential", "base": "5m", "jitter": "none"}},
    });
    down.answers(&[503; 400]);
    world.endpoint_with(&json!({"url": down.url(), "types": ["invoice.*"], "policy": retrying, "description": "the bookkeeper, down at the moment"}));
    let shop = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "2m"}}});
    let parcels = json!({"url": format!("{}/parcels", down.url()), "types": ["parcel.*"], "policy": shop, "description": "the parcel service, its breaker open"});
    world.endpoint_with(&parcels);
    for number in 0..32 {
        world.publish(&format!("s{number}"), "parcel.sent", Some(&format!("parcel-{number:02}")));
    }
    receiver.answers(&[422]);
    let poison = format!("customer-{}", "0123456789".repeat(9));
    for number in 1..=4 {
        world.publish(&format!("p{number}"), "order.created", Some(&poison));
    }
    world.delivery_in("p1", "dead");
    for number in 0..30 {
        world.publish(&format!("o{number}"), "order.paid", Some(&format!("order-{}", number % 6)));
    }
    for number in 0..6 {
        world.publish(
            &format!("i{number}"),
            "invoice.sent",
            Some(&format!("invoice-{}", number % 2)),
        );
    }
    world.delivery_in("o29", "delivered");
    told_event(&world, receiver);
    world.delivery_in("i1", "waiting");
    world.look_until(&format!("endpoints/{}/health", broken(&world)), |it| {
        it["breaker"]["state"] == "open"
    });
    for number in 0..3 {
        file.emit(&format!("r{number}"), "default", "order-1");
        file.emit(&format!("u{number}"), "acme", &poison);
    }
    file.emit("u3", "acme", "order-7");
    world.get_until("/v1/outbox/shop/parked", |rows| rows["items"].as_array().unwrap().len() == 4);
    alerts(&world);
    world.key("default", "read-only");
    let edited = world.look("endpoints")["items"][0]["id"].as_str().unwrap().to_owned();
    let edit = json!({
        "description": "orders of the shop, and whatever else it sells",
        "types": ["order.*", "refund.*"],
        "headers": {"X-Token": "t0ken"},
        "policy": {"breaker": null, "quarantine_after": null, "retry": {"max_attempts": 12}},
    });
    world.patch(&of_tenant(&format!("endpoints/{edited}")), &edit).expect(200);
    world.look_until("figures?range=15m", |figures| figures["total"]["attempts"] != 0);
    world
        .post(
            &of_tenant("replays"),
            &json!({"action": "replay", "filter": {"state": "dead"}, "dry_run": true}),
        )
        .expect(202);
    world
}

/// Alerts that are open, one of them silenced, and one that is over.
fn alerts(world: &World) {
    let over = world.fire("default", &broken(world));
    world.resolve(&over);
    world.fire("default", &broken(world));
    let silenced = world.fire("default", "ep_01h455vb4pex5vsknk084sn02q");
    let silenced = world.get(&format!("/v1/alerts/{silenced}")).expect(200).json();
    let silence = json!({
        "rule": silenced["rule"],
        "tenant": silenced["tenant"],
        "subject": silenced["subject"],
        "for": "4h",
        "reason": "the receiver is being moved to another data centre",
    });
    world.post("/v1/silences", &silence).expect(201);
}

/// An event that failed, was held, replayed and delivered.
fn told_event(world: &World, receiver: &Receiver) {
    let policy = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "1ms"}}, "quarantine_after": null});
    world.endpoint_with(&json!({"url": receiver.url(), "types": ["shipment.*"], "policy": policy, "description": "the warehouse"}));
    receiver.answers(&[503, 422]);
    world.publish("told", "shipment.delayed", Some("shipment-77"));
    let letter = world.delivery_in("told", "dead");
    world.act(&format!("dead-letters/{}/replay", letter["id"].as_str().unwrap())).expect(200);
    world.delivery_in("told", "delivered");
}

/// The name and path of every page in this world.
fn pages(world: &World) -> Vec<(&'static str, String)> {
    let first = |path: &str| world.look(path)["items"][0]["id"].as_str().unwrap().to_owned();
    let of_tenant = |path: &str| format!("/dashboard/t/default{path}");
    let parked = &world.get("/v1/outbox/shop/parked").expect(200).json()["items"][0]["number"];
    vec![
        ("overview", of_tenant("?range=15m")),
        ("all-tenants", "/dashboard/all?range=15m".to_owned()),
        ("lanes", of_tenant("/lanes")),
        ("endpoints", of_tenant("/endpoints")),
        ("endpoint", of_tenant(&format!("/endpoints/{}?range=15m", first("endpoints")))),
        ("endpoint-waiting", of_tenant(&format!("/endpoints/{}?range=15m", broken(world)))),
        ("endpoint-new", of_tenant("/endpoints/new")),
        ("endpoint-edit", of_tenant(&format!("/endpoints/{}/edit", first("endpoints")))),
        ("events", of_tenant("/events")),
        ("event", of_tenant("/events/p1")),
        ("story", of_tenant("/events/told")),
        ("find", of_tenant("/find?q=order-1")),
        ("help", of_tenant("/help")),
        ("deliveries", of_tenant("/deliveries")),
        ("delivery", of_tenant(&format!("/deliveries/{}", first("dead-letters")))),
        ("dead-letters", of_tenant("/dead-letters")),
        ("replays", of_tenant("/replays")),
        ("replay", of_tenant(&format!("/replays/{}", first("replays")))),
        ("keys", of_tenant("/keys")),
        ("audit", of_tenant("/audit")),
        ("audit-all", "/dashboard/audit".to_owned()),
        ("alerts", "/dashboard/alerts".to_owned()),
        ("alert", format!("/dashboard/alerts/{}", first("alerts"))),
        ("alerts-tenant", of_tenant("/alerts")),
        ("alert-tenant", of_tenant(&format!("/alerts/{}", first("alerts")))),
        ("outbox", "/dashboard/outbox".to_owned()),
        ("outbox-source", "/dashboard/outbox/shop".to_owned()),
        ("outbox-trouble", "/dashboard/outbox/billing".to_owned()),
        ("outbox-parked-row", format!("/dashboard/outbox/shop/parked/{parked}")),
    ]
}

/// The endpoint whose breaker is open.
fn broken(world: &World) -> String {
    let endpoints = world.look("endpoints");
    let found =
        endpoints["items"].as_array().unwrap().iter().find(|it| it["types"][0] == "parcel.*");
    found.unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn no_page_has_complaints_serious_findings_or_overflow_in_light_and_dark() {
    let (receiver, down, file) = (Receiver::new(), Receiver::new(), OutboxFile::new());
    let world = full_world(&receiver, &down, &file);
    let browser = Browser::signed_in(&world, &world.admin);
    for (name, path) in pages(&world) {
        browser.go(&path);
        browser.check(name, &SCHEMES);
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
    for (name, path, button) in results(&world) {
        browser.go(&path);
        browser.click(button);
        browser.wait_for(".question, .result");
        browser.check(name, &SCHEMES);
    }
    browser.go("/dashboard/t/default/nowhere");
    browser.check("not-found", &SCHEMES);
    browser.click(".who button");
    browser.wait_for("#key");
    browser.check("sign-in", &SCHEMES);
}

const SCHEMES: [&str; 2] = ["light", "dark"];

/// The name of pages that come after a button, the page of the button, and the button.
fn results(world: &World) -> Vec<(&'static str, String, &'static str)> {
    let endpoint = format!("/dashboard/t/default/endpoints/{}", broken(world));
    vec![
        ("question", endpoint.clone(), "form[action$='/delete'] button"),
        ("probe", endpoint, "form[action$='/probe'] button"),
    ]
}

#[test]
fn pages_without_anything_on_them_say_what_to_do_next() {
    // How full the disk of this machine is does not matter.
    let mut config = Config::default();
    config.alerts.disk.enabled = false;
    let world = World::with(config);
    let browser = Browser::signed_in(&world, &world.admin);
    for (path, word) in [
        ("", "railpost endpoints create"),
        ("/lanes", "railpost send"),
        ("/endpoints", "railpost endpoints create"),
        ("/events", "railpost send"),
        ("/deliveries", "railpost send"),
        ("/dead-letters", "has landed"),
        ("/replays", "Start one from the dead letters"),
        ("/keys", "railpost keys create"),
    ] {
        let path = format!("/dashboard/t/default{path}");
        browser.go(&path);
        let name = path.replace("/dashboard/t/default", "").replace('/', "-");
        browser.check(&format!("empty{name}"), &["light"]);
        assert!(browser.text("main").contains(word), "{path}");
    }
    browser.go("/dashboard/alerts");
    browser.check("empty-alerts", &["light"]);
    assert!(browser.text("main").contains("Nothing is wrong."));
    browser.go("/dashboard/outbox");
    browser.check("empty-outbox", &["light"]);
    assert!(browser.text("main").contains("[[outbox]]"));
}

#[test]
fn a_long_list_comes_in_pages() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    for batch in 0..10 {
        let event = |number: u32| json!({"id": format!("e{batch}-{number}"), "type": "t", "payload": number});
        let events: Vec<Value> = (0..1000).map(event).collect();
        world.post(&of_tenant("events/batch"), &json!({ "events": events })).expect(202);
    }
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/t/default/events");
    assert_eq!(browser.count("tbody tr"), 50);
    let first = browser.text("tbody a");
    browser.click("a[rel=next]");
    browser.wait_for("a[href$='/events?']");
    assert_eq!(browser.count("tbody tr"), 50);
    assert_ne!(browser.text("tbody a"), first);
}

impl Browser {
    fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.chromium("Emulation.setEmulatedMedia", &features);
    }

    /// Looks the page over: accessibility, and its width on screens of all sizes.
    fn check(&self, name: &str, schemes: &[&str]) {
        self.wait_for("main h1");
        for scheme in schemes {
            self.prefer(scheme);
            for width in [360, 768, 1280, 1920] {
                let size =
                    json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
                self.chromium("Emulation.setDeviceMetricsOverride", &size);
                let wide = "return document.documentElement.scrollWidth - innerWidth";
                let wide = self.script(wide, &[]).as_i64().unwrap();
                assert!(wide <= 0, "{name} is {wide} px too wide at {width} px");
                match width {
                    360 => self.picture(&format!("{name}-360-{scheme}")),
                    1280 => self.picture(&format!("{name}-{scheme}")),
                    _ => {}
                }
                if width != 1920 {
                    let findings = self.findings();
                    assert_eq!(findings, Vec::<String>::new(), "{name} in {scheme} at {width} px");
                }
            }
        }
    }

    /// The serious and critical findings of the accessibility checker.
    pub(crate) fn findings(&self) -> Vec<String> {
        if self.script("return !window.axe", &[]) == true {
            let axe = setting("RAILPOST_TEST_INTEROP").join("node_modules/axe-core/axe.min.js");
            let axe = std::fs::read_to_string(&axe)
                .unwrap_or_else(|error| panic!("{}: {error}", axe.display()));
            self.script(&axe, &[]);
        }
        let run = "const done = arguments[0];
            axe.run({resultTypes: ['violations']}).then(found => done(found.violations
                .filter(it => ['serious', 'critical'].includes(it.impact))
                .map(it => it.id + ': ' + it.nodes.map(node => node.html).join(' | '))));";
        let found = self.script_later(run, &[]);
        found
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding.as_str().unwrap().to_owned())
            .collect()
    }

    /// Takes a picture of the page, if a folder for pictures is named.
    pub(crate) fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("RAILPOST_SCREENSHOTS").map(PathBuf::from) else {
            return;
        };
        // A story is told to its end.
        let height_max = if name.starts_with("story") { 3000 } else { 1600 };
        let size =
            "return [innerWidth, Math.min(document.documentElement.scrollHeight, arguments[0])]";
        let size = self.script(size, &[height_max.into()]);
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let shot = self.chromium("Page.captureScreenshot", &shot);
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }
}
