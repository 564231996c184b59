//! One measured run, the same for every case: warm up, set the figures back, load, wait for the
//! last delivery, and read what it cost.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::child::{Load, Sink};
use crate::device::Device;
use crate::figures::{Figures, per_second, ratio};
use crate::histogram::Histogram;
use crate::limits::{
    CORE_FULL, DEVICE_OTHERS_MAX, DEVICE_WATCH, DRAIN_MAX, LOOK_EVERY, PACER_LATE_MAX,
    QUICK_DIVISOR, SCHEDULED_WARM_UP, STRETCH, STRETCH_EVENTS_MIN, TAKEN_MAX, WARM_UP,
};
use crate::load::Report;
use crate::load::plan::Plan;
use crate::proc::{self, Usage};
use crate::progress::Progress;
use crate::sink::SinkCommand;
use crate::sink::ledger::ArrivalFigures;

/// How long and how much: a full run, or a part of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scale {
    pub(crate) quick: bool,
    /// Most events of a run, if the user says so.
    pub(crate) events_max: Option<u64>,
}

impl Scale {
    pub(crate) fn time(self, full: Duration) -> Duration {
        if self.quick { full / QUICK_DIVISOR } else { full }
    }

    pub(crate) fn events(self, full: u64) -> u64 {
        let events = if self.quick { full / u64::from(QUICK_DIVISOR) } else { full };
        self.events_max.map_or(events, |max| events.min(max)).max(1)
    }
}

/// The processes of a run.
pub(crate) struct MeasuredProcesses<'a> {
    pub(crate) scale: Scale,
    pub(crate) progress: &'a Progress,
    pub(crate) sink: &'a mut Sink,
    /// The server or the forwarder, if there is one.
    pub(crate) server: Option<u32>,
    /// PostgreSQL's first process, if there is one.
    pub(crate) postgres: Option<u32>,
    /// Where the stores' files are, if it is known and something is stored.
    pub(crate) device: Option<Device>,
}

/// What is judged: the first plan's events, at these endpoints.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredEndpoints {
    pub(crate) endpoints: Range<usize>,
    pub(crate) deliveries_per_event: u64,
}

/// What all processes of a run had used at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct UsageTotals {
    server: Usage,
    postgres: Usage,
    load: Usage,
    sink: Usage,
    /// By the machine's host, of all cores together.
    taken_us: u64,
    /// To the device, by everyone.
    written_bytes: Option<u64>,
}

