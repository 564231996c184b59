//! Sources of the outbox: what an admin sees of them, and decides about parked rows.

use serde_json::json;

use crate::outbox_file::OutboxFile;
use crate::scene::column;
use crate::webdriver::Browser;
use crate::world::World;

const PARKED: &str = "/v1/outbox/shop/parked";

/// A server whose source has two refused rows: `first` with `behind` behind it, and `alone`. Their tenant does
/// not exist.
fn parked_world() -> (World, OutboxFile) {
    let file = OutboxFile::new();
    for (id, key) in [("first", "order-1"), ("behind", "order-1"), ("alone", "order-2")] {
        file.emit(id, "acme", key);
    }
    let world = World::with(file.config());
    world.get_until(PARKED, |rows| rows["items"].as_array().unwrap().len() == 3);
    (world, file)
}

/// The number of the parked row of this event.
fn row_of(world: &World, event: &str) -> u64 {
    let rows = world.get(PARKED).expect(200).json();
    let row = rows["items"].as_array().unwrap().iter().find(|row| row["id"] == event).unwrap();
    row["number"].as_u64().unwrap()
}

/// Waits until no row is parked, and says which events the tenant has.
fn events_once_nothing_is_parked(world: &World) -> Vec<String> {
    world.get_until(PARKED, |rows| rows["items"].as_array().unwrap().is_empty());
    let mut events = column(&world.get("/v1/tenants/acme/events").expect(200).json(), "id");
    events.sort();
    events
}

fn add_tenant(world: &World) {
    world.post("/v1/tenants", &json!({"id": "acme", "name": "Acme"})).expect(201);
}

#[test]
fn a_source_shows_its_state_its_parked_rows_and_what_is_wrong() {
    let (world, _file) = parked_world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/outbox");
    let sources = browser.text("tbody");
    assert!(sources.contains("reading") && sources.contains("not read"), "{sources}");
    browser.click("a[href='/dashboard/outbox/shop#parked']");
    browser.wait_for("#parked");
    let rows = browser.text("section tbody");
    for word in ["acme", "order-1", "waits behind an earlier row of its key"] {
        assert!(rows.contains(word), "no `{word}` in {rows}");
    }
    browser.click("a[href$='?refused=true#parked']");
    browser.wait_for("a[href$='?refused=true#parked'][aria-current]");
    assert_eq!(browser.count("section tbody tr"), 2);
    browser.go("/dashboard/outbox/billing");
    assert!(browser.text(".flash.problem").contains("billing.db"));
}

#[test]
fn rows_that_are_retried_after_their_cause_is_fixed_become_events() {
    let (world, _file) = parked_world();
    let browser = Browser::signed_in(&world, &world.admin);
    let page = format!("/dashboard/outbox/shop/parked/{}", row_of(&world, "first"));
    browser.go(&page);
    assert!(browser.text("main pre").contains("12.5"), "the payload is shown");
    browser.click("main button.primary");
    browser.wait_for(".flash");
    // The tenant is still unknown.
    world.get_until(PARKED, |rows| rows["items"][0]["released"] == false);
    add_tenant(&world);
    browser.go(&page);
    browser.click("main button.primary");
    browser.wait_for(".flash");
    browser.go("/dashboard/outbox/shop");
    browser.click("form[action$='/retry-all'] button");
    browser.wait_for(".flash");
    assert_eq!(events_once_nothing_is_parked(&world), ["alone", "behind", "first"]);
}

#[test]
fn skipping_drops_one_row_and_discarding_those_behind_it_too_and_both_ask_once() {
    for (action, left) in [("skip", vec!["alone", "behind"]), ("discard", vec!["alone"])] {
        let (world, _file) = parked_world();
        add_tenant(&world);
        let browser = Browser::signed_in(&world, &world.admin);
        browser.go(&format!("/dashboard/outbox/shop/parked/{}", row_of(&world, "first")));
        let form = format!("details.confirm:has(form[action$='/{action}'])");
        assert_eq!(browser.count(&format!("{form}[open]")), 0);
        browser.script("document.querySelector(arguments[0]).open = true", &[form.clone().into()]);
        browser.click(&format!("{form} button"));
        browser.wait_for(".flash");
        browser.go("/dashboard/outbox/shop");
        browser.click("form[action$='/retry-all'] button");
        browser.wait_for(".flash");
        assert_eq!(events_once_nothing_is_parked(&world), left, "{action}");
    }
}

#[test]
fn a_check_shows_every_condition_and_what_to_do() {
    let (world, _file) = parked_world();
    let browser = Browser::signed_in(&world, &world.admin);
    for (source, word) in [("shop", "good"), ("billing", "bad")] {
        browser.go(&format!("/dashboard/outbox/{source}"));
        browser.click("form[action$='/check'] button");
        browser.wait_for("td .badge");
        browser.picture(&format!("outbox-check-{source}"));
        assert!(browser.text("tbody").contains(word), "{source}");
        assert_eq!(browser.findings(), Vec::<String>::new(), "{source}");
    }
    browser.go("/dashboard/outbox/billing/check");
    assert_eq!(browser.path(), "/dashboard/outbox/billing");
}

#[test]
fn a_decision_by_a_page_without_script_is_carried_out() {
    let (world, _file) = parked_world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    browser.go("/dashboard/outbox/shop");
    browser.click("form[action$='/retry-all'] button");
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": false}));
    browser.wait_for(".flash");
    assert!(browser.text(".flash").contains("Handed over again: 2 rows"));
}

#[test]
fn only_admins_of_a_server_with_sources_have_the_page_in_their_navigation() {
    let links = |world: &World, key: &str| {
        let browser = Browser::signed_in(world, key);
        browser.wait_for("nav.tabs");
        browser.count("nav.tabs a[href='/dashboard/outbox']")
    };
    let (world, _file) = parked_world();
    assert_eq!(links(&world, &world.admin), 1);
    let key = world.key("default", "tenant");
    assert_eq!(links(&world, &key), 0);
    let browser = Browser::signed_in(&world, &key);
    browser.go("/dashboard/outbox");
    assert!(browser.text("main").contains("larger scope"));
    let without = World::new();
    assert_eq!(links(&without, &without.admin), 0);
}

#[test]
fn many_parked_rows_come_in_pages() {
    let file = OutboxFile::new();
    for number in 0..60 {
        file.emit(&format!("e{number}"), "acme", &format!("order-{number}"));
    }
    let world = World::with(file.config());
    world.get_until("/v1/outbox/shop", |source| source["parked_rows"] == 60);
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/outbox/shop");
    assert_eq!(browser.count("tbody tr"), 50);
    browser.click("a[rel=next]");
    browser.wait_for("nav.pager a[href$='/outbox/shop?']");
    assert_eq!(browser.count("tbody tr"), 10);
}
