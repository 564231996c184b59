//! What operators do: hold and release, replay, rotate, create, and what they may not do.

use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::webdriver::Browser;
use crate::world::World;

/// A page of the default tenant.
fn page(path: &str) -> String {
    format!("/dashboard/t/default{path}")
}

/// A world in which `poison` is held by its first event, with two behind it.
fn held_world() -> (World, Receiver) {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    receiver.answers(&[422]);
    for id in ["e1", "e2", "e3"] {
        world.publish(id, "order.created", Some("poison"));
    }
    world.delivery_in("e1", "dead");
    (world, receiver)
}

#[test]
fn a_lane_is_seen_held_and_released_without_a_reload() {
    let (world, receiver) = (World::new(), Receiver::new());
    world.endpoint(&receiver, &json!({}));
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/lanes"));
    browser.wait_for(".empty");
    receiver.answers(&[422]);
    for id in ["e1", "e2", "e3"] {
        world.publish(id, "order.created", Some("poison"));
    }
    browser.wait_for(".lane.held[data-lane=poison] .held-note");
    let note = browser.text(".held-note p");
    assert!(note.contains("refused for good, last answer HTTP 422. 2 wait behind it"), "{note}");
    browser.wait_until("an announcement", || browser.text("#announcer").contains("1 held"));
    browser.click(".held-note button.primary");
    browser.wait_for(".flash");
    browser.wait_without(".lane.held");
    browser.wait_until_landed("poison", 3);
    let seqs: Vec<_> =
        (0..4).map(|_| receiver.next().header("x-seq").unwrap().to_owned()).collect();
    assert_eq!(seqs, ["1", "1", "2", "3"]);
}

#[test]
fn a_lane_that_one_of_four_endpoints_holds_is_shown_from_a_sqlite_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = railpost::config::Config::default();
    config.server.data_dir = folder.path().join("data");
    let world = World::stored(config);
    let receivers: Vec<Receiver> = (0..4).map(|_| Receiver::new()).collect();
    for receiver in &receivers {
        world.endpoint(receiver, &json!({}));
    }
    receivers[2].answers(&[422]);
    world.publish("e1", "order.created", Some("order-1"));
    let held = world.look_until("lanes", |lanes| lanes["items"].as_array().unwrap().len() == 1);
    assert_eq!(held["items"][0]["last_answer"]["status"], 422);
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/lanes"));
    browser.wait_for(".lane.held[data-lane=order-1] .held-note");
    assert_eq!(browser.count(".lane"), 4);
    assert_eq!(browser.count(".lane.held"), 1);
}

#[test]
fn a_blocked_endpoint_says_why_and_deleting_says_how_many_deliveries_go() {
    use railpost_engine::Timestamp;
    use railpost_store::{Change, Write};
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let secrets = world.look(&format!("endpoints/{endpoint}/secrets"));
    let secret = secrets["items"][0]["id"].as_str().unwrap().parse().unwrap();
    let (id, at) = (endpoint.parse().unwrap(), Timestamp::from_millis(1));
    let expire = Write::ExpireSecret { endpoint: id, id: secret, at };
    let app = world.server().app().clone();
    world.wait_for(app.dispatcher.commit(Change::from(expire))).unwrap();
    for event in ["e1", "e2"] {
        world.publish(event, "order.created", Some("k"));
    }
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/endpoints"));
    browser.wait_for("td .badge.bad");
    assert!(browser.text("td .badge.bad").contains("blocked"));
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    let problem = browser.text("main p.problem");
    assert!(problem.contains("no secret that is valid"), "{problem}");
    browser.click("form[action$='/delete'] button");
    assert!(browser.text(".question p").contains("Closes 2 open deliveries"));
    browser.click(".question button.danger");
    browser.wait_for(".flash");
    assert!(browser.text(".flash").contains("Discarded: 2 open deliveries"));
    let delivery = world.delivery_in("e1", "discarded");
    browser.go(&page(&format!("/deliveries/{}", delivery["id"].as_str().unwrap())));
    let facts = browser.text("dl.facts");
    assert!(facts.contains("its endpoint was removed"), "{facts}");
}

impl Browser {
    /// Waits until that many deliveries of a lane have landed.
    #[track_caller]
    fn wait_until_landed(&self, key: &str, count: usize) {
        self.wait_for(&format!(".lane[data-lane={key}] .landed:nth-of-type({count})"));
    }
}

#[test]
fn a_dead_letter_that_was_chosen_is_replayed() {
    let (world, _receiver) = held_world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/dead-letters"));
    browser.click("input[name=delivery]");
    browser.click("button[value=replay].primary");
    browser.wait_for(".flash");
    for id in ["e1", "e2", "e3"] {
        world.delivery_in(id, "delivered");
    }
    browser.go(&page("/dead-letters"));
    assert!(browser.text(".empty").contains("No dead letter"));
}

