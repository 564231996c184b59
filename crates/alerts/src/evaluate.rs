//! Which conditions hold, of what was seen.

use std::collections::BTreeSet;

use railpost_engine::{BreakerState, EndpointStatus, ErrorCause, Span, Timestamp};
use railpost_wire::TenantId;

use crate::condition::{Condition, EndpointName, Facts};
use crate::settings::{BurnWindows, TenantScope};
use crate::windows::{FigureHistory, FigureSeries, before};
use crate::{AlertSettings, EndpointSeen, Observations, Rule};

/// What holds, and what could not be seen.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// What holds: at most one of each rule, tenant and subject.
    pub conditions: Vec<Condition>,
    /// Rules that could not be looked at: their alerts stay as they are.
    pub unseen: BTreeSet<Rule>,
    /// How many more conditions hold of a rule than are listed, by rule.
    pub unlisted: Vec<(Rule, u64)>,
}

/// The conditions that hold at `now`. `late_allowed` is the share of deliveries that the objective allows to
/// be late.
pub fn evaluate(
    settings: &AlertSettings,
    seen: &Observations<'_>,
    late_allowed: f64,
    now: Timestamp,
) -> Evaluation {
    let mut evaluation = Evaluation::default();
    let look = &mut Look { settings, now, late_allowed, evaluation: &mut evaluation };
    match seen.figures {
        Some(figures) => look.at_figures(figures),
        None => look.unseen(&[
            Rule::RetriesExhausted,
            Rule::SlowAttempts,
            Rule::SloBurnFast,
            Rule::SloBurnSlow,
        ]),
    }
    match seen.dead_letters {
        Some(count) if count > settings.dead_letters.count => {
            look.hold(Rule::DeadLetters, Facts::DeadLetters { count });
        }
        Some(_) => {}
        None => look.unseen(&[Rule::DeadLetters]),
    }
    match seen.oldest_open_at {
        Some(oldest) => look.at_oldest(oldest),
        None => look.unseen(&[Rule::OldestOpen]),
    }
    look.at_store(seen);
    look.at_disk(seen);
    match &seen.endpoints {
        Some(endpoints) => look.at_endpoints(endpoints),
        None => look.unseen(&[
            Rule::BreakersOpen,
            Rule::BreakerOpen,
            Rule::EndpointFailing,
            Rule::SwitchOffSoon,
            Rule::EndpointOff,
            Rule::EndpointBlocked,
            Rule::SecretExpiring,
        ]),
    }
    look.at_lanes(seen);
    look.at_sources(seen);
    evaluation
}

struct Look<'a> {
    settings: &'a AlertSettings,
    now: Timestamp,
    late_allowed: f64,
    evaluation: &'a mut Evaluation,
}

