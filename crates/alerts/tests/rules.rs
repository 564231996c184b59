//! Each rule at its threshold: a table with a line per case.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use railpost_alerts::{
    AlertSettings, DiskSeen, EndpointSeen, FigureHistory, FigureSeries, Observations, Rule,
    SourceSeen, StoreTroubleSeen, TenantScope, evaluate,
};
use railpost_engine::{
    BreakerState, EndpointStatus, ErrorCause, Health, HealthState, LastError, Span, Timestamp,
};
use railpost_store::{Figures, Resolution};
use railpost_wire::EndpointId;

const LATE_ALLOWED: f64 = 0.001;
const NOW: Timestamp = Timestamp::from_millis(1_700_000_040_000);

fn ago(span: Span) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() - span.as_millis())
}

fn seen() -> Observations<'static> {
    Observations {
        dead_letters: Some(0),
        oldest_open_at: Some(None),
        disk: Some(DiskSeen {
            path: "/data".to_owned(),
            free_bytes: 50 << 30,
            size_bytes: 100 << 30,
        }),
        endpoints: Some(vec![]),
        held_lanes: Some(railpost_alerts::HeldLanesSeen::default()),
        ..Observations::default()
    }
}

fn rules(settings: &AlertSettings, seen: &Observations<'_>) -> Vec<Rule> {
    let evaluation = evaluate(settings, seen, LATE_ALLOWED, NOW);
    for condition in &evaluation.conditions {
        let summary = condition.summary();
        assert!(summary.len() <= 1_024 && summary.ends_with('.'), "{summary}");
    }
    evaluation.conditions.into_iter().map(|condition| condition.rule).collect()
}

/// Figures of each of the latest minutes.
fn minutes(count: u64, figures: &Figures) -> FigureSeries {
    let mut series = FigureSeries::default();
    let start = Resolution::Minute.start_of(NOW).as_millis();
    let read: Vec<_> =
        (0..count).map(|n| (Timestamp::from_millis(start - n * 60_000), figures.clone())).collect();
    series.take(Resolution::Minute, &read, (NOW, Span::from_days(3)));
    series
}

fn hours(mut series: FigureSeries, count: u64, figures: &Figures) -> FigureSeries {
    let start = Resolution::Hour.start_of(NOW).as_millis();
    let read: Vec<_> = (0..count)
        .map(|n| (Timestamp::from_millis(start - n * 3_600_000), figures.clone()))
        .collect();
    series.take(Resolution::Hour, &read, (NOW, Span::from_days(3)));
    series
}

fn figures_rules(settings: &AlertSettings, all: FigureSeries) -> Vec<Rule> {
    let figures = FigureHistory { all, ..FigureHistory::default() };
    rules(settings, &Observations { figures: Some(&figures), ..seen() })
}

#[test]
fn nothing_holds_of_a_quiet_server() {
    assert_eq!(rules(&AlertSettings::default(), &seen()), []);
    assert_eq!(figures_rules(&AlertSettings::default(), FigureSeries::default()), []);
}

#[test]
fn retries_are_exhausted_above_five_percent_of_enough() {
    for (first_attempts, exhausted, minutes_of, holds) in [
        (100, 5, 1, false),
        (100, 6, 1, true),
        (20, 2, 1, true),
        (19, 19, 1, false),
        (2, 1, 15, true),
        (0, 6, 1, false),
    ] {
        let figures = Figures { first_attempts, exhausted, ..Figures::default() };
        let found = figures_rules(&AlertSettings::default(), minutes(minutes_of, &figures));
        let expected = if holds { vec![Rule::RetriesExhausted] } else { vec![] };
        assert_eq!(found, expected, "{first_attempts} {exhausted}");
    }
}

#[test]
fn attempts_are_slow_in_three_intervals_in_a_row() {
    let attempts = |millis: u64, count: u64| {
        let mut figures = Figures { attempts: count, ..Figures::default() };
        (0..count).for_each(|_| figures.attempt_us.record(millis * 1_000));
        figures
    };
    for (millis, count, minutes_of, holds) in [
        (3_000, 20, 15, true),
        (2_000, 20, 15, false),
        (3_000, 20, 10, false),
        (3_000, 3, 15, false),
    ] {
        let found =
            figures_rules(&AlertSettings::default(), minutes(minutes_of, &attempts(millis, count)));
        let expected = if holds { vec![Rule::SlowAttempts] } else { vec![] };
        assert_eq!(found, expected, "{millis} {count} {minutes_of}");
    }
}

