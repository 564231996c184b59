//! Notices: what the server tells people, in the formats of their tools.

use railpost::config::{Config, ConfigInputs};
use serde_json::{Value, json};

use crate::receiver::{Arrived, Receiver};
use crate::scene::{of_tenant, text};
use crate::world::World;

const RESERVED: &str = "/v1/tenants/railpost";

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

/// A configuration file with these sections.
fn config(sections: &str) -> Config {
    let file = Some(("railpost.toml".into(), sections.to_owned()));
    Config::load(&ConfigInputs { file, ..ConfigInputs::default() }).unwrap().config
}

fn section(name: &str, receiver: &Receiver, more: &str) -> String {
    format!("[[notices]]\nname = \"{name}\"\nurl = \"{}\"\n{more}\n", receiver.url())
}

fn body(arrived: &Arrived) -> Value {
    assert_eq!(arrived.header("content-type"), Some("application/json"));
    serde_json::from_slice(&arrived.body).unwrap()
}

fn ids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect()
}

#[test]
fn the_reserved_tenant_has_the_types_of_notices_and_takes_nothing_else() {
    let world = World::new();
    let tenant = world.get(RESERVED).expect(200).json();
    assert_eq!(tenant["reserved"], true);
    assert_eq!(world.get("/v1/tenants/default").json()["reserved"], false);
    let types = world.get(&format!("{RESERVED}/event-types?limit=100")).expect(200).json();
    let names: Vec<String> =
        types["items"].as_array().unwrap().iter().map(|item| text(&item["name"])).collect();
    for name in ["railpost.breaker.opened", "railpost.alert.disk.fired", "railpost.replay.finished"]
    {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    let event = json!({"type": "order.paid", "payload": 1});
    let notice = json!({"type": "railpost.breaker.opened", "payload": {}});
    let schema = json!({"description": "mine"});
    for answer in [
        world.post("/v1/tenants", &json!({"id": "railpost"})),
        world.delete(RESERVED),
        world.post(&format!("{RESERVED}/events"), &event),
        world.post(&format!("{RESERVED}/events/batch"), &json!({"events": [event]})),
        world.post(&of_tenant("events"), &notice),
        world.post(&of_tenant("events/batch"), &json!({"events": [event, notice]})),
        world.put(&format!("{RESERVED}/event-types/order.paid"), &schema),
        world.delete(&format!("{RESERVED}/event-types/railpost.lane.held")),
        world.put(&of_tenant("event-types/railpost.lane.held"), &schema),
    ] {
        let answer = answer.expect(403);
        assert_eq!(answer.code(), "reserved", "{}", answer.text);
    }
    let refused = world.post(&of_tenant("events/batch"), &json!({"events": [event, notice]}));
    assert_eq!(refused.json()["field"], "events[1].type");
}

#[test]
fn an_envelope_has_what_it_needs_or_is_refused_with_the_field() {
    let world = World::new();
    let url = Receiver::new().url();
    let all = of_tenant("endpoints");
    for (settings, field) in [
        (json!({"envelope": "pagerduty"}), "routing_key"),
        (json!({"envelope": "pagerduty", "routing_key": "with space"}), "routing_key"),
        (json!({"envelope": "template"}), "template"),
        (json!({"envelope": "template", "template": "[{{summary}}]"}), "template"),
        (json!({"envelope": "raw", "template": "{"}), "template"),
        (json!({"envelope": "slack", "thin_above": 10}), "thin_above"),
    ] {
        let mut new = settings.clone();
        new["url"] = json!(url);
        let refused = world.post(&all, &new).expect(422).json();
        assert_eq!(refused["field"], field, "{settings}: {refused}");
    }
    let new = json!({"url": url, "envelope": "pagerduty", "routing_key": ROUTING_KEY});
    let made = world.post(&all, &new).expect(201);
    assert!(!made.text.contains(ROUTING_KEY), "{}", made.text);
    let made = made.json();
    assert_eq!((&made["routing_key_set"], &made["managed_by"]), (&json!(true), &Value::Null));
    let one = format!("{all}/{}", text(&made["id"]));
    let refused = world.patch(&one, &json!({"routing_key": null})).expect(422).json();
    assert_eq!(refused["field"], "routing_key");
    world.patch(&one, &json!({"routing_key": null, "envelope": "slack"})).expect(200);
    assert_eq!(world.get(&one).json()["routing_key_set"], false);
    let audit = world.get(&of_tenant("audit")).expect(200).text;
    assert!(audit.contains("routing_key") && !audit.contains(ROUTING_KEY), "{audit}");
}

#[test]
fn any_event_reaches_people_through_these_envelopes() {
    let world = World::new();
    let of = |settings: Value| {
        let receiver = Receiver::new();
        let mut new = settings;
        new["url"] = json!(receiver.url());
        world.endpoint_with(&new);
        receiver
    };
    let pager = of(json!({"envelope": "pagerduty", "routing_key": ROUTING_KEY}));
    let slack = of(json!({"envelope": "slack"}));
    let teams = of(json!({"envelope": "teams"}));
    let template =
        r#"{"to": "ops@example.com", "subject": "{{summary}}", "text": "{{order}} {{event.key}}"}"#;
    let mail = of(json!({"envelope": "template", "template": template}));
    let event = json!({"type": "order.lost", "key": "17", "payload": {"order": "a \"b\""}});
    world.post(&of_tenant("events"), &event).expect(202);
    let page = body(&pager.next());
    assert_eq!(
        (&page["routing_key"], &page["event_action"]),
        (&json!(ROUTING_KEY), &json!("trigger"))
    );
    assert_eq!(page["payload"]["summary"], "order.lost of 17");
    assert!(body(&slack.next())["text"].as_str().unwrap().contains("order.lost of 17"));
    assert_eq!(body(&teams.next())["type"], "message");
    let expected =
        json!({"to": "ops@example.com", "subject": "order.lost of 17", "text": "a \"b\" 17"});
    assert_eq!(body(&mail.next()), expected);
}

#[test]
fn a_section_of_the_file_is_an_endpoint_that_only_the_file_changes() {
    let data = tempfile::tempdir().unwrap();
    let stored = |sections: &str| {
        let mut config = config(sections);
        config.server.data_dir = data.path().to_owned();
        config
    };
    let (first, second) = (Receiver::new(), Receiver::new());
    let chat = section("chat", &first, "envelope = \"slack\"\nseverity = \"critical\"");
    let logs = section("logs", &first, "types = [\"railpost.*\"]");
    let world = World::stored(stored(&format!("{chat}{logs}")));
    let admin = world.admin.clone();
    let endpoints = world.get(&format!("{RESERVED}/endpoints")).expect(200).json();
    let made = ids(&endpoints);
    let [chat_endpoint, logs_endpoint] = &endpoints["items"].as_array().unwrap()[..] else {
        panic!("{endpoints}");
    };
    assert_eq!(chat_endpoint["managed_by"], "notices.chat");
    assert_eq!(logs_endpoint["types"], json!(["railpost.*"]));
    let types: Vec<String> = chat_endpoint["types"].as_array().unwrap().iter().map(text).collect();
    assert!(types.contains(&"railpost.alert.disk.fired".to_owned()), "{types:?}");
    assert!(!types.iter().any(|name| name.contains("breaker")), "{types:?}");
    assert_eq!(chat_endpoint["policy"]["on_dead_letter"], "advance");
    let one = format!("{RESERVED}/endpoints/{}", made[0]);
    for refused in [world.patch(&one, &json!({"description": "mine"})), world.delete(&one)] {
        let refused = refused.expect(409);
        assert_eq!(refused.code(), "configured");
        assert!(refused.text.contains("`notices.chat`"), "{}", refused.text);
    }
    world.post(&format!("{one}/pause"), &json!({})).expect(200);
    assert!(world.drain());
    // The same section elsewhere is the same endpoint; a section that is gone takes its endpoint along.
    let chat = section("chat", &second, "envelope = \"slack\"\nseverity = \"error\"");
    let world = World::again(stored(&chat), admin);
    let endpoints = world.get(&format!("{RESERVED}/endpoints")).expect(200).json();
    assert_eq!(ids(&endpoints), made[..1]);
    let endpoint = &endpoints["items"][0];
    assert_eq!(endpoint["url"], second.url());
    assert_eq!((&endpoint["status"], &endpoint["revision"]), (&json!("paused"), &json!(2)));
    let audit = world.get(&format!("{RESERVED}/audit")).expect(200).json();
    let actors = audit["items"].as_array().unwrap().iter();
    assert!(actors.filter(|entry| entry["actor"] == "configuration").count() >= 4, "{audit}");
}

#[test]
fn the_end_of_a_replay_is_told_to_the_operator_and_to_its_tenant() {
    let chat = Receiver::new();
    let world = World::with(config(&section("chat", &chat, "envelope = \"event\"")));
    let (failing, own, all) = (Receiver::new(), Receiver::new(), Receiver::new());
    world.endpoint_with(&json!({"url": own.url(), "types": ["railpost.replay.*"]}));
    world.endpoint_with(&json!({"url": all.url(), "types": ["*"]}));
    failing.answers(&[400]);
    world.endpoint(&failing, &json!({"on_dead_letter": "advance"}));
    world.publish("e1", "order.paid", None);
    world.look_until("dead-letters", |found| found["items"].as_array().unwrap().len() == 1);
    let replay = world
        .post(&of_tenant("replays"), &json!({"action": "replay", "filter": {"state": "dead"}}))
        .expect(202)
        .json();
    let id = text(&replay["id"]);
    let told = body(&chat.next());
    assert_eq!(
        (&told["id"], &told["type"]),
        (&json!(format!("{id}:finished")), &json!("railpost.replay.finished"))
    );
    let notice = &told["data"];
    assert_eq!((&notice["status"], &notice["severity"]), (&json!("told"), &json!("info")));
    assert_eq!(notice["details"]["done"], 1, "{notice}");
    let own = serde_json::from_slice::<Value>(&own.next().body).unwrap();
    assert_eq!(own["subject"], json!(id));
    // Who wants everything of the producers is not told.
    assert_eq!(all.next().text(), "\"e1\"");
    let event = world.get(&of_tenant(&format!("events/{id}:finished"))).expect(200).json();
    assert_eq!(event["accepted_by"], json!({"kind": "server"}));
    let story = world.get(&of_tenant(&format!("events/{id}:finished/story"))).expect(200).json();
    let why: Vec<String> =
        story["not_matched"].as_array().unwrap().iter().map(|one| text(&one["why"])).collect();
    assert!(why.iter().any(|why| why.contains("does not name `railpost.` types")), "{why:?}");
}

/// What PagerDuty takes, by its documentation of Events v2.
fn check_pagerduty(event: &Value) {
    let is_text = |value: &Value, max: usize| {
        value.as_str().is_some_and(|text| (1..=max).contains(&text.chars().count()))
    };
    assert_eq!(event["routing_key"], ROUTING_KEY);
    assert!(is_text(&event["dedup_key"], 255), "{event}");
    let known =
        ["routing_key", "event_action", "dedup_key", "client", "client_url", "links", "payload"];
    assert!(
        event.as_object().unwrap().keys().all(|name| known.contains(&name.as_str())),
        "{event}"
    );
    if event["event_action"] == "resolve" {
        return;
    }
    assert_eq!(event["event_action"], "trigger");
    let payload = &event["payload"];
    assert!(is_text(&payload["summary"], 1024) && is_text(&payload["source"], 1024), "{event}");
    let severities = ["critical", "error", "warning", "info"];
    assert!(severities.contains(&payload["severity"].as_str().unwrap()), "{event}");
    assert!(payload["custom_details"].is_object() && payload["timestamp"].is_string(), "{event}");
    for link in event["links"].as_array().unwrap() {
        assert!(link["href"].as_str().unwrap().starts_with("http"), "{event}");
        assert!(is_text(&link["text"], 255), "{event}");
    }
}

/// What Slack takes of an incoming webhook.
fn check_slack(message: &Value) -> &str {
    assert!(message["text"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
    for block in message["blocks"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "section" => {
                assert_eq!(block["text"]["type"], "mrkdwn");
                let count = block["text"]["text"].as_str().unwrap().chars().count();
                assert!((1..=3000).contains(&count), "{message}");
            }
            "context" => assert_eq!(block["elements"][0]["type"], "mrkdwn"),
            "actions" => {
                for button in block["elements"].as_array().unwrap() {
                    assert_eq!(
                        (&button["type"], &button["text"]["type"]),
                        (&json!("button"), &json!("plain_text"))
                    );
                    assert!(button["url"].as_str().unwrap().starts_with("http"), "{message}");
                }
            }
            other => panic!("Slack does not expect a block of type {other}: {message}"),
        }
    }
    message["text"].as_str().unwrap()
}

/// What a workflow of Teams takes.
fn check_teams(message: &Value) -> &str {
    assert_eq!(message["type"], "message");
    assert!(message.to_string().len() <= 28 * 1024);
    let [attachment] = &message["attachments"].as_array().unwrap()[..] else { panic!("{message}") };
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    let card = &attachment["content"];
    assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
    for block in card["body"].as_array().unwrap() {
        assert!(["TextBlock", "FactSet"].contains(&block["type"].as_str().unwrap()), "{message}");
    }
    card["body"][0]["text"].as_str().unwrap()
}

/// A breaker that opens with the first failure and stays open.
fn quick_breaker() -> Value {
    json!({"failure_percent": 50, "min_attempts": 1, "window": 1, "open_for": "1h", "open_for_max": "1h"})
}

/// Opens the breaker of a new endpoint.
fn open_breaker(world: &World, receiver: &Receiver) -> String {
    receiver.answers(&[503]);
    let endpoint = world.endpoint(receiver, &json!({"breaker": quick_breaker()}));
    world.publish(&format!("of-{endpoint}"), "order.paid", None);
    receiver.next();
    let health = format!("endpoints/{endpoint}/health");
    world.look_until(&health, |health| health["waits_for"] == "breaker");
    world.wait_for(world.server().look_for_alerts());
    endpoint
}

#[test]
fn a_breaker_pages_and_its_resolve_never_comes_before_the_page() {
    let (pager, slack, teams, mail) =
        (Receiver::new(), Receiver::new(), Receiver::new(), Receiver::new());
    let template = r#"{"subject": "[{{severity}}] {{summary}}", "text": "{{status}} {{details.endpoint.id}}"}"#;
    let sections = [
        "[alerts]\nresolve_after = \"0s\"\n".to_owned(),
        section(
            "oncall",
            &pager,
            &format!("envelope = \"pagerduty\"\nrouting_key = \"{ROUTING_KEY}\""),
        ),
        section("chat", &slack, "envelope = \"slack\""),
        section("teams", &teams, "envelope = \"teams\""),
        section("mail", &mail, &format!("envelope = \"template\"\ntemplate = '{template}'")),
    ];
    let world = World::with(config(&sections.concat()));
    let (own, failing) = (Receiver::new(), Receiver::new());
    world.endpoint_with(&json!({"url": own.url(), "types": ["railpost.breaker.*"]}));
    pager.answers(&[503, 429, 503]);
    let endpoint = open_breaker(&world, &failing);
    let first = body(&pager.next());
    // The page has not landed, and the breaker closes.
    world.act(&format!("endpoints/{endpoint}/resume")).expect(200);
    failing.next();
    let health = format!("endpoints/{endpoint}/health");
    world.look_until(&health, |health| health["state"] == "active");
    world.wait_for(world.server().look_for_alerts());
    check_pagerduty(&first);
    assert_eq!(first["payload"]["class"], "breaker_open");
    assert_eq!(first["payload"]["source"], failing.url());
    for _ in 0..3 {
        assert_eq!(body(&pager.next()), first);
    }
    let resolve = body(&pager.next());
    check_pagerduty(&resolve);
    assert_eq!(
        (&resolve["event_action"], &resolve["dedup_key"]),
        (&json!("resolve"), &first["dedup_key"])
    );
    for word in ["Fired (warning): breaker_open", "Resolved (warning): breaker_open"] {
        assert!(check_slack(&body(&slack.next())).starts_with(word));
        assert_eq!(check_teams(&body(&teams.next())), word);
    }
    assert_eq!(body(&mail.next())["text"], json!(format!("fired {endpoint}")));
    assert_eq!(body(&mail.next())["text"], json!(format!("resolved {endpoint}")));
    let own: Vec<Value> = [own.next(), own.next()].iter().map(body).collect();
    assert_eq!((&own[0]["status"], &own[1]["status"]), (&json!("fired"), &json!("resolved")));
    assert_eq!((&own[0]["tenant"], &own[0]["links"]), (&json!("default"), &json!([])));
    assert!(pager.arrived().is_empty());
}

#[test]
fn a_notice_endpoint_that_fails_breeds_no_notice() {
    let world = World::new();
    let (broken, failing) = (Receiver::new(), Receiver::new());
    broken.answers(&[503]);
    let new = json!({"url": broken.url(), "types": ["railpost.*"], "policy": {"breaker": quick_breaker()}});
    let made = world.post(&format!("{RESERVED}/endpoints"), &new).expect(201).json();
    let path = format!("{RESERVED}/endpoints/{}/health", text(&made["id"]));
    open_breaker(&world, &failing);
    broken.next();
    world.get_until(&path, |health| health["waits_for"] == "breaker");
    for _ in 0..3 {
        world.wait_for(world.server().look_for_alerts());
    }
    let open = world.wait_for(world.server().app().store.open_alerts()).unwrap();
    let of_notices = open
        .iter()
        .filter(|alert| alert.tenant.as_ref().is_some_and(|tenant| tenant.as_str() == "railpost"));
    assert_eq!(of_notices.count(), 1, "{open:?}");
    let events = world.get(&format!("{RESERVED}/events")).expect(200).json();
    assert_eq!(ids(&events).len(), 1, "{events}");
    assert_eq!(events["items"][0]["type"], "railpost.breaker.opened");
}

#[test]
fn store_trouble_pages_past_the_lanes_once_and_through_them_when_the_store_is_back() {
    let pager = Receiver::new();
    let settings = format!("envelope = \"pagerduty\"\nrouting_key = \"{ROUTING_KEY}\"");
    let alerts = "[alerts.store_trouble]\nafter = \"0s\"\n[alerts.disk]\nenabled = false\n";
    let sections = section("oncall", &pager, &settings);
    let (world, store) = crate::faults::flaky_world_with(config(&format!("{alerts}{sections}")));
    world.wait_for(world.server().look_for_alerts());
    store.set_down(true);
    for _ in 0..3 {
        world.wait_for(world.server().look_for_alerts());
    }
    let direct = body(&pager.next());
    check_pagerduty(&direct);
    assert_eq!(direct["payload"]["class"], "store_trouble");
    assert!(pager.arrived().is_empty());
    store.set_down(false);
    world.wait_for(world.server().look_for_alerts());
    assert_eq!(body(&pager.next()), direct);
}
