//! Where is my event: search, story, filters, times, shortcuts, charts and copying.

use serde_json::json;

use crate::receiver::Receiver;
use crate::webdriver::Browser;
use crate::world::World;

fn page(path: &str) -> String {
    format!("/dashboard/t/default{path}")
}

/// A world in which `order-1` failed twice, was held, replayed and delivered, and another event nobody wanted.
fn told_world() -> (World, Receiver) {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let filter = json!({"types": ["order.*"]});
    world.patch(&crate::scene::of_tenant(&format!("endpoints/{endpoint}")), &filter).expect(200);
    world.endpoint_with(&json!({"url": "https://example.com/invoices", "types": ["invoice.*"]}));
    receiver.answers(&[503, 422]);
    world.publish("evt-story", "order.created", Some("order-1"));
    let letter = world.delivery_in("evt-story", "dead");
    world.act(&format!("dead-letters/{}/replay", letter["id"].as_str().unwrap())).expect(200);
    world.delivery_in("evt-story", "delivered");
    (world, receiver)
}

impl Browser {
    /// Searches from the header.
    fn find(&self, words: &str) {
        self.fill("#search", words);
        self.script("document.querySelector('form.search').requestSubmit()", &[]);
    }

    /// Presses a key where the focus is.
    fn key(&self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.chromium("Input.dispatchKeyEvent", &json!({"type": kind, "key": key, "text": if key.len() == 1 && kind == "keyDown" { key } else { "" }}));
        }
    }
}

#[test]
fn each_kind_of_thing_is_found_from_any_page() {
    let (world, receiver) = told_world();
    let delivery = world.delivery_in("evt-story", "delivered");
    let (delivery, endpoint) =
        (delivery["id"].as_str().unwrap(), delivery["endpoint"].as_str().unwrap());
    let browser = Browser::signed_in(&world, &world.admin);
    for (from, words, found) in [
        ("", "evt-story", "/events/evt-story".to_owned()),
        ("/keys", delivery, format!("/deliveries/{delivery}")),
        ("/lanes", endpoint, format!("/endpoints/{endpoint}")),
    ] {
        browser.go(&page(from));
        browser.find(words);
        browser.wait_until(&found, || browser.path() == page(&found));
    }
    browser.go(&page("/events"));
    browser.find("order-1");
    browser.says("main", "Events");
    browser.wait_for("a[href$='/events/evt-story']");
    browser.find(&receiver.url());
    browser
        .wait_until("the endpoint", || browser.path() == page(&format!("/endpoints/{endpoint}")));
    browser.find("nobody-knows-this");
    browser.says(".empty", "Nothing has this id, key or URL");
    browser.go("/dashboard/all");
    browser.find("evt-story");
    browser.wait_until("the event", || browser.path() == page("/events/evt-story"));
}

#[test]
fn an_event_tells_its_story_in_order() {
    let (world, _receiver) = told_world();
    let story = world.look("events/evt-story/story");
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/events/evt-story"));
    browser.wait_for(".story li");
    let kinds = "return [...document.querySelectorAll('.story h3')].map(it => it.textContent.replace(/ [0-9]+$/, ''))";
    let entries = story["entries"].as_array().unwrap();
    let told: Vec<String> =
        entries.iter().map(|it| it["kind"].as_str().unwrap().replace('_', " ")).collect();
    assert_eq!(browser.script(kinds, &[]), json!(told));
    for kind in ["accepted", "attempt", "held", "replayed", "delivered"] {
        assert!(told.iter().any(|it| it == kind), "no {kind} in {told:?}");
    }
    let place = |kind: &str| told.iter().rposition(|it| it == kind).unwrap();
    assert!(place("held") < place("replayed"), "{told:?}");
    assert!(place("replayed") < place("delivered"), "{told:?}");
    for words in ["HTTP 503", "HTTP 422", "HTTP 200", "webhook-id", "x-told", "in all"] {
        browser.says(".story", words);
    }
    browser.says(".not-matched", "https://example.com/invoices");
    browser.says(".not-matched", "invoice.*");
}

