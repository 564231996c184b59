//! The edit form of an endpoint: what is not touched stays as it is.

use serde_json::{Value, json};

use crate::scene::of_tenant;
use crate::webdriver::Browser;
use crate::world::World;

const URL: &str = "https://example.com/hooks";

/// Endpoints with every kind of setting.
fn endpoints() -> Vec<Value> {
    let policy = |policy: Value| json!({"url": URL, "policy": policy});
    let backoff = |backoff: Value| policy(json!({"retry": {"backoff": backoff}}));
    let exponential =
        |jitter: &str| backoff(json!({"strategy": "exponential", "base": "3s", "jitter": jitter}));
    let envelope = |envelope: &str| json!({"url": URL, "envelope": envelope});
    vec![
        json!({"url": URL}),
        exponential("none"),
        exponential("full"),
        exponential("equal"),
        exponential("decorrelated"),
        backoff(json!({"strategy": "fixed", "delay": "1500ms"})),
        backoff(
            json!({"strategy": "schedule", "delays": ["0s", "1m", "90s"], "repeat_last": true}),
        ),
        backoff(json!({"strategy": "schedule", "delays": ["5m"], "repeat_last": false})),
        policy(json!({"retry": {"max_delay": "90m", "max_attempts": 7, "ttl": "36h"}})),
        policy(
            json!({"guarantee": "at_most_once", "ordering": "none", "on_dead_letter": "advance"}),
        ),
        policy(json!({"guarantee": "effectively_once", "ordering": "global"})),
        policy(json!({"signed": false, "outcomes": {"404": "retryable", "503": "permanent"}})),
        policy(json!({"in_flight_max": 3, "rate_limit": {"count": 10, "per": "1m", "burst": 5}})),
        policy(json!({"breaker": null, "quarantine_after": null, "disable_after": null})),
        policy(
            json!({"breaker": {"failure_percent": 7}, "quarantine_after": 9, "disable_after": "2h"}),
        ),
        envelope("cloudevents-structured"),
        envelope("cloudevents-binary"),
        envelope("thin"),
        json!({"url": URL, "types": ["order.created", "invoice.*"], "timeout": "7s", "tls_min": "1.3"}),
        json!({"url": URL, "headers": {"X-Token": "t0ken"}, "renamed_headers": {"x_key": "X-Order"}}),
        json!({"url": "https://example.com/a?b=%20&c=<d>", "description": " two\n\n lines & <more>\n"}),
        json!({"url": URL, "description": "\nbegins with a line\r\nof its own"}),
    ]
}

#[test]
fn an_endpoint_whose_form_is_saved_as_it_is_does_not_change() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    for new in endpoints() {
        let id = world.endpoint_with(&new);
        let path = format!("endpoints/{id}");
        let before = world.look(&path);
        browser.edit(&id);
        browser.save();
        assert_eq!(world.look(&path), before, "{new}");
    }
    let entries = world.look("audit?limit=500");
    let entries = entries["items"].as_array().unwrap();
    assert!(
        entries.iter().all(|entry| entry["action"] != "endpoint.change"),
        "nothing was changed"
    );
}

#[test]
fn only_the_field_that_was_edited_changes() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    for new in endpoints() {
        let id = world.endpoint_with(&new);
        let path = format!("endpoints/{id}");
        let before = world.look(&path);
        browser.edit(&id);
        browser.fill("#max_attempts", "55");
        browser.save();
        let mut expected = before.clone();
        expected["policy"]["retry"]["max_attempts"] = 55.into();
        expected["revision"] = 2.into();
        let after = world.look(&path);
        expected["updated_at"] = after["updated_at"].clone();
        assert_eq!(after, expected, "{new}");
    }
}

