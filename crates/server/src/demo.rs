//! The demo: an ephemeral server, receivers that misbehave in named ways, a producer, and a line of
//! text per scene. Everything is on loopback, and nothing is left when it ends.
//!
//! It talks to the server through the API's own routes, like any client. A scene waits for what it
//! shows to happen, never for time to pass.

mod client;
mod receiver;
mod scenes;
mod stage;

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::time::Duration;

use crate::config::Config;
use crate::dashboard::one_time_link;
use crate::serve::Server;
use crate::telemetry::{Level, Log};
use stage::Stage;

/// How the demo runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The port of loopback that it listens on; 0 for any that is free.
    pub port: u16,
    /// How many scenes it shows; all of them if there are fewer.
    pub scenes: usize,
    /// Whether it ends after the scenes, instead of going on until it is told to stop.
    pub exit_after_scenes: bool,
    /// How long the receiver that is down stays down.
    pub down_for: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            scenes: usize::MAX,
            exit_after_scenes: false,
            down_for: Duration::from_secs(20),
        }
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
    fn new(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl From<std::io::Error> for DemoError {
    fn from(error: std::io::Error) -> Self {
        Self::new("the demo's text could not be written", error)
    }
}

/// Runs the demo until it is told to stop, or through its scenes.
pub async fn run(
    options: Options,
    out: &mut (impl Write + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<(), DemoError> {
    let server = Server::start(config(options.port), Log::new(Level::Error, std::io::sink())).await;
    let server = server.map_err(|error| DemoError::new("the server did not start", error))?;
    let played = tokio::select! {
        played = play(&server, options, out) => played,
        () = stop => Ok(()),
    };
    server.drain().await;
    writeln!(out, "\nThe demo is over. Nothing is left of it.")?;
    played
}

fn config(port: u16) -> Config {
    let mut config = Config::default();
    config.store.url = "memory:".to_owned();
    config.server.listen = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    // Attempts to receivers that are slow on purpose need not be waited for.
    config.server.drain_timeout = railpost_engine::Span::from_secs(2);
    config
}

async fn play(
    server: &Server,
    options: Options,
    out: &mut (impl Write + Send),
) -> Result<(), DemoError> {
    let url = format!("{}{}", server.url(), one_time_link(server.app()));
    writeln!(
        out,
        "Railpost's demo, on this machine alone. Watch it here (the link works once):\n"
    )?;
    writeln!(out, "    {url}\n")?;
    let mut stage = Stage::set(server, options.down_for).await?;
    writeln!(out, "Receivers: {}.", stage.names().join(", "))?;
    let shown = scenes::ALL.len().min(options.scenes);
    for number in 0..shown {
        writeln!(out, "\nScene {} of {shown}: {}", number + 1, scenes::ALL[number].line())?;
        out.flush()?;
        let happened = scenes::ALL[number].play(&mut stage).await?;
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
    stage.go_on().await
}
