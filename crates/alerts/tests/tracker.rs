//! What becomes of alerts, whatever holds and whatever goes wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use railpost_alerts::limits::ALERTS_OPEN_PER_RULE_MAX;
use railpost_alerts::{
    AlertSettings, Condition, Evaluation, Facts, NoticeStatus, OTHERS, Rule, Tracker,
};
use railpost_engine::{Span, Timestamp};
use railpost_store::{Alert, Silence, Told};
use railpost_wire::{AlertId, SilenceId, TenantId};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000)
}

fn condition(rule: Rule, tenant: Option<&str>, subject: &str) -> Condition {
    let facts = Facts::Source {
        name: subject.to_owned(),
        since: at(0),
        problem: "no connection".to_owned(),
    };
    let tenant = tenant.map(|id| id.parse().unwrap());
    Condition { rule, tenant, subject: subject.to_owned(), facts }
}

fn holding(conditions: Vec<Condition>) -> Evaluation {
    Evaluation { conditions, ..Evaluation::default() }
}

fn many(rule: Rule, count: usize) -> Evaluation {
    holding((0..count).map(|n| condition(rule, Some("acme"), &format!("ep_{n:05}"))).collect())
}

/// A tracker, the store it writes to, and what it published, in order.
#[derive(Default)]
struct World {
    tracker: Tracker,
    settings: AlertSettings,
    next_id: u128,
    store: BTreeMap<AlertId, Alert>,
    published: Vec<(AlertId, NoticeStatus)>,
    silences: Vec<Silence>,
}

impl World {
    /// A look at which all of this holds; `store_works` says whether it can be written down.
    fn look(&mut self, evaluation: &Evaluation, now: Timestamp, store_works: bool) -> Vec<Alert> {
        let next_id = &mut self.next_id;
        let mut new_id = || {
            *next_id += 1;
            AlertId::from_u128(*next_id)
        };
        let changed = self.tracker.observe(evaluation, &self.settings, now, &mut new_id);
        if store_works {
            self.write_and_publish(now);
        }
        changed
    }

    fn write_and_publish(&mut self, now: Timestamp) {
        loop {
            let unsaved = self.tracker.unsaved();
            self.store.extend(unsaved.iter().map(|alert| (alert.id, alert.clone())));
            self.tracker.saved(&unsaved);
            for (alert, status) in self.tracker.due(&self.silences, now) {
                self.published.push((alert.id, status));
                self.tracker.told(alert.id, status);
            }
            if self.tracker.unsaved().is_empty() {
                break;
            }
        }
    }

    /// The process is killed and started again.
    fn crash(&mut self, now: Timestamp) {
        let on_record = self.store.values().filter(|alert| !alert.is_settled()).cloned();
        self.tracker = Tracker::new(on_record.collect(), now);
    }

    fn open(&self, rule: Rule) -> Vec<&Alert> {
        self.tracker.open().filter(|alert| alert.rule == rule.name()).collect()
    }

    fn told(&self, status: NoticeStatus) -> usize {
        self.published.iter().filter(|(_, told)| *told == status).count()
    }
}

fn silence(rule: &str, from: u64, until: u64) -> Silence {
    Silence {
        id: SilenceId::from_u128(1),
        rule: Some(rule.to_owned()),
        tenant: None,
        subject: None,
        from: at(from),
        until: at(until),
        by: "key_1".to_owned(),
        reason: "maintenance".to_owned(),
    }
}

#[test]
fn a_flapping_condition_is_one_alert() {
    let mut world = World::default();
    let (holds, gone) = (many(Rule::BreakerOpen, 1), holding(vec![]));
    for round in 0..20 {
        world.look(&holds, at(round * 60), true);
        world.look(&gone, at(round * 60 + 30), true);
    }
    assert_eq!(world.published.len(), 1);
    world.look(&gone, at(19 * 60 + 59), true);
    assert_eq!(world.published.len(), 1);
    world.look(&gone, at(19 * 60 + 60), true);
    assert_eq!(
        world.published.iter().map(|(_, status)| *status).collect::<Vec<_>>(),
        [NoticeStatus::Fired, NoticeStatus::Resolved]
    );
    assert!(world.store.values().all(Alert::is_settled));
}

#[test]
fn a_released_lane_is_resolved_at_once() {
    let mut world = World::default();
    world.look(&many(Rule::LaneHeld, 1), at(0), true);
    world.look(&holding(vec![]), at(0), true);
    assert_eq!(world.told(NoticeStatus::Resolved), 1);
}

