//! Every button of every page, pressed once.
//!
//! The pages are visited in a world that has something of everything. Whatever button on them was not
//! pressed yet is pressed; what a press takes away is there again in the next world. At the end no
//! button that any page had, no form and no page of the router is left.

use std::collections::{BTreeMap, BTreeSet};

use railpost_dashboard::{form_paths, page_paths};
use serde_json::{Value, json};

use crate::outbox_file::OutboxFile;
use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::webdriver::Browser;
use crate::world::World;

/// Worlds in which nothing is left to press, at most: each press of a kind happens once.
const ROUNDS_MAX: usize = 12;

/// More dead letters than a replay does while the test looks at it, one a second.
const LETTERS: usize = 120;

/// What is typed into fields that are empty and must not be.
const TYPED: [(&str, &str); 3] =
    [("url", "http://127.0.0.1:9999/hooks"), ("name", "a new one"), ("reason", "a test")];

/// A button: its page and its form as the router has them, its own name and value, and what stands on it
/// without figures. What every page has in its head is on no page in particular.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Control {
    page: String,
    form: String,
    name: String,
    label: String,
}

/// What is refused, and rightly so: the form, what stands on the button, and how what the page says ends.
const REFUSALS: [(&str, &str, &str); 2] = [
    (
        "/dashboard/t/{tenant}/dead-letters",
        "Skip dead letters",
        "only a dead letter that holds its lane can be skipped",
    ),
    // The replay that runs took one of them in the meantime.
    (
        "/dashboard/t/{tenant}/dead-letters",
        "Discard dead letters",
        "it is delivered or discarded already",
    ),
];

struct Scene {
    world: World,
    /// They answer as long as they are here.
    _receivers: [Receiver; 2],
    _file: OutboxFile,
    pages: Vec<String>,
}

/// A world with lanes held and waiting, dead letters, an endpoint with two secrets, one that is paused, a
/// replay that runs, a preview, keys and audit entries, and a source with parked rows.
fn scene() -> Scene {
    let file = OutboxFile::new();
    let (world, receiver, slow) = (World::with(file.config()), Receiver::new(), Receiver::new());
    for number in 0..3 {
        file.emit(&format!("p{number}"), "nobody", &format!("order-{number}"));
    }
    let endpoint = world.endpoint(&receiver, &json!({"in_flight_max": 1}));
    let secrets = of_tenant(&format!("endpoints/{endpoint}/secrets"));
    world.post(&secrets, &json!({"kind": "signing"})).expect(201);
    let retrying = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}});
    let waits = world.endpoint(&slow, &retrying);
    world
        .patch(&of_tenant(&format!("endpoints/{waits}")), &json!({"types": ["waits"]}))
        .expect(200);
    let paused = world.endpoint_with(&json!({"url": slow.url(), "types": ["nothing"]}));
    world.act(&format!("endpoints/{paused}/pause")).expect(200);
    receiver.answers(&vec![422; LETTERS + 1]);
    world.publish("held", "order.created", Some("poison"));
    let held = world.delivery_in("held", "dead");
    for number in 0..LETTERS {
        world.publish(&format!("d{number}"), "order.paid", None);
    }
    let last = format!("d{}", LETTERS - 1);
    world.delivery_in(&last, "dead");
    world.publish("behind", "order.created", Some("poison"));
    slow.answers(&[503]);
    let waiting = json!({"id": "waiting", "type": "waits", "key": "w", "payload": 1});
    world.post(&of_tenant("events"), &waiting).expect(202);
    let waiting = of_endpoint(&world, "waiting", &waits);
    world.look_until(&format!("deliveries/{waiting}"), |it| it["state"] == "waiting");
    world.publish("landed", "order.shipped", None);
    let landed = of_endpoint(&world, "landed", &endpoint);
    world.key("default", "read-only");
    let replay = json!({"action": "replay", "filter": {"type": "order.paid"}});
    let preview = new_replay(&world, &replay, &json!({"dry_run": true}));
    world.look_until(&format!("replays/{preview}"), |it| it["state"] == "done");
    let running = new_replay(&world, &replay, &json!({"rate_per_s": 1}));
    let alert = world.fire("default", &endpoint);
    let of_alert = format!("/alerts/{alert}");
    let silence = json!({"rule": "disk", "for": "1h", "reason": "a test"});
    world.post("/v1/silences", &silence).expect(201);
    let parked = "/v1/outbox/shop/parked";
    let parked = world.get_until(parked, |rows| rows["items"].as_array().unwrap().len() == 3);
    let row = |index: usize| format!("/parked/{}", parked["items"][index]["number"]);
    let of_outbox = [
        "".to_owned(),
        "/shop".to_owned(),
        "/shop/check".to_owned(),
        format!("/shop{}", row(0)),
        format!("/shop{}", row(1)),
        format!("/shop{}", row(2)),
        "/billing".to_owned(),
    ];
    let of_tenant = [
        "".to_owned(),
        "/lanes".to_owned(),
        "/live/overview".to_owned(),
        "/live/lanes".to_owned(),
        "/live/endpoints".to_owned(),
        format!("/live/endpoints/{paused}"),
        "/live/events".to_owned(),
        "/live/events/landed".to_owned(),
        "/live/deliveries".to_owned(),
        format!("/live/deliveries/{landed}"),
        "/live/dead-letters".to_owned(),
        "/live/replays".to_owned(),
        "/find?q=landed".to_owned(),
        "/help".to_owned(),
        "/endpoints".to_owned(),
        "/endpoints/new".to_owned(),
        format!("/endpoints/{paused}"),
        format!("/endpoints/{paused}/probe"),
        format!("/endpoints/{waits}/edit"),
        "/events".to_owned(),
        "/events/landed".to_owned(),
        "/deliveries".to_owned(),
        format!("/deliveries/{landed}"),
        format!("/deliveries/{waiting}"),
        format!("/deliveries/{}", held["id"].as_str().unwrap()),
        "/dead-letters".to_owned(),
        "/replays".to_owned(),
        format!("/replays/{preview}"),
        format!("/replays/{running}"),
        format!("/live/replays/{running}"),
        "/alerts".to_owned(),
        "/live/alerts".to_owned(),
        format!("/alerts/{alert}"),
        "/keys".to_owned(),
        "/audit".to_owned(),
        format!("/endpoints/{endpoint}"),
    ];
    let mut pages: Vec<String> =
        of_tenant.iter().map(|path| format!("/dashboard/t/default{path}")).collect();
    pages.extend(
        [
            "",
            "/all",
            "/audit",
            "/switch",
            "/live/all",
            "/find",
            "/help",
            "/alerts",
            "/live/alerts",
            &of_alert,
        ]
        .map(|path| format!("/dashboard{path}")),
    );
    pages.extend(of_outbox.iter().map(|path| format!("/dashboard/outbox{path}")));
    Scene { world, _receivers: [receiver, slow], _file: file, pages }
}

