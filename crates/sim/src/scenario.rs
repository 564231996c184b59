//! What a seed stands for: who is there, with which policies, and what will happen to them.

use railpost_engine::{
    Backoff, BreakerPolicy, Config, Endpoint, EndpointStatus, Guarantee, Jitter, OnDeadLetter,
    Ordering, Outcome, Overrides, Policy, PolicyFields, RateLimit, RetryPolicy, Span, Timestamp,
};
use railpost_receiver::{OnGap, Policy as InboxPolicy, Replays, Start};
use railpost_wire::{EndpointId, TenantId};

use crate::dice::Dice;
use crate::network::Odds;
use crate::receiver::{Behaviour, CrashPoint, ReceiverNo, ReceiverPlan};

/// When every world begins.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) struct Scenario {
    pub(crate) config: Config,
    pub(crate) odds: Odds,
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
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let lasts = dice.mins(30..=240);
        let tenants: Vec<TenantId> = (1..=dice.number(1..=3)).map(tenant_id).collect();
        let mut scenario = Self {
            config: config(dice),
            odds: odds(dice),
            sweep_every: dice.secs(20..=120),
            keys: dice.number(1..=8),
            plan: Vec::new(),
            calm_at: BEGINNING + lasts,
            lanes_left_held: dice.percent(15),
            tenants,
        };
        scenario.populate(dice);
        scenario.disturb(dice);
        scenario
    }

    fn populate(&mut self, dice: &mut Dice) {
        for tenant in self.tenants.clone() {
            let limit = dice.percent(30).then(|| rate_limit(dice));
            self.plan.push((BEGINNING, Disturbance::Limit(tenant, limit)));
        }
        for number in 1..=dice.number(1..=ENDPOINTS) {
            let shared = number > 1 && dice.percent(25);
            let receiver = if shared { dice.number(1..=number - 1) } else { number };
            let created = self.create(number, receiver, dice);
            // The first one is there from the start, so that no world is empty.
            let at = if number == 1 || dice.percent(80) { BEGINNING } else { self.moment(dice) };
            self.plan.push((at, created));
        }
    }

    fn create(&self, number: u32, receiver: ReceiverNo, dice: &mut Dice) -> Disturbance {
        let endpoint = Endpoint {
            id: endpoint_id(number),
            tenant: dice.pick(&self.tenants),
            policy: policy(dice),
            status: EndpointStatus::Active,
            failing_since: None,
        };
        Disturbance::Create(endpoint, receiver, receiver_plan(dice))
    }

    fn disturb(&mut self, dice: &mut Dice) {
        for _ in 0..dice.number(8..=40) {
            let publish = Disturbance::Publish(dice.pick(&self.tenants), dice.number(1..=6));
            self.plan.push((self.moment(dice), publish));
        }
        for _ in 0..dice.number(0..=6) {
            self.plan.push((self.moment(dice), Disturbance::Crash(dice.millis(0..=90_000))));
        }
        for _ in 0..dice.number(2..=12) {
            self.plan.push((self.moment(dice), Disturbance::Operate));
        }
        for _ in 0..dice.number(0..=4) {
            let redeliver = Disturbance::Redeliver(dice.pick(&self.tenants));
            self.plan.push((self.moment(dice), redeliver));
        }
        for _ in 0..dice.number(0..=2) {
            self.plan.push((self.moment(dice), Disturbance::Stop(dice.millis(0..=30_000))));
        }
        if dice.percent(30) {
            self.plan.push((self.moment(dice), Disturbance::PruneLanes(dice.mins(1..=30))));
        }
        if dice.percent(30) {
            self.restore_once(dice);
        }
        if dice.percent(30) {
            self.set_clocks(dice);
        }
        for number in 1..=ENDPOINTS {
            self.disturb_endpoint(number, dice);
            self.disturb_receiver(number, dice);
        }
        self.plan.sort_by_key(|(at, _)| *at);
    }

    /// The store is copied, and goes back to the copy once or twice.
    fn restore_once(&mut self, dice: &mut Dice) {
        self.plan.push((self.moment(dice), Disturbance::Copy));
        for _ in 0..dice.number(1..=2) {
            self.plan.push((self.moment(dice), Disturbance::Restore(dice.secs(0..=90))));
        }
    }

    /// Clocks are set ahead and back. Where one is far off, a process may start that believes it.
    fn set_clocks(&mut self, dice: &mut Dice) {
        for _ in 0..dice.number(1..=4) {
            let (at, millis) = (self.moment(dice), step(dice));
            self.plan.push((at, Disturbance::SetClock(ClockOf::Node, millis, drift(dice))));
            if dice.percent(60) {
                self.plan.push((at + dice.secs(1..=60), Disturbance::Crash(Span::ZERO)));
            }
            if dice.percent(50) {
                let back = at + dice.mins(1..=30);
                self.plan.push((back, Disturbance::SetClock(ClockOf::Node, -millis, 0)));
                self.plan.push((back + dice.secs(1..=60), Disturbance::Crash(Span::ZERO)));
            }
        }
    }

    fn disturb_receiver(&mut self, number: ReceiverNo, dice: &mut Dice) {
        for _ in 0..dice.number(0..=8) {
            let behave = Disturbance::Behave(number, behaviour(dice));
            self.plan.push((self.moment(dice), behave));
        }
        for _ in 0..dice.number(0..=3) {
            let point = dice.pick(&[CrashPoint::InTransaction, CrashPoint::BeforeAnswer]);
            let crash = Disturbance::CrashReceiver(number, point, dice.secs(0..=60));
            self.plan.push((self.moment(dice), crash));
        }
        if dice.percent(30) {
            self.plan.push((self.moment(dice), Disturbance::CopyReceiver(number)));
        }
        if dice.percent(20) {
            self.plan.push((self.moment(dice), Disturbance::RestoreReceiver(number)));
        }
        if dice.percent(20) {
            let hours = i64::from(dice.number(0..=12)) - 6;
            let (clock, millis) = (ClockOf::Receiver(number), hours * 3_600_000);
            self.plan.push((self.moment(dice), Disturbance::SetClock(clock, millis, drift(dice))));
        }
    }

    /// An endpoint is removed and made again under another id, with the same receiver.
    fn renew(&mut self, number: u32, dice: &mut Dice) {
        let at = self.moment(dice);
        self.plan.push((at, Disturbance::Vanish(endpoint_id(number))));
        let created = self.create(number + ENDPOINTS, number, dice);
        self.plan.push((at + dice.secs(0..=300), created));
    }

    fn disturb_endpoint(&mut self, number: u32, dice: &mut Dice) {
        let id = endpoint_id(number);
        if dice.percent(10) {
            self.renew(number, dice);
        }
        for _ in 0..dice.number(0..=3) {
            let happens = match dice.number(0..=99) {
                0..=34 => Disturbance::Change(id, policy(dice)),
                35..=54 => Disturbance::Pause(id),
                55..=79 => Disturbance::Resume(id),
                80..=94 => Disturbance::HandOver(id, dice.secs(0..=120)),
                _ => Disturbance::Vanish(id),
            };
            self.plan.push((self.moment(dice), happens));
        }
    }

    fn moment(&self, dice: &mut Dice) -> Timestamp {
        BEGINNING + dice.millis(0..=self.calm_at.since(BEGINNING).as_millis())
    }
}