#[test]
fn a_rule_that_could_not_be_looked_at_keeps_its_alerts() {
    let mut world = World::default();
    world.look(&many(Rule::LaneHeld, 3), at(0), true);
    let unseen = BTreeSet::from([Rule::LaneHeld]);
    world.look(&Evaluation { unseen, ..Evaluation::default() }, at(9_999), true);
    assert_eq!(world.open(Rule::LaneHeld).len(), 3);
}

#[test]
fn ten_thousand_conditions_are_a_bounded_number_of_alerts() {
    let mut world = World::default();
    let rule = Rule::EndpointFailing;
    world.look(&many(rule, 10_000), at(0), true);
    assert_eq!(world.open(rule).len(), ALERTS_OPEN_PER_RULE_MAX + 1);
    let others = world.open(rule).into_iter().find(|alert| alert.subject == OTHERS).unwrap();
    assert_eq!(others.details["count"], 9_900);
    assert!(others.summary.contains("9900 more endpoints"), "{}", others.summary);
    // Some recover, others fail: nothing moves up.
    let other_half = (5_000..12_000).map(|n| condition(rule, Some("acme"), &format!("ep_{n:05}")));
    world.look(&holding(other_half.collect()), at(5), true);
    assert_eq!(world.told(NoticeStatus::Fired), ALERTS_OPEN_PER_RULE_MAX + 1);
    let others = world.store.values().find(|alert| alert.subject == OTHERS).unwrap();
    assert_eq!(others.details["count"], 7_000);
    // When what is left fits, each has an alert of its own.
    let few = many(rule, 3);
    world.look(&few, at(10), true);
    world.look(&few, at(100), true);
    world.look(&few, at(200), true);
    assert_eq!(world.open(rule).len(), 3);
    assert!(world.published.len() <= 2 * (ALERTS_OPEN_PER_RULE_MAX + 1));
    world.look(&holding(vec![]), at(300), true);
    assert_eq!(world.told(NoticeStatus::Fired), world.told(NoticeStatus::Resolved));
}

#[test]
fn what_is_silenced_is_recorded_and_not_published() {
    let mut world = World::default();
    world.silences.push(silence("breaker_open", 0, 1_000));
    let holds = many(Rule::BreakerOpen, 1);
    world.look(&holds, at(0), true);
    world.look(&holding(vec![]), at(100), true);
    assert_eq!((world.store.len(), world.published.len()), (1, 0));
    assert!(world.store.values().all(|alert| alert.told == Told::Withheld));
    // It holds again when the silence ends: now it is told.
    world.look(&holds, at(200), true);
    assert_eq!(world.published.len(), 0);
    world.look(&holds, at(1_000), true);
    assert_eq!(world.told(NoticeStatus::Fired), 1);
}

#[test]
fn a_notice_of_what_was_told_waits_for_the_end_of_a_silence() {
    let mut world = World::default();
    world.look(&many(Rule::BreakerOpen, 1), at(0), true);
    world.silences.push(silence("breaker_open", 1, 1_000));
    world.look(&holding(vec![]), at(100), true);
    assert_eq!(world.told(NoticeStatus::Resolved), 0);
    world.look(&holding(vec![]), at(1_000), true);
    assert_eq!(world.told(NoticeStatus::Resolved), 1);
}

#[test]
fn a_notice_about_a_notice_is_never_published() {
    let mut world = World::default();
    world.look(&holding(vec![condition(Rule::BreakerOpen, Some("railpost"), "ep_1")]), at(0), true);
    assert_eq!(world.open(Rule::BreakerOpen).len(), 1);
    world.look(&holding(vec![]), at(100), true);
    assert_eq!((world.store.len(), world.published.len()), (1, 0));
}

#[test]
fn trouble_of_the_store_itself_is_told_when_it_is_over() {
    let mut world = World::default();
    let trouble = holding(vec![condition(Rule::StoreTrouble, None, "")]);
    assert_eq!(world.look(&trouble, at(0), false).len(), 1);
    assert_eq!(world.look(&holding(vec![]), at(100), false).len(), 1);
    assert!(world.store.is_empty() && world.published.is_empty());
    world.look(&holding(vec![]), at(105), true);
    let told: Vec<_> = world.published.iter().map(|(_, status)| *status).collect();
    assert_eq!(told, [NoticeStatus::Fired, NoticeStatus::Resolved]);
}

