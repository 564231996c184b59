//! No order of inputs makes the engine panic, break its rules, or forget to be deterministic.

use std::collections::BTreeSet;

use proptest::prelude::*;
use railpost_engine::{
    Accepted, Attempt, AttemptResult, AttemptToken, Command, Config, DeadReason, Delivery,
    DeliveryState, Effect, Endpoint, EndpointStatus, Engine, Failure, Input, LaneId, LanePage,
    LaneState, LoadTicket, LoadedPage, OpenLanes, Place, Policy, Progress, RateLimit, Span,
    Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId, Seq};
use serde_json::json;

/// One step of a world that keeps no promise. Numbers pick from what exists.
#[derive(Clone, Debug)]
enum Step {
    Appear(u128, Policy, EndpointStatus),
    Change(u128, Policy),
    Pause(u128),
    Resume(u128),
    EndWait(u128),
    Block(u128, bool),
    Remove(u128),
    LimitTenant(Option<RateLimit>),
    Accept(Vec<Delivery>),
    Sweep(Vec<Delivery>),
    Load(usize, LoadedPage),
    FailLoad(usize),
    Confirm(usize),
    Refuse(usize),
    End(usize, AttemptResult),
    Order(Command, Delivery),
    Pass(u64),
    ClockTo(u64),
}

fn endpoint() -> impl Strategy<Value = u128> {
    1..4u128
}

fn any_seq() -> impl Strategy<Value = Seq> {
    prop_oneof![9 => 1..6u64, 1 => Just(i64::MAX as u64)].prop_map(|n| Seq::new(n).unwrap())
}

fn any_timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![3 => 0..100_000u64, 1 => Just(u64::MAX)].prop_map(Timestamp::from_millis)
}

fn any_progress() -> impl Strategy<Value = Progress> {
    let count = || prop_oneof![Just(0), 0..5u32, Just(u32::MAX)];
    (count(), count(), prop::option::of(any_timestamp()), any::<u64>(), any::<bool>()).prop_map(
        |(attempts, round_attempts, round_started_at, last_delay, replay)| Progress {
            attempts,
            round_attempts,
            round_started_at,
            last_delay: Span::from_millis(last_delay),
            replay,
        },
    )
}

fn any_state() -> impl Strategy<Value = DeliveryState> {
    prop_oneof![
        4 => Just(DeliveryState::Pending),
        1 => Just(DeliveryState::InFlight),
        1 => any_timestamp().prop_map(|until| DeliveryState::Waiting { until }),
        1 => Just(DeliveryState::Delivered),
        1 => any::<bool>().prop_map(|holds| DeliveryState::Dead { reason: DeadReason::Permanent, holds }),
        1 => Just(DeliveryState::DISCARDED),
    ]
}

fn any_delivery() -> impl Strategy<Value = Delivery> {
    let place = prop::option::of((1..4u64, any_seq()));
    (1..20u128, endpoint(), place, any_state(), any_progress()).prop_map(
        |(id, endpoint, place, state, progress)| Delivery {
            id: DeliveryId::from_u128(id),
            endpoint: EndpointId::from_u128(endpoint),
            place: place.map(|(lane, seq)| Place { lane: LaneId(lane), seq }),
            state,
            progress,
        },
    )
}

/// Policies at the edges of what is valid, beside some that people would write.
fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![3 => usual_policy(), 1 => extreme_policy()]
}

fn extreme_policy() -> impl Strategy<Value = Policy> {
    let edge = |most: u64| prop::sample::select(vec![1, most]);
    let edges = (edge(10_000), edge(1_000_000), edge(86_400_000), edge(64), edge(7_776_000_000));
    (edges, any::<bool>()).prop_map(|((count, rate, per, window, long), off)| {
        let span = |millis: u64| format!("{millis}ms");
        serde_json::from_value(json!({
            "retry": {
                "backoff": {"strategy": "exponential", "base": "1ms", "jitter": "decorrelated"},
                "max_delay": span(long.min(2_592_000_000)), "max_attempts": count, "ttl": span(long),
            },
            "in_flight_max": count,
            "rate_limit": {"count": rate, "per": span(per), "burst": rate},
            "breaker": {
                "failure_percent": window, "window": window, "min_attempts": window,
                "open_for": span(per), "open_for_max": span(per),
            },
            "quarantine_after": if off { None } else { Some(count.min(1_000)) },
            "disable_after": span(long.max(60_000)),
        }))
        .unwrap()
    })
}

fn usual_policy() -> impl Strategy<Value = Policy> {
    let options = prop::sample::select(vec![
        json!({}),
        json!({"in_flight_max": 1}),
        json!({"guarantee": "at_most_once"}),
        json!({"on_dead_letter": "advance", "quarantine_after": 1}),
        json!({"breaker": {"min_attempts": 1, "window": 1, "open_for": "1s"}}),
        json!({"breaker": null, "retry": {"max_attempts": 1}}),
        json!({"rate_limit": {"count": 1, "per": "1s", "burst": 1}}),
        json!({"outcomes": {"200": "permanent", "500": "acknowledged"}, "disable_after": "1m"}),
    ]);
    options.prop_map(|json| serde_json::from_value(json).unwrap())
}

