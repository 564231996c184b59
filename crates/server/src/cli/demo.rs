//! `railpost demo`: the protocol shown live, on loopback.

use std::process::ExitCode;

use railpost_cli::demo::DemoOptions;
use railpost_engine::Span;
use tokio::runtime::Runtime;

use crate::demo;

/// The arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The port of loopback to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Show only the first N scenes.
    #[arg(long, value_name = "N")]
    scenes: Option<usize>,
    /// End after the scenes instead of going on until Ctrl-C.
    #[arg(long)]
    exit_after_scenes: bool,
    /// How long the receiver that is down stays down, such as 20s.
    #[arg(long, value_name = "SPAN", default_value = "20s")]
    down_for: Span,
}

#[allow(clippy::print_stderr, reason = "a command talks to its user")]
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let options = DemoOptions {
        scenes: arguments.scenes.unwrap_or(usize::MAX),
        exit_after_scenes: arguments.exit_after_scenes,
        down_for: arguments.down_for.into(),
    };
    let runtime = Runtime::new().expect("threads can be made");
    let stop = async {
        // Without a way to hear Ctrl-C, it ends the process by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    match runtime.block_on(demo::run(arguments.port, options, &mut std::io::stdout(), stop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("railpost: {error}");
            ExitCode::FAILURE
        }
    }
}
