//! What a seed stands for: who is there, with which policies, and what will happen to them.

use railpost_engine::{
    Backoff, BreakerPolicy, Config, Endpoint, EndpointStatus, Guarantee, Jitter, OnDeadLetter,
    Ordering, Outcome, Overrides, Policy, PolicyFields, RateLimit, RetryPolicy, Span, Timestamp,
};
use railpost_receiver::{OnGap, Policy as InboxPolicy, Replays, Start};
use railpost_wire::{EndpointId, TenantId};

use crate::network::FaultRates;
use crate::receiver::{Behaviour, CrashPoint, ReceiverNo, ReceiverPlan};
use crate::seeded_rng::SeededRng;

/// When every world begins.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) struct Scenario {
    pub(crate) config: Config,
    pub(crate) odds: FaultRates,
    /// How often the store is swept.
    pub(crate) sweep_every: Span,
    tenants: Vec<TenantId>,
    /// How many keys each tenant's events are spread over.
    pub(crate) keys: u32,
    pub(crate) plan: Vec<(Timestamp, Disturbance)>,
    /// When the faults stop.
    pub(crate) calm_at: Timestamp,
    /// Whether operators leave held lanes as they are once the faults have stopped.
    pub(crate) lanes_left_held: bool,
}

/// Something that happens because the scenario says so.
#[derive(Clone, Debug)]
pub(crate) enum Disturbance {
    /// A tenant's rate limit is set.
    Limit(TenantId, Option<RateLimit>),
    /// An endpoint is created. Its receiver is, too, unless it is there already.
    Create(Endpoint, ReceiverNo, ReceiverPlan),
    /// Its owner changes its policy.
    Change(EndpointId, Policy),
    Pause(EndpointId),
    Resume(EndpointId),
    /// It moves to another engine for so long.
    HandOver(EndpointId, Span),
    /// It is deleted with all its deliveries.
    Vanish(EndpointId),
    /// A receiver behaves differently.
    Behave(ReceiverNo, Behaviour),
    /// A receiver dies over the next event, and comes back after so long.
    CrashReceiver(ReceiverNo, CrashPoint, Span),
    /// A receiver's database is copied.
    CopyReceiver(ReceiverNo),
    /// A receiver goes back to its last copy, or to nothing.
    RestoreReceiver(ReceiverNo),
    /// A clock is set ahead or back by so many milliseconds, and gains so many in a million from then on.
    SetClock(ClockOf, i64, i64),
    /// A tenant publishes a few events.
    Publish(TenantId, u32),
    /// People have an old event of a tenant delivered again.
    Redeliver(TenantId),
    /// Lanes that have stood empty for so long are deleted.
    PruneLanes(Span),
    /// Operators look around.
    Operate,
    /// The process dies and comes back after so long.
    Crash(Span),
    /// The process ends in good order and comes back after so long.
    Stop(Span),
    /// The store is copied.
    Copy,
    /// The process dies, and the store goes back to its last copy; it comes back after so long.
    Restore(Span),
}

/// Whose clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockOf {
    Node,
    Receiver(ReceiverNo),
}

/// Most endpoints that a world begins with, and most receivers.
const ENDPOINTS: u32 = 5;

impl Scenario {
    pub(crate) fn draw(rng: &mut SeededRng) -> Self {
        let lasts = rng.mins(30..=240);
        let tenants: Vec<TenantId> = (1..=rng.number(1..=3)).map(tenant_id).collect();
        let mut scenario = Self {
            config: config(rng),
            odds: odds(rng),
            sweep_every: rng.secs(20..=120),
            keys: rng.number(1..=8),
            plan: Vec::new(),
            calm_at: BEGINNING + lasts,
            lanes_left_held: rng.percent(15),
            tenants,
        };
        scenario.populate(rng);
        scenario.disturb(rng);
        scenario
    }