#[test]
fn the_budget_burns_by_the_four_pairs_of_windows() {
    let judged = |on_time, late_receiver| Figures { on_time, late_receiver, ..Figures::default() };
    // By the minute, as one of each would be, and by the hour.
    for (by_minute, by_hour, expected) in [
        // 1 h and 5 m above 14.4 × 0.1 %.
        ((60, judged(98, 2)), (1, judged(5_880, 120)), vec![Rule::SloBurnFast, Rule::SloBurnSlow]),
        // 6 h and 30 m above 6 × 0.1 %.
        (
            (360, judged(993, 7)),
            (6, judged(59_580, 420)),
            vec![Rule::SloBurnFast, Rule::SloBurnSlow],
        ),
        // 1 d and 2 h above 3 × 0.1 %.
        ((360, judged(996, 4)), (24, judged(59_760, 240)), vec![Rule::SloBurnSlow]),
        // 3 d and 6 h above 0.1 %.
        ((360, judged(998, 2)), (72, judged(59_880, 120)), vec![Rule::SloBurnSlow]),
        // Within the budget.
        ((360, judged(9_999, 1)), (72, judged(599_940, 60)), vec![]),
        // One late delivery of a few is no page.
        ((1, judged(8, 1)), (1, judged(8, 1)), vec![]),
        // It is over: nothing late in the last hours.
        ((360, judged(1_000, 0)), (72, judged(59_000, 1_000)), vec![]),
    ] {
        let series = minutes(by_minute.0, &by_minute.1);
        let series = hours(series, by_hour.0, &by_hour.1);
        assert_eq!(figures_rules(&AlertSettings::default(), series), expected, "{by_minute:?}");
    }
}

#[test]
fn figures_of_each_tenant_are_looked_at_if_asked_for() {
    let bad = minutes(1, &Figures { first_attempts: 100, exhausted: 50, ..Figures::default() });
    let tenants = [("acme".parse().unwrap(), bad)].into();
    let figures = FigureHistory { tenants, ..FigureHistory::default() };
    let seen = Observations { figures: Some(&figures), ..seen() };
    let mut settings = AlertSettings::default();
    assert_eq!(rules(&settings, &seen), []);
    settings.retries_exhausted.tenants = TenantScope::Each;
    let evaluation = evaluate(&settings, &seen, LATE_ALLOWED, NOW);
    let tenant = evaluation.conditions[0].tenant.as_ref().unwrap();
    assert_eq!(tenant.as_str(), "acme");
    assert!(evaluation.conditions[0].summary().starts_with("Tenant acme: 50 deliveries"));
}

#[test]
fn counts_ages_and_room_have_thresholds() {
    let disk = |free_bytes, size_bytes| {
        Some(DiskSeen { path: "/data".to_owned(), free_bytes, size_bytes })
    };
    let trouble = |secs| {
        let since = ago(Span::from_secs(secs));
        Some(StoreTroubleSeen { since, problem: "disk I/O error".to_owned() })
    };
    let source = |secs| {
        let since = ago(Span::from_secs(secs));
        vec![SourceSeen { name: "shop".to_owned(), since, problem: "refused".to_owned() }]
    };
    let hour = Span::from_hours(1);
    for (observations, expected) in [
        (Observations { dead_letters: Some(10_000), ..seen() }, vec![]),
        (Observations { dead_letters: Some(10_001), ..seen() }, vec![Rule::DeadLetters]),
        (Observations { oldest_open_at: Some(Some(ago(hour))), ..seen() }, vec![]),
        (
            Observations {
                oldest_open_at: Some(Some(ago(Span::from_millis(hour.as_millis() + 1)))),
                ..seen()
            },
            vec![Rule::OldestOpen],
        ),
        (Observations { store_trouble: trouble(29), ..seen() }, vec![]),
        (Observations { store_trouble: trouble(30), ..seen() }, vec![Rule::StoreTrouble]),
        (Observations { disk: disk(10 << 30, 100 << 30), ..seen() }, vec![]),
        (Observations { disk: disk((10 << 30) - 1, 100 << 30), ..seen() }, vec![Rule::Disk]),
        (Observations { disk: disk((1 << 30) - 1, 4 << 30), ..seen() }, vec![Rule::Disk]),
        (Observations { sources: source(29), ..seen() }, vec![]),
        (Observations { sources: source(30), ..seen() }, vec![Rule::SourceTrouble]),
    ] {
        assert_eq!(rules(&AlertSettings::default(), &observations), expected, "{observations:?}");
    }
}

fn endpoint(n: u128) -> EndpointSeen {
    EndpointSeen {
        id: EndpointId::from_u128(n),
        tenant: "acme".parse().unwrap(),
        url: "https://example.com/hooks".to_owned(),
        health: Health {
            state: HealthState::Active,
            since: None,
            wait: None,
            last_error: Some(LastError { at: NOW, cause: ErrorCause::Status(503) }),
            last_success_at: None,
            status: EndpointStatus::Active,
            failing_since: None,
            blocked: false,
            breaker: BreakerState::Closed,
            held_until: None,
            in_flight: 0,
            ready: 0,
            lanes: 0,
            unkeyed: 0,
        },
        blocked: None,
        disable_after: Some(Span::from_days(5)),
        signs_until: None,
    }
}