#[test]
fn one_refusal_among_those_chosen_keeps_none_of_the_others_back() {
    let (world, receiver) = held_world();
    receiver.answers(&[422]);
    world.publish("alone", "order.created", None);
    world.delivery_in("alone", "dead");
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/dead-letters"));
    browser.click("button[value=skip]");
    browser.wait_for(".flash.problem");
    assert!(browser.text(".flash").contains("Choose at least one"));
    browser.script(
        "document.querySelectorAll('[name=delivery]').forEach(it => it.checked = true)",
        &[],
    );
    browser.click("button[value=skip]");
    assert_eq!(browser.text(".question h1"), "Skip 2 dead letters?");
    browser.click(".question button.danger");
    browser.wait_until("what came of it", || {
        browser.text(".flash").contains("Skipped: 1 dead letter.")
    });
    assert!(browser.text(".flash.problem").contains("Refused for 1: Not allowed in this state"));
    world.delivery_in("e3", "delivered");
}

#[test]
fn all_that_match_are_replayed_after_a_preview_of_how_many_and_in_which_order() {
    let (world, _receiver) = held_world();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/dead-letters?key=poison"));
    browser.click("form[action$=replays] button[value=replay]");
    browser.wait_for("ol.order li");
    let held = world.look("dead-letters")["items"][0]["id"].clone();
    assert_eq!(browser.text("ol.order li"), held.as_str().unwrap());
    browser.click("form[action$=replays] button.primary");
    browser.wait_for("progress");
    browser.wait_for("[data-announce] .badge.good");
    for id in ["e1", "e2", "e3"] {
        world.delivery_in(id, "delivered");
    }
}

#[test]
fn a_secret_is_rotated_and_shown_once() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.click("form[action$=rotate] button");
    browser.wait_for("code.secret");
    assert!(browser.text("code.secret").starts_with("whsec_"));
    let secrets = world.look(&format!("endpoints/{endpoint}/secrets"));
    assert_eq!(secrets["items"].as_array().unwrap().len(), 2);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.wait_for("#secrets");
    assert_eq!(browser.count("code.secret"), 0);
}

#[test]
fn a_secret_is_added_revealed_and_deleted() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let secrets = || world.look(&format!("endpoints/{endpoint}/secrets"))["items"].clone();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.click("form[action$=add-secret] button");
    browser.wait_for("code.secret");
    let added = browser.text("code.secret");
    let id = secrets()[1]["id"].as_str().unwrap().to_owned();
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.click(&format!("form[action$='{id}/reveal'] button"));
    browser.wait_for("code.secret");
    assert_eq!(browser.text("code.secret"), added);
    let revealed = &world.look(&format!("audit?target={id}"))["items"][0];
    assert_eq!(revealed["action"], "secret.reveal");
    browser.click(&format!("form[action$='{id}/delete'] button"));
    browser.click(".question button.danger");
    browser.wait_without(&format!("form[action$='{id}/delete']"));
    assert_eq!(secrets().as_array().unwrap().len(), 1);
    let last = secrets()[0]["id"].as_str().unwrap().to_owned();
    browser.click(&format!("form[action$='{last}/delete'] button"));
    browser.click(".question button.danger");
    browser.wait_for(".flash.problem");
    assert_eq!(secrets().as_array().unwrap().len(), 1, "the last one that signs stays");
}

#[test]
fn a_bad_url_is_explained_beside_its_field_and_a_good_one_makes_an_endpoint() {
    let (world, receiver) = (World::new(), Receiver::new());
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/endpoints/new"));
    browser.fill("#url", "not a url");
    browser.fill("#description", "the shop");
    browser.click("main button.primary");
    browser.wait_for("#url-problem");
    let described = "return document.querySelector('#url').getAttribute('aria-describedby')";
    assert_eq!(browser.script(described, &[]), json!("url-problem url-hint"));
    let typed = "return [document.querySelector('#url').value, document.querySelector('#description').value]";
    assert_eq!(
        browser.script(typed, &[]),
        json!(["not a url", "the shop"]),
        "nothing typed is lost"
    );
    browser.fill("#url", &receiver.url());
    browser.click("main button.primary");
    browser.wait_for("code.secret");
    assert_eq!(browser.text("h1"), receiver.url());
    browser.go(&format!("{}/edit", browser.path()));
    browser.fill("#description", "the new shop");
    browser.click("main button.primary");
    browser.wait_for(".flash");
    let endpoints = world.look("endpoints");
    assert_eq!(endpoints["items"][0]["description"], "the new shop");
}

