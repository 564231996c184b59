//! Events pile up behind an endpoint that is down; then the server crashes, starts again and drains.

use std::ops::AddAssign;
use std::slice::from_ref;
use std::time::Instant;

use super::{Bench, CaseError, RunningServer, one_endpoint, publish_plan, subscribe};
use crate::cases::{PLAIN, Publish, Store};
use crate::child::{Load, Sink};
use crate::clock::now_us;
use crate::figures::{Backlog, Figures, per_second, ratio};
use crate::limits::{
    BACKLOG_EVENTS, BACKLOG_LANES, BACKLOG_MAX, BACKLOG_PAIRS, DRAIN_MAX, LOOK_EVERY,
};
use crate::load::Report;
use crate::load::plan::{Form, Keys, Plan};
use crate::load::request::type_name;
use crate::measure::{MeasuredEndpoints, MeasuredProcesses, failure};
use crate::proc::Usage;
use crate::sink::SinkCommand;
use crate::sink::ledger::ArrivalFigures;

/// Number of the first event of the pile: beyond those that were sent before it.
const FIRST: u64 = 1 << 24;

impl Bench {
    pub(super) fn backlog(&mut self) -> Result<Figures, CaseError> {
        let mut running = self.server(Store::Sqlite)?;
        let empty = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(2)?;
        subscribe(&running.server, &mut sink, 0, super::TENANT, &[type_name(0)])?;
        subscribe(&empty.server, &mut sink, 1, super::TENANT, &[type_name(0)])?;
        let plan = self.backlog_plan(&running);
        let before =
            self.stage_of(&running, &mut sink).measure(from_ref(&plan), &one_endpoint())?;
        let beside = self.backlog_plan(&empty);
        self.fill_lanes(&empty, &mut sink, &beside)?;
        sink.command(&SinkCommand::Down)?;
        sink.command(&SinkCommand::Reset)?;
        let pile = self.pile_up(&self.stage_of(&running, &mut sink), &plan, &beside)?;
        drop(empty);
        let peak_before = Usage::of(running.server.pid()).peak_bytes;
        let restart = self.restart(&mut running, &mut sink)?;
        let missing = self.stage_of(&running, &mut sink).drain(
            pile.pace.accepted,
            &one_endpoint(),
            self.scale.time(BACKLOG_MAX),
        )?;
        let peak_after = Usage::of(running.server.pid()).peak_bytes;
        let arrived = sink.report()?;
        let later = Plan { first: FIRST + pile.pace.accepted, ..plan.clone() };
        let after = self.stage_of(&running, &mut sink).measure(&[later], &one_endpoint())?;
        let mut figures = figures(&plan, pile, &arrived[0]);
        figures.peak_bytes = Some(peak_before.max(peak_after));
        let normal = [before, after];
        let rates: f64 = normal.iter().filter_map(|figures| figures.delivered_per_s).sum();
        figures.failure = normal.into_iter().find_map(|figures| figures.failure);
        figures.failure = figures.failure.or_else(|| failure(&arrived, missing));
        if let Some(backlog) = &mut figures.backlog {
            backlog.normal_per_s = rates / 2.0;
            backlog.ready_ms = restart.ready_ms;
            backlog.first_delivery_ms = restart.first_delivery_ms;
        }
        Ok(figures)
    }

    fn backlog_plan(&self, running: &RunningServer) -> Plan {
        let lanes = self.scale.events(u64::from(BACKLOG_LANES)) as u32;
        let publish = Publish { form: Form::Batch(100), keys: Keys::Many(lanes), ..PLAIN };
        let millis = self.scale.time(BACKLOG_MAX).as_millis() as u64;
        Plan { millis, ..publish_plan(&running.server, &publish) }
    }

    /// Sends what makes most of the lanes, and waits until nothing of it is left: the other server has them
    /// by now too.
    fn fill_lanes(
        &self,
        empty: &RunningServer,
        sink: &mut Sink,
        plan: &Plan,
    ) -> Result<(), String> {
        let events = 2 * self.scale.events(u64::from(BACKLOG_LANES));
        let mut stage = self.stage_of(empty, sink);
        let report = load(&stage, "filling lanes", &Plan { events, ..plan.clone() })?;
        let judged = MeasuredEndpoints { endpoints: 1..2, deliveries_per_event: 1 };
        match stage.drain(report.accepted, &judged, DRAIN_MAX)? {
            0 => Ok(()),
            missing => Err(format!("{missing} deliveries of the empty server did not come")),
        }
    }

    /// Piles up nine tenths, and then the last one in parts. Before each part the same is sent to the server
    /// that is empty: that is what its rate is set against, because a minute earlier the machine may
    /// have been another one.
    fn pile_up(
        &self,
        stage: &MeasuredProcesses<'_>,
        plan: &Plan,
        beside: &Plan,
    ) -> Result<BacklogFill, String> {
        let events = self.scale.events(BACKLOG_EVENTS);
        let part = (events / 10 / BACKLOG_PAIRS).max(1);
        let mut plan = Plan {
            first: FIRST,
            events: events.saturating_sub(part * BACKLOG_PAIRS),
            ..plan.clone()
        };
        let mut beside = Plan { first: FIRST, events: part, ..beside.clone() };
        let mut pile = BacklogFill::default();
        let most = load(stage, "piling up", &plan)?;
        pile.growth.extend(growth(&most));
        pile.add(&most);
        let (mut full, mut empty) = (AcceptRate::default(), AcceptRate::default());
        for _ in 0..BACKLOG_PAIRS {
            empty += AcceptRate::of(&load(stage, "comparing", &beside)?);
            beside.first += part;
            plan = Plan { first: plan.first + plan.events, events: part, ..plan };
            let report = load(stage, "piling up", &plan)?;
            full += AcceptRate::of(&report);
            pile.add(&report);
            pile.growth.push((pile.pace.accepted, AcceptRate::of(&report).per_s()));
        }
        pile.of_empty = ratio(full.per_s(), empty.per_s()).unwrap_or(0.0);
        Ok(pile)
    }

