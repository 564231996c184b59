//! Events pile up behind an endpoint that is down; then the server crashes, starts again and drains.

use std::slice::from_ref;
use std::time::Instant;

use super::{Bench, Running, Trouble, one_endpoint, publish_plan, subscribe};
use crate::cases::{PLAIN, Publish, Store};
use crate::child::{Load, Sink};
use crate::clock::now_us;
use crate::figures::{Backlog, Figures, per_second, ratio};
use crate::limits::{BACKLOG_EVENTS, BACKLOG_LANES, BACKLOG_MAX, DRAIN_MAX, LOOK_EVERY};
use crate::load::Report;
use crate::load::plan::{Form, Keys, Plan};
use crate::load::request::type_name;
use crate::measure::failure;
use crate::proc::Usage;
use crate::sink::Order;
use crate::sink::ledger;

/// Number of the first event of the pile: beyond those that were sent before it.
const FIRST: u64 = 1 << 24;

impl Bench {
    pub(super) fn backlog(&mut self) -> Result<Figures, Trouble> {
        let mut running = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(1)?;
        subscribe(&running.server, &mut sink, 0, super::TENANT, &[type_name(0)])?;
        let plan = self.backlog_plan(&running);
        let normal =
            self.stage_of(&running, &mut sink).measure(from_ref(&plan), &one_endpoint())?;
        let report = self.pile_up(&running, &mut sink, &plan)?;
        let peak_before = Usage::of(running.server.pid()).peak_bytes;
        let restart = self.restart(&mut running, &mut sink)?;
        let judged = one_endpoint();
        let missing = self.stage_of(&running, &mut sink).drain(
            report.accepted,
            &judged,
            self.scale.time(BACKLOG_MAX),
        )?;
        let peak_after = Usage::of(running.server.pid()).peak_bytes;
        let arrived = sink.report()?;
        let mut figures = figures(&plan, &report, &arrived[0]);
        figures.peak_bytes = Some(peak_before.max(peak_after));
        figures.failure = normal.failure.or_else(|| failure(&arrived, missing));
        if let Some(backlog) = &mut figures.backlog {
            backlog.normal_per_s = normal.delivered_per_s.unwrap_or(0.0);
            backlog.ready_ms = restart.ready_ms;
            backlog.first_delivery_ms = restart.first_delivery_ms;
        }
        Ok(figures)
    }

    fn backlog_plan(&self, running: &Running) -> Plan {
        let lanes = self.scale.events(u64::from(BACKLOG_LANES)) as u32;
        let publish = Publish { form: Form::Batch(100), keys: Keys::Many(lanes), ..PLAIN };
        publish_plan(&running.server, &publish)
    }

    fn pile_up(&self, running: &Running, sink: &mut Sink, plan: &Plan) -> Result<Report, String> {
        sink.order(&Order::Down)?;
        sink.order(&Order::Reset)?;
        let events = self.scale.events(BACKLOG_EVENTS);
        let millis = self.scale.time(BACKLOG_MAX).as_millis() as u64;
        let plan = Plan { first: FIRST, events, millis, ..plan.clone() };
        let stage = self.stage_of(running, sink);
        let reports = stage.load("piling up", &mut [Load::start()?], &[plan])?;
        reports.into_iter().next().ok_or_else(|| "no report of the pile".to_owned())
    }

    fn restart(&self, running: &mut Running, sink: &mut Sink) -> Result<Restart, String> {
        self.progress.say("starting again");
        running.server.crash();
        sink.order(&Order::Up)?;
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

fn figures(plan: &Plan, report: &Report, arrived: &ledger::Figures) -> Figures {
    let growth = growth(report);
    let drain_us = arrived.last_us.unwrap_or(0).saturating_sub(arrived.first_us.unwrap_or(0));
    let drained_per_s = per_second(arrived.fresh, drain_us);
    let Keys::Many(lanes) = plan.keys else { unreachable!("a backlog has many lanes") };
    let backlog = Backlog {
        events: report.accepted,
        lanes,
        accept_of_empty: accept_of_empty(&growth),
        growth,
        drained_per_s: drained_per_s.unwrap_or(0.0),
        ..Backlog::default()
    };
    let notes = report
        .problem
        .iter()
        .map(|problem| format!("{} events were not accepted: {problem}", report.failed));
    Figures {
        accepted_per_s: per_second(
            report.accepted,
            report.last_answer_us.saturating_sub(report.first_sent_us),
        ),
        delivered_per_s: drained_per_s,
        accepted: report.accepted,
        delivered: arrived.fresh,
        duplicates: arrived.duplicates,
        notes: notes.collect(),
        backlog: Some(backlog),
        ..Figures::default()
    }
}

/// How many had piled up at each point, and at what rate since the point before.
fn growth(report: &Report) -> Vec<(u64, f64)> {
    let mut before = (0, report.first_sent_us);
    let mut growth = Vec::new();
    for (accepted, at_us) in report.parts.iter().copied() {
        let rate = per_second(accepted - before.0, at_us.saturating_sub(before.1));
        growth.extend(rate.map(|rate| (accepted, rate)));
        before = (accepted, at_us);
    }
    growth
}

/// The accept rate at the end of the pile against its beginning: a tenth of the points each.
fn accept_of_empty(growth: &[(u64, f64)]) -> f64 {
    let tenth = (growth.len() / 10).max(1).min(growth.len());
    let mean = |points: &[(u64, f64)]| {
        points.iter().map(|(_, rate)| rate).sum::<f64>() / points.len().max(1) as f64
    };
    ratio(mean(&growth[growth.len() - tenth..]), mean(&growth[..tenth])).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_growth_is_the_rate_between_points() {
        let parts = vec![(100, 1_000_000), (300, 3_000_000), (400, 7_000_000)];
        let report = Report { parts, ..Report::default() };
        assert_eq!(growth(&report), [(100, 100.0), (300, 100.0), (400, 25.0)]);
    }

    #[test]
    fn the_last_tenth_is_compared_with_the_first() {
        for (rates, expected) in [
            (vec![], 0.0),
            (vec![50.0], 1.0),
            (vec![100.0, 7.0, 80.0], 0.8),
            ([100.0; 18].into_iter().chain([60.0, 40.0]).collect(), 0.5),
        ] {
            let growth: Vec<(u64, f64)> = (1..).zip(rates.iter().copied()).collect();
            assert!((accept_of_empty(&growth) - expected).abs() < 1e-9, "{rates:?}");
        }
    }
}
