//! Each rule fires and resolves in a real server whose time the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use railpost::config::{AllowLoopback, Config};
use railpost::serve::{OpenStore, Server};
use railpost_alerts::Rule;
use railpost_alerts::limits::ALERTS_OPEN_PER_RULE_MAX;
use railpost_engine::{EndpointRecord, EndpointStatus, Span, Timestamp};
use railpost_store::limits::CHANGE_WRITES_MAX;
use railpost_store::{
    Alert, AlertQuery, AuditEntry, Change, EndpointPrivate, EndpointSettings, Figures,
    FiguresScope, Histogram, MasterKey, MemoryStore, NewEndpoint, PageRequest, RecordBatch, Setup,
    Silence, Source, Store, SystemSource, TenantSettings, Told, Write,
};
use railpost_telemetry::{Level, Log};
use railpost_wire::{AuditId, EndpointId, SilenceId, TenantId};
use serde_json::json;

use crate::flaky::Flaky;
use crate::receiver::Receiver;
use crate::scene::text;
use crate::world::{PATIENCE, World};

const MASTER: [u8; 32] = [7; 32];

/// The machine's clock, and what a test moved it ahead.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Source for Clock {
    fn now(&self) -> Timestamp {
        SystemSource.now() + Span::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        SystemSource.steady() + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemSource.fill_random(bytes);
    }
}

/// A server whose time the test moves.
struct Watched {
    world: World,
    clock: Arc<Clock>,
}

impl std::ops::Deref for Watched {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Watched {
    /// In memory, with what the test changes about its configuration.
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let clock = Arc::new(Clock::default());
        let setup = Setup { source: clock.clone(), master_key: MasterKey::new(&MASTER) };
        Self::on(Arc::new(MemoryStore::new(setup)), clock, None, change)
    }

    fn on(
        store: Arc<dyn Store>,
        clock: Arc<Clock>,
        admin: Option<String>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.delivery.allow_loopback = AllowLoopback::Always;
        // The disk of the machine that runs the tests may be as full as it likes.
        (config.alerts.disk.free_percent, config.alerts.disk.free_bytes) = (0, 0);
        change(&mut config);
        let log = Log::new(Level::Error, std::io::sink());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (master_key, source) = (MasterKey::new(&MASTER), clock.clone());
        let opened = OpenStore { store, master_key, source };
        let server = runtime.block_on(Server::start_on(opened, config, log)).unwrap();
        Self { world: World::of(runtime, server, admin), clock }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.server().app().store.clone()
    }

    fn advance(&self, span: Span) {
        self.clock.0.fetch_add(span.as_millis(), Ordering::SeqCst);
    }

    fn look_for_alerts(&self) {
        self.wait_for(self.server().look_for_alerts());
    }

    fn alerts(&self) -> Vec<Alert> {
        let query = AlertQuery::all(PageRequest::first(500));
        self.wait_for(self.store().alerts(query)).unwrap().items
    }

    fn open(&self, rule: Rule) -> Option<Alert> {
        let is_open = |alert: &Alert| alert.rule == rule.name() && alert.is_open();
        self.alerts().into_iter().find(is_open)
    }

    /// The alert, as soon as the rule holds.
    #[track_caller]
    fn fires(&self, rule: Rule) -> Alert {
        let start = Instant::now();
        loop {
            self.look_for_alerts();
            if let Some(alert) = self.open(rule).filter(|alert| alert.told == Told::Fired) {
                return alert;
            }
            assert!(start.elapsed() < PATIENCE, "{rule} does not fire: {:?}", self.alerts());
        }
    }

    /// The rule does not hold.
    #[track_caller]
    fn rests(&self, rule: Rule) {
        self.look_for_alerts();
        assert_eq!(self.open(rule), None);
    }

    /// The alert, as soon as it is resolved. Time passes while it is waited for.
    #[track_caller]
    fn resolves(&self, fired: &Alert) -> Alert {
        let start = Instant::now();
        loop {
            self.look_for_alerts();
            let alert = self.wait_for(self.store().alert(fired.id)).unwrap().unwrap();
            if alert.is_settled() {
                assert_eq!(alert.told, Told::Resolved);
                return alert;
            }
            assert!(start.elapsed() < PATIENCE, "it stays {alert:?}");
            self.advance(Span::from_secs(20));
        }
    }

    /// Adds figures of everyone's, so long ago.
    fn add_figures(&self, ago: Span, figures: Figures) {
        let at = self.clock.now().as_millis() - ago.as_millis();
        let batch = vec![(FiguresScope::All, Timestamp::from_millis(at), figures)];
        self.wait_for(self.store().add_figures(batch)).unwrap();
    }
}

