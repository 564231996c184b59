//! Live pages: they change without a reload, keep what people do on them, and say when contact is lost.

use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::webdriver::Browser;
use crate::world::World;

fn page(path: &str) -> String {
    format!("/dashboard/t/default{path}")
}

impl Browser {
    /// Marks the page: a reload would lose the mark.
    fn mark(&self) {
        self.wait_for("#contact:not(:empty)");
        self.script("window.wasNotReloaded = true", &[]);
    }

    #[track_caller]
    fn assert_not_reloaded(&self) {
        assert_eq!(self.script("return window.wasNotReloaded === true", &[]), true);
    }
}

#[test]
fn pages_with_figures_change_without_a_reload() {
    let (world, receiver) = (World::new(), Receiver::new());
    let policy = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}});
    let endpoint = world.endpoint(&receiver, &policy);
    let browser = Browser::signed_in(&world, &world.admin);
    let changes: [(&str, &str, &dyn Fn(), &str, &str); 7] = [
        ("", "Backlog0", &|| world.publish_refused(&receiver, "e1", 503), ".tiles", "Backlog1"),
        ("/deliveries", "e1", &|| world.publish("e2", "later", None), "tbody", "later"),
        ("/events", "later", &|| world.publish("e3", "third", None), "tbody", "third"),
        (
            "/dead-letters",
            "No dead letter",
            &|| world.publish_refused(&receiver, "e4", 422),
            "tbody",
            "refused for good",
        ),
        (
            "/lanes",
            "No lane has moved yet",
            &|| world.publish("e5", "t", Some("new-lane")),
            ".board",
            "new-lane",
        ),
        (
            "/endpoints",
            "active",
            &|| drop(world.act(&format!("endpoints/{endpoint}/pause")).expect(200)),
            "tbody .badge",
            "paused",
        ),
        (
            &format!("/endpoints/{endpoint}"),
            "paused",
            &|| drop(world.act(&format!("endpoints/{endpoint}/resume")).expect(200)),
            "h1 ~ span .badge",
            "active",
        ),
    ];
    for (path, before, change, css, after) in changes {
        browser.go(&page(path));
        browser.says("main", before);
        browser.mark();
        change();
        browser.says(css, after);
        browser.assert_not_reloaded();
    }
}

impl World {
    /// Publishes an event without a key that the receiver refuses.
    fn publish_refused(&self, receiver: &Receiver, id: &str, status: u16) {
        receiver.answers(&[status]);
        self.publish(id, id, None);
        let state = if status == 422 { "dead" } else { "waiting" };
        self.delivery_in(id, state);
    }
}

#[test]
fn the_pages_of_an_event_and_of_its_delivery_follow_it() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let later = receiver.answers_later();
    world.publish("e1", "order.created", Some("k"));
    receiver.next();
    let delivery =
        world.look("events/e1/deliveries")["items"][0]["id"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/deliveries/{delivery}")));
    browser.says("dl.facts", "an attempt is on the wire");
    browser.mark();
    later.send(422).unwrap();
    browser.says("h1 ~ span .badge", "dead");
    browser.says(".timeline", "HTTP 422");
    browser.assert_not_reloaded();
    browser.go(&page("/events/e1"));
    browser.mark();
    browser.says("tbody", "dead");
    world.act(&format!("dead-letters/{delivery}/replay")).expect(200);
    browser.says("tbody", "delivered");
    browser.says(".story", "eplayed");
    browser.assert_not_reloaded();
}

#[test]
fn a_new_drawing_keeps_what_is_chosen_open_and_focused() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[422; 3]);
    for id in ["first", "second"] {
        world.publish(id, "t", None);
        world.delivery_in(id, "dead");
    }
    let chosen = world.delivery_in("first", "dead")["id"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/dead-letters"));
    browser.mark();
    browser.click(&format!("input[value={chosen}]"));
    browser.says("[data-chosen]", "1");
    world.publish("third", "t", None);
    browser.wait_for("tbody tr:nth-child(3)");
    let state = "const box = document.querySelector('input[name=delivery]:checked');
        return [document.querySelectorAll('input:checked').length, box.value, document.activeElement === box]";
    assert_eq!(browser.script(state, &[]), json!([1, chosen, true]));
    browser.says("[data-chosen]", "1");
    browser.go(&page(&format!("/deliveries/{chosen}")));
    browser.mark();
    browser.script("document.querySelector('.timeline details').open = true", &[]);
    world.act(&format!("dead-letters/{chosen}/replay")).expect(200);
    browser.says("h1 ~ span .badge", "delivered");
    assert_eq!(
        browser.script("return document.querySelector('.timeline details').open", &[]),
        true
    );
}

#[test]
fn choose_all_marks_every_row_and_again_none() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[422; 2]);
    for id in ["first", "second"] {
        world.publish(id, "t", None);
        world.delivery_in(id, "dead");
    }
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/dead-letters"));
    for marked in [2, 0] {
        browser.click(".choose-all");
        assert_eq!(browser.count("input[name=delivery]:checked"), marked);
        browser.says("[data-chosen]", &marked.to_string());
    }
}

#[test]
fn a_page_says_when_contact_is_lost_and_when_it_is_back() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/deliveries"));
    browser.says("#contact", "Live");
    let offline = |offline: bool| {
        let network = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        browser.chromium("Network.enable", &json!({}));
        browser.chromium("Network.emulateNetworkConditions", &network);
    };
    browser.mark();
    offline(true);
    browser.says("#contact.lost", "Contact lost at ");
    browser.says("#contact.lost", ", trying again");
    offline(false);
    browser.says("#contact:not(.lost)", "Live again since ");
    browser.assert_not_reloaded();
}

#[test]
fn a_page_about_something_that_was_deleted_says_so_and_stops_asking() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.mark();
    world.delete(&of_tenant(&format!("endpoints/{endpoint}"))).expect(200);
    browser.says("#contact.lost", "Not found");
}

#[test]
fn nothing_is_sent_while_nothing_changes() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    world.publish("e1", "t", Some("k"));
    world.delivery_in("e1", "delivered");
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/deliveries"));
    browser.mark();
    let count = "const source = new EventSource(arguments[0]);
        const done = arguments[1];
        let count = 0;
        source.onmessage = () => { count += 1; };
        setTimeout(() => { source.close(); done(count); }, 3000);";
    for path in ["/live/deliveries", "/live/lanes", "/live/endpoints", "/live/dead-letters"] {
        let messages: Value = browser.script_later(count, &[page(path).into()]);
        assert_eq!(messages, 1, "{path}: the first drawing, and no other");
    }
}