#[test]
fn saving_an_endpoint_changes_nothing_that_its_form_does_not_show() {
    let (world, receiver) = (World::new(), Receiver::new());
    let policy = json!({
        "retry": {"backoff": {"strategy": "exponential", "base": "5m", "jitter": "none"}},
        "outcomes": {"404": "retryable"},
        "rate_limit": {"count": 5, "per": "1s", "burst": 5},
    });
    let endpoint = world.endpoint(&receiver, &policy);
    let path = format!("endpoints/{endpoint}");
    let before = world.look(&path)["policy"].clone();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/{path}/edit")));
    browser.fill("#description", "the same shop");
    browser.click("main button.primary");
    browser.wait_for(".flash");
    let after = world.look(&path);
    assert_eq!((&after["policy"], &after["description"]), (&before, &json!("the same shop")));
}

#[test]
fn the_audit_page_shows_what_was_what() {
    let world = World::new();
    let id = world.endpoint_with(&json!({"url": "https://example.com/old"}));
    let edit = json!({"url": "https://example.com/new", "headers": {"X-Token": "s3cret"}});
    world.patch(&of_tenant(&format!("endpoints/{id}")), &edit).expect(200);
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page("/audit"));
    let shown = browser.text("tbody tr:first-child .changes li:nth-child(2)");
    assert_eq!(shown, "url: https://example.com/old → https://example.com/new");
    let secret = browser.text("tbody tr:first-child .changes li");
    assert_eq!(secret, "headers.X-Token: nothing → (secret)");
    assert!(!browser.text("main").contains("s3cret"));
    browser.go("/dashboard/audit");
    assert!(browser.text("tbody").contains("session.sign_in"), "it concerns no tenant");
    assert!(browser.text("tbody").contains("of default"));
}

#[test]
fn the_form_of_an_endpoint_sets_envelope_and_reference_bound() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let browser = Browser::signed_in(&world, &world.admin);
    let bound = || world.look(&format!("endpoints/{endpoint}"))["thin_above"].clone();
    let save = |typed: &str| {
        browser.go(&page(&format!("/endpoints/{endpoint}/edit")));
        browser.fill("#thin_above", typed);
        browser.click("main button.primary");
    };
    save("lots");
    browser.wait_for("#thin_above-problem");
    for (typed, stored) in [("4096", json!(4096)), ("", json!(null))] {
        save(typed);
        browser.wait_for(".flash");
        assert_eq!(bound(), stored, "{typed:?}");
    }
    browser.go(&page(&format!("/endpoints/{endpoint}/edit")));
    browser.script("document.querySelector('#envelope').value = 'event'", &[]);
    browser.click("main button.primary");
    browser.wait_for(".flash");
    assert_eq!(world.look(&format!("endpoints/{endpoint}"))["envelope"], "event");
}

#[test]
fn an_endpoint_is_paused_and_resumed() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    for (button, status, other) in [("pause", "paused", "resume"), ("resume", "active", "pause")] {
        browser.click(&format!("form[action$={button}] button"));
        // Of the page before there may be a flash as well, but not the other button.
        browser.wait_for(&format!("form[action$={other}] button"));
        browser.wait_for(".flash");
        let endpoint: Value = world.look(&format!("endpoints/{endpoint}"));
        assert_eq!(endpoint["status"], status);
    }
}

#[test]
fn an_operator_without_the_scope_sees_no_button_and_is_refused() {
    let (world, _receiver) = held_world();
    let browser = Browser::signed_in(&world, &world.key("default", "read-only"));
    let endpoint = world.look("endpoints")["items"][0]["id"].as_str().unwrap().to_owned();
    let lane = world.look("lanes")["items"][0]["lane"].to_string();
    for path in ["/lanes", "/dead-letters", "/endpoints", &format!("/endpoints/{endpoint}")] {
        browser.go(&page(path));
        browser.wait_for("main h1");
        assert_eq!(browser.count("main form[method=post]"), 0, "{path}");
        assert_eq!(browser.count("main a.button"), 0, "{path}");
    }
    let posts = "const csrf = document.querySelector('[name=csrf]').value;
        fetch(arguments[0], {method: 'POST', body: new URLSearchParams({csrf})})
            .then(answer => arguments[1](answer.status));";
    for path in [
        format!("/lanes/{lane}/replay"),
        format!("/endpoints/{endpoint}/pause"),
        format!("/endpoints/{endpoint}/rotate"),
        "/keys".to_owned(),
        "/endpoints".to_owned(),
    ] {
        let status = browser.script_later(posts, &[page(&path).into()]);
        assert_eq!(status, 403, "{path}");
    }
    assert_eq!(world.get(&of_tenant("lanes")).json()["items"].as_array().unwrap().len(), 1);
}
