//! The load generator: publishes by plan over kept-alive connections and says what was accepted.
//!
//! At full load each connection sends its next request when the last one is answered. By schedule, a
//! thread of its own says when each event is due; the event carries that time whether or not a
//! connection was free, so that waiting counts as latency.

pub(crate) mod plan;
pub(crate) mod request;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::clock::now_us;
use crate::histogram::Histogram;
use crate::http::{Call, Connection};
use crate::limits::{BACKLOG_PARTS, FAILURE_PAUSE};
use crate::parent_channel::ParentChannel;
use plan::{Plan, due_us};

/// How a run of load went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) accepted: u64,
    pub(crate) failed: u64,
    /// The first failure, in words.
    pub(crate) problem: Option<String>,
    pub(crate) first_sent_us: u64,
    pub(crate) last_answer_us: u64,
    /// When each further part of the plan's events had been accepted.
    pub(crate) parts: Vec<(u64, u64)>,
    /// How late the schedule's own thread was.
    pub(crate) pacer_late: Histogram,
    /// Number of the first event that was not sent.
    pub(crate) next: u64,
}

/// Runs the load generator until its parent is gone: a plan in, a report out.
pub(crate) async fn run() -> Result<(), String> {
    let mut commands = ParentChannel::begin(&serde_json::Value::Null)?;
    while let Some(plan) = commands.next::<Plan>().await? {
        commands.answer(&run_plan(plan).await?)?;
    }
    Ok(())
}

/// What the connections of a run share.
struct LoadRun {
    plan: Plan,
    deadline: Instant,
    next: AtomicU64,
    report: Mutex<Report>,
}

/// When the next event is due: at once, or when the pacer says.
enum Pacing {
    AtOnce,
    Scheduled(UnboundedReceiver<u64>),
}

async fn run_plan(plan: Plan) -> Result<Report, String> {
    let connections = connect(&plan).await?;
    let deadline = Instant::now() + Duration::from_millis(plan.millis);
    let report = Report { first_sent_us: now_us(), ..Report::default() };
    let next = AtomicU64::new(plan.first);
    let run = Arc::new(LoadRun { plan, deadline, next, report: Mutex::new(report) });
    let (turns, pacer) = run.turns();
    let mut producers = JoinSet::new();
    for (producer, (connection, turns)) in (0..).zip(connections.into_iter().zip(turns)) {
        producers.spawn(produce(run.clone(), producer, connection, turns));
    }
    producers.join_all().await;
    let pacer_late = pacer.map(std::thread::JoinHandle::join).transpose();
    let mut report = run.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    report.pacer_late = pacer_late.map_err(|_| "the pacer died")?.unwrap_or_default();
    report.next = run.next.load(Ordering::Relaxed);
    Ok(report)
}

async fn connect(plan: &Plan) -> Result<Vec<Connection>, String> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(Connection::open(&plan.address, plan.token.as_deref()).await?);
    }
    Ok(connections)
}

impl LoadRun {
    fn turns(self: &Arc<Self>) -> (Vec<Pacing>, Option<std::thread::JoinHandle<Histogram>>) {
        let connections = self.plan.connections;
        let Some(per_s) = self.plan.per_s else {
            return ((0..connections).map(|_| Pacing::AtOnce).collect(), None);
        };
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..connections).map(|_| unbounded_channel()).unzip();
        let run = self.clone();
        let pacer = std::thread::spawn(move || run.pace(per_s, &senders));
        (receivers.into_iter().map(Pacing::Scheduled).collect(), Some(pacer))
    }

    /// Gives each connection in turn the time at which its next event is due, at that time. A thread
    /// that sleeps is more exact than a timer of the runtime, which counts in milliseconds.
    fn pace(&self, per_s: u64, to: &[UnboundedSender<u64>]) -> Histogram {
        let (begun, begun_us) = (Instant::now(), now_us());
        let mut late = Histogram::default();
        for (slot, connection) in (0..self.plan.events).zip(to.iter().cycle()) {
            let offset = Duration::from_micros(due_us(slot, per_s));
            let due = begun + offset;
            if due >= self.deadline {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            late.add(due.elapsed().as_micros() as u64);
            let _ = connection.send(begun_us + offset.as_micros() as u64);
        }
        late
    }

    /// Takes the numbers of the next request's events; nothing when the plan is done.
    fn take(&self) -> Option<std::ops::Range<u64>> {
        let events = u64::from(self.plan.form.events());
        let end = self.plan.first + self.plan.events;
        let take = |next: u64| (next < end).then(|| end.min(next + events));
        let first = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(first..end.min(first + events))
    }

    fn count(&self, accepted: u64, failed: u64, problem: impl FnOnce() -> String) {
        let now = now_us();
        let part = (self.plan.events / BACKLOG_PARTS).max(1);
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let before = report.accepted / part;
        report.accepted += accepted;
        report.failed += failed;
        if report.accepted / part > before {
            let point = (report.accepted, now);
            report.parts.push(point);
        }
        if accepted > 0 {
            report.last_answer_us = now;
        }
        if failed > 0 {
            report.problem.get_or_insert_with(problem);
        }
    }
}

impl Pacing {
    /// When the event that is to be sent should have been; nothing when there are no more.
    async fn next(&mut self, deadline: Instant) -> Option<u64> {
        match self {
            Self::AtOnce => (Instant::now() < deadline).then(now_us),
            Self::Scheduled(due) => due.recv().await,
        }
    }
}

async fn produce(run: Arc<LoadRun>, producer: u32, mut to: Connection, mut turns: Pacing) {
    let plan = &run.plan;
    while let Some(sent_us) = turns.next(run.deadline).await {
        let Some(numbers) = run.take() else { break };
        let path = &plan.paths[numbers.start as usize % plan.paths.len()];
        let events = numbers.end - numbers.start;
        let body = request::body(plan, producer, numbers, sent_us);
        let content_type = plan.form.content_type();
        let answer = to.send(Call { method: Method::POST, path, content_type, body }).await;
        let accepted = answer
            .as_ref()
            .map_or(0, |(status, body)| request::accepted(plan.form, events, *status, body));
        run.count(accepted, events - accepted, || describe(&answer));
        if accepted < events {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        if answer.is_err() {
            match Connection::open(&plan.address, plan.token.as_deref()).await {
                Ok(again) => to = again,
                Err(_) => break,
            }
        }
    }
}

fn describe(answer: &Result<(hyper::StatusCode, bytes::Bytes), String>) -> String {
    match answer {
        Ok((status, body)) => format!("{status}: {}", String::from_utf8_lossy(body)),
        Err(problem) => problem.clone(),
    }
}