#[test]
fn after_a_start_nothing_on_record_is_resolved_at_once() {
    let mut world = World::default();
    world.look(&many(Rule::LaneHeld, 1), at(0), true);
    world.crash(at(1_000));
    world.look(&holding(vec![]), at(1_001), true);
    assert_eq!(world.open(Rule::LaneHeld).len(), 1);
    world.look(&many(Rule::LaneHeld, 1), at(1_002), true);
    world.look(&holding(vec![]), at(1_003), true);
    assert_eq!(world.told(NoticeStatus::Resolved), 1);
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// So many seconds pass, and these hold, by number. The store may not work.
    Look {
        seconds: u64,
        holds: BTreeSet<u8>,
        store_works: bool,
    },
    Crash,
    Silence {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let look = (0_u64..90, prop::collection::btree_set(any::<u8>(), 0..200), any::<bool>());
    prop_oneof![
        8 => look.prop_map(|(seconds, holds, store_works)| Step::Look { seconds, holds, store_works }),
        1 => Just(Step::Crash),
        1 => (1_u64..300).prop_map(|seconds| Step::Silence { seconds }),
    ]
}

fn evaluation(holds: &BTreeSet<u8>) -> Evaluation {
    let conditions = holds.iter().map(|n| match n % 8 {
        0 => condition(Rule::LaneHeld, Some("acme"), &format!("ep_{n}/1")),
        1 => condition(Rule::RetriesExhausted, Some("acme"), ""),
        2 => condition(Rule::BreakerOpen, Some("railpost"), &format!("ep_{n}")),
        _ => condition(Rule::BreakerOpen, Some("acme"), &format!("ep_{n}")),
    });
    let mut seen = BTreeSet::new();
    let once =
        conditions.filter(|one| seen.insert((one.rule, one.tenant.clone(), one.subject.clone())));
    holding(once.collect())
}

fn check(world: &World) {
    let mut open = BTreeSet::new();
    for alert in world.tracker.open() {
        let identity: (&str, Option<&TenantId>, &str) =
            (&alert.rule, alert.tenant.as_ref(), &alert.subject);
        assert!(open.insert(identity), "two open alerts of {identity:?}");
    }
    for rule in Rule::ALL {
        assert!(world.open(rule).len() <= ALERTS_OPEN_PER_RULE_MAX + 1, "{rule}");
    }
    let mut fired = BTreeSet::new();
    let mut resolved = BTreeSet::new();
    for (id, status) in &world.published {
        match status {
            NoticeStatus::Fired => assert!(fired.insert(id), "{id} fired twice"),
            NoticeStatus::Resolved => {
                assert!(fired.contains(id), "{id} was resolved before it fired");
                assert!(resolved.insert(id), "{id} was resolved twice");
            }
            NoticeStatus::Told => panic!("{id} is an alert"),
        }
        let alert = &world.store[id];
        assert_ne!(alert.tenant.as_ref().map(TenantId::as_str), Some("railpost"));
    }
}

fn run(steps: &[Step]) -> World {
    let (mut world, mut now) = (World::default(), 0);
    for step in steps {
        match step {
            Step::Look { seconds, holds, store_works } => {
                now += seconds;
                let evaluation = evaluation(holds);
                world.look(&evaluation, at(now), *store_works);
                if *store_works {
                    let published = world.published.len();
                    let changed = world.look(&evaluation, at(now), true);
                    let changed: Vec<_> = changed.iter().map(|alert| &alert.subject).collect();
                    assert!(changed.is_empty(), "nothing changed, but {changed:?} did");
                    assert_eq!(world.published.len(), published);
                }
            }
            Step::Crash => world.crash(at(now)),
            Step::Silence { seconds } => {
                world.silences.push(silence("breaker_open", now, now + seconds));
            }
        }
        check(&world);
    }
    // All of it ends: what was told to be open is told to be over.
    for _ in 0..3 {
        now += Span::from_hours(1).as_millis() / 1_000;
        world.look(&holding(vec![]), at(now), true);
        check(&world);
    }
    assert!(world.store.values().all(Alert::is_settled));
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn alerts_are_one_of_each_bounded_and_fire_before_they_are_resolved(
        steps in prop::collection::vec(step(), 1..30)
    ) {
        let world = run(&steps);
        let again = run(&steps);
        prop_assert_eq!(world.published, again.published);
        prop_assert_eq!(world.store, again.store);
    }
}