    fn restart(&self, running: &mut RunningServer, sink: &mut Sink) -> Result<Restart, String> {
        self.progress.say("starting again");
        running.server.crash();
        sink.command(&SinkCommand::Up)?;
        let (begun, begun_us) = (Instant::now(), now_us());
        running.server.restart()?;
        running.server.wait_until_ready()?;
        let ready_ms = begun.elapsed().as_secs_f64() * 1e3;
        let first_us = first_delivery(sink, begun)?;
        let first_delivery_ms = first_us.saturating_sub(begun_us) as f64 / 1e3;
        Ok(Restart { ready_ms, first_delivery_ms })
    }
}

struct Restart {
    ready_ms: f64,
    first_delivery_ms: f64,
}

fn first_delivery(sink: &mut Sink, begun: Instant) -> Result<u64, String> {
    loop {
        let first = sink.report()?.into_iter().find_map(|figures| figures.first_us);
        match first {
            Some(first_us) => return Ok(first_us),
            None if begun.elapsed() > DRAIN_MAX => {
                return Err(format!("nothing was delivered within {DRAIN_MAX:?} of the restart"));
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// How much was accepted in how long.
#[derive(Clone, Copy, Debug, Default)]
struct AcceptRate {
    accepted: u64,
    micros: u64,
}

impl AcceptRate {
    fn of(report: &Report) -> Self {
        let micros = report.last_answer_us.saturating_sub(report.first_sent_us);
        Self { accepted: report.accepted, micros }
    }

    fn per_s(self) -> f64 {
        per_second(self.accepted, self.micros).unwrap_or(0.0)
    }
}

impl AddAssign for AcceptRate {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.micros += other.micros;
    }
}

/// A backlog as it was filled.
#[derive(Debug, Default)]
struct BacklogFill {
    pace: AcceptRate,
    failed: u64,
    problem: Option<String>,
    growth: Vec<(u64, f64)>,
    /// The accept rate of the last tenth against that of the empty server meanwhile.
    of_empty: f64,
}

impl BacklogFill {
    fn add(&mut self, report: &Report) {
        self.pace += AcceptRate::of(report);
        self.failed += report.failed;
        self.problem = self.problem.take().or_else(|| report.problem.clone());
    }
}

fn load(stage: &MeasuredProcesses<'_>, what: &str, plan: &Plan) -> Result<Report, String> {
    let reports = stage.load(what, &mut [Load::start()?], from_ref(plan))?;
    reports.into_iter().next().ok_or_else(|| format!("no report of {what}"))
}

fn figures(plan: &Plan, pile: BacklogFill, arrived: &ArrivalFigures) -> Figures {
    let drain_us = arrived.last_us.unwrap_or(0).saturating_sub(arrived.first_us.unwrap_or(0));
    let drained_per_s = per_second(arrived.fresh, drain_us);
    let Keys::Many(lanes) = plan.keys else { unreachable!("a backlog has many lanes") };
    let backlog = Backlog {
        events: pile.pace.accepted,
        lanes,
        accept_of_empty: pile.of_empty,
        growth: pile.growth,
        drained_per_s: drained_per_s.unwrap_or(0.0),
        ..Backlog::default()
    };
    let failed = pile.failed;
    let notes = pile.problem.map(|problem| format!("{failed} events were not accepted: {problem}"));
    Figures {
        accepted_per_s: Some(pile.pace.per_s()),
        delivered_per_s: drained_per_s,
        accepted: pile.pace.accepted,
        delivered: arrived.fresh,
        duplicates: arrived.duplicates,
        notes: notes.into_iter().collect(),
        backlog: Some(backlog),
        ..Figures::default()
    }
}

/// How many had piled up at each point, and at what rate since the point before.
fn growth(report: &Report) -> impl Iterator<Item = (u64, f64)> {
    let starts = std::iter::once((0, report.first_sent_us)).chain(report.parts.iter().copied());
    starts.zip(&report.parts).filter_map(|((before, since_us), (accepted, at_us))| {
        let rate = per_second(accepted - before, at_us.saturating_sub(since_us));
        rate.map(|rate| (*accepted, rate))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(parts: &[(u64, u64)]) -> Report {
        let (accepted, last_answer_us) = *parts.last().unwrap();
        Report { parts: parts.to_vec(), accepted, last_answer_us, ..Report::default() }
    }

    #[test]
    fn the_growth_is_the_rate_between_points() {
        let report = report(&[(100, 1_000_000), (300, 3_000_000), (400, 7_000_000)]);
        let growth: Vec<_> = growth(&report).collect();
        assert_eq!(growth, [(100, 100.0), (300, 100.0), (400, 25.0)]);
    }

    #[test]
    fn the_pace_of_several_stretches_leaves_out_the_time_between_them() {
        let mut pace = AcceptRate::of(&report(&[(300, 3_000_000)]));
        pace += AcceptRate::of(&Report { first_sent_us: 8_000_000, ..report(&[(50, 12_000_000)]) });
        assert_eq!(pace.per_s(), 50.0);
        assert_eq!(AcceptRate::default().per_s(), 0.0);
    }

    #[test]
    fn what_was_refused_first_is_told() {
        let mut pile = BacklogFill::default();
        for problem in [None, Some("full"), Some("fuller")] {
            let problem = problem.map(str::to_owned);
            pile.add(&Report { failed: 2, problem, ..report(&[(1, 1)]) });
        }
        assert_eq!((pile.failed, pile.problem.as_deref()), (6, Some("full")));
    }
}