/// An endpoint whose deliveries are retried after ten minutes.
fn slow_endpoint(world: &World, receiver: &Receiver) -> String {
    let slow = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}});
    world.endpoint(receiver, &slow)
}

#[test]
fn figures_of_the_last_minutes_and_hours_are_watched() {
    let watched = Watched::new(|_| ());
    let mut attempt_us = Histogram::default();
    (0..20).for_each(|_| attempt_us.record(3_000_000));
    let slow = Figures { attempts: 20, attempt_us, ..Figures::default() };
    for interval in [1, 6, 11] {
        watched.add_figures(Span::from_mins(interval), slow.clone());
    }
    let bad = Figures {
        first_attempts: 100,
        exhausted: 6,
        on_time: 900,
        late_receiver: 100,
        ..Figures::default()
    };
    watched.add_figures(Span::ZERO, bad);
    // Figures by the hour are read once a minute.
    watched.advance(Span::from_mins(1));
    let rules = [Rule::SlowAttempts, Rule::RetriesExhausted, Rule::SloBurnFast, Rule::SloBurnSlow];
    let fired = rules.map(|rule| watched.fires(rule));
    assert!(fired[1].summary.contains("6 deliveries ran out"), "{}", fired[1].summary);
    assert!(fired[2].summary.contains("100 of 1000 deliveries were late"), "{}", fired[2].summary);
    watched.advance(Span::from_hours(7));
    fired.iter().for_each(|alert| drop(watched.resolves(alert)));
}

#[test]
fn a_held_lane_and_dead_letters_are_told() {
    let (watched, receiver) =
        (Watched::new(|config| config.alerts.dead_letters.count = 0), Receiver::new());
    let endpoint = watched.endpoint(&receiver, &json!({}));
    receiver.answers(&[400]);
    watched.publish("e1", "a", Some("k"));
    let delivery = text(&watched.delivery_in("e1", "dead")["id"]);
    watched.advance(Span::from_secs(15));
    let (lane, letters) = (watched.fires(Rule::LaneHeld), watched.fires(Rule::DeadLetters));
    assert!(lane.subject.starts_with(&format!("{endpoint}/")), "{}", lane.subject);
    assert_eq!((&lane.details["key"], &lane.details["delivery"]), (&json!("k"), &json!(delivery)));
    assert!(lane.summary.contains("The lane of key k"), "{}", lane.summary);
    watched.act(&format!("deliveries/{delivery}/discard")).expect(200);
    let resolved = watched.resolves(&lane);
    assert!(resolved.resolved_at.unwrap() >= lane.fired_at);
    watched.resolves(&letters);
}

#[test]
fn breakers_are_told_one_by_one_and_together() {
    let watched = Watched::new(|config| config.alerts.breakers_open.count = 1);
    let receiver = Receiver::new();
    let breaker = json!({"min_attempts": 2, "window": 2, "open_for": "1h", "open_for_max": "1h"});
    let endpoint = watched.endpoint(&receiver, &json!({"breaker": breaker}));
    receiver.answers(&[503, 503]);
    watched.publish("e1", "a", None);
    let (one, all) = (watched.fires(Rule::BreakerOpen), watched.fires(Rule::BreakersOpen));
    assert_eq!((&one.subject, one.tenant.as_ref().unwrap().as_str()), (&endpoint, "default"));
    assert!(one.summary.contains("the last one with status 503"), "{}", one.summary);
    watched.advance(Span::from_hours(1));
    watched.resolves(&one);
    watched.resolves(&all);
    watched.delivery_in("e1", "delivered");
}

#[test]
fn a_failing_endpoint_is_told_before_it_is_switched_off() {
    let (watched, receiver) = (Watched::new(|_| ()), Receiver::new());
    let endpoint = slow_endpoint(&watched, &receiver);
    receiver.answers(&[500, 500, 500]);
    watched.publish("e1", "a", None);
    watched.look_until(&format!("endpoints/{endpoint}/health"), |health| {
        health["failing_since"].is_string()
    });
    watched.rests(Rule::EndpointFailing);
    watched.advance(Span::from_mins(15));
    let failing = watched.fires(Rule::EndpointFailing);
    watched.rests(Rule::SwitchOffSoon);
    watched.advance(Span::from_days(4));
    let soon = watched.fires(Rule::SwitchOffSoon);
    assert!(soon.summary.contains("will be switched off at"), "{}", soon.summary);
    // What failed is over; the next one is acknowledged.
    receiver.next();
    watched.publish("e2", "a", None);
    watched.publish("e3", "a", None);
    watched.publish("e4", "a", None);
    watched.look_until(&format!("endpoints/{endpoint}/health"), |health| {
        health["failing_since"].is_null()
    });
    watched.resolves(&failing);
    watched.resolves(&soon);
}

