//! Servers that stand still and go on: a machine that was suspended, a process that was stopped.
//!
//! A stopped server keeps its connections. The server that takes its place may not start before PostgreSQL has
//! ended the one that holds the lock or the slot, and what the stopped one does when it goes on must do no harm.

use std::fmt;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::timeout;

use super::judge::Written;
use super::kills::{Home, Mode, PATIENCE, seed, subscribe, until_empty, until_relaying};
use super::process::{ADMIN_KEY, Running};
use super::receiver::Receiver;
use super::source::Source;
use super::writers::Writers;

/// What a run came to.
pub(crate) struct Summary {
    what: &'static str,
    committed: usize,
    rolled_back: usize,
    duplicates: usize,
    stood_still: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {} events committed, all arrived; {} rolled back, none arrived; {} duplicates; stood still for \
             {:.1} s",
            self.what,
            self.committed,
            self.rolled_back,
            self.duplicates,
            self.stood_still.as_secs_f64()
        )
    }
}

/// Two servers with stores of their own read one source. First the one stands still, then the other.
pub(crate) async fn own_stores(mode: Mode) -> Result<Summary, String> {
    let mut dice = Rng::with_seed(seed());
    let source = Source::create(mode, "stops").await;
    let receiver = Receiver::start();
    let homes = [Home::new(&source, None), Home::new(&source, None)];
    let first = homes[0].start().await;
    until_reading(&first);
    let servers = [first, homes[1].start().await];
    servers.iter().for_each(|server| subscribe(server, &receiver));
    let writers = Writers::start(&source, &receiver, &mut dice).await;
    until_relaying(&receiver, 0).await?;
    let mut stood_still = Duration::ZERO;
    let mut going_on = Vec::new();
    for (number, server) in (1..).zip(servers) {
        stop(&server);
        let begun = Instant::now();
        writers.note_kill();
        until_relaying(&receiver, number).await?;
        stood_still += begun.elapsed();
        server.signal("CONT");
        going_on.push(server);
    }
    let written = writers.stop().await;
    until_arrived(&receiver, &written).await;
    let violations = receiver.arrivals().violations_but_order(&written);
    if !violations.is_empty() {
        return Err(violations.join("; "));
    }
    until_empty(&source).await?;
    let what = "2 servers with stores of their own, stopped in turns";
    let duplicates = receiver.arrivals().duplicates;
    drop(going_on);
    source.drop().await;
    Ok(summary(what, &written, duplicates, stood_still))
}

/// A server stands still, PostgreSQL ends its sessions, and another server takes over its store and its source.
/// Then the first goes on.
pub(crate) async fn shared_store(mode: Mode) -> Result<Summary, String> {
    let mut dice = Rng::with_seed(seed());
    let source = Source::create(mode, "takeover").await;
    let receiver = Receiver::start();
    let home = Home::new(&source, Some(source.store().await));
    let first = home.start().await;
    subscribe(&first, &receiver);
    let writers = Writers::start(&source, &receiver, &mut dice).await;
    until_relaying(&receiver, 0).await?;
    stop(&first);
    let begun = Instant::now();
    source.end_sessions().await;
    writers.note_kill();
    let second = home.start().await;
    until_relaying(&receiver, 1).await?;
    let stood_still = begun.elapsed();
    first.signal("CONT");
    let ready = until_not_ready(&first);
    writers.note_kill();
    until_relaying(&receiver, 2).await?;
    let written = writers.stop().await;
    until_arrived(&receiver, &written).await;
    let violations = receiver.arrivals().violations(&written);
    if !violations.is_empty() {
        return Err(violations.join("; "));
    }
    if !ready.contains("another server") {
        return Err(format!("the first server does not say that it has lost its store: {ready}"));
    }
    until_empty(&source).await?;
    let what = "1 takeover of a store in PostgreSQL, in order within each key";
    let duplicates = receiver.arrivals().duplicates;
    drop((first, second));
    source.drop().await;
    Ok(summary(what, &written, duplicates, stood_still))
}

/// Stops a process, and waits until all of it stands still.
fn stop(server: &Running) {
    server.signal("STOP");
    let path = format!("/proc/{}/stat", server.pid());
    let is_stopped =
        |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
    while !is_stopped(std::fs::read_to_string(&path).unwrap()) {}
}

/// Waits until this server is the one that reads the source.
fn until_reading(server: &Running) {
    let begun = Instant::now();
    while !server.get("/v1/outbox/shop", ADMIN_KEY).1.contains("\"state\":\"reading\"") {
        assert!(begun.elapsed() < PATIENCE, "the source is not read");
    }
}

/// Asks the server until it is not ready any more. Answers what it says then.
fn until_not_ready(server: &Running) -> String {
    let begun = Instant::now();
    loop {
        let (status, text) = server.get("/health/ready", "");
        if status != 200 || begun.elapsed() > PATIENCE {
            return text;
        }
    }
}

/// Waits until everything has arrived, or as long as it may take.
async fn until_arrived(receiver: &Receiver, written: &Written) {
    // What is missing then is a violation.
    let _ = timeout(PATIENCE, receiver.until(|arrivals| arrivals.has_all(written))).await;
}

fn summary(
    what: &'static str,
    written: &Written,
    duplicates: usize,
    stood_still: Duration,
) -> Summary {
    let (committed, rolled_back) = (written.committed.len(), written.rolled_back);
    Summary { what, committed, rolled_back, duplicates, stood_still }
}
