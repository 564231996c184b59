//! The process that kills: runs the sender, the receiver and the clock.

use std::fmt;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::Instant;

use crate::child_config::{ReceiverChildConfig, SenderChildConfig};
use crate::database;
use crate::judge::Outcome;
use crate::receiver;

/// Kills of each process, and restarts of PostgreSQL, in a default run.
const KILLS: u32 = 20;
const RESTARTS: u32 = 30;
/// Events that one life of the sender accepts at the most, and one that is not killed.
const EVENTS_PER_LIFE: u32 = 2_000;
const EVENTS_IN_ALL: u32 = 40_000;
/// So long until a run that hangs is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the receiver's database is looked at while the rest arrives.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a run came to.
pub(crate) struct Summary {
    seed: u64,
    faults: String,
    acknowledged: usize,
    applied: usize,
    duplicates: u64,
    once: u64,
    /// How long the last of them took after the last fault.
    drained_in: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, faults, acknowledged, applied, duplicates, once, drained_in } = self;
        write!(
            f,
            "{faults}; {acknowledged} events acknowledged, {applied} applied, none twice, none lost, in \
             order; {duplicates} duplicates; at most once: {once} sent, 0 twice; all within {:.1} s \
             (seed {seed})",
            drained_in.as_secs_f64()
        )
    }
}

/// The receiver and its database.
struct World {
    receiver: ReceiverChildConfig,
    _folder: tempfile::TempDir,
    seed: u64,
    dice: fastrand::Rng,
}