fn tenant_id(number: u32) -> TenantId {
    format!("tenant-{number}").parse().expect("it is a slug")
}

fn endpoint_id(number: u32) -> EndpointId {
    EndpointId::from_u128(number.into())
}

/// Small bounds, so that they are reached.
fn config(dice: &mut Dice) -> Config {
    Config {
        in_flight_max: dice.number(2..=24),
        lane_window: dice.number(1..=8),
        deliveries_max: dice.number(4..=200) as usize,
        unkeyed_window: dice.number(1..=16),
        idle_lanes_max: dice.number(0..=6) as usize,
        lanes_page: dice.number(1..=6),
    }
}

fn odds(dice: &mut Dice) -> Odds {
    let mut up_to = |most| if dice.percent(30) { 0 } else { dice.number(0..=most) };
    Odds {
        unreachable: up_to(10),
        request_lost: up_to(15),
        answer_lost: up_to(15),
        delayed: up_to(20),
        duplicated: up_to(15),
        reset: up_to(15),
    }
}

fn policy(dice: &mut Dice) -> Policy {
    use Guarantee::{AtLeastOnce, AtMostOnce, EffectivelyOnce};
    use OnDeadLetter::{Advance, Hold};
    let guarantee =
        dice.pick(&[AtLeastOnce, AtLeastOnce, AtLeastOnce, AtMostOnce, EffectivelyOnce]);
    let strict = guarantee == EffectivelyOnce;
    let fields = PolicyFields {
        guarantee,
        ordering: match dice.number(0..=9) {
            0 | 1 if !strict => Ordering::None,
            2 | 3 => Ordering::Global,
            _ => Ordering::PerKey,
        },
        on_dead_letter: if strict { Hold } else { dice.pick(&[Hold, Hold, Advance]) },
        signed: true,
        retry: retry(dice),
        outcomes: overrides(dice),
        in_flight_max: dice.number(1..=8),
        rate_limit: dice.percent(30).then(|| rate_limit(dice)),
        breaker: dice.percent(70).then(|| breaker(dice)),
        quarantine_after: dice.percent(50).then(|| dice.number(1..=5)),
        disable_after: dice.percent(50).then(|| dice.mins(5..=120)),
    };
    Policy::new(fields).expect("every draw is within bounds")
}