/// The delivery of an event to an endpoint.
fn of_endpoint(world: &World, event: &str, endpoint: &str) -> String {
    let deliveries = world.look(&format!("events/{event}/deliveries"));
    let found =
        deliveries["items"].as_array().unwrap().iter().find(|it| it["endpoint"] == endpoint);
    found.unwrap()["id"].as_str().unwrap().to_owned()
}

fn new_replay(world: &World, replay: &Value, more: &Value) -> String {
    let mut replay = replay.clone();
    replay.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = world.post(&of_tenant("replays"), &replay).expect(202).json();
    made["id"].as_str().unwrap().to_owned()
}

/// What was found and pressed so far.
#[derive(Default)]
struct Walk {
    found: BTreeSet<Control>,
    pressed: BTreeSet<Control>,
    visited: BTreeSet<String>,
    problems: Vec<String>,
}

#[test]
fn every_button_of_every_page_does_what_it_says() {
    let mut walk = Walk::default();
    for _ in 0..ROUNDS_MAX {
        let before = walk.pressed.len();
        walk.through(&scene());
        if walk.pressed.len() == before {
            break;
        }
    }
    walk.signs_in_by_a_link();
    assert!(walk.problems.is_empty(), "{}", walk.problems.join("\n"));
    let left: Vec<_> = walk.found.difference(&walk.pressed).collect();
    assert!(left.is_empty(), "nobody presses {left:#?}");
    let forms: BTreeSet<_> = walk.pressed.iter().map(|control| control.form.clone()).collect();
    let unpressed: Vec<_> = form_paths().into_iter().filter(|path| !forms.contains(path)).collect();
    assert!(unpressed.is_empty(), "no page has a button for {unpressed:#?}");
    let unseen: Vec<_> =
        page_paths().into_iter().filter(|path| !walk.visited.contains(path)).collect();
    assert!(unseen.is_empty(), "nobody looks at {unseen:#?}");
}

impl Walk {
    /// Visits all pages of a scene and presses what was not pressed yet.
    fn through(&mut self, scene: &Scene) {
        let browser = Browser::new(&scene.world);
        self.sign_in(&browser, &scene.world);
        for page in &scene.pages {
            self.visited.insert(pattern(page, &page_paths()));
            if !page.contains("/live/") {
                self.press_all_of(&browser, &scene.world, page);
            }
        }
    }

    /// By the form, as one who has an API key does.
    fn sign_in(&mut self, browser: &Browser, world: &World) {
        let page = "/dashboard/sign-in";
        browser.go(page);
        self.visited.insert(page.to_owned());
        browser.fill("#key", &world.admin);
        let controls = browser.controls();
        self.found.extend(controls.iter().map(|control| control.kind.clone()));
        self.press(browser, page, &controls[0]);
        browser.wait_for("nav.tabs");
    }

    /// A link's form sends itself; without script it has a button.
    fn signs_in_by_a_link(&mut self) {
        let world = World::new();
        let browser = Browser::new(&world);
        browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
        browser.go(&world.server().dashboard().one_time_link());
        browser.click("main button.primary");
        browser.chromium("Emulation.setScriptExecutionDisabled", &json!({"value": false}));
        browser.wait_for("nav.tabs");
    }

