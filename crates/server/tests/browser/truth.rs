//! What pages say of endpoints, lanes and deliveries is what the engine says, in each of their states.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use railpost::config::Config;
use railpost_engine::Timestamp;
use railpost_store::{Change, Write as StoreWrite};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::webdriver::Browser;
use crate::world::World;

fn page(path: &str) -> String {
    format!("/dashboard/t/default{path}")
}

/// A world with an endpoint in each state.
struct States {
    world: World,
    /// They answer as long as they are here.
    receivers: Vec<Receiver>,
    _folder: tempfile::TempDir,
    /// The states, with the endpoint that is in it and the words by which pages say it.
    endpoints: Vec<(&'static str, String, &'static str)>,
}

/// A receiver that answers everything with one status, which can be changed, and 503 with Retry-After.
struct Steady {
    url: String,
    status: Arc<AtomicU16>,
}

impl Steady {
    fn new(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(status));
        let answered = status.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 16 * 1024];
                let _ = stream.read(&mut request);
                let status = answered.load(Ordering::Relaxed);
                let wait = if status == 503 { "retry-after: 600\r\n" } else { "" };
                let head = format!("HTTP/1.1 {status} Steady\r\n{wait}connection: close");
                let _ = stream.write_all(format!("{head}\r\ncontent-length: 0\r\n\r\n").as_bytes());
            }
        });
        Self { url, status }
    }
}

/// A world with an endpoint that was switched off after days of failures: in its store, while it was not running.
fn with_one_switched_off(folder: &Path) -> (World, String) {
    let mut config = Config::default();
    config.server.data_dir = folder.join("data");
    let world = World::stored(config.clone());
    let admin = world.admin.clone();
    let new = json!({"url": "https://example.com/hooks", "types": ["failing"]});
    let failing = world.endpoint_with(&new);
    assert!(world.drain());
    let db = rusqlite::Connection::open(folder.join("data/railpost.db")).unwrap();
    const FAILING: u8 = 4;
    assert_eq!(db.execute("UPDATE endpoints SET status = ?1", [FAILING]).unwrap(), 1);
    drop(db);
    (World::again(config, admin), failing)
}

impl States {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (world, failing) = with_one_switched_off(folder.path());
        let failing = ("failing", failing, "switched off after failures");
        let mut states =
            Self { world, receivers: Vec::new(), endpoints: vec![failing], _folder: folder };
        states.add("active", "active", &[], &json!({}), 1);
        states.add(
            "waiting",
            "waiting for the breaker until",
            &[503; 200],
            &json!({"breaker": {}}),
            12,
        );
        states.add("paused", "paused", &[], &json!({}), 0);
        states.add("blocked", "blocked", &[], &json!({}), 0);
        states.add("quarantined", "quarantined", &[422; 9], &json!({"quarantine_after": 2}), 3);
        states.add("gone", "gone", &[410], &json!({}), 1);
        states.add_retry_after();
        states.pause_and_block();
        for (state, endpoint, _) in &states.endpoints {
            let path = format!("endpoints/{endpoint}");
            states.world.look_until(&path, |it| it["health"]["state"] == *state);
        }
        states.world.publish("waiting-late", "waiting", Some("waiting-late"));
        states
    }

    /// Adds an endpoint for these answers, and publishes events to it, each with a key of its own.
    fn add(
        &mut self,
        state: &'static str,
        words: &'static str,
        answers: &[u16],
        policy: &Value,
        events: u32,
    ) {
        let receiver = Receiver::new();
        receiver.answers(answers);
        let mut whole = json!({
            "retry": {"backoff": {"strategy": "fixed", "delay": "10m"}},
            "breaker": null,
            "quarantine_after": null,
        });
        whole.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        self.add_endpoint(
            state,
            words,
            &json!({"url": receiver.url(), "types": [state], "policy": whole}),
        );
        self.receivers.push(receiver);
        for number in 0..events {
            self.world.publish(
                &format!("{state}-{number}"),
                state,
                Some(&format!("{state}-{number}")),
            );
        }
    }

    fn add_endpoint(&mut self, state: &'static str, words: &'static str, new: &Value) {
        let endpoint = self.world.endpoint_with(new);
        self.endpoints.push((state, endpoint, words));
    }

    fn add_retry_after(&mut self) {
        let new = json!({"url": Steady::new(503).url, "types": ["later"]});
        self.add_endpoint("waiting", "left alone until", &new);
        self.world.publish("later-0", "later", Some("later-0"));
        // Only what comes after the answer is held back by it.
        self.world.delivery_in("later-0", "waiting");
        self.world.publish("later-1", "later", Some("later-1"));
    }

    fn pause_and_block(&self) {
        let of = |state: &str| self.of(state).to_owned();
        self.world.act(&format!("endpoints/{}/pause", of("paused"))).expect(200);
        let secrets = self.world.look(&format!("endpoints/{}/secrets", of("blocked")));
        let expire = StoreWrite::ExpireSecret {
            endpoint: of("blocked").parse().unwrap(),
            id: secrets["items"][0]["id"].as_str().unwrap().parse().unwrap(),
            at: Timestamp::from_millis(1),
        };
        let app = self.world.server().app().clone();
        self.world.wait_for(app.dispatcher.commit(Change::from(expire))).unwrap();
        self.world.publish("paused-0", "paused", Some("paused-0"));
    }

    /// The first endpoint in this state.
    fn of(&self, state: &str) -> &str {
        &self.endpoints.iter().find(|(of, ..)| *of == state).unwrap().1
    }
}