    fn populate(&mut self, rng: &mut SeededRng) {
        for tenant in self.tenants.clone() {
            let limit = rng.percent(30).then(|| rate_limit(rng));
            self.plan.push((BEGINNING, Disturbance::Limit(tenant, limit)));
        }
        for number in 1..=rng.number(1..=ENDPOINTS) {
            let shared = number > 1 && rng.percent(25);
            let receiver = if shared { rng.number(1..=number - 1) } else { number };
            let created = self.create(number, receiver, rng);
            // The first one is there from the start, so that no world is empty.
            let at = if number == 1 || rng.percent(80) { BEGINNING } else { self.moment(rng) };
            self.plan.push((at, created));
        }
    }

    fn create(&self, number: u32, receiver: ReceiverNo, rng: &mut SeededRng) -> Disturbance {
        let endpoint = Endpoint {
            id: endpoint_id(number),
            tenant: rng.pick(&self.tenants),
            policy: policy(rng),
            status: EndpointStatus::Active,
            status_since: None,
            failing_since: None,
            rotation: None,
        };
        Disturbance::Create(endpoint, receiver, receiver_plan(rng))
    }

    fn disturb(&mut self, rng: &mut SeededRng) {
        for _ in 0..rng.number(8..=40) {
            let publish = Disturbance::Publish(rng.pick(&self.tenants), rng.number(1..=6));
            self.plan.push((self.moment(rng), publish));
        }
        for _ in 0..rng.number(0..=6) {
            self.plan.push((self.moment(rng), Disturbance::Crash(rng.millis(0..=90_000))));
        }
        for _ in 0..rng.number(2..=12) {
            self.plan.push((self.moment(rng), Disturbance::Operate));
        }
        for _ in 0..rng.number(0..=4) {
            let redeliver = Disturbance::Redeliver(rng.pick(&self.tenants));
            self.plan.push((self.moment(rng), redeliver));
        }
        for _ in 0..rng.number(0..=2) {
            self.plan.push((self.moment(rng), Disturbance::Stop(rng.millis(0..=30_000))));
        }
        if rng.percent(30) {
            self.plan.push((self.moment(rng), Disturbance::PruneLanes(rng.mins(1..=30))));
        }
        if rng.percent(30) {
            self.restore_once(rng);
        }
        if rng.percent(30) {
            self.set_clocks(rng);
        }
        for number in 1..=ENDPOINTS {
            self.disturb_endpoint(number, rng);
            self.disturb_receiver(number, rng);
        }
        self.plan.sort_by_key(|(at, _)| *at);
    }

    /// The store is copied, and goes back to the copy once or twice.
    fn restore_once(&mut self, rng: &mut SeededRng) {
        self.plan.push((self.moment(rng), Disturbance::Copy));
        for _ in 0..rng.number(1..=2) {
            self.plan.push((self.moment(rng), Disturbance::Restore(rng.secs(0..=90))));
        }
    }

    /// Clocks are set ahead and back. Where one is far off, a process may start that believes it.
    fn set_clocks(&mut self, rng: &mut SeededRng) {
        for _ in 0..rng.number(1..=4) {
            let (at, millis) = (self.moment(rng), step(rng));
            self.plan.push((at, Disturbance::SetClock(ClockOf::Node, millis, drift(rng))));
            if rng.percent(60) {
                self.plan.push((at + rng.secs(1..=60), Disturbance::Crash(Span::ZERO)));
            }
            if rng.percent(50) {
                let back = at + rng.mins(1..=30);
                self.plan.push((back, Disturbance::SetClock(ClockOf::Node, -millis, 0)));
                self.plan.push((back + rng.secs(1..=60), Disturbance::Crash(Span::ZERO)));
            }
        }
    }