impl World {
    fn new() -> Self {
        let seed = environment("RAILPOST_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("receiver.db").display().to_string();
        receiver::open(&database);
        let port = free_port();
        let dice = fastrand::Rng::with_seed(seed);
        Self { receiver: ReceiverChildConfig { port, database }, _folder: folder, seed, dice }
    }

    fn sender(&self, store: &str, run: u32, events: u32) -> SenderChildConfig {
        SenderChildConfig { run, store: store.to_owned(), receiver: self.receiver.port, events }
    }

    fn outcome(&self) -> Outcome {
        Outcome::read(&receiver::open(&self.receiver.database))
    }

    /// Waits until everything acknowledged was applied; says how long that took.
    async fn drained(&self, acknowledged: &[String]) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            let missing = self.outcome().missing(acknowledged);
            if missing == 0 {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > PATIENCE {
                let seed = self.seed;
                return Err(format!("{missing} acknowledged events never arrived (seed {seed})"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn summary(
        &self,
        faults: String,
        acknowledged: usize,
        drained_in: Duration,
    ) -> Result<Summary, String> {
        let outcome = self.outcome();
        let violations = outcome.violations();
        if !violations.is_empty() {
            return Err(format!("seed {}: {}", self.seed, violations.join("; ")));
        }
        Ok(Summary {
            seed: self.seed,
            faults,
            acknowledged,
            applied: outcome.applied(),
            duplicates: outcome.said("duplicate"),
            once: outcome.once(),
            drained_in,
        })
    }
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// A free port.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Kills the sender and the receiver, over and over, side by side.
pub(crate) async fn kill_both(store: &str) -> Result<Summary, String> {
    let mut world = World::new();
    let kills = environment("RAILPOST_CRASH_KILLS").map_or(KILLS, |kills| kills as u32);
    let killing = tokio::spawn(kill_receivers(world.receiver.clone(), kills, world.dice.fork()));
    let mut acknowledged = Vec::new();
    for run in 1..=kills {
        let config = world.sender(store, run, EVENTS_PER_LIFE);
        let after = Duration::from_millis(world.dice.u64(5..400));
        acknowledged.extend(live_and_die(&config, after).await?);
    }
    let _receiver = killing.await.unwrap();
    let mut last = world.sender(store, kills + 1, 0).spawn();
    let drained_in = world.drained(&acknowledged).await?;
    drop(last.stdin.take());
    ended(&mut last).await?;
    let faults = format!("{kills} kills of the sender, {kills} of the receiver");
    world.summary(faults, acknowledged.len(), drained_in)
}

/// One receiver after the other; the last one lives.
async fn kill_receivers(config: ReceiverChildConfig, kills: u32, mut dice: fastrand::Rng) -> Child {
    for _ in 0..kills {
        let mut receiver = config.spawn();
        tokio::time::sleep(Duration::from_millis(dice.u64(20..600))).await;
        receiver.start_kill().unwrap();
        receiver.wait().await.unwrap();
    }
    config.spawn()
}

/// One life of the sender: from the start until it is killed, `after` its first acknowledgement. Gives the
/// events it acknowledged.
async fn live_and_die(config: &SenderChildConfig, after: Duration) -> Result<Vec<String>, String> {
    let mut child = config.spawn();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = vec![first_line(&mut lines).await?];
    let death = tokio::time::sleep(after);
    tokio::pin!(death);
    loop {
        tokio::select! {
            line = lines.next_line() => match line.unwrap() {
                Some(event) => acknowledged.push(event),
                None => return Err("the sender ended by itself".into()),
            },
            () = &mut death => break,
        }
    }
    child.start_kill().unwrap();
    // What it wrote before it died is still in the pipe.
    while let Some(event) = lines.next_line().await.unwrap() {
        acknowledged.push(event);
    }
    child.wait().await.unwrap();
    Ok(acknowledged)
}

/// The first event that a sender acknowledged.
async fn first_line(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String, String> {
    let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    let first = first.map_err(|_| "the sender acknowledged nothing".to_owned())?.unwrap();
    first.ok_or("the sender ended by itself".to_owned())
}

async fn ended(child: &mut Child) -> Result<(), String> {
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    match ended.map_err(|_| "the sender did not stop")?.unwrap() {
        status if status.success() => Ok(()),
        status => Err(format!("the sender ended with {status}")),
    }
}

/// Restarts PostgreSQL, over and over, under a sender that goes on.
pub(crate) async fn restart_postgres(store: &str) -> Result<Summary, String> {
    let mut world = World::new();
    let restarts = environment("RAILPOST_CRASH_RESTARTS").map_or(RESTARTS, |count| count as u32);
    let _receiver = world.receiver.spawn();
    let mut sender = world.sender(store, 1, EVENTS_IN_ALL).spawn();
    let mut lines = BufReader::new(sender.stdout.take().unwrap()).lines();
    let acknowledged = vec![first_line(&mut lines).await?];
    let reading = tokio::spawn(read_until_enough(lines, acknowledged));
    for _ in 0..restarts {
        tokio::time::sleep(Duration::from_millis(world.dice.u64(100..700))).await;
        database::restart().await;
    }
    sender.stdin.as_mut().unwrap().write_all(b"enough\n").await.unwrap();
    let read = tokio::time::timeout(PATIENCE, reading).await;
    let acknowledged = read.map_err(|_| "the sender hangs")?.unwrap()?;
    let drained_in = world.drained(&acknowledged).await?;
    all_recorded(store).await?;
    drop(sender.stdin.take());
    ended(&mut sender).await?;
    let faults = format!("{restarts} restarts of PostgreSQL");
    world.summary(faults, acknowledged.len(), drained_in)
}

async fn read_until_enough(
    mut lines: Lines<BufReader<ChildStdout>>,
    mut acknowledged: Vec<String>,
) -> Result<Vec<String>, String> {
    loop {
        match lines.next_line().await.unwrap() {
            Some(line) if line == "enough" => return Ok(acknowledged),
            Some(event) => acknowledged.push(event),
            None => return Err("the sender ended by itself".to_owned()),
        }
    }
}

/// Waits until the store knows that everything arrived: records that a crash of the database lost are
/// written again.
async fn all_recorded(store: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match database::open_deliveries(store).await {
            0 => return Ok(()),
            open if begun.elapsed() > PATIENCE => {
                return Err(format!("{open} deliveries that arrived are open in the store"));
            }
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