#[test]
fn each_state_of_an_endpoint_is_said_as_the_engine_has_it_on_every_page() {
    let states = States::new();
    let browser = Browser::signed_in(&states.world, &states.world.admin);
    browser.go(&page("/endpoints"));
    for (state, endpoint, words) in &states.endpoints {
        let row = format!("tr:has(a[href$='{endpoint}'])");
        browser.says(&format!("{row} .badge[data-state={state}]"), words);
        let health = states.world.look(&format!("endpoints/{endpoint}"))["health"].clone();
        if let Some(message) = health["last_error"]["message"].as_str() {
            browser.says(&format!("{row} .health"), message);
        }
    }
    browser.go(&page(""));
    for (state, endpoint, words) in &states.endpoints {
        let item = format!(".attention li:has(a[href$='{endpoint}'])");
        match *state {
            "active" | "paused" => assert_eq!(browser.count(&item), 0, "{state}"),
            _ => browser.says(&format!("{item} .badge[data-state={state}]"), words),
        }
    }
    for (state, endpoint, words) in &states.endpoints {
        browser.go(&page(&format!("/endpoints/{endpoint}")));
        browser.says(&format!("h1 ~ span .badge[data-state={state}]"), words);
        let health = states.world.look(&format!("endpoints/{endpoint}/health"));
        assert_eq!(health["state"], *state);
        let facts = browser.text(".health-panel dl");
        let waiting = format!("{} deliver", health["open"]);
        assert!(facts.contains(&waiting), "{state}: {waiting} in {facts}");
        let next = health["next"].as_str().unwrap().split("20").next().unwrap();
        assert!(facts.contains(next), "{state}: {next} in {facts}");
        let resumes = browser.count("form[action$='/resume']") > 0;
        assert_eq!(resumes, !matches!(*state, "active" | "blocked"), "{state}");
    }
}

