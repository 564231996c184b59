//! What a seed stands for: who is there, with which policies, and what will happen to them.

use railpost_engine::{
    Backoff, BreakerPolicy, Config, Endpoint, EndpointStatus, Guarantee, Jitter, OnDeadLetter,
    Ordering, Outcome, Overrides, Policy, PolicyFields, RateLimit, RetryPolicy, Span, Timestamp,
};
use railpost_wire::{EndpointId, TenantId};

use crate::dice::Dice;
use crate::network::Odds;
use crate::receiver::Behaviour;
use crate::store::EventNo;

/// When every world begins.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) struct Scenario {
    pub(crate) config: Config,
    pub(crate) odds: Odds,
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
    /// An endpoint is created, with a receiver.
    Create(Endpoint, Option<EventNo>),
    /// Its owner changes its policy.
    Change(EndpointId, Policy),
    Pause(EndpointId),
    Resume(EndpointId),
    /// It moves to another engine for so long.
    HandOver(EndpointId, Span),
    /// It is deleted with all its deliveries.
    Vanish(EndpointId),
    /// Its receiver behaves differently.
    Behave(EndpointId, Behaviour),
    /// A tenant publishes a few events.
    Publish(TenantId, u32),
    /// Operators look around.
    Operate,
    /// The process dies and comes back after so long.
    Crash(Span),
}

impl Scenario {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let lasts = dice.mins(30..=240);
        let tenants: Vec<TenantId> = (1..=dice.number(1..=3)).map(tenant_id).collect();
        let mut scenario = Self {
            config: config(dice),
            odds: odds(dice),
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
        for number in 1..=dice.number(1..=5) {
            let created = self.create(number, dice);
            // The first one is there from the start, so that no world is empty.
            let at = if number == 1 || dice.percent(80) { BEGINNING } else { self.moment(dice) };
            self.plan.push((at, created));
        }
    }

    fn create(&self, number: u32, dice: &mut Dice) -> Disturbance {
        let endpoint = Endpoint {
            id: endpoint_id(number),
            tenant: dice.pick(&self.tenants),
            policy: policy(dice),
            status: EndpointStatus::Active,
            failing_since: None,
        };
        let poison = dice.percent(20).then(|| u64::from(dice.number(3..=12)));
        Disturbance::Create(endpoint, poison)
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
        for number in 1..=5 {
            self.disturb_endpoint(endpoint_id(number), dice);
        }
        self.plan.sort_by_key(|(at, _)| *at);
    }

    fn disturb_endpoint(&mut self, id: EndpointId, dice: &mut Dice) {
        for _ in 0..dice.number(0..=8) {
            let behave = Disturbance::Behave(id, behaviour(dice));
            self.plan.push((self.moment(dice), behave));
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
        sweep_every: Some(dice.secs(20..=120)),
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

/// A receiver says 409 only to what it has applied already, so that may count as acknowledged.
fn overrides(dice: &mut Dice) -> Overrides {
    use Outcome::{Acknowledged, Permanent, Retryable};
    let choices: [(u16, Outcome); 7] = [
        (202, Retryable),
        (404, Retryable),
        (409, Acknowledged),
        (410, Retryable),
        (422, Retryable),
        (429, Permanent),
        (500, Permanent),
    ];
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
    match dice.number(0..=11) {
        0..=3 => Behaviour::Up,
        4 => Behaviour::Down,
        5 => Behaviour::Flapping(dice.secs(1..=60)),
        6 => Behaviour::Slow(dice.secs(5..=40)),
        7 | 8 => Behaviour::RateLimiting(dice.mins(1..=30)),
        9 => Behaviour::Failing,
        10 => Behaviour::Rejecting,
        _ => Behaviour::Gone,
    }
}