fn any_lane_page() -> impl Strategy<Value = LanePage> {
    let end = || prop::option::of(any_seq());
    let follows = prop::collection::vec((any_seq(), any::<u64>()), 0..3);
    let deliveries = prop::collection::vec(any_delivery(), 0..4);
    (1..4u64, any_seq(), end(), end(), deliveries, follows).prop_map(
        |(lane, from, through, last, deliveries, follows)| LanePage {
            lane: LaneId(lane),
            from,
            through,
            last,
            deliveries,
            follows,
        },
    )
}

fn any_page() -> impl Strategy<Value = LoadedPage> {
    let lanes = (prop::collection::vec(any_lane_page(), 0..3), prop::option::of(1..4u64))
        .prop_map(|(lanes, next)| LoadedPage::Lanes { lanes, next: next.map(LaneId) });
    let unkeyed = (
        prop::collection::vec(any_delivery(), 0..4),
        prop::option::of(1..20u128),
        prop::option::of(any_timestamp()),
    )
        .prop_map(|(deliveries, next, next_due)| LoadedPage::Unkeyed {
            deliveries,
            next: next.map(DeliveryId::from_u128),
            next_due,
        });
    prop_oneof![lanes, any_lane_page().prop_map(LoadedPage::Lane), unkeyed]
}

