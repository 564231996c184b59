//! Alerts in the dashboard: the number in the navigation, silences, tests, and what a tenant sees.

use railpost::config::Config;
use serde_json::json;

use crate::receiver::Receiver;
use crate::webdriver::Browser;
use crate::world::World;

/// A server to which it does not matter how full the disk of this machine is.
fn world() -> World {
    let mut config = Config::default();
    config.alerts.disk.enabled = false;
    World::with(config)
}

const ENDPOINT: &str = "ep_01h455vb4pex5vsknk084sn02q";

#[test]
fn the_number_of_open_alerts_is_live_on_every_live_page() {
    let world = world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/t/default/endpoints");
    browser.wait_for("#open-alerts[hidden]");
    let alert = world.fire("default", ENDPOINT);
    browser.wait_for("#open-alerts:not([hidden])");
    assert_eq!(browser.text("#open-alerts"), "1");
    world.resolve(&alert);
    browser.wait_for("#open-alerts[hidden]");
}

#[test]
fn an_alert_appears_is_silenced_and_moves_to_the_history() {
    let world = world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/alerts");
    assert!(browser.text("#live").contains("Nothing is wrong."));
    let alert = world.fire("default", ENDPOINT);
    browser.wait_for(".alert.warning");
    browser.click(".alert summary");
    browser.fill(".alert input[name=reason]", "the receiver is being moved");
    browser.click(".alert button");
    browser.wait_for("#silences");
    assert!(browser.text(".alert").contains("silenced until"));
    assert!(browser.text("#silences").contains("the receiver is being moved"));
    let silences = world.get("/v1/silences").expect(200).json();
    assert_eq!(silences["items"][0]["subject"], ENDPOINT);
    browser.click("#silences button");
    browser.wait_for(".flash");
    assert_eq!(browser.count("#silences"), 0);
    world.resolve(&alert);
    browser.wait_for("#live .empty");
    browser.go("/dashboard/alerts");
    assert!(browser.text("#history").contains("1 min 30 s"));
}

#[test]
fn a_test_says_whom_it_reaches() {
    let world = world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/alerts");
    browser.click("#test button");
    browser.wait_for(".flash.problem");
    assert!(browser.text(".flash").contains("reaches nobody"));
    let receiver = Receiver::new();
    let endpoint = json!({"url": receiver.url(), "types": ["railpost.*"]});
    world.post("/v1/tenants/railpost/endpoints", &endpoint).expect(201);
    browser.click("#test button");
    browser.wait_for(".flash:not(.problem)");
    assert!(browser.text(".flash").contains("The test goes to 1 endpoint."));
    assert!(receiver.next().text().contains("\"test\":true"));
}

#[test]
fn a_tenants_user_follows_a_notice_to_the_page_of_the_own_tenant() {
    let world = world();
    world.post("/v1/tenants", &json!({"id": "acme"})).expect(201);
    let (own, other) = (world.fire("default", ENDPOINT), world.fire("acme", ENDPOINT));
    let browser = Browser::signed_in(&world, &world.key("default", "read-only"));
    browser.go(&format!("/dashboard/alerts/{own}"));
    assert_eq!(browser.path(), format!("/dashboard/t/default/alerts/{own}"));
    assert!(browser.text("main").contains("Breaker of"));
    assert_eq!(browser.count("form[action$='/silence']"), 0, "silences are the operator's");
    browser.go(&format!("/dashboard/alerts/{other}"));
    assert!(browser.text("main").contains("Not found"));
    browser.go("/dashboard/t/default/alerts");
    assert_eq!(browser.count(".alert"), 1);
}