fn retry(dice: &mut Dice) -> RetryPolicy {
    let base = dice.millis(500..=20_000);
    let jitter = dice.pick(&[Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]);
    let backoff = match dice.number(0..=4) {
        0 => Backoff::Fixed { delay: base },
        1 => Backoff::Schedule {
            delays: (0..dice.number(1..=5)).map(|_| dice.secs(0..=60)).collect(),
            repeat_last: dice.percent(50),
        },
        _ => Backoff::Exponential { base, jitter },
    };
    RetryPolicy {
        backoff,
        max_delay: dice.mins(1..=20),
        max_attempts: dice.number(1..=12),
        ttl: if dice.percent(30) { dice.mins(1..=20) } else { Span::from_hours(24) },
    }
}

fn overrides(dice: &mut Dice) -> Overrides {
    use Outcome::{Permanent, Retryable};
    let choices: [(u16, Outcome); 5] =
        [(404, Retryable), (410, Retryable), (422, Retryable), (429, Permanent), (500, Permanent)];
    choices.into_iter().filter(|_| dice.percent(5)).collect()
}

fn rate_limit(dice: &mut Dice) -> RateLimit {
    RateLimit { count: dice.number(1..=10), per: dice.secs(1..=20), burst: dice.number(1..=5) }
}

fn breaker(dice: &mut Dice) -> BreakerPolicy {
    let window = dice.number(2..=12);
    let open_for = dice.secs(2..=60);
    BreakerPolicy {
        failure_percent: dice.number(20..=90) as u8,
        min_attempts: dice.number(2..=window),
        window,
        open_for,
        open_for_max: open_for.times(dice.number(1..=10).into()),
    }
}

fn behaviour(dice: &mut Dice) -> Behaviour {
    match dice.number(0..=12) {
        0..=3 => Behaviour::Up,
        4 => Behaviour::Down,
        5 => Behaviour::Flapping(dice.secs(1..=60)),
        6 => Behaviour::Slow(dice.secs(5..=40)),
        7 | 8 => Behaviour::RateLimiting(dice.mins(1..=30)),
        9 => Behaviour::Failing,
        10 => Behaviour::Rejecting,
        11 => Behaviour::Early,
        _ => Behaviour::Gone,
    }
}

fn receiver_plan(dice: &mut Dice) -> ReceiverPlan {
    let on_gap = match dice.number(0..=9) {
        0 => OnGap::Accept,
        1 => OnGap::Hold,
        2..=4 => OnGap::Wait { timeout: std::time::Duration::from_secs(10) },
        _ => OnGap::default(),
    };
    let start = if dice.percent(10) { Start::Anywhere } else { Start::AtOne };
    let replays = if dice.percent(10) { Replays::Apply } else { Replays::KeepOrder };
    let durable = dice.percent(75);
    // A memory that forgets with every restart must not hold what follows.
    let on_gap = if durable || on_gap != OnGap::Hold { on_gap } else { OnGap::default() };
    ReceiverPlan {
        durable,
        policy: InboxPolicy { start, on_gap, replays },
        poison: dice.percent(20).then(|| u64::from(dice.number(3..=12))),
    }
}

/// By how many milliseconds a clock is set ahead or back: seconds, hours, or more than a year.
fn step(dice: &mut Dice) -> i64 {
    let millis = match dice.number(0..=2) {
        0 => dice.secs(1..=300),
        1 => dice.mins(5..=600),
        _ => Span::from_days(400),
    };
    let millis = millis.as_millis() as i64;
    if dice.percent(50) { millis } else { -millis }
}

/// Up to a second in a quarter of an hour.
fn drift(dice: &mut Dice) -> i64 {
    i64::from(dice.number(0..=2_000)) - 1_000
}