impl Look<'_> {
    fn unseen(&mut self, rules: &[Rule]) {
        self.evaluation.unseen.extend(rules);
    }

    /// A condition of the server holds.
    fn hold(&mut self, rule: Rule, facts: Facts) {
        self.hold_of(rule, None, String::new(), facts);
    }

    fn hold_of(&mut self, rule: Rule, tenant: Option<TenantId>, subject: String, facts: Facts) {
        if self.settings.rule(rule).enabled {
            self.evaluation.conditions.push(Condition { rule, tenant, subject, facts });
        }
    }

    fn at_figures(&mut self, figures: &FigureHistory) {
        self.at_series(None, &figures.all);
        for (tenant, series) in &figures.tenants {
            self.at_series(Some(tenant), series);
        }
    }

    fn at_series(&mut self, tenant: Option<&TenantId>, series: &FigureSeries) {
        let AlertSettings {
            retries_exhausted, slow_attempts, slo_burn_fast, slo_burn_slow, ..
        } = self.settings;
        let fast = self.burn(&slo_burn_fast.windows, slo_burn_fast.judged_min, series);
        let slow = self.burn(&slo_burn_slow.windows, slo_burn_slow.judged_min, series);
        for (rule, tenants, facts) in [
            (Rule::RetriesExhausted, retries_exhausted.tenants, self.exhausted(series)),
            (Rule::SlowAttempts, slow_attempts.tenants, self.slow(series)),
            (Rule::SloBurnFast, slo_burn_fast.tenants, fast),
            (Rule::SloBurnSlow, slo_burn_slow.tenants, slow),
        ] {
            let Some(facts) = facts else { continue };
            if tenant.is_none() || tenants == TenantScope::Each {
                self.hold_of(rule, tenant.cloned(), String::new(), facts);
            }
        }
    }

    fn exhausted(&self, series: &FigureSeries) -> Option<Facts> {
        let rule = &self.settings.retries_exhausted;
        let sum = series.sum(self.now, rule.window);
        let (exhausted, dispatched) = (sum.exhausted, sum.dispatched);
        let above = exhausted.saturating_mul(100) > dispatched.saturating_mul(rule.percent.into());
        let holds = above && dispatched >= rule.dispatched_min;
        holds.then_some(Facts::Exhausted { exhausted, dispatched, window: rule.window })
    }

    fn slow(&self, series: &FigureSeries) -> Option<Facts> {
        let rule = &self.settings.slow_attempts;
        let mut p95 = Vec::new();
        for sum in series.intervals(self.now, rule.interval, rule.intervals) {
            if sum.attempt_us.count() < rule.attempts_min {
                return None;
            }
            let took = Span::from_millis(sum.attempt_us.quantile(0.95)? / 1_000);
            if took <= rule.p95 {
                return None;
            }
            p95.push(took);
        }
        Some(Facts::Slow { p95, interval: rule.interval })
    }

    fn burn(
        &self,
        windows: &[BurnWindows],
        judged_min: u64,
        series: &FigureSeries,
    ) -> Option<Facts> {
        windows.iter().find_map(|windows| self.burn_in(*windows, judged_min, series))
    }

    fn burn_in(
        &self,
        windows: BurnWindows,
        judged_min: u64,
        series: &FigureSeries,
    ) -> Option<Facts> {
        let rate = |late: u64, judged: u64| late as f64 / judged as f64 / self.late_allowed;
        let long = series.sum(self.now, windows.long);
        let short = series.sum(self.now, windows.short);
        if long.judged < judged_min || long.late == 0 || short.late == 0 {
            return None;
        }
        let factor = f64::from(windows.factor_tenths) / 10.0;
        let burns = rate(long.late, long.judged);
        let holds = burns > factor && rate(short.late, short.judged) > factor;
        let (late, judged) = (long.late, long.judged);
        let factor_tenths = (burns * 10.0).round() as u64;
        holds.then_some(Facts::Burn { windows, late, judged, factor_tenths })
    }

    fn at_oldest(&mut self, oldest: Option<Timestamp>) {
        let Some(made_at) = oldest else { return };
        if self.now.since(made_at) > self.settings.oldest_open.age {
            self.hold(Rule::OldestOpen, Facts::OldestOpen { made_at });
        }
    }

    fn at_store(&mut self, seen: &Observations<'_>) {
        let Some(trouble) = &seen.store_trouble else { return };
        if self.now.since(trouble.since) >= self.settings.store_trouble.after {
            let facts =
                Facts::StoreTrouble { since: trouble.since, problem: trouble.problem.clone() };
            self.hold(Rule::StoreTrouble, facts);
        }
    }

    fn at_disk(&mut self, seen: &Observations<'_>) {
        let Some(disk) = &seen.disk else { return self.unseen(&[Rule::Disk]) };
        let rule = &self.settings.disk;
        let percent = u128::from(disk.free_bytes) * 100;
        let low = percent < u128::from(disk.size_bytes) * u128::from(rule.free_percent);
        if low || disk.free_bytes < rule.free_bytes {
            let (free_bytes, size_bytes) = (disk.free_bytes, disk.size_bytes);
            self.hold(Rule::Disk, Facts::Disk { path: disk.path.clone(), free_bytes, size_bytes });
        }
    }

    fn at_endpoints(&mut self, endpoints: &[EndpointSeen]) {
        let open = endpoints.iter().filter(|seen| breaker_until(seen).is_some()).count() as u64;
        if open >= self.settings.breakers_open.count {
            self.hold(Rule::BreakersOpen, Facts::BreakersOpen { count: open });
        }
        for seen in endpoints {
            self.at_endpoint(seen);
        }
    }

    fn at_endpoint(&mut self, seen: &EndpointSeen) {
        let health = &seen.health;
        if let Some(until) = breaker_until(seen) {
            self.hold_at(Rule::BreakerOpen, seen, None, until);
        }
        if matches!(health.status, EndpointStatus::Active) {
            self.at_failing(seen);
        }
        let off = match health.status {
            EndpointStatus::Active | EndpointStatus::Paused => None,
            EndpointStatus::Quarantined => Some("quarantined"),
            EndpointStatus::Gone => Some("gone"),
            EndpointStatus::Failing => Some("failing"),
        };
        if let Some(off) = off {
            self.hold_at(Rule::EndpointOff, seen, Some(off.to_owned()), None);
        }
        if let Some(problem) = &seen.blocked
            && health.status == EndpointStatus::Active
        {
            self.hold_at(Rule::EndpointBlocked, seen, Some(problem.clone()), None);
        }
        let ahead = self.now + self.settings.secret_expiring.ahead;
        if let Some(until) = seen.signs_until.filter(|until| *until <= ahead) {
            self.hold_at(Rule::SecretExpiring, seen, None, Some(until));
        }
    }

    fn at_failing(&mut self, seen: &EndpointSeen) {
        let Some(since) = seen.health.failing_since else { return };
        if self.now.since(since) >= self.settings.endpoint_failing.after {
            self.hold_at(Rule::EndpointFailing, seen, None, None);
        }
        let Some(off_at) = seen.disable_after.map(|after| since + after) else { return };
        // One that is switched off after less than that is told of from half of its time on.
        let ahead = self.settings.switch_off_soon.ahead;
        let ahead = ahead.min(Span::from_millis(off_at.since(since).as_millis() / 2));
        if self.now >= before(off_at, ahead) {
            self.hold_at(Rule::SwitchOffSoon, seen, None, Some(off_at));
        }
    }

    fn hold_at(
        &mut self,
        rule: Rule,
        seen: &EndpointSeen,
        reason: Option<String>,
        until: Option<Timestamp>,
    ) {
        let facts = Facts::Endpoint {
            endpoint: EndpointName { id: seen.id, url: seen.url.clone() },
            failing_since: seen.health.failing_since,
            last_error: seen.health.last_error.map(|error| error_words(error.cause)),
            reason,
            until,
        };
        self.hold_of(rule, Some(seen.tenant.clone()), seen.id.to_string(), facts);
    }

    fn at_lanes(&mut self, seen: &Observations<'_>) {
        let Some(held) = &seen.held_lanes else { return self.unseen(&[Rule::LaneHeld]) };
        for lane in &held.lanes {
            let facts = Facts::Lane {
                endpoint: EndpointName { id: lane.endpoint, url: lane.url.clone() },
                lane: lane.lane.clone(),
                key: lane.key.as_ref().map(ToString::to_string),
                delivery: lane.held_by.clone(),
                since: lane.since,
                reason: lane.reason.clone(),
                behind: lane.behind,
            };
            let subject = format!("{}/{}", lane.endpoint, lane.lane);
            self.hold_of(Rule::LaneHeld, Some(lane.tenant.clone()), subject, facts);
        }
        if held.others > 0 && self.settings.lane_held.enabled {
            self.evaluation.unlisted.push((Rule::LaneHeld, held.others));
        }
    }

    fn at_sources(&mut self, seen: &Observations<'_>) {
        for source in &seen.sources {
            if self.now.since(source.since) >= self.settings.source_trouble.after {
                let (name, since) = (source.name.clone(), source.since);
                let facts =
                    Facts::Source { name: name.clone(), since, problem: source.problem.clone() };
                self.hold_of(Rule::SourceTrouble, None, name, facts);
            }
        }
    }
}

/// If the breaker lets nothing through: when the next probe goes, unless it is under way.
fn breaker_until(seen: &EndpointSeen) -> Option<Option<Timestamp>> {
    match seen.health.breaker {
        BreakerState::Open { until } => Some(Some(until)),
        BreakerState::Probing => Some(None),
        BreakerState::Closed | BreakerState::Ramping { .. } => None,
    }
}

fn error_words(cause: ErrorCause) -> String {
    match cause {
        ErrorCause::Status(status) => format!("status {status}"),
        ErrorCause::Failure(failure) => word(&failure),
    }
}

/// A variant of an enum, as it is serialized, in plain words.
fn word(variant: &impl serde::Serialize) -> String {
    let name = serde_json::to_value(variant).ok();
    let name = name.as_ref().and_then(|name| name.as_str());
    name.unwrap_or_default().replace('_', " ")
}