#[test]
fn each_trouble_of_an_endpoint_has_its_rule() {
    let with = |change: &dyn Fn(&mut EndpointSeen)| {
        let mut seen = endpoint(1);
        change(&mut seen);
        seen
    };
    let failing = |span| with(&|seen| seen.health.failing_since = Some(ago(span)));
    let off = |status| with(&|seen| seen.health.status = status);
    let open = BreakerState::Open { until: NOW };
    for (endpoint, expected) in [
        (endpoint(1), vec![]),
        (with(&|seen| seen.health.breaker = open), vec![Rule::BreakerOpen]),
        (with(&|seen| seen.health.breaker = BreakerState::Probing), vec![Rule::BreakerOpen]),
        (with(&|seen| seen.health.breaker = BreakerState::Ramping { limit: 1 }), vec![]),
        (failing(Span::from_mins(14)), vec![]),
        (failing(Span::from_mins(15)), vec![Rule::EndpointFailing]),
        (failing(Span::from_days(4)), vec![Rule::EndpointFailing, Rule::SwitchOffSoon]),
        (
            with(&|seen| {
                seen.health.failing_since = Some(ago(Span::from_days(4)));
                seen.disable_after = None;
            }),
            vec![Rule::EndpointFailing],
        ),
        // Switched off after less than the time ahead: told at half of it.
        (
            with(&|seen| {
                seen.health.failing_since = Some(ago(Span::from_mins(5)));
                seen.disable_after = Some(Span::from_mins(11));
            }),
            vec![],
        ),
        (
            with(&|seen| {
                seen.health.failing_since = Some(ago(Span::from_mins(5)));
                seen.disable_after = Some(Span::from_mins(10));
            }),
            vec![Rule::SwitchOffSoon],
        ),
        (off(EndpointStatus::Paused), vec![]),
        (off(EndpointStatus::Quarantined), vec![Rule::EndpointOff]),
        (off(EndpointStatus::Gone), vec![Rule::EndpointOff]),
        (off(EndpointStatus::Failing), vec![Rule::EndpointOff]),
        (with(&|seen| seen.blocked = Some("it must sign".to_owned())), vec![Rule::EndpointBlocked]),
        (with(&|seen| seen.signs_until = Some(NOW + Span::from_days(8))), vec![]),
        (
            with(&|seen| seen.signs_until = Some(NOW + Span::from_days(7))),
            vec![Rule::SecretExpiring],
        ),
    ] {
        let observations = Observations { endpoints: Some(vec![endpoint.clone()]), ..seen() };
        assert_eq!(rules(&AlertSettings::default(), &observations), expected, "{endpoint:?}");
    }
}

#[test]
fn breakers_that_open_together_have_a_rule_of_their_own() {
    for (count, holds) in [(9, false), (10, true)] {
        let endpoints = (0..count).map(|n| {
            let mut seen = endpoint(n);
            seen.health.breaker = BreakerState::Probing;
            seen
        });
        let observations = Observations { endpoints: Some(endpoints.collect()), ..seen() };
        let found = rules(&AlertSettings::default(), &observations);
        assert_eq!(found.contains(&Rule::BreakersOpen), holds);
    }
}

#[test]
fn a_rule_that_is_switched_off_never_holds() {
    let mut settings = AlertSettings::default();
    settings.dead_letters.enabled = false;
    let observations = Observations { dead_letters: Some(u64::MAX), ..seen() };
    assert_eq!(rules(&settings, &observations), []);
}

#[test]
fn what_was_not_seen_is_named() {
    let evaluation =
        evaluate(&AlertSettings::default(), &Observations::default(), LATE_ALLOWED, NOW);
    let seen_always = [Rule::StoreTrouble, Rule::SourceTrouble];
    for rule in Rule::ALL {
        assert_eq!(evaluation.unseen.contains(&rule), !seen_always.contains(&rule), "{rule}");
    }
}

#[test]
fn each_rule_reads_back_and_has_types_of_its_own() {
    let mut types = std::collections::BTreeSet::new();
    for rule in Rule::ALL {
        assert_eq!(rule.name().parse(), Ok(rule));
        let (fired, resolved) = rule.notice_types();
        assert!(types.insert(fired) && types.insert(resolved), "{rule}");
        assert_eq!(AlertSettings::default().rule(rule).severity, rule.severity(), "{rule}");
    }
    assert!("nothing".parse::<Rule>().unwrap_err().contains("breaker_open"));
}