    fn press_all_of(&mut self, browser: &Browser, world: &World, page: &str) {
        loop {
            browser.go(page);
            if browser.count("nav.tabs") == 0 {
                self.sign_in(browser, world);
                browser.go(page);
            }
            let controls = browser.controls();
            self.found.extend(controls.iter().map(|control| control.kind.clone()));
            let is_new =
                |control: &&Found| !control.disabled && !self.pressed.contains(&control.kind);
            match controls.iter().find(is_new) {
                Some(control) => self.press(browser, page, control),
                None => return,
            }
        }
    }

    /// Presses a button and looks at what came of it.
    fn press(&mut self, browser: &Browser, page: &str, control: &Found) {
        self.pressed.insert(control.kind.clone());
        let outcome = browser.press(control.index);
        if outcome["status"] != 200 || !is_expected(&control.kind, outcome["problem"].as_str()) {
            self.problems.push(format!("{:?} on {page}: {outcome}", control.kind));
        }
        self.press_what_followed(browser, page);
    }

    /// What only the page after a press has: the question before it is done, what undoes it, and the buttons of a
    /// result. One of them is pressed, the last that is new: those before it are there again after it.
    fn press_what_followed(&mut self, browser: &Browser, page: &str) {
        let controls = browser.controls();
        let mut followed = controls.iter().filter(|control| control.follows);
        self.found.extend(followed.clone().map(|control| control.kind.clone()));
        let new = followed.rfind(|control| !self.pressed.contains(&control.kind));
        if let Some(control) = new {
            self.press(browser, page, control);
        }
    }
}

fn is_expected(control: &Control, problem: Option<&str>) -> bool {
    let mut refusals =
        REFUSALS.iter().filter(|(form, label, _)| control.form == *form && control.label == *label);
    problem.is_none_or(|problem| refusals.any(|(.., end)| problem.ends_with(end)))
}

/// The router's pattern of a path.
fn pattern(path: &str, patterns: &[String]) -> String {
    let parts: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
    let fits = |pattern: &&String| {
        let wanted: Vec<&str> = pattern.split('/').collect();
        wanted.len() == parts.len()
            && wanted.iter().zip(&parts).all(|(want, part)| want.starts_with('{') || want == part)
    };
    // The one with the fewest `{…}` is meant.
    let found = patterns.iter().filter(fits).min_by_key(|pattern| pattern.matches('{').count());
    found.unwrap_or_else(|| panic!("the router has no {path}")).clone()
}

/// A button of the page that is shown, by its place among all.
struct Found {
    index: u64,
    kind: Control,
    disabled: bool,
    /// Whether it is on this page because of the button that was pressed before.
    follows: bool,
}

impl Browser {
    /// All buttons of the page that send a form.
    fn controls(&self) -> Vec<Found> {
        let script = "return [...document.querySelectorAll('button[type=submit]')].map(button => ({
            path: button.form?.getAttribute('action'),
            changes: button.form?.getAttribute('method') === 'post',
            name: button.name && button.name + '=' + button.value,
            isOfNoPage: button.closest('header, .flash') !== null,
            follows: button.closest('.question, .flash, .result') !== null,
            label: button.textContent.trim().replace(/[\\d\\s]+/g, ' ').trim(),
            disabled: button.disabled,
        }))";
        let found = self.script(script, &[]);
        let (pages, forms) = (page_paths(), form_paths());
        // A question or a result has the address of the form that led to it.
        let addresses: Vec<String> = forms.iter().chain(&pages).cloned().collect();
        let page = pattern(&self.path(), &addresses);
        let control = |(index, it): (usize, &Value)| {
            let path =
                it["path"].as_str().unwrap_or_else(|| panic!("a button without a form: {it}"));
            let patterns = if it["changes"] == true { &forms } else { &pages };
            let word = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
            Found {
                index: index as u64,
                kind: Control {
                    page: if it["isOfNoPage"] == true { String::new() } else { page.clone() },
                    form: pattern(path, patterns),
                    name: word("name"),
                    label: word("label"),
                },
                disabled: it["disabled"] == true,
                follows: it["follows"] == true,
            }
        };
        found.as_array().unwrap().iter().enumerate().map(control).collect()
    }

    /// Fills in what must be, chooses what can be chosen, presses, and says what the page after it is.
    fn press(&self, index: u64) -> Value {
        let script = "const [index, typed] = arguments;
            const button = document.querySelectorAll('button[type=submit]')[index];
            for (const field of button.form.elements) {
                if (field.type === 'checkbox') field.checked = true;
                if (!field.value && field.name in typed) field.value = typed[field.name];
            }
            window.isBefore = true;
            button.click();";
        let typed: BTreeMap<&str, &str> = TYPED.into();
        self.script(script, &[index.into(), json!(typed)]);
        self.wait_until("the page after a press", || {
            self.script("return !window.isBefore && document.readyState === 'complete'", &[])
                == true
        });
        self.script(
            "return {
                path: location.pathname,
                status: performance.getEntriesByType('navigation')[0].responseStatus,
                problem: document.querySelector('.problem')?.textContent ?? null,
                title: document.querySelector('h1')?.textContent ?? null,
            }",
            &[],
        )
    }
}