#[test]
fn each_lane_with_anything_open_is_shown_in_the_state_that_the_engine_says() {
    let states = States::new();
    let (world, receiver) = (&states.world, Receiver::new());
    let later = receiver.answers_later();
    let flying = world.endpoint(&receiver, &json!({}));
    world
        .patch(&of_tenant(&format!("endpoints/{flying}")), &json!({"types": ["flying"]}))
        .expect(200);
    world.publish("flying", "flying", Some("flying"));
    receiver.next();
    let browser = Browser::signed_in(world, &world.admin);
    browser.go(&page("/lanes"));
    browser.wait_for(".board");
    let script = "return Object.fromEntries([...document.querySelectorAll('article[data-state]')]
        .map(it => [it.dataset.lane, it.dataset.state]))";
    let engine = || -> Value {
        let lanes = world.look("lanes/open?limit=100");
        let items = lanes["items"].as_array().unwrap().clone();
        items
            .into_iter()
            .map(|it| (it["key"].as_str().unwrap().to_owned(), it["state"].clone()))
            .collect()
    };
    browser.wait_until("the lanes of the engine", || browser.script(script, &[]) == engine());
    let shown = browser.script(script, &[]);
    for (lane, state) in [
        ("flying", "in_flight"),
        ("waiting-0", "backing_off"),
        ("waiting-late", "waiting_for_breaker"),
        ("paused-0", "endpoint_off"),
        ("later-1", "waiting_for_retry_after"),
        ("quarantined-0", "held"),
    ] {
        assert_eq!(shown[lane], state, "{lane} of {shown}");
    }
    assert_eq!(browser.count(".chip.flying"), 1, "nothing else is drawn on the wire");
    let counts = world.look("lanes/open");
    let summary = browser.text(".summary");
    let items = counts["items"].as_array().unwrap();
    let in_state = |state: &str| items.iter().filter(|it| it["state"] == state).count();
    let mut said = 0;
    for (state, words) in [
        ("held", "held"),
        ("in_flight", "on the wire"),
        ("backing_off", "backing off"),
        ("endpoint_off", "wait for their endpoint, which is off"),
        ("waiting_for_breaker", "wait for the breaker"),
        ("waiting_for_retry_after", "wait for Retry-After"),
    ] {
        let count = in_state(state);
        assert!(summary.contains(&format!(" {count} {words}")), "{summary}: {count} {state}");
        said += count;
    }
    assert_eq!(counts["lanes"], said, "each lane is told of once");
    assert!(
        summary.starts_with(&format!("{} lanes with something open", counts["lanes"])),
        "{summary}"
    );
    assert!(summary.contains("for the breaker"), "{summary}");
    later.send(200).unwrap();
    browser.wait_for("article[data-lane=flying] .landed");
    assert_eq!(browser.count(".chip.flying"), 0);
}

#[test]
fn each_state_of_a_delivery_is_said_with_what_happens_next() {
    let states = States::new();
    let (world, receiver) = (&states.world, Receiver::new());
    let endpoint = world
        .endpoint(&receiver, &json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}}));
    world
        .patch(&of_tenant(&format!("endpoints/{endpoint}")), &json!({"types": ["own"]}))
        .expect(200);
    receiver.answers(&[503]);
    world.publish("backing-off", "own", Some("own-1"));
    world.publish("behind", "own", Some("own-1"));
    world.delivery_in("backing-off", "waiting");
    let _later = receiver.answers_later();
    world.publish("flying", "own", Some("own-2"));
    receiver.next();
    receiver.next();
    let browser = Browser::signed_in(world, &world.admin);
    for (event, state, words) in [
        ("active-0", "delivered", "HTTP 200"),
        ("backing-off", "waiting", "Next attemptat"),
        ("behind", "pending", "waits behind seq 1"),
        ("flying", "pending", "an attempt is on the wire"),
        ("paused-0", "pending", "not before its endpoint is sent to again"),
        ("later-1", "pending", "left alone until"),
        ("quarantined-0", "dead", "it holds its lane"),
    ] {
        let delivery = world.delivery_in(event, state);
        let path = format!("/deliveries/{}", delivery["id"].as_str().unwrap());
        browser.go(&page(&path));
        browser.says("h1 ~ span .badge", state);
        browser.says("dl.facts", words);
        assert!(!browser.text("main").contains("Tried again"), "nothing was: {event}");
    }
}

#[test]
fn a_delivery_that_never_left_waits_for_the_breaker_and_can_be_discarded() {
    let states = States::new();
    let world = &states.world;
    let delivery = world.delivery_in("waiting-late", "pending");
    let browser = Browser::signed_in(world, &world.admin);
    browser.go(&page(&format!("/deliveries/{}", delivery["id"].as_str().unwrap())));
    browser.says("dl.facts", "not before its endpoint is sent to again");
    browser.says("dl.facts", "waiting for the breaker until");
    browser.click("form[action$='/discard'] button");
    browser.says(".question", "Closes 1 open delivery");
    browser.click(".question button.danger");
    browser.wait_for(".flash");
    browser.says("h1 ~ span .badge", "discarded");
    browser.says(".flash form", "Redeliver the event");
    browser.click(".flash form button");
    browser.says(".flash", "sent again");
}

