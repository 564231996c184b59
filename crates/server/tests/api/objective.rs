//! Deliveries judged by the objective, through a server whose clock the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use railpost::config::{AllowLoopback, Config};
use railpost::serve::{OpenStore, Server};
use railpost_engine::{Span, Timestamp};
use railpost_store::{MasterKey, MemoryStore, Setup, Source, SystemSource};
use railpost_telemetry::{Label, Level, Log};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::receiver::Receiver;
use crate::scene::of_tenant;
use crate::world::{PATIENCE, World};

const MASTER: [u8; 32] = [7; 32];

/// The machine's clock, and how far it was set forward.
#[derive(Debug, Default)]
struct ClockAhead(AtomicU64);

impl ClockAhead {
    fn jump(&self, span: Span) {
        self.0.fetch_add(span.as_millis(), Ordering::SeqCst);
    }
}

impl Source for ClockAhead {
    fn now(&self) -> Timestamp {
        SystemSource.now() + Span::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Not set: no retry is hurried.
    fn steady(&self) -> Duration {
        SystemSource.steady()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemSource.fill_random(bytes);
    }
}

fn start(clock: &Arc<ClockAhead>, mut config: Config) -> World {
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.delivery.allow_loopback = AllowLoopback::Always;
    let setup = Setup { source: clock.clone(), master_key: MasterKey::new(&MASTER) };
    let store = Arc::new(MemoryStore::new(setup));
    let (runtime, log) = (Runtime::new().unwrap(), Log::new(Level::Error, std::io::sink()));
    let (master_key, source) = (MasterKey::new(&MASTER), clock.clone());
    let opened = OpenStore { store, master_key, source };
    let server = runtime.block_on(Server::start_on(opened, config, log)).unwrap();
    World::of(runtime, server, None)
}

/// Waits until the metrics have this line.
fn wait_for_metric(world: &World, line: &str) {
    let since = Instant::now();
    loop {
        let page = world.get("/metrics").expect(200).text;
        if page.lines().any(|shown| shown == line) {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{line} not in {page}");
        std::thread::yield_now();
    }
}

fn judged(result: &str, count: u64) -> String {
    format!("railpost_deliveries_judged_total{{result=\"{result}\"}} {count}")
}

fn total(world: &World, path: &str) -> Value {
    world.get(&format!("{path}?range=1h")).expect(200).json()["total"].clone()
}

#[test]
fn each_delivery_is_judged_once_and_every_place_shows_it() {
    let clock = Arc::new(ClockAhead::default());
    let mut config = Config::default();
    config.telemetry.labels = vec![Label::Tenant, Label::EventType];
    let world = start(&clock, config);
    // The store says from when on deliveries are judged before the first of them is made.
    let since = Instant::now();
    while world.wait_for(world.server().app().store.judged_before()).unwrap().is_none() {
        assert!(since.elapsed() < PATIENCE, "judging begins");
        std::thread::yield_now();
    }
    let (good, bad, idle) = (Receiver::new(), Receiver::new(), Receiver::new());
    let policy = json!({"retry": {"backoff": {"strategy": "fixed", "delay": "10m"}}});
    world.endpoint(&good, &policy);
    let failing = world.endpoint(&bad, &policy);
    let paused = world.endpoint(&idle, &policy);
    world.act(&format!("endpoints/{paused}/pause"));
    bad.answers(&[503]);
    world.publish("evt_1", "order.paid", Some("k"));
    world.publish("evt_2", "order.paid", Some("k"));
    for receiver in [&good, &good, &bad] {
        receiver.next();
    }
    wait_for_metric(&world, &judged("on_time", 2));

    clock.jump(Span::from_mins(11));
    wait_for_metric(&world, &judged("late_receiver", 2));
    for line in [
        judged("on_time", 2),
        judged("late_operator", 0),
        "railpost_deliveries_dispatched_total 3".to_owned(),
        "railpost_attempt_statuses_total{status=\"200\"} 2".to_owned(),
        "railpost_attempt_statuses_total{status=\"503\"} 1".to_owned(),
        "railpost_delivery_attempts_bucket{le=\"1\"} 2".to_owned(),
        "railpost_tenant_deliveries_total{tenant=\"default\",result=\"delivered\"} 2".to_owned(),
        "railpost_event_type_deliveries_total{event_type=\"order.paid\",result=\"delivered\"} 2"
            .to_owned(),
    ] {
        wait_for_metric(&world, &line);
    }
    let app = world.server().app();
    world.wait_for(app.telemetry.write_figures(&*app.store));
    let tenants = total(&world, &of_tenant("figures"));
    assert_eq!(
        [&tenants["on_time"], &tenants["late_receiver"], &tenants["late_operator"]],
        [2, 2, 0],
        "{tenants}"
    );
    assert_eq!((&tenants["first_attempts"], &tenants["exhausted"]), (&json!(3), &json!(0)));
    assert!(tenants["first_attempt_ms"]["p95"].is_number(), "{tenants}");
    let of = |endpoint: &str| total(&world, &of_tenant(&format!("endpoints/{endpoint}/figures")));
    assert_eq!(of(&failing)["late_receiver"], 2, "one was sent, one stands behind it");
    assert_eq!(of(&paused)["late_operator"], 0, "what is paused is not judged");
}