    fn disturb_receiver(&mut self, number: ReceiverNo, rng: &mut SeededRng) {
        for _ in 0..rng.number(0..=8) {
            let behave = Disturbance::Behave(number, behaviour(rng));
            self.plan.push((self.moment(rng), behave));
        }
        for _ in 0..rng.number(0..=3) {
            let point = rng.pick(&[CrashPoint::InTransaction, CrashPoint::BeforeAnswer]);
            let crash = Disturbance::CrashReceiver(number, point, rng.secs(0..=60));
            self.plan.push((self.moment(rng), crash));
        }
        if rng.percent(30) {
            self.plan.push((self.moment(rng), Disturbance::CopyReceiver(number)));
        }
        if rng.percent(20) {
            self.plan.push((self.moment(rng), Disturbance::RestoreReceiver(number)));
        }
        if rng.percent(20) {
            let hours = i64::from(rng.number(0..=12)) - 6;
            let (clock, millis) = (ClockOf::Receiver(number), hours * 3_600_000);
            self.plan.push((self.moment(rng), Disturbance::SetClock(clock, millis, drift(rng))));
        }
    }

    /// An endpoint is removed and made again under another id, with the same receiver.
    fn renew(&mut self, number: u32, rng: &mut SeededRng) {
        let at = self.moment(rng);
        self.plan.push((at, Disturbance::Vanish(endpoint_id(number))));
        let created = self.create(number + ENDPOINTS, number, rng);
        self.plan.push((at + rng.secs(0..=300), created));
    }

    fn disturb_endpoint(&mut self, number: u32, rng: &mut SeededRng) {
        let id = endpoint_id(number);
        if rng.percent(10) {
            self.renew(number, rng);
        }
        for _ in 0..rng.number(0..=3) {
            let happens = match rng.number(0..=99) {
                0..=34 => Disturbance::Change(id, policy(rng)),
                35..=54 => Disturbance::Pause(id),
                55..=79 => Disturbance::Resume(id),
                80..=94 => Disturbance::HandOver(id, rng.secs(0..=120)),
                _ => Disturbance::Vanish(id),
            };
            self.plan.push((self.moment(rng), happens));
        }
    }

    fn moment(&self, rng: &mut SeededRng) -> Timestamp {
        BEGINNING + rng.millis(0..=self.calm_at.since(BEGINNING).as_millis())
    }
}

fn tenant_id(number: u32) -> TenantId {
    format!("tenant-{number}").parse().expect("it is a slug")
}

fn endpoint_id(number: u32) -> EndpointId {
    EndpointId::from_u128(number.into())
}

/// Small bounds, so that they are reached.
fn config(rng: &mut SeededRng) -> Config {
    Config {
        in_flight_max: rng.number(2..=24),
        lane_window: rng.number(1..=8),
        deliveries_max: rng.number(4..=200) as usize,
        unkeyed_window: rng.number(1..=16),
        idle_lanes_max: rng.number(0..=6) as usize,
        lanes_page: rng.number(1..=6),
    }
}

fn odds(rng: &mut SeededRng) -> FaultRates {
    let mut up_to = |most| if rng.percent(30) { 0 } else { rng.number(0..=most) };
    FaultRates {
        unreachable: up_to(10),
        request_lost: up_to(15),
        answer_lost: up_to(15),
        delayed: up_to(20),
        duplicated: up_to(15),
        reset: up_to(15),
    }
}

fn policy(rng: &mut SeededRng) -> Policy {
    use Guarantee::{AtLeastOnce, AtMostOnce, EffectivelyOnce};
    use OnDeadLetter::{Advance, Hold};
    let guarantee = rng.pick(&[AtLeastOnce, AtLeastOnce, AtLeastOnce, AtMostOnce, EffectivelyOnce]);
    let strict = guarantee == EffectivelyOnce;
    let fields = PolicyFields {
        guarantee,
        ordering: match rng.number(0..=9) {
            0 | 1 if !strict => Ordering::None,
            2 | 3 => Ordering::Global,
            _ => Ordering::PerKey,
        },
        on_dead_letter: if strict { Hold } else { rng.pick(&[Hold, Hold, Advance]) },
        signed: true,
        retry: retry(rng),
        outcomes: overrides(rng),
        in_flight_max: rng.number(1..=8),
        rate_limit: rng.percent(30).then(|| rate_limit(rng)),
        breaker: rng.percent(70).then(|| breaker(rng)),
        quarantine_after: rng.percent(50).then(|| rng.number(1..=5)),
        disable_after: rng.percent(50).then(|| rng.mins(5..=120)),
    };
    Policy::new(fields).expect("every draw is within bounds")
}

