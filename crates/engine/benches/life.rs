//! What a delivery costs the engine in time and memory. `cargo bench -p railpost-engine` prints the
//! figures of `docs/internals/performance.md`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::{Duration, Instant};

use railpost_engine::{
    Accepted, AttemptResult, AttemptToken, Config, Effect, Endpoint, EndpointStatus, Engine, Input,
    LaneId, Load, LoadedPage, Place, Policy, PolicyFields, Span, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId, Seq};

const ENDPOINTS: u64 = 1_000;
const BATCH: u64 = 100;

fn main() {
    life_of_a_delivery(100_000, 20);
    let (far, near) = (wake_up(1_000_000), wake_up(10_000));
    println!("wake-up, 10,000 due out of 1,000,000: {far:>9.2?}");
    println!("wake-up, 10,000 due out of    10,000: {near:>9.2?}");
    println!("lanes with anything open, 1,000,000:  {:>9.2?}", open_lanes(1_000_000));
}

/// An engine, its clock, and the attempts it has under way.
struct Bench {
    engine: Engine,
    now: Timestamp,
    started: Vec<AttemptToken>,
    next_delivery: u64,
}

impl Bench {
    fn new(endpoints: u64, policy: &Policy) -> Self {
        let config = Config { in_flight_max: 100_000, ..Config::default() };
        let mut bench = Self {
            engine: Engine::new(config, 1),
            now: Timestamp::from_millis(1_700_000_000_000),
            started: Vec::new(),
            next_delivery: 0,
        };
        for number in 0..endpoints {
            bench.handle(Input::EndpointAppeared(Endpoint {
                id: EndpointId::from_u128(u128::from(number)),
                tenant: format!("tenant-{}", number % 10).parse().expect("a tenant id"),
                policy: policy.clone(),
                status: EndpointStatus::Active,
                status_since: None,
                failing_since: None,
                rotated_at: None,
            }));
        }
        bench
    }

    fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Start(attempt) => self.started.push(attempt.token),
                Effect::Load(ticket, Load::Lanes { .. }) => {
                    let page = LoadedPage::Lanes { lanes: vec![], next: None };
                    self.engine.handle(self.now, Input::Loaded { ticket, page });
                }
                Effect::Load(ticket, Load::Unkeyed { .. }) => {
                    let page =
                        LoadedPage::Unkeyed { deliveries: vec![], next: None, next_due: None };
                    self.engine.handle(self.now, Input::Loaded { ticket, page });
                }
                Effect::Load(_, load @ Load::Lane { .. }) => {
                    panic!("every lane is known: {load:?}")
                }
                _ => {}
            }
        }
    }

    fn accepted(&mut self, endpoints: u64, lane: u64, seq: u64) -> Accepted {
        self.next_delivery += 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.next_delivery.to_be_bytes());
        Accepted {
            id: DeliveryId::generate(self.now.as_millis(), random),
            endpoint: EndpointId::from_u128(u128::from(lane % endpoints)),
            place: Some(Place { lane: LaneId(lane), seq: Seq::new(seq).expect("a seq") }),
            replay: false,
        }
    }

    fn end_all(&mut self, status: u16) {
        for attempt in std::mem::take(&mut self.started) {
            let result = AttemptResult::Response { status, retry_after: None };
            self.handle(Input::AttemptEnded { attempt, result });
        }
    }
}

/// Accept, start, acknowledge: every lane once a round, in groups. Lanes are numbered as they appear,
/// in the first round; after that they come in a scattered order.
fn life_of_a_delivery(lanes: u64, rounds: u64) {
    let mut bench = Bench::new(ENDPOINTS, &Policy::default());
    let begun = Instant::now();
    for seq in 1..=rounds {
        let stride = if seq == 1 { 1 } else { 7_919 };
        for first in (0..lanes).step_by(BATCH as usize) {
            let batch = (first..first + BATCH)
                .map(|n| bench.accepted(ENDPOINTS, n * stride % lanes, seq))
                .collect();
            bench.now = bench.now + Span::from_millis(1);
            bench.handle(Input::Accepted(batch));
            bench.end_all(200);
        }
    }
    let each = begun.elapsed().as_nanos() as f64 / (lanes * rounds) as f64 / 1_000.0;
    assert_eq!(bench.engine.counters().acknowledged, lanes * rounds);
    println!("full life of a delivery, {lanes} lanes over {ENDPOINTS} endpoints: {each:.2} µs");
}

/// Fills the engine with `lanes` waiting heads, of which 10,000 come due at once; says what waking
/// it then takes.
fn wake_up(lanes: u64) -> Duration {
    const DUE: u64 = 10_000;
    let fields = PolicyFields { breaker: None, in_flight_max: 10_000, ..PolicyFields::default() };
    let policy = Policy::new(fields).expect("a valid policy");
    let mut bench = Bench::new(ENDPOINTS, &policy);
    let before = resident_bytes();
    for first in (0..lanes - DUE).step_by(BATCH as usize) {
        let batch = (first..first + BATCH).map(|n| bench.accepted(ENDPOINTS, n, 1)).collect();
        bench.handle(Input::Accepted(batch));
        fail_for(&mut bench, 600);
    }
    for first in (lanes - DUE..lanes).step_by(BATCH as usize) {
        let batch = (first..first + BATCH).map(|n| bench.accepted(ENDPOINTS, n, 1)).collect();
        bench.handle(Input::Accepted(batch));
        fail_for(&mut bench, 60);
    }
    if lanes > 100_000 {
        let bytes = (resident_bytes() - before) / lanes;
        println!("{lanes} lanes, each with a waiting head: {bytes} bytes a lane");
    }
    bench.now = bench.now + Span::from_secs(60);
    let begun = Instant::now();
    bench.handle(Input::TimePassed);
    let took = begun.elapsed();
    assert_eq!(bench.started.len() as u64, DUE);
    took
}

/// What it takes to count so many lanes of one endpoint that is paused, and to find those that wait longest.
fn open_lanes(lanes: u64) -> Duration {
    let mut bench = Bench::new(1, &Policy::default());
    bench.handle(Input::EndpointPaused(EndpointId::from_u128(0)));
    for first in (0..lanes).step_by(BATCH as usize) {
        let batch = (first..first + BATCH).map(|n| bench.accepted(1, n, 1)).collect();
        bench.handle(Input::Accepted(batch));
    }
    let tenant = "tenant-0".parse().expect("a tenant id");
    let begun = Instant::now();
    let open = bench.engine.open_lanes(&tenant, None, 50);
    let took = begun.elapsed();
    assert_eq!((open.counts.ready, open.first.len()), (lanes, 50));
    took
}

fn fail_for(bench: &mut Bench, secs: u64) {
    for attempt in std::mem::take(&mut bench.started) {
        let retry_after = Some(Span::from_secs(secs));
        let result = AttemptResult::Response { status: 500, retry_after };
        bench.handle(Input::AttemptEnded { attempt, result });
    }
}

/// What of this process is in memory, as the kernel counts it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    kib * 1024
}
