//! Servers that are killed, one life after the other.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::process::{ADMIN_KEY, Running};
use super::receiver::Receiver;
use super::source::Source;
use super::writers::Writers;

/// Kills per mode in a default run, and the servers that share them.
const KILLS: u32 = 50;
const SERVERS: u32 = 3;
/// The same for stores in PostgreSQL. There a killed server's lease lasts for 5 s, which no setting shortens, and
/// its successor waits for its end.
const KILLS_POSTGRES: u32 = 6;
const SERVERS_POSTGRES: u32 = 2;
/// Longest time from the first event that a server relays to its end, in milliseconds.
const LIFE_MS_MAX: u64 = 150;
/// Longest wait for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where servers store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

impl Store {
    fn servers(self) -> u32 {
        match self {
            Self::Sqlite => SERVERS,
            Self::Postgres => SERVERS_POSTGRES,
        }
    }

    fn kills(self) -> u32 {
        match self {
            Self::Sqlite => {
                environment("RAILPOST_OUTBOX_KILLS").map_or(KILLS, |kills| kills as u32)
            }
            Self::Postgres => KILLS_POSTGRES,
        }
    }
}

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
    servers: u32,
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
            "{} kills of {} servers; {} events committed, all arrived, in order within their keys; {} rolled \
             back, none arrived; {} duplicates; {} kills left rows, {} rows had arrived before they were read \
             again; {:.1} s (seed {})",
            self.kills,
            self.servers,
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

/// The seed of the dice: the run's own, unless the environment names one.
pub(crate) fn seed() -> u64 {
    environment("RAILPOST_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..))
}

/// Kills servers that read in this mode, and checks what arrived.
pub(crate) async fn run(mode: Mode, store: Store) -> Result<Summary, String> {
    let begun = Instant::now();
    let seed = seed();
    let (kills, count) = (store.kills(), store.servers());
    let mut dice = Rng::with_seed(seed);
    let mut servers = JoinSet::new();
    for number in 0..count {
        let kills = kills / count + u32::from(number < kills % count);
        servers.spawn(kill_one(mode, store, number, kills, dice.fork()));
    }
    let mut all = Summary { seed, servers: count, ..Summary::default() };
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
async fn kill_one(
    mode: Mode,
    store: Store,
    number: u32,
    kills: u32,
    mut dice: Rng,
) -> Result<Summary, String> {
    let source = Source::create(mode, &format!("kills_{store:?}_{number}").to_lowercase()).await;
    let receiver = Receiver::start();
    let url = match store {
        Store::Sqlite => None,
        Store::Postgres => Some(source.store().await),
    };
    let home = Home::new(&source, url);
    let mut server = home.start().await;
    subscribe(&server, &receiver);
    let writers = Writers::start(&source, &receiver, &mut dice).await;
    let mut summary = Summary { kills, ..Summary::default() };
    for kill in 0..kills {
        until_relaying(&receiver, kill).await?;
        tokio::time::sleep(Duration::from_millis(dice.u64(..LIFE_MS_MAX))).await;
        // Dropping it is `kill -9`.
        drop(server);
        writers.note_kill();
        note_rows(&mut summary, &source, &receiver).await;
        server = home.start().await;
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

/// The folder of a server, and where it stores.
pub(crate) struct Home {
    folder: TempDir,
    /// Nothing: in the folder.
    store: Option<String>,
}

impl Home {
    pub(crate) fn new(source: &Source, store: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("railpost.toml"), source.section()).unwrap();
        Self { folder, store }
    }

    pub(crate) async fn start(&self) -> Running {
        let (folder, store) = (self.folder.path().to_owned(), self.store.clone());
        let start = move || {
            let store: Vec<&str> = store.iter().flat_map(|url| ["--store", url]).collect();
            Running::start_with(&folder, &store, &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)])
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }
}

/// Lets the server deliver everything to the receiver.
pub(crate) fn subscribe(server: &Running, receiver: &Receiver) {
    let endpoint = json!({"url": receiver.url()});
    assert_eq!(server.post("/v1/tenants/default/endpoints", &endpoint).0, 201);
}

/// Waits for an event that was written after the last kill: the server that runs has relayed it, not the
/// killed one.
pub(crate) async fn until_relaying(receiver: &Receiver, kills: u32) -> Result<(), String> {
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
pub(crate) async fn until_empty(source: &Source) -> Result<(), String> {
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
