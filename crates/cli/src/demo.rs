//! The demo: receivers that misbehave in named ways, a producer, and a line of text per scene. Everything is on
//! loopback.
//!
//! It talks to a running server through the API, like any client. A scene waits for what it shows to happen,
//! never for time to pass.

mod application;
mod client;
mod receiver;
mod scenes;
mod world;

use std::fmt;
use std::io::Write;
use std::time::Duration;

use world::DemoWorld;

pub use application::AppDatabase;

/// How the demo runs.
#[derive(Clone, Copy, Debug)]
pub struct DemoOptions {
    /// How many scenes it shows; all of them if there are fewer.
    pub scenes: usize,
    /// Whether it ends after the scenes, instead of going on until it is told to stop.
    pub exit_after_scenes: bool,
    /// How long the receiver that is down stays down.
    pub down_for: Duration,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { scenes: usize::MAX, exit_after_scenes: false, down_for: Duration::from_secs(20) }
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

/// Plays the scenes on a running server, then goes on with traffic unless told to end.
pub async fn play(
    server: DemoServer<'_>,
    options: DemoOptions,
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
        writeln!(out, "\nScene {} of {shown}: {}", number + 1, scenes::ALL[number].line())?;
        out.flush()?;
        let happened = scenes::ALL[number].play(&mut world).await?;
        writeln!(out, "    ✓ {happened}")?;
        out.flush()?;
    }
    if options.exit_after_scenes {
        return Ok(());
    }
    writeln!(
        out,
        "\nTraffic goes on, and `order-13` is poisoned again: replay its dead letter on the"
    )?;
    writeln!(out, "page \"Lanes\". Ctrl-C ends the demo.")?;
    out.flush()?;
    world.run_traffic().await
}
