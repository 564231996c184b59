//! The demo: receivers that misbehave in named ways, a producer, and a line of text per scene. Everything is on
//! loopback.
//!
//! It talks to a running server through the API, like any client. A scene waits for what it shows to happen,
//! never for time to pass.

mod application;
mod client;
mod receiver;
mod request;
mod scenes;
mod world;

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::time::Duration;

use world::DemoWorld;

pub use application::AppDatabase;

/// How the demo runs.
#[derive(Clone, Copy, Debug)]
pub struct DemoOptions {
    /// How many scenes it shows; all of them if there are fewer.
    pub scenes: usize,
    /// What comes after the scenes.
    pub ending: DemoEnding,
    /// How long the receiver that is down stays down.
    pub down_for: Duration,
}

/// What comes after the scenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoEnding {
    /// The demo ends.
    End,
    /// The server stays with traffic, as a playground, until it is told to stop.
    Stay,
    /// The viewer is asked which.
    Ask,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { scenes: usize::MAX, ending: DemoEnding::End, down_for: Duration::from_secs(20) }
    }
}

/// The person who watches: scenes wait until they go on.
pub trait DemoViewer: Send {
    /// Waits until the viewer wants the next scene.
    fn next_scene(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether the viewer wants to keep the server as a playground.
    fn wants_playground(&mut self) -> impl Future<Output = bool> + Send;
}

/// Nobody watches: the scenes run through.
#[derive(Clone, Copy, Debug)]
pub struct NoViewer;

impl DemoViewer for NoViewer {
    async fn next_scene(&mut self) {}

    async fn wants_playground(&mut self) -> bool {
        false
    }
}

/// Why the demo ended before its time.
#[derive(Debug)]
pub struct DemoError(String);

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DemoError {}

impl DemoError {
    /// What failed, and why.
    pub fn new(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl From<std::io::Error> for DemoError {
    fn from(error: std::io::Error) -> Self {
        Self::new("the demo's text could not be written", error)
    }
}

/// The server that the demo is shown on.
#[derive(Clone, Copy, Debug)]
pub struct DemoServer<'a> {
    /// Its URL.
    pub url: &'a str,
    /// An admin key.
    pub key: &'a str,
    /// A link that opens the dashboard once.
    pub dashboard: &'a str,
    /// The application's database, which is a source of the server.
    pub database: &'a AppDatabase,
}

/// Plays the scenes on a running server, then ends or goes on with traffic.
pub async fn play(
    server: DemoServer<'_>,
    options: DemoOptions,
    viewer: &mut impl DemoViewer,
    out: &mut (impl Write + Send),
) -> Result<(), DemoError> {
    writeln!(
        out,
        "Railpost's demo, on this machine alone. Watch it here (the link works once):\n"
    )?;
    writeln!(out, "    {}\n", server.dashboard)?;
    let mut world = DemoWorld::set(server, options.down_for).await?;
    writeln!(out, "Receivers: {}.", world.names().join(", "))?;
    let shown = scenes::ALL.len().min(options.scenes);
    for number in 0..shown {
        if number > 0 {
            viewer.next_scene().await;
        }
        writeln!(out, "\nScene {} of {shown}: {}", number + 1, scenes::ALL[number].line())?;
        out.flush()?;
        let happened = scenes::ALL[number].play(&mut world).await?;
        writeln!(out, "    ✓ {happened}")?;
        out.flush()?;
    }
    let stays = match options.ending {
        DemoEnding::End => false,
        DemoEnding::Stay => true,
        DemoEnding::Ask => viewer.wants_playground().await,
    };
    if !stays {
        return Ok(());
    }
    writeln!(
        out,
        "\nThe playground: events go on, and `order-13` is poisoned again. Replay its dead letter"
    )?;
    writeln!(out, "on the page \"Lanes\", or use the command line in another terminal:\n")?;
    writeln!(out, "    export RAILPOST_URL={} RAILPOST_API_KEY={}", server.url, server.key)?;
    writeln!(out, "    railpost lanes list\n\nCtrl-C ends it.")?;
    out.flush()?;
    world.run_traffic().await
}
