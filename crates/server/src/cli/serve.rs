//! `railpost serve`: runs the server until it is told to stop.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use railpost_telemetry::{Level, Log, LogStyle, Value, follow_dependencies};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::config::{self, ConfigFileArgument, EXIT_CONFIG};
use crate::config::{Config, LogFormat, show_url};
use crate::data_dir;
use crate::limits::STORE_STOPPED_GRACE;
use crate::loopback;
use crate::serve::Server;

/// The exit code when the drain timed out, or a second signal came.
const EXIT_NOT_DRAINED: u8 = 3;

/// The exit code when the store has stopped for good.
const EXIT_STORE_STOPPED: u8 = 4;

/// Runs the server until SIGTERM or SIGINT.
///
/// Exit codes: 0 drained and stopped; 1 did not start; 2 the configuration or the command line is invalid;
/// 3 stopped before requests and attempts in flight had ended; 4 a sync to disk failed, so the store stopped:
/// start the server again.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigFileArgument,
    /// The folder of database and master key [default: ./railpost-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The address and port of API and dashboard [default: 127.0.0.1:8087]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where everything is written: sqlite:PATH, postgres://… or memory:
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The URL by which receivers and people reach this server
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Keep everything in memory: nothing is left when the server stops
    #[arg(long, conflicts_with_all = ["store", "data_dir"])]
    ephemeral: bool,
    /// Allow requests to a private network, such as 10.1.0.0/16; may be given more than once
    #[arg(long, value_name = "NETWORK")]
    allow_network: Vec<String>,
    /// How log lines look: auto, text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// The lowest level that is logged: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl Arguments {
    fn flags(self) -> Vec<(&'static str, &'static str, String)> {
        let networks = Some(self.allow_network.join(",")).filter(|text| !text.is_empty());
        let data_dir = self.data_dir.map(|dir| dir.display().to_string());
        let given = [
            ("--data-dir", "server.data_dir", data_dir),
            ("--listen", "server.listen", self.listen.map(|address| address.to_string())),
            ("--store", "store.url", self.store),
            ("--ephemeral", "store.url", self.ephemeral.then(|| "memory:".to_owned())),
            ("--public-url", "server.public_url", self.public_url),
            ("--allow-network", "delivery.allow_networks", networks),
            ("--log-format", "log.format", self.log_format),
            ("--log-level", "log.level", self.log_level),
        ];
        given.into_iter().filter_map(|(flag, path, text)| Some((flag, path, text?))).collect()
    }
}

#[allow(clippy::print_stderr, reason = "errors are for the user who started it")]
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let file = arguments.file.clone();
    let loaded = match config::load(&file, arguments.flags()) {
        Ok(loaded) => loaded,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let log = log(&loaded.config);
    follow_dependencies(&log);
    if !loaded.ignored.is_empty() {
        let variables = loaded.ignored.join(", ");
        log.line(Level::Info, "environment_ignored", &[("variables", Value::Text(&variables))]);
    }
    let code = match Runtime::new() {
        Ok(runtime) => runtime.block_on(serve(loaded.config, &log)),
        Err(error) => {
            eprintln!("cannot start threads: {error}");
            ExitCode::FAILURE
        }
    };
    log.flush();
    code
}