#[test]
fn every_field_of_the_form_can_be_edited() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    let id = world.endpoint_with(&json!({"url": URL, "timeout": "7s", "description": "old"}));
    let edits: [(&str, &str, &str, Value); 16] = [
        ("url", "https://example.com/b", "/url", json!("https://example.com/b")),
        ("description", "one\ntwo", "/description", json!("one\ntwo")),
        ("description", "", "/description", json!("")),
        ("types", "a.*\nb", "/types", json!(["a.*", "b"])),
        ("timeout", "", "/timeout", Value::Null),
        ("timeout", "9s", "/timeout", json!("9s")),
        ("ordering", "global", "/policy/ordering", json!("global")),
        ("guarantee", "effectively_once", "/policy/guarantee", json!("effectively_once")),
        ("guarantee", "at_least_once", "/policy/guarantee", json!("at_least_once")),
        ("on_dead_letter", "advance", "/policy/on_dead_letter", json!("advance")),
        ("envelope", "thin", "/envelope", json!("thin")),
        ("jitter", "equal", "/policy/retry/backoff/jitter", json!("equal")),
        ("base", "4s", "/policy/retry/backoff/base", json!("4s")),
        ("max_delay", "30m", "/policy/retry/max_delay", json!("30m")),
        ("in_flight_max", "2", "/policy/in_flight_max", json!(2)),
        ("max_attempts", "8", "/policy/retry/max_attempts", json!(8)),
    ];
    for (field, typed, pointer, stored) in edits {
        browser.edit(&id);
        browser.set(field, typed);
        browser.save();
        let endpoint = world.look(&format!("endpoints/{id}"));
        assert_eq!(endpoint.pointer(pointer), Some(&stored), "{field}");
    }
    let strategies = [
        (vec![("strategy", "fixed"), ("delay", "3s")], json!({"strategy": "fixed", "delay": "3s"})),
        (
            vec![("strategy", "schedule"), ("delays", "1s 2m"), ("repeat_last", "true")],
            json!({"strategy": "schedule", "delays": ["1s", "2m"], "repeat_last": true}),
        ),
        (
            vec![("strategy", "exponential"), ("base", "5s"), ("jitter", "decorrelated")],
            json!({"strategy": "exponential", "base": "5s", "jitter": "decorrelated"}),
        ),
    ];
    for (fields, backoff) in strategies {
        browser.edit(&id);
        fields.iter().for_each(|(field, typed)| browser.set(field, typed));
        browser.save();
        let endpoint = world.look(&format!("endpoints/{id}"));
        assert_eq!(endpoint["policy"]["retry"]["backoff"], backoff);
    }
}

#[test]
fn a_new_endpoint_has_what_its_form_says() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go("/dashboard/t/default/endpoints/new");
    browser.open_details();
    for (field, typed) in [
        ("url", URL),
        ("strategy", "fixed"),
        ("delay", "3s"),
        ("ordering", "global"),
        ("max_attempts", "4"),
    ] {
        browser.set(field, typed);
    }
    browser.save();
    let policy = world.look("endpoints")["items"][0]["policy"].clone();
    assert_eq!(policy["retry"]["backoff"], json!({"strategy": "fixed", "delay": "3s"}));
    assert_eq!(
        (&policy["ordering"], &policy["retry"]["max_attempts"]),
        (&json!("global"), &json!(4))
    );
}

#[test]
fn an_edit_that_another_one_came_before_is_refused_and_keeps_what_was_typed() {
    let world = World::new();
    let browser = Browser::signed_in(&world, &world.admin);
    let id = world.endpoint_with(&json!({"url": URL}));
    browser.edit(&id);
    world.patch(&of_tenant(&format!("endpoints/{id}")), &json!({"timeout": "9s"})).expect(200);
    browser.fill("#description", "mine");
    browser.click("main button.primary");
    browser.wait_for(".flash.problem");
    assert!(browser.text(".flash.problem").contains("read it again"));
    let typed = browser.script("return document.querySelector('#description').value", &[]);
    assert_eq!(typed, "mine");
    assert_eq!(world.look(&format!("endpoints/{id}"))["description"], "");
}

impl Browser {
    fn edit(&self, id: &str) {
        self.go(&format!("/dashboard/t/default/endpoints/{id}/edit"));
        self.open_details();
    }

    fn open_details(&self) {
        self.wait_for("main form");
        self.script("document.querySelectorAll('main details').forEach(it => it.open = true)", &[]);
    }

    /// Puts a value into a field of any kind, as typing or choosing would.
    fn set(&self, name: &str, value: &str) {
        let script = "const field = document.querySelector(`main [name='${arguments[0]}']`);
            field.value = arguments[1];
            return field.value === arguments[1];";
        assert_eq!(self.script(script, &[name.into(), value.into()]), true, "{name}: {value}");
    }

    /// Saves the form and waits for the page that says so.
    #[track_caller]
    fn save(&self) {
        self.click("main button.primary");
        self.wait_for(".flash");
        assert_eq!(self.count(".flash.problem"), 0, "{}", self.text(".flash"));
    }
}
