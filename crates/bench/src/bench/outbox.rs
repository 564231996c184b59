//! Events from an application's outbox: how fast they are drained, how soon they are delivered, and what it
//! costs.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use super::{Bench, CaseError, RunningServer, TENANT, one_endpoint, subscribe};
use crate::cases::{OutboxCase, PLAIN, Reading, Store};
use crate::child::Sink;
use crate::clock::now_us;
use crate::figures::{Figures, per_second, ratio};
use crate::histogram::Histogram;
use crate::limits::{
    CPU_WATCH, DRAIN_MAX, EMIT_PAIRS, EMIT_SESSIONS, EMIT_TIME, OUTBOX_DEAD_ROWS, OUTBOX_DRAIN_MAX,
    OUTBOX_EVENTS, OUTBOX_ROWS, OUTBOX_WARM_UP,
};
use crate::load::request::type_name;
use crate::measure::failure;
use crate::postgres::Postgres;
use crate::proc::Usage;
use crate::sink::SinkCommand;
use crate::source::{Session, SourceDatabase};

/// Commits by schedule when delays are measured.
const DELAY_PER_S: u64 = 200;

/// Settings of the application's server beside its defaults: the log can be tailed.
const SOURCE_SETTINGS: &str = "-c wal_level=logical";

/// More of the source's section: as many rows at a time as can be.
const LARGE_BATCHES: &str = "batch = 1000\n";
/// The same: a poll follows the other.
const POLL_ALWAYS: &str = "poll_interval = \"1ms\"\n";

impl Bench {
    pub(super) fn outbox(&mut self, case: OutboxCase) -> Result<Figures, CaseError> {
        match case {
            OutboxCase::Drain(store) => self.outbox_drain(store),
            OutboxCase::Delay(reading) => self.outbox_delay(reading),
            OutboxCase::Cpu { reading, per_s } => self.outbox_cpu(reading, per_s),
            OutboxCase::Emit => self.outbox_emit(),
            OutboxCase::DeadRows => self.outbox_dead_rows(),
        }
    }

    /// From the start of the server that finds the rows until the last of them is delivered.
    fn outbox_drain(&mut self, store: Store) -> Result<Figures, CaseError> {
        let events = self.scale.events(OUTBOX_ROWS);
        let source = self.source()?;
        self.progress.say("filling the outbox");
        source.fill(events, PLAIN.payload_bytes)?;
        let mut running = self.server(store)?;
        let mut sink = Sink::start(1)?;
        subscribe(&running.server, &mut sink, 0, TENANT, &[type_name(0)])?;
        let begun_us = now_us();
        relay_from(&mut running, &source, Reading::Poll, LARGE_BATCHES)?;
        let missing =
            self.stage_of(&running, &mut sink).drain(events, &one_endpoint(), OUTBOX_DRAIN_MAX)?;
        let arrived = sink.report()?;
        let took_us = arrived[0].last_us.unwrap_or(begun_us).saturating_sub(begun_us);
        let usage = Usage::of(running.server.pid());
        Ok(Figures {
            delivered_per_s: per_second(arrived[0].fresh, took_us),
            server_cpu_us: ratio(usage.cpu_us as f64, arrived[0].fresh as f64),
            peak_bytes: Some(usage.peak_bytes),
            delivered: arrived[0].fresh,
            duplicates: arrived[0].duplicates,
            failure: failure(&arrived, missing),
            ..Figures::default()
        })
    }

    fn outbox_delay(&mut self, reading: Reading) -> Result<Figures, CaseError> {
        let source = self.source()?;
        let mut running = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(1)?;
        subscribe(&running.server, &mut sink, 0, TENANT, &[type_name(0)])?;
        relay_from(&mut running, &source, reading, "")?;
        self.measure_delay(&running, &source, &mut sink, 0)
    }