impl MeasuredProcesses<'_> {
    /// Runs the plans side by side, each with its own load generator.
    pub(crate) fn measure(
        &mut self,
        plans: &[Plan],
        judged: &MeasuredEndpoints,
    ) -> Result<Figures, String> {
        let mut loads: Vec<Load> = plans.iter().map(|_| Load::start()).collect::<Result<_, _>>()?;
        let warm = self.warm_up(&mut loads, plans, judged)?;
        self.sink.command(&SinkCommand::Reset)?;
        let millis = self.scale.time(run_time(plans[0].per_s)).as_millis() as u64;
        let measured = |(warm, plan)| measured(plan, warm, self.scale.events(plan.events), millis);
        let plans: Vec<Plan> = warm.iter().zip(plans).map(measured).collect();
        let others_per_s = self.others_per_s();
        let (before, begun) = (self.costs(&loads), Instant::now());
        let reports = self.load("measuring", &mut loads, &plans)?;
        let missing =
            self.drain(reports[0].accepted * judged.deliveries_per_event, judged, DRAIN_MAX)?;
        let costs = self.costs(&loads) - before;
        let wall_us = begun.elapsed().as_micros() as u64;
        let arrived = self.sink.report()?;
        Ok(Outcome {
            plan: &plans[0],
            reports: &reports,
            arrived: &arrived,
            judged,
            costs,
            wall_us,
            missing,
            others_per_s,
        }
        .figures(self))
    }

    fn warm_up(
        &mut self,
        loads: &mut [Load],
        plans: &[Plan],
        judged: &MeasuredEndpoints,
    ) -> Result<Vec<Report>, String> {
        let scheduled = plans[0].per_s.is_some();
        let full = if scheduled { SCHEDULED_WARM_UP } else { WARM_UP };
        let millis = self.scale.time(full).as_millis() as u64;
        let events = |plan: &Plan| self.scale.events(plan.events);
        let warm = |plan: &Plan| Plan { millis, events: events(plan), ..plan.clone() };
        let plans: Vec<Plan> = plans.iter().map(warm).collect();
        let reports = self.load("warming up", loads, &plans)?;
        self.drain(reports[0].accepted * judged.deliveries_per_event, judged, DRAIN_MAX)?;
        Ok(reports)
    }

    pub(crate) fn load(
        &self,
        what: &str,
        loads: &mut [Load],
        plans: &[Plan],
    ) -> Result<Vec<Report>, String> {
        let begun = Instant::now();
        for (load, plan) in loads.iter_mut().zip(plans) {
            load.begin(plan)?;
        }
        let say = || self.progress.say(&format!("{what}, {:.1} s", begun.elapsed().as_secs_f64()));
        loads.iter_mut().zip(plans).map(|(load, plan)| load.end(plan, say)).collect()
    }

    /// Waits until so many deliveries have come, and says how many have not.
    pub(crate) fn drain(
        &mut self,
        expected: u64,
        judged: &MeasuredEndpoints,
        within: Duration,
    ) -> Result<u64, String> {
        let until = Instant::now() + within;
        loop {
            let counts = self.sink.counts()?;
            let arrived: u64 = counts[judged.endpoints.clone()].iter().sum();
            let missing = expected.saturating_sub(arrived);
            if missing == 0 || Instant::now() > until {
                return Ok(missing);
            }
            self.progress.say(&format!("waiting for {missing} deliveries"));
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn costs(&self, loads: &[Load]) -> UsageTotals {
        UsageTotals {
            server: self.server.map(Usage::of).unwrap_or_default(),
            postgres: self.postgres.map(Usage::of_tree).unwrap_or_default(),
            // Each has a core to itself: the busiest is the one that matters.
            load: loads
                .iter()
                .map(|load| Usage::of(load.pid()))
                .max_by_key(|usage| usage.cpu_us)
                .unwrap_or_default(),
            sink: Usage::of(self.sink.pid()),
            taken_us: proc::taken_us(),
            written_bytes: self.device.as_ref().and_then(Device::written_bytes),
        }
    }

    /// Bytes a second that others write to the device while nothing is asked of the server.
    fn others_per_s(&self) -> Option<f64> {
        let device = self.device.as_ref()?;
        let (before, begun) = (device.written_bytes()?, Instant::now());
        std::thread::sleep(self.scale.time(DEVICE_WATCH));
        let written = device.written_bytes()?.saturating_sub(before);
        ratio(written as f64, begun.elapsed().as_secs_f64())
    }
}

/// How long to measure, by the rate of what is judged.
fn run_time(per_s: Option<u64>) -> Duration {
    let enough = per_s.map(|per_s| Duration::from_secs(STRETCH_EVENTS_MIN.div_ceil(per_s.max(1))));
    enough.map_or(STRETCH, |enough| enough.max(STRETCH))
}

/// The measured run goes on where the warm-up ended.
fn measured(plan: &Plan, warm: &Report, events: u64, millis: u64) -> Plan {
    Plan { first: warm.next, events, millis, ..plan.clone() }
}

impl std::ops::Sub for UsageTotals {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            server: self.server - earlier.server,
            postgres: self.postgres - earlier.postgres,
            load: self.load - earlier.load,
            sink: self.sink - earlier.sink,
            taken_us: self.taken_us.saturating_sub(earlier.taken_us),
            written_bytes: self
                .written_bytes
                .zip(earlier.written_bytes)
                .map(|(later, earlier)| later.saturating_sub(earlier)),
        }
    }
}

