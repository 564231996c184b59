//! The servers, one life after the other.

use std::fmt;
use std::ops::AddAssign;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::process::{ADMIN_KEY, Running};
use super::receiver::Receiver;
use super::source::Source;
use super::writers::Writers;

/// Kills per mode in a default run, and the servers that share them.
const KILLS: u32 = 50;
const SERVERS: u32 = 3;
/// Longest time from the first event that a server relays to its end, in milliseconds.
const LIFE_MS_MAX: u64 = 150;
/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a source is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Poll,
    Tail,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::Poll, Self::Tail];

    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Tail => "tail",
        }
    }
}

/// What a run came to.
#[derive(Default)]
pub(crate) struct Summary {
    seed: u64,
    kills: u32,
    committed: usize,
    rolled_back: usize,
    duplicates: usize,
    /// Kills that left rows in the source, and rows among them that had arrived: a crash between storing a row
    /// and deleting it.
    kills_with_rows: u32,
    read_again: usize,
    took: Duration,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.duplicates += other.duplicates;
        self.kills_with_rows += other.kills_with_rows;
        self.read_again += other.read_again;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills of {SERVERS} servers; {} events committed, all arrived, in order within their keys; {} rolled \
             back, none arrived; {} duplicates; {} kills left rows, {} rows had arrived before they were read \
             again; {:.1} s (seed {})",
            self.kills,
            self.committed,
            self.rolled_back,
            self.duplicates,
            self.kills_with_rows,
            self.read_again,
            self.took.as_secs_f64(),
            self.seed
        )
    }
}

/// Kills servers that read in this mode, and checks what arrived.
pub(crate) async fn run(mode: Mode) -> Result<Summary, String> {
    let begun = Instant::now();
    let seed = environment("RAILPOST_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    let kills = environment("RAILPOST_OUTBOX_KILLS").map_or(KILLS, |kills| kills as u32);
    let mut dice = Rng::with_seed(seed);
    let mut servers = JoinSet::new();
    for number in 0..SERVERS {
        let kills = kills / SERVERS + u32::from(number < kills % SERVERS);
        servers.spawn(kill_one(mode, number, kills, dice.fork()));
    }
    let mut all = Summary { seed, ..Summary::default() };
    while let Some(summary) = servers.join_next().await {
        all += summary.unwrap().map_err(|problem| format!("{problem} (seed {seed})"))?;
    }
    all.took = begun.elapsed();
    Ok(all)
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// One server after the other on the same store; the last one lives until everything has arrived.
async fn kill_one(mode: Mode, number: u32, kills: u32, mut dice: Rng) -> Result<Summary, String> {
    let source = Source::create(mode, number).await;
    let receiver = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("railpost.toml"), source.section()).unwrap();
    let mut server = start(folder.path()).await;
    let endpoint = json!({"url": receiver.url()});
    assert_eq!(server.post("/v1/tenants/default/endpoints", &endpoint).0, 201);
    let writers = Writers::start(&source, &mut dice).await;
    let mut summary = Summary { kills, ..Summary::default() };
    for kill in 0..kills {
        until_relaying(&receiver, kill).await?;
        tokio::time::sleep(Duration::from_millis(dice.u64(..LIFE_MS_MAX))).await;
        // Dropping it is `kill -9`.
        drop(server);
        writers.note_kill();
        note_rows(&mut summary, &source, &receiver).await;
        server = start(folder.path()).await;
    }
    let written = writers.stop().await;
    let arrived = receiver.until(|arrivals| arrivals.has_all(&written));
    let in_time = timeout(PATIENCE, arrived).await.is_ok();
    let violations = receiver.arrivals().violations(&written);
    if !in_time || !violations.is_empty() {
        return Err(format!("server {number}: {}", violations.join("; ")));
    }
    until_empty(&source).await?;
    drop(server);
    source.drop().await;
    summary.committed = written.committed.len();
    summary.rolled_back = written.rolled_back;
    summary.duplicates = receiver.arrivals().duplicates;
    Ok(summary)
}

async fn start(folder: &Path) -> Running {
    let folder = folder.to_owned();
    let start =
        move || Running::start_with(&folder, &[], &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)]);
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Waits for an event that was written after the last kill: the server that runs has relayed it, not the
/// killed one.
async fn until_relaying(receiver: &Receiver, kills: u32) -> Result<(), String> {
    let relaying = receiver.until(|arrivals| arrivals.has_any() && arrivals.kills >= kills);
    let waited = timeout(PATIENCE, relaying).await;
    waited.map_err(|_| format!("nothing was relayed after kill {kills}"))
}

/// Notes which rows a killed server left.
async fn note_rows(summary: &mut Summary, source: &Source, receiver: &Receiver) {
    let rows = source.rows().await;
    summary.kills_with_rows += u32::from(!rows.is_empty());
    let arrivals = receiver.arrivals();
    summary.read_again += rows.iter().filter(|id| arrivals.has(id)).count();
}

/// Waits until every row was deleted.
async fn until_empty(source: &Source) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let rows = source.rows().await;
        if rows.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} rows were relayed and not deleted", rows.len()));
        }
    }
}