#[test]
fn lists_show_where_things_go_and_what_came_back_and_are_filtered_by_it() {
    let (world, receiver) = told_world();
    receiver.answers(&[422]);
    world.publish("dead", "order.paid", Some("order-2"));
    world.delivery_in("dead", "dead");
    let browser = Browser::signed_in(&world, &world.admin);
    for (path, rows) in [
        ("/deliveries", 2),
        ("/deliveries?status=200", 1),
        ("/deliveries?status=422", 1),
        ("/deliveries?failure=timeout", 0),
        ("/deliveries?reason=permanent", 1),
        ("/dead-letters?status=422", 1),
        ("/dead-letters?reason=expired", 0),
        ("/dead-letters?created_after=2020-01-31T12:00", 1),
        ("/dead-letters?created_before=2020-01-31T12:00:05", 0),
    ] {
        browser.go(&page(path));
        browser.wait_for("main h1");
        assert_eq!(browser.count("main tbody tr"), rows, "{path}");
        if rows > 0 {
            browser.says("td[data-label=Endpoint]", &receiver.url());
            browser.says("td[data-label='Last answer']", "HTTP ");
        }
    }
    browser.go(&page("/events"));
    browser.says("tr:has(a[href$='/dead']) td[data-label=Deliveries]", "1 held");
    browser.says("tr:has(a[href$='/evt-story']) td[data-label=Deliveries]", "1 delivered");
}

#[test]
fn times_are_local_with_utc_on_hovering_and_dates_are_picked_in_local_time() {
    let (world, _receiver) = told_world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.chromium("Emulation.setTimezoneOverride", &json!({"timezoneId": "Asia/Kolkata"}));
    browser.go(&page("/events/evt-story"));
    browser.wait_for("time");
    let shown = "const time = document.querySelector('dl.facts time');
        const at = new Date(time.dateTime);
        const local = new Date(at.getTime() + 330 * 60000).toISOString().slice(11, 19);
        return [time.textContent.includes(local), time.title.endsWith(' UTC'), time.title.includes(time.dateTime.slice(11, 19))]";
    assert_eq!(browser.script(shown, &[]), json!([true, true, true]));
    browser.go(&page("/events?created_after=2020-01-31T12:00:00Z"));
    let value = "return document.querySelector('#filter-created_after').value";
    assert_eq!(browser.script(value, &[]), "2020-01-31T17:30");
    browser.says("label[for=filter-created_after]", "local time");
    browser.script("document.querySelector('form.filters').requestSubmit()", &[]);
    browser.wait_until("the same filter", || {
        browser
            .script("return location.search", &[])
            .as_str()
            .unwrap()
            .contains("created_after=2020-01-31T12%3A00%3A00")
    });
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    browser.go(&page("/events?created_after=2020-01-31T12:00:00Z"));
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": false}));
    browser.says("label[for=filter-created_after]", "UTC");
    browser.says("time", " UTC");
}

#[test]
fn keys_lead_to_the_search_box_to_pages_and_to_help() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/events"));
    browser.wait_for("#contact:not(:empty)");
    browser.key("/");
    assert_eq!(browser.script("return document.activeElement.id", &[]), "search");
    browser.script("document.activeElement.blur()", &[]);
    for (key, path) in [("l", "/lanes"), ("e", "/endpoints"), ("x", "/dead-letters"), ("o", "")] {
        browser.key("g");
        browser.key(key);
        browser.wait_until(path, || browser.path() == page(path));
        browser.wait_for("#contact:not(:empty)");
    }
    browser.key("?");
    browser.wait_until("help", || browser.path() == page("/help"));
    browser.says("main", "Go to the search box");
}

#[test]
fn the_values_of_a_chart_are_shown_to_pointers_and_keys() {
    let (world, _receiver) = told_world();
    world.look_until("figures?range=15m", |figures| figures["total"]["attempts"] != 0);
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("?range=15m"));
    browser.wait_for(".chart svg");
    browser.script("document.querySelector('.chart svg').focus()", &[]);
    browser.key("ArrowLeft");
    browser.says(".chart .readout", "acknowledged ");
    browser.key("Home");
    assert_eq!(browser.count(".chart .hit.shown"), 1);
    browser.says(".chart .hit:first-of-type title, .chart .hit title", "acknowledged ");
}

#[test]
fn ids_are_copied() {
    let (world, _receiver) = told_world();
    let browser = Browser::signed_in(&world, &world.admin);
    let grant = json!({"permission": {"name": "clipboard-write"}, "setting": "granted"});
    browser.chromium("Browser.setPermission", &grant);
    browser.go(&page("/events/evt-story"));
    browser.wait_for("button[data-copy=evt-story]");
    browser.script("window.copied = []; navigator.clipboard.writeText = async (text) => { copied.push(text); }", &[]);
    browser.click("button[data-copy=evt-story]");
    browser.wait_for("button.copied");
    assert_eq!(browser.script("return copied", &[]), json!(["evt-story"]));
    assert_eq!(browser.text("#announcer"), "Copied");
}