    /// From the answer to COMMIT to the arrival of the event, by schedule. Numbers begin at `first`.
    fn measure_delay(
        &self,
        running: &RunningServer,
        source: &SourceDatabase,
        sink: &mut Sink,
        first: u64,
    ) -> Result<Figures, CaseError> {
        let (warm, events) = (self.scale.events(OUTBOX_WARM_UP), self.scale.events(OUTBOX_EVENTS));
        let measured = first + warm..first + warm + events;
        sink.command(&SinkCommand::Reset)?;
        self.progress.say("warming up");
        source.commit(first..measured.start, DELAY_PER_S)?;
        self.stage_of(running, sink).drain(warm, &one_endpoint(), DRAIN_MAX)?;
        // From here on each arrival is noted.
        sink.times(0)?;
        self.progress.say("measuring");
        let commits: HashMap<u64, u64> =
            source.commit(measured, DELAY_PER_S)?.into_iter().collect();
        let missing =
            self.stage_of(running, sink).drain(warm + events, &one_endpoint(), DRAIN_MAX)?;
        let mut delays = Histogram::default();
        for (number, at_us) in sink.times(0)? {
            let committed_us = commits.get(&number).copied().unwrap_or(at_us);
            delays.add(at_us.saturating_sub(committed_us));
        }
        let arrived = sink.report()?;
        Ok(Figures {
            p50_us: delays.quantile(0.5),
            p99_us: delays.quantile(0.99),
            scheduled: true,
            delivered: arrived[0].fresh,
            duplicates: arrived[0].duplicates,
            failure: failure(&arrived, missing),
            ..Figures::default()
        })
    }

    /// The CPU of a server that relays and stores, without that of the same server before it had a source.
    /// Nobody subscribes, so nothing is delivered.
    fn outbox_cpu(&mut self, reading: Reading, per_s: Option<u64>) -> Result<Figures, CaseError> {
        let source = self.source()?;
        let mut running = self.server(Store::Sqlite)?;
        let watch = self.scale.time(CPU_WATCH);
        self.progress.say("watching the server without a source");
        let without = cores(running.server.pid(), watch, || wait(watch))?;
        relay_from(&mut running, &source, reading, "")?;
        source.commit(0..OUTBOX_WARM_UP, DELAY_PER_S)?;
        source.wait_until_empty(DRAIN_MAX)?;
        self.progress.say("watching the server with a source");
        let with = cores(running.server.pid(), watch, || match per_s {
            None => wait(watch),
            Some(per_s) => {
                let events = per_s * watch.as_millis() as u64 / 1_000;
                source.commit(OUTBOX_WARM_UP..OUTBOX_WARM_UP + events, per_s)?;
                source.wait_until_empty(DRAIN_MAX)
            }
        })?;
        let note = format!(
            "{:.1} % of a core with the source, {:.1} % without",
            with * 100.0,
            without * 100.0
        );
        let relay_cores = Some((with - without).max(0.0));
        Ok(Figures { relay_cores, notes: vec![note], ..Figures::default() })
    }

    /// Transactions that change a row, without and with an event, in turns. Nobody relays meanwhile.
    fn outbox_emit(&mut self) -> Result<Figures, CaseError> {
        let source = self.source()?;
        source.run(&format!(
            "CREATE TABLE orders (id bigint PRIMARY KEY, n bigint NOT NULL); \
             INSERT INTO orders SELECT n, 0 FROM generate_series(0, {EMIT_SESSIONS}) AS n"
        ))?;
        let emit = "SELECT railpost_emit('order.paid', '{\"order\": 42}', 'order-42');";
        let time = self.scale.time(EMIT_TIME);
        let (mut plain, mut emitting) = (0, 0);
        for _ in 0..EMIT_PAIRS {
            plain += commit_for(time, &source.url, "")?;
            emitting += commit_for(time, &source.url, emit)?;
        }
        let per_s = |commits: u64| commits as f64 / (time * EMIT_PAIRS).as_secs_f64();
        let of_without = ratio(emitting as f64, plain as f64);
        let note = format!(
            "{:.0} commits/s with an event, {:.0} without: {:.2} of them",
            per_s(emitting),
            per_s(plain),
            of_without.unwrap_or(0.0)
        );
        Ok(Figures { of_without, notes: vec![note], ..Figures::default() })
    }

