//! The demo with a server of its own: ephemeral, on loopback. Nothing is left when it ends.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;

use railpost_cli::demo::{AppDatabase, DemoError, DemoOptions, DemoServer, DemoViewer, play};
use railpost_engine::Span;
use railpost_telemetry::{Level, Log};
use serde_json::json;

use crate::config::Config;
use crate::serve::{DEFAULT_TENANT, Server};

/// Runs the demo through its scenes, or until it is told to stop. It listens on this port of loopback; 0 for any
/// that is free.
pub async fn run(
    port: u16,
    options: DemoOptions,
    viewer: &mut impl DemoViewer,
    out: &mut (impl Write + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<(), DemoError> {
    let database = AppDatabase::create()?;
    let config = config(port, &database)?;
    let server = Server::start(config, Log::new(Level::Error, std::io::sink())).await;
    let server = server.map_err(|error| DemoError::new("the server did not start", error))?;
    let dashboard = format!("{}{}", server.url(), server.dashboard().one_time_link());
    let key = server.admin_key().unwrap_or_default();
    let shown_on =
        DemoServer { url: server.url(), key, dashboard: &dashboard, database: &database };
    let played = tokio::select! {
        played = play(shown_on, options, viewer, out) => played,
        () = stop => Ok(()),
    };
    server.drain().await;
    drop(database);
    writeln!(out, "\nThe demo is over. Nothing is left of it.")?;
    played
}

fn config(port: u16, database: &AppDatabase) -> Result<Config, DemoError> {
    let mut config = Config::default();
    config.store.url = "memory:".to_owned();
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], port));
    // Attempts to receivers that are slow on purpose need not be waited for.
    config.server.drain_timeout = Span::from_secs(2);
    let source = json!({ "name": "application", "url": database.url(), "tenant": DEFAULT_TENANT });
    let source = serde_json::from_value(source);
    config.outbox = vec![source.map_err(|error| DemoError::new("the outbox", error))?];
    Ok(config)
}