/// All that was learnt of a run, before it is made into figures.
struct Outcome<'a> {
    plan: &'a Plan,
    reports: &'a [Report],
    arrived: &'a [ArrivalFigures],
    judged: &'a MeasuredEndpoints,
    costs: UsageTotals,
    wall_us: u64,
    missing: u64,
    /// Bytes a second that others wrote to the device before the stretch.
    others_per_s: Option<f64>,
}

impl Outcome<'_> {
    fn figures(&self, stage: &MeasuredProcesses<'_>) -> Figures {
        let report = &self.reports[0];
        let judged = &self.arrived[self.judged.endpoints.clone()];
        let delivered: u64 = judged.iter().map(|endpoint| endpoint.fresh).sum();
        let all: u64 = self.arrived.iter().map(|endpoint| endpoint.fresh).sum();
        let last_us = judged.iter().filter_map(|endpoint| endpoint.last_us).max().unwrap_or(0);
        let latency = merged(judged);
        let per_delivery = |amount: u64| ratio(amount as f64, all as f64);
        let UsageTotals { server, postgres, load, sink, taken_us, written_bytes } = self.costs;
        let cores = |cpu_us: u64| cpu_us as f64 / self.wall_us as f64;
        let of_server = |figure: Option<f64>| stage.server.and(figure);
        let mut figures = Figures {
            accepted_per_s: per_second(
                report.accepted,
                report.last_answer_us.saturating_sub(report.first_sent_us),
            ),
            delivered_per_s: per_second(delivered, last_us.saturating_sub(report.first_sent_us)),
            p50_us: latency.quantile(0.5),
            p99_us: latency.quantile(0.99),
            server_cpu_us: of_server(per_delivery(server.cpu_us)),
            postgres_cpu_us: stage.postgres.and(per_delivery(postgres.cpu_us)),
            peak_bytes: stage.server.map(|_| server.peak_bytes),
            written_bytes: written_bytes.and_then(per_delivery),
            scheduled: self.plan.per_s.is_some(),
            accepted: report.accepted,
            delivered,
            duplicates: self.arrived.iter().map(|endpoint| endpoint.duplicates).sum(),
            load_cores: cores(load.cpu_us),
            sink_cores: cores(sink.cpu_us),
            server_cores: cores(server.cpu_us),
            taken_cores: cores(taken_us),
            ..Figures::default()
        };
        figures.failure = failure(self.arrived, self.missing);
        figures.notes = self.notes(&figures, stage.server.is_some());
        figures
    }

    fn notes(&self, figures: &Figures, has_server: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let refused: u64 = self.reports.iter().map(|report| report.failed).sum();
        if refused > 0 {
            let problem = self.reports.iter().find_map(|report| report.problem.clone());
            notes.push(format!(
                "{refused} events were not accepted: {}",
                problem.unwrap_or_default()
            ));
        }
        if figures.duplicates > 0 {
            notes.push(format!("{} duplicates", figures.duplicates));
        }
        let late = self.reports[0].pacer_late.quantile(0.99).unwrap_or(0);
        if late > PACER_LATE_MAX.as_micros() as u64 {
            notes.push(format!("the load generator was late: p99 of its schedule {late} µs"));
        }
        if figures.taken_cores > TAKEN_MAX {
            notes.push(format!(
                "the machine's host gave {:.2} cores of it to others",
                figures.taken_cores
            ));
        }
        notes.extend(self.others());
        if has_server {
            notes.extend(bottleneck(figures));
        }
        notes
    }
}

impl Outcome<'_> {
    /// Says so when others wrote to the device.
    fn others(&self) -> Option<String> {
        let others = self.others_per_s? * self.wall_us as f64 / 1e6;
        let share = ratio(others, self.costs.written_bytes? as f64)?;
        (share > DEVICE_OTHERS_MAX).then(|| {
            format!(
                "others wrote to the same device: by the second before, {:.0} % of the bytes are theirs",
                share.min(1.0) * 100.0
            )
        })
    }
}