#[test]
fn an_endpoint_that_was_switched_off_is_told() {
    let (watched, receiver) = (Watched::new(|_| ()), Receiver::new());
    let endpoint = watched.endpoint(&receiver, &json!({}));
    receiver.answers(&[410]);
    watched.publish("e1", "a", None);
    let off = watched.fires(Rule::EndpointOff);
    assert_eq!(off.details["reason"], "gone");
    watched.act(&format!("endpoints/{endpoint}/resume")).expect(200);
    watched.resolves(&off);
}

#[test]
fn a_secret_that_ends_and_an_endpoint_that_cannot_sign_are_told() {
    let (watched, receiver) = (Watched::new(|_| ()), Receiver::new());
    let endpoint = watched.endpoint(&receiver, &json!({}));
    let secrets = format!("endpoints/{endpoint}/secrets");
    let expire_all = |at: Timestamp| {
        for secret in watched.look(&secrets)["items"].as_array().unwrap() {
            let (endpoint, id) = (endpoint.parse().unwrap(), text(&secret["id"]).parse().unwrap());
            let expire = Change::from(Write::ExpireSecret { endpoint, id, at });
            let app = watched.server().app().clone();
            watched.wait_for(app.dispatcher.commit(expire)).unwrap();
        }
    };
    expire_all(watched.clock.now() + Span::from_days(9));
    watched.rests(Rule::SecretExpiring);
    watched.advance(Span::from_days(3));
    let expiring = watched.fires(Rule::SecretExpiring);
    assert_eq!(expiring.subject, endpoint);
    watched.act(&secrets).expect(201);
    watched.resolves(&expiring);

    watched.rests(Rule::EndpointBlocked);
    expire_all(Timestamp::from_millis(1));
    let blocked = watched.fires(Rule::EndpointBlocked);
    assert!(blocked.summary.contains("it must sign"), "{}", blocked.summary);
    watched.act(&secrets).expect(201);
    watched.resolves(&blocked);
}

#[test]
fn the_oldest_open_delivery_is_told_unless_its_endpoint_is_paused() {
    let (watched, paused) = (Watched::new(|_| ()), Receiver::new());
    let id = watched.endpoint(&paused, &json!({}));
    watched.act(&format!("endpoints/{id}/pause")).expect(200);
    watched.publish("e1", "a", None);
    watched.advance(Span::from_hours(2));
    watched.rests(Rule::OldestOpen);
    let receiver = Receiver::new();
    slow_endpoint(&watched, &receiver);
    receiver.answers(&[500, 500]);
    watched.publish("e2", "a", None);
    receiver.next();
    watched.advance(Span::from_mins(61));
    let oldest = watched.fires(Rule::OldestOpen);
    watched.advance(Span::from_mins(61));
    watched.resolves(&oldest);
}

#[test]
fn trouble_of_the_store_is_told_when_it_is_over() {
    let clock = Arc::new(Clock::default());
    let setup = Setup { source: clock.clone(), master_key: MasterKey::new(&MASTER) };
    let store = Flaky::new(Arc::new(MemoryStore::new(setup)));
    let watched = Watched::on(store.clone(), clock, None, |_| ());
    watched.look_for_alerts();
    store.set_down(true);
    watched.look_for_alerts();
    watched.advance(Span::from_secs(31));
    watched.look_for_alerts();
    store.set_down(false);
    watched.look_for_alerts();
    let trouble = watched.fires(Rule::StoreTrouble);
    assert!(trouble.summary.starts_with("The store could not be written or read since"));
    watched.resolves(&trouble);
}

#[test]
fn a_full_disk_is_told_and_the_next_start_goes_on_with_its_alert() {
    let clock = Arc::new(Clock::default());
    let setup = Setup { source: clock.clone(), master_key: MasterKey::new(&MASTER) };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(setup));
    let folder = tempfile::tempdir().unwrap();
    let data_dir = |config: &mut Config| config.server.data_dir = folder.path().to_owned();
    let full = Watched::on(store.clone(), clock.clone(), None, |config| {
        data_dir(config);
        config.alerts.disk.free_bytes = i64::MAX as u64;
    });
    let fired = full.fires(Rule::Disk);
    let admin = full.world.admin.clone();
    full.world.drain();

    let watched = Watched::on(store, clock, Some(admin), data_dir);
    watched.look_for_alerts();
    assert_eq!(watched.open(Rule::Disk).map(|alert| alert.id), Some(fired.id));
    watched.resolves(&fired);
}