    /// An old snapshot keeps vacuum from removing what was deleted.
    fn outbox_dead_rows(&mut self) -> Result<Figures, CaseError> {
        let source = self.source()?;
        let mut running = self.server(Store::Sqlite)?;
        let mut sink = Sink::start(1)?;
        subscribe(&running.server, &mut sink, 0, TENANT, &[type_name(0)])?;
        relay_from(&mut running, &source, Reading::Poll, POLL_ALWAYS)?;
        let before = self.measure_delay(&running, &source, &mut sink, 0)?;
        let old = Session::open(&source.url)?;
        old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")?;
        self.progress.say("writing and deleting rows");
        source.run(&format!(
            "BEGIN; \
             INSERT INTO railpost_outbox (type, payload) \
             SELECT 'a', '{{}}' FROM generate_series(1, {OUTBOX_DEAD_ROWS}); \
             DELETE FROM railpost_outbox WHERE type = 'a'; \
             COMMIT"
        ))?;
        let first = OUTBOX_WARM_UP + OUTBOX_EVENTS;
        let after = self.measure_delay(&running, &source, &mut sink, first)?;
        drop(old);
        let micros = |figures: &Figures| figures.p50_us.unwrap_or(0) as f64;
        let (without, with) = (micros(&before), micros(&after));
        let note = format!("p50 {:.2} ms without dead rows", without / 1e3);
        Ok(Figures {
            of_without: ratio(with, without),
            notes: vec![note],
            failure: before.failure.or(after.failure.clone()),
            ..after
        })
    }

    /// An empty outbox in a database of the application's server.
    fn source(&mut self) -> Result<SourceDatabase, CaseError> {
        let folder = &self.folder;
        let start = || Postgres::start(folder, "source", SOURCE_SETTINGS);
        let started = self.source_postgres.get_or_insert_with(start);
        let postgres = started.as_ref().map_err(|problem| CaseError::Missing(problem.clone()))?;
        let name = format!("app_{}", self.sources);
        self.sources += 1;
        Ok(SourceDatabase::set_up(postgres.database(&name)?)?)
    }
}

/// Starts the server again, with a source to relay from.
fn relay_from(
    running: &mut RunningServer,
    source: &SourceDatabase,
    reading: Reading,
    more: &str,
) -> Result<(), String> {
    let how = match reading {
        Reading::Poll => String::new(),
        Reading::Notify => {
            source.notify()?;
            "wake = \"notify\"\n".to_owned()
        }
        Reading::Tail => {
            // Slots belong to the whole server, and databases of it have different names.
            let slot = source.url.rsplit('/').next().unwrap_or_default();
            source.publish(slot)?;
            format!("mode = \"tail\"\nslot = \"{slot}\"\n")
        }
    };
    let url = &source.url;
    running.server.configure(&format!(
        "[[outbox]]\nname = \"shop\"\nurl = \"{url}\"\ntenant = \"{TENANT}\"\n{how}{more}"
    ))?;
    running.server.crash();
    running.server.restart()?;
    running.server.wait_until_ready()
}

/// The cores' worth of CPU that a process uses for work that should take so long. A busy machine needs longer
/// for it, and its cost is the same.
fn cores(
    pid: u32,
    should_take: Duration,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<f64, String> {
    let before = Usage::of(pid);
    work()?;
    let used = Usage::of(pid) - before;
    Ok(used.cpu_us as f64 / should_take.as_micros() as f64)
}

fn wait(time: Duration) -> Result<(), String> {
    thread::sleep(time);
    Ok(())
}

/// Commits in several sessions for so long; each changes a row of its own. Says how many were committed.
fn commit_for(time: Duration, url: &str, statement: &str) -> Result<u64, String> {
    let sessions = (0..EMIT_SESSIONS).map(|_| Session::open(url)).collect::<Result<Vec<_>, _>>()?;
    let until = Instant::now() + time;
    let counts: Vec<Result<u64, String>> = thread::scope(|scope| {
        let start = |(row, session): (u64, Session)| {
            let sql =
                format!("BEGIN; UPDATE orders SET n = n + 1 WHERE id = {row}; {statement} COMMIT");
            scope.spawn(move || {
                let mut commits = 0;
                while Instant::now() < until {
                    session.run(&sql)?;
                    commits += 1;
                }
                Ok(commits)
            })
        };
        let threads: Vec<_> = (0..).zip(sessions).map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a session died".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    counts.into_iter().sum()
}