fn log(config: &Config) -> Log {
    let terminal = std::io::stderr().is_terminal();
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = match config.log.format {
        LogFormat::Json => LogStyle::Json,
        LogFormat::Auto if !terminal => LogStyle::Json,
        LogFormat::Auto | LogFormat::Text => LogStyle::Text { colours },
    };
    Log::with_style(config.log.level, style, std::io::stderr())
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the greeting is for the user who started it"
)]
async fn serve(config: Config, log: &Log) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("cannot listen for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let started = tokio::select! {
        started = Server::start(config, log.clone()) => started,
        _ = signals.next() => return ExitCode::from(EXIT_NOT_DRAINED),
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            eprintln!("railpost did not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    tell_started(&server, log);
    print!("{}", greeting(&server));
    let signal = tokio::select! {
        signal = signals.next() => signal,
        _ = server.store_stopped() => {
            // Nothing that is under way could be recorded: the next start finds it in the store.
            tokio::time::sleep(Duration::from(STORE_STOPPED_GRACE)).await;
            log.flush();
            std::process::exit(i32::from(EXIT_STORE_STOPPED));
        }
    };
    stop(server, log, signal, &mut signals).await
}

async fn stop(server: Server, log: &Log, signal: &str, signals: &mut Signals) -> ExitCode {
    let patience = server.config().server.drain_timeout;
    let fields = [("signal", Value::Text(signal)), ("drain_timeout", Value::Display(&patience))];
    log.line(Level::Info, "stopping", &fields);
    let drained = tokio::select! {
        drained = server.drain() => drained,
        _ = signals.next() => false,
    };
    let level = if drained { Level::Info } else { Level::Warn };
    log.line(level, "stopped", &[("drained", Value::Truth(drained))]);
    if !drained {
        // What is under way would keep the process waiting.
        log.flush();
        std::process::exit(i32::from(EXIT_NOT_DRAINED));
    }
    ExitCode::SUCCESS
}

/// The signals by which a server is told to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn tell_started(server: &Server, log: &Log) {
    let config = server.config();
    let fields = [
        ("version", Value::Text(env!("CARGO_PKG_VERSION"))),
        ("address", Value::Display(&server.address())),
        ("url", Value::Text(server.url())),
        ("store", Value::Text(&place(config))),
        ("tls", Value::Truth(!config.server.tls_certificate.is_empty())),
    ];
    log.line(Level::Info, "started", &fields);
    for problem in warning(server).into_iter().chain(server.warnings().iter().map(String::as_str)) {
        log.line(Level::Warn, "config_warning", &[("problem", Value::Text(problem))]);
    }
}

fn warning(server: &Server) -> Option<&'static str> {
    let plain = server.config().server.tls_certificate.is_empty();
    let open = !server.address().ip().is_loopback();
    let public = &server.config().server.public_url;
    (plain && open && !public.starts_with("https://")).then_some(
        "API keys travel unencrypted: set server.tls_certificate, or put a proxy with TLS in front \
         and set server.public_url to its https URL",
    )
}

/// Where everything is written.
fn place(config: &Config) -> String {
    match config.store.url.as_str() {
        "memory:" => "memory".to_owned(),
        url if url.starts_with("postgres") => show_url(url),
        _ => data_dir::database(config).display().to_string(),
    }
}

fn greeting(server: &Server) -> String {
    let (config, url) = (server.config(), server.url());
    let kept = match config.store.url.as_str() {
        "memory:" => "memory: it is gone when the server stops".to_owned(),
        _ => place(config),
    };
    let loopback = loopback::start_message(config, server.loopback_closed_by());
    let mut text = format!(
        "Railpost {version} is running.\n\n  \
         API        {url}/v1\n  \
         API docs   {url}/docs\n  \
         Dashboard  {url}{dashboard}\n  \
         Data       {kept}\n  \
         {loopback}\n",
        version = env!("CARGO_PKG_VERSION"),
        dashboard = dashboard(server),
    );
    if let Some(key) = server.admin_key() {
        text.push_str(&format!(
            "\nThis is your admin API key. It is shown this one time:\n\n  \
             export RAILPOST_API_KEY={key}\n"
        ));
    }
    text.push_str(&next_steps(url));
    text
}

/// The dashboard's path. On a terminal it is a one-time sign-in link; a stored log must not contain one.
fn dashboard(server: &Server) -> String {
    match std::io::stdout().is_terminal() {
        true => server.dashboard().one_time_link(),
        false => "/dashboard".to_owned(),
    }
}

fn next_steps(url: &str) -> String {
    let elsewhere = match url {
        "http://127.0.0.1:8087" => String::new(),
        url => format!("  export RAILPOST_URL={url}\n"),
    };
    // The commands can be pasted, and a user who runs a clone has no `railpost` installed.
    let railpost = match std::env::var_os("CARGO") {
        Some(_) => "cargo run --release --",
        None => "railpost",
    };
    format!(
        "\nNext, in another terminal, with your API key:\n\n{elsewhere}  \
         {railpost} listen --register\n  \
         {railpost} endpoints create --url https://example.com/hooks\n  \
         {railpost} send order.paid --key 42 --data '{{\"total\": 12}}'\n\n"
    )
}