#[test]
fn a_source_that_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    std::fs::write(&file, "no database, whatever its name says").unwrap();
    let section = format!(
        "name = \"shop\"\nurl = \"sqlite:{}\"\ntenant = \"default\"\npoll_interval = \"10ms\"",
        file.display()
    );
    let section: railpost_relay::SourceSection = toml::from_str(&section).unwrap();
    let watched = Watched::new(|config| config.outbox = vec![section.clone()]);
    watched.get_until("/v1/outbox", |sources| sources["items"][0]["state"] == "trouble");
    watched.rests(Rule::SourceTrouble);
    watched.advance(Span::from_secs(30));
    let trouble = watched.fires(Rule::SourceTrouble);
    assert_eq!(trouble.subject, "shop");
    std::fs::remove_file(&file).unwrap();
    let config = railpost_relay::check_all(&[section]).unwrap().remove(0);
    watched.wait_for(railpost_relay::init(&config, None)).unwrap();
    watched.resolves(&trouble);
}

#[test]
fn a_silenced_alert_is_recorded_and_told_when_the_silence_ends() {
    let (watched, receiver) = (Watched::new(|_| ()), Receiver::new());
    let endpoint = watched.endpoint(&receiver, &json!({}));
    let now = watched.clock.now();
    let silence = Silence {
        id: SilenceId::from_u128(1),
        rule: Some("endpoint_off".to_owned()),
        tenant: None,
        subject: Some(endpoint.clone()),
        from: now,
        until: now + Span::from_hours(9),
        by: "me".to_owned(),
        reason: "maintenance".to_owned(),
    };
    let audit = |id| AuditEntry {
        id: AuditId::from_u128(id),
        at: now,
        tenant: None,
        actor: "me".to_owned(),
        address: None,
        action: "silence".to_owned(),
        target: endpoint.clone(),
        detail: json!({}),
    };
    watched.wait_for(watched.store().save_silence(silence.clone(), audit(1))).unwrap();
    receiver.answers(&[410]);
    watched.publish("e1", "a", None);
    watched.look_until(&format!("endpoints/{endpoint}"), |endpoint| endpoint["status"] == "gone");
    watched.look_for_alerts();
    assert_eq!(watched.open(Rule::EndpointOff).unwrap().told, Told::Nothing);
    let (store, now) = (watched.store(), watched.clock.now());
    watched.wait_for(store.end_silence(silence.id, now, audit(2))).unwrap();
    watched.fires(Rule::EndpointOff);
}

#[test]
fn ten_thousand_failing_endpoints_are_a_bounded_number_of_alerts() {
    let clock = Arc::new(Clock::default());
    let setup = Setup { source: clock.clone(), master_key: MasterKey::new(&MASTER) };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(setup));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(fail_endpoints(&*store, clock.now(), 10_000));
    let watched = Watched::on(store, clock, None, |_| ());
    watched.advance(Span::from_mins(20));
    watched.fires(Rule::EndpointFailing);
    let start = Instant::now();
    watched.look_for_alerts();
    println!("a look at 10,000 failing endpoints took {:?}", start.elapsed());
    let alerts = watched.alerts();
    let failing = alerts.iter().filter(|alert| alert.rule == "endpoint_failing");
    assert_eq!(failing.count(), ALERTS_OPEN_PER_RULE_MAX + 1);
    assert!(alerts.len() <= 2 * (ALERTS_OPEN_PER_RULE_MAX + 1), "{}", alerts.len());
    let others = alerts.iter().find(|alert| alert.subject == "others").unwrap();
    assert_eq!(others.details["count"], 9_900);
}

/// Endpoints that answered nothing but failures since `since`.
async fn fail_endpoints(store: &dyn Store, since: Timestamp, count: u128) {
    let tenant: TenantId = "default".parse().unwrap();
    let made = Write::CreateTenant(tenant.clone(), TenantSettings::default());
    store.commit(Change::from(made)).await.unwrap();
    let (mut endpoints, mut writes) = (Vec::new(), Vec::new());
    for n in 0..count {
        let new = NewEndpoint {
            id: EndpointId::from_u128(n + 1),
            tenant: tenant.clone(),
            settings: EndpointSettings::all_events("http://127.0.0.1:9/"),
            private: EndpointPrivate::default(),
        };
        endpoints.push(EndpointRecord {
            endpoint: new.id,
            status: EndpointStatus::Active,
            was: EndpointStatus::Active,
            failing_since: Some(since),
            at: since,
        });
        writes.push(Write::CreateEndpoint(new));
    }
    for writes in writes.chunks(CHANGE_WRITES_MAX) {
        let change = Change { writes: writes.to_vec(), ..Change::default() };
        store.commit(change).await.unwrap();
    }
    let batch = RecordBatch { endpoints, ..RecordBatch::default() };
    store.record(batch.into()).await.unwrap();
}