fn any_result() -> impl Strategy<Value = AttemptResult> {
    let status =
        prop::sample::select(vec![200, 302, 400, 409, 410, 425, 429, 500, 503, 0, u16::MAX]);
    let response = (status, prop::option::of(any::<u64>())).prop_map(|(status, wish)| {
        AttemptResult::Response { status, retry_after: wish.map(Span::from_millis) }
    });
    let failure = prop::sample::select(vec![Failure::Timeout, Failure::PayloadMissing]);
    prop_oneof![4 => response, 1 => failure.prop_map(AttemptResult::Failed)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let statuses = vec![EndpointStatus::Active, EndpointStatus::Paused, EndpointStatus::Gone];
    let status = prop::sample::select(statuses);
    let limit = (0..3u32, 0..2_000u64, 0..3u32).prop_map(|(count, per, burst)| RateLimit {
        count,
        per: Span::from_millis(per),
        burst,
    });
    let command = prop::sample::select(vec![Command::Replay, Command::Skip, Command::Discard]);
    prop_oneof![
        3 => (endpoint(), any_policy(), status).prop_map(|(e, p, s)| Step::Appear(e, p, s)),
        1 => (endpoint(), any_policy()).prop_map(|(e, p)| Step::Change(e, p)),
        1 => endpoint().prop_map(Step::Pause),
        1 => endpoint().prop_map(Step::Resume),
        1 => endpoint().prop_map(Step::EndWait),
        1 => (endpoint(), any::<bool>()).prop_map(|(e, blocked)| Step::Block(e, blocked)),
        1 => endpoint().prop_map(Step::Remove),
        1 => prop::option::of(limit).prop_map(Step::LimitTenant),
        8 => prop::collection::vec(any_delivery(), 1..4).prop_map(Step::Accept),
        2 => prop::collection::vec(any_delivery(), 1..4).prop_map(Step::Sweep),
        4 => (any::<usize>(), any_page()).prop_map(|(n, page)| Step::Load(n, page)),
        1 => any::<usize>().prop_map(Step::FailLoad),
        3 => any::<usize>().prop_map(Step::Confirm),
        1 => any::<usize>().prop_map(Step::Refuse),
        8 => (any::<usize>(), any_result()).prop_map(|(n, result)| Step::End(n, result)),
        3 => (command, any_delivery()).prop_map(|(c, d)| Step::Order(c, d)),
        3 => (0..60_000u64).prop_map(Step::Pass),
        1 => prop_oneof![Just(0), 0..1_000_000u64, Just(u64::MAX)].prop_map(Step::ClockTo),
    ]
}

/// Whatever the engine handed out, used at random; and what is under way by the engine's own word.
struct Chaos {
    engine: Engine,
    now: u64,
    tickets: Vec<LoadTicket>,
    tokens: Vec<AttemptToken>,
    under_way: Vec<Attempt>,
    removed: BTreeSet<EndpointId>,
    log: Vec<Effect>,
}

fn accepted(delivery: Delivery) -> Accepted {
    let Delivery { id, endpoint, place, progress, .. } = delivery;
    Accepted { id, endpoint, place, replay: progress.replay }
}

fn pick<T: Copy>(from: &[T], number: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[number % from.len()])
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let config = Config {
            in_flight_max: 4,
            lane_window: 2,
            deliveries_max: 6,
            unkeyed_window: 3,
            idle_lanes_max: 1,
            lanes_page: 1,
        };
        Self {
            engine: Engine::new(config, seed),
            now: 0,
            tickets: Vec::new(),
            tokens: Vec::new(),
            under_way: Vec::new(),
            removed: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn input(&mut self, step: Step) -> Option<Input> {
        let id = EndpointId::from_u128;
        Some(match step {
            Step::Appear(endpoint, policy, status) => Input::EndpointAppeared(Endpoint {
                id: id(endpoint),
                tenant: if endpoint == 1 { "one" } else { "two" }.parse().unwrap(),
                policy,
                status,
                status_since: None,
                failing_since: None,
                rotated_at: None,
            }),
            Step::Change(endpoint, policy) => {
                Input::EndpointChanged { endpoint: id(endpoint), policy, rotated_at: None }
            }
            Step::Pause(endpoint) => Input::EndpointPaused(id(endpoint)),
            Step::Resume(endpoint) => Input::EndpointResumed(id(endpoint)),
            Step::EndWait(endpoint) => Input::EndpointWaitEnded(id(endpoint)),
            Step::Block(endpoint, blocked) => {
                Input::EndpointBlocked { endpoint: id(endpoint), blocked }
            }
            Step::Remove(endpoint) => {
                self.removed.insert(id(endpoint));
                Input::EndpointRemoved(id(endpoint))
            }
            Step::LimitTenant(rate_limit) => {
                Input::TenantChanged { tenant: "two".parse().unwrap(), rate_limit }
            }
            Step::Accept(deliveries) => {
                Input::Accepted(deliveries.into_iter().map(accepted).collect())
            }
            Step::Sweep(deliveries) => Input::Swept(deliveries.into_iter().map(accepted).collect()),
            Step::Load(number, page) => {
                Input::Loaded { ticket: pick(&self.tickets, number)?, page }
            }
            Step::FailLoad(number) => Input::LoadFailed(pick(&self.tickets, number)?),
            Step::Confirm(number) => Input::Recorded(pick(&self.tokens, number)?),
            Step::Refuse(number) => Input::RecordRefused(pick(&self.tokens, number)?),
            Step::End(number, result) => {
                let attempt = pick(&self.tokens, number)?;
                self.under_way.retain(|other| other.token != attempt);
                Input::AttemptEnded { attempt, result }
            }
            Step::Order(command, delivery) => Input::Command { command, delivery },
            Step::Pass(millis) => {
                self.now = self.now.saturating_add(millis);
                Input::TimePassed
            }
            Step::ClockTo(millis) => {
                self.now = millis;
                Input::TimePassed
            }
        })
    }

    fn take(&mut self, step: Step) {
        let Some(input) = self.input(step) else { return };
        self.engine.handle(Timestamp::from_millis(self.now), input);
        while let Some(effect) = self.engine.poll_effect() {
            match &effect {
                Effect::Start(attempt) => {
                    self.under_way.push(*attempt);
                    self.tokens.push(attempt.token);
                }
                Effect::RecordFirst(_, token) => self.tokens.push(*token),
                Effect::Load(ticket, _) => self.tickets.push(*ticket),
                _ => {}
            }
            self.log.push(effect);
        }
    }

    /// At most one delivery of a lane is under way, however little sense the inputs made. What an
    /// endpoint left under way when it was removed is out of the engine's hands.
    fn check_lanes(&self) {
        let mut lanes = BTreeSet::new();
        for attempt in &self.under_way {
            let kept = !self.removed.contains(&attempt.endpoint);
            if let Some(place) = attempt.place.filter(|_| kept) {
                assert!(lanes.insert((attempt.endpoint, place.lane)), "two under way in {place:?}");
            }
        }
    }

    /// The counts that are kept are what counting the lanes would say.
    fn check_counts(&self) {
        for tenant in ["one", "two"] {
            let OpenLanes { counts, first } =
                self.engine.open_lanes(&tenant.parse().unwrap(), None, usize::MAX);
            let of = |state| first.iter().filter(|lane| lane.state == state).count() as u64;
            assert_eq!(counts.lanes, first.len() as u64);
            assert_eq!(counts.held, of(LaneState::Held));
            assert_eq!(counts.in_flight, of(LaneState::InFlight));
            let loading = of(LaneState::Loading);
            let counted = counts.held + counts.in_flight + counts.backing_off + counts.ready;
            assert_eq!(counted + loading, counts.lanes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_inputs_in_any_order_keep_the_rules(
        steps in prop::collection::vec(any_step(), 1..120),
        seed: u64,
    ) {
        let mut chaos = Chaos::new(seed);
        for step in steps {
            chaos.take(step);
            chaos.check_lanes();
            chaos.check_counts();
            prop_assert!(chaos.engine.in_flight() <= 4);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_effects(
        steps in prop::collection::vec(any_step(), 1..80),
        seed: u64,
    ) {
        let run = |steps: Vec<Step>| {
            let mut chaos = Chaos::new(seed);
            steps.into_iter().for_each(|step| chaos.take(step));
            chaos.log
        };
        prop_assert_eq!(run(steps.clone()), run(steps));
    }
}