fn retry(rng: &mut SeededRng) -> RetryPolicy {
    let base = rng.millis(500..=20_000);
    let jitter = rng.pick(&[Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]);
    let backoff = match rng.number(0..=4) {
        0 => Backoff::Fixed { delay: base },
        1 => Backoff::Schedule {
            delays: (0..rng.number(1..=5)).map(|_| rng.secs(0..=60)).collect(),
            repeat_last: rng.percent(50),
        },
        _ => Backoff::Exponential { base, jitter },
    };
    RetryPolicy {
        backoff,
        max_delay: rng.mins(1..=20),
        max_attempts: rng.number(1..=12),
        ttl: if rng.percent(30) { rng.mins(1..=20) } else { Span::from_hours(24) },
    }
}

fn overrides(rng: &mut SeededRng) -> Overrides {
    use Outcome::{Permanent, Retryable};
    let choices: [(u16, Outcome); 5] =
        [(404, Retryable), (410, Retryable), (422, Retryable), (429, Permanent), (500, Permanent)];
    choices.into_iter().filter(|_| rng.percent(5)).collect()
}

fn rate_limit(rng: &mut SeededRng) -> RateLimit {
    RateLimit { count: rng.number(1..=10), per: rng.secs(1..=20), burst: rng.number(1..=5) }
}

fn breaker(rng: &mut SeededRng) -> BreakerPolicy {
    let window = rng.number(2..=12);
    let open_for = rng.secs(2..=60);
    BreakerPolicy {
        failure_percent: rng.number(20..=90) as u8,
        min_attempts: rng.number(2..=window),
        window,
        open_for,
        open_for_max: open_for.times(rng.number(1..=10).into()),
    }
}

fn behaviour(rng: &mut SeededRng) -> Behaviour {
    match rng.number(0..=12) {
        0..=3 => Behaviour::Up,
        4 => Behaviour::Down,
        5 => Behaviour::Flapping(rng.secs(1..=60)),
        6 => Behaviour::Slow(rng.secs(5..=40)),
        7 | 8 => Behaviour::RateLimiting(rng.mins(1..=30)),
        9 => Behaviour::Failing,
        10 => Behaviour::Rejecting,
        11 => Behaviour::Early,
        _ => Behaviour::Gone,
    }
}

fn receiver_plan(rng: &mut SeededRng) -> ReceiverPlan {
    let on_gap = match rng.number(0..=9) {
        0 => OnGap::Accept,
        1 => OnGap::Hold,
        2..=4 => OnGap::Wait { timeout: std::time::Duration::from_secs(10) },
        _ => OnGap::default(),
    };
    let start = if rng.percent(10) { Start::Anywhere } else { Start::AtOne };
    let replays = if rng.percent(10) { Replays::Apply } else { Replays::KeepOrder };
    let durable = rng.percent(75);
    // A memory that forgets with every restart must not hold what follows.
    let on_gap = if durable || on_gap != OnGap::Hold { on_gap } else { OnGap::default() };
    ReceiverPlan {
        durable,
        policy: InboxPolicy { start, on_gap, replays },
        poison: rng.percent(20).then(|| u64::from(rng.number(3..=12))),
    }
}

/// By how many milliseconds a clock is set ahead or back: seconds, hours, or more than a year.
fn step(rng: &mut SeededRng) -> i64 {
    let millis = match rng.number(0..=2) {
        0 => rng.secs(1..=300),
        1 => rng.mins(5..=600),
        _ => Span::from_days(400),
    };
    let millis = millis.as_millis() as i64;
    if rng.percent(50) { millis } else { -millis }
}

/// Up to a second in a quarter of an hour.
fn drift(rng: &mut SeededRng) -> i64 {
    i64::from(rng.number(0..=2_000)) - 1_000
}