#[test]
fn a_replay_says_that_it_handed_over_and_what_that_waits_for() {
    let states = States::new();
    let world = &states.world;
    let start = |dry_run: bool| {
        let filter = json!({"state": "dead", "endpoint": states.of("quarantined")});
        let replay = json!({"action": "replay", "filter": filter, "dry_run": dry_run});
        let made = world.post(&of_tenant("replays"), &replay).expect(202).json();
        let id = made["id"].as_str().unwrap().to_owned();
        world.look_until(&format!("replays/{id}"), |it| it["state"] == "done");
        id
    };
    let (dry, real) = (start(true), start(false));
    let browser = Browser::signed_in(world, &world.admin);
    browser.go(&page("/replays"));
    let matched = world.look(&format!("replays/{real}"))["matched"].clone();
    let row = |id: &str| format!("tr:has(a[href$='{id}'])");
    browser.says(&row(&dry), &format!("dry run: {matched} would be replayed"));
    browser.says(&row(&real), &format!("handed over {matched} of {matched}"));
    browser.go(&page(&format!("/replays/{real}")));
    browser.says(".flash.warning", "quarantined");
    assert_eq!(browser.count(".flash.warning li"), 1);
}

#[test]
fn a_probe_says_what_came_back_and_offers_to_resume() {
    let (world, receiver) = (World::new(), Steady::new(500));
    let policy = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}});
    let endpoint = world.endpoint_with(&json!({"url": receiver.url, "policy": policy}));
    for number in 0..12 {
        world.publish(&format!("e{number}"), "t", Some(&format!("k{number}")));
    }
    let path = format!("endpoints/{endpoint}");
    world.look_until(&path, |it| it["health"]["waits_for"] == "breaker");
    world.publish("late", "t", Some("late"));
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/{path}")));
    browser.click("form[action$='/probe'] button");
    browser.says(".flash.problem", "does not take events");
    browser.says("dl.facts", "HTTP 500");
    assert_eq!(browser.count("main form[action$='/resume']"), 0, "it would fail again");
    receiver.status.store(200, Ordering::Relaxed);
    browser.click("form[action$='/probe'] button");
    browser.says(".flash", "The endpoint answers");
    browser.says("dl.facts .badge[data-state=waiting]", "waiting for the breaker");
    browser.click("main form[action$='/resume'] button");
    browser.says(".flash", "half-open");
    browser.wait_for("h1 ~ span .badge[data-state=active]");
    world.delivery_in("late", "delivered");
}

#[test]
fn rotating_without_an_overlap_asks_once_and_with_one_it_does_not() {
    let (world, receiver) = (World::new(), Receiver::new());
    let endpoint = world.endpoint(&receiver, &json!({}));
    let secrets = || world.look(&format!("endpoints/{endpoint}/secrets"))["items"].clone();
    let browser = Browser::signed_in(&world, &world.admin);
    browser.go(&page(&format!("/endpoints/{endpoint}")));
    browser.fill("#overlap", "0s");
    browser.click("form[action$=rotate] button");
    browser.says(".question", "Ends 1 secret at once");
    assert_eq!(secrets().as_array().unwrap().len(), 1, "nothing is done yet");
    browser.click(".question button.danger");
    browser.wait_for("code.secret");
    let active = secrets().as_array().unwrap().iter().filter(|it| it["active"] == true).count();
    assert_eq!(active, 1);
}

impl Browser {
    /// Waits until something matches that contains these words.
    #[track_caller]
    pub(crate) fn says(&self, css: &str, words: &str) {
        let script = "return [...document.querySelectorAll(arguments[0])]
            .some(it => it.textContent.includes(arguments[1]))";
        let says = || self.script(script, &[css.into(), words.into()]) == true;
        self.wait_until(&format!("{css}: {words}"), says);
    }
}