/// Says so when the tools were the limit: one of them used a core up while the server did not.
fn bottleneck(figures: &Figures) -> Option<String> {
    let Figures { load_cores, sink_cores, server_cores, .. } = figures;
    let (name, cores) =
        if load_cores >= sink_cores { ("load", load_cores) } else { ("sink", sink_cores) };
    let limited = *cores >= CORE_FULL && *server_cores < CORE_FULL;
    limited.then(|| {
        format!("the {name} was the limit: it used {cores:.2} cores, the server {server_cores:.2}")
    })
}

/// Why the run counts as failed, if it does.
pub(crate) fn failure(arrived: &[ArrivalFigures], missing: u64) -> Option<String> {
    let sum = |of: fn(&ArrivalFigures) -> u64| arrived.iter().map(of).sum::<u64>();
    let (violations, refused) = (sum(|figures| figures.violations), sum(|figures| figures.refused));
    // A delivery that is refused leaves a gap in its lane, so it is told first.
    if refused > 0 {
        return Some(format!("{refused} deliveries were not signed or not what was published"));
    }
    if violations > 0 {
        let first =
            arrived.iter().find_map(|figures| figures.violation.clone()).unwrap_or_default();
        return Some(format!("{violations} violations of order: {first}"));
    }
    (missing > 0).then(|| format!("{missing} deliveries did not come in time"))
}

fn merged(endpoints: &[ArrivalFigures]) -> Histogram {
    let mut latency = Histogram::default();
    endpoints.iter().for_each(|endpoint| latency.merge(&endpoint.latency));
    latency
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_is_a_tenth_and_the_user_may_ask_for_less() {
        let second = Duration::from_secs(1);
        for (quick, events_max, events, millis) in [
            (false, None, 1_000, 1_000),
            (true, None, 100, 100),
            (false, Some(50), 50, 1_000),
            (true, Some(5_000), 100, 100),
            (true, Some(0), 1, 100),
        ] {
            let scale = Scale { quick, events_max };
            let found = (scale.events(1_000), scale.time(second).as_millis());
            assert_eq!(found, (events, millis), "{scale:?}");
        }
    }

    #[test]
    fn a_slow_schedule_is_measured_until_its_p99_means_something() {
        for (per_s, seconds) in [(None, 3), (Some(2_000), 3), (Some(500), 4), (Some(200), 10)] {
            assert_eq!(run_time(per_s), Duration::from_secs(seconds), "{per_s:?}");
        }
    }

    #[test]
    fn tools_that_are_the_limit_are_named() {
        for (load_cores, sink_cores, server_cores, expected) in [
            (0.5, 0.4, 0.9, None),
            (1.0, 0.4, 0.5, Some("load")),
            (0.4, 0.97, 0.5, Some("sink")),
            (1.0, 0.4, 0.96, None),
            (0.94, 0.4, 0.1, None),
        ] {
            let figures = Figures { load_cores, sink_cores, server_cores, ..Figures::default() };
            let found = bottleneck(&figures);
            let named = found.as_deref().and_then(|note| note.split(' ').nth(1));
            assert_eq!(named, expected, "{load_cores} {sink_cores} {server_cores}");
        }
    }

    #[test]
    fn a_violation_of_order_a_forgery_and_a_loss_each_fail_the_run() {
        let fine = ArrivalFigures { fresh: 3, duplicates: 1, ..ArrivalFigures::default() };
        let slipped = ArrivalFigures { violations: 1, ..fine.clone() };
        let forged = ArrivalFigures { refused: 1, ..fine.clone() };
        for (arrived, missing, expected) in [
            (vec![fine.clone()], 0, None),
            (vec![fine.clone(), slipped], 0, Some("violations of order")),
            (vec![forged.clone()], 0, Some("not signed")),
            (vec![ArrivalFigures { violations: 1, ..forged }], 0, Some("not signed")),
            (vec![fine], 2, Some("did not come")),
        ] {
            let found = failure(&arrived, missing);
            match expected {
                Some(expected) => assert!(found.unwrap().contains(expected), "{expected}"),
                None => assert_eq!(found, None),
            }
        }
    }
}
