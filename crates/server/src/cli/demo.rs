//! `railpost demo`: the protocol shown live, on loopback.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use railpost_cli::demo::{DemoEnding, DemoOptions, DemoViewer, NoViewer};
use railpost_engine::Span;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::demo;

/// The arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The port of loopback to listen on; 0 for any that is free
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Show only the first N scenes
    #[arg(long, value_name = "N")]
    scenes: Option<usize>,
    /// Do not wait for Enter between scenes, as without a terminal
    #[arg(long)]
    no_wait: bool,
    /// Stay as a playground after the scenes, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// How long the receiver that is down stays down, such as 20s
    #[arg(long, value_name = "TIME", default_value = "20s")]
    down_for: Span,
}

#[allow(clippy::print_stderr, reason = "a command talks to its user")]
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let is_watched = !arguments.no_wait && std::io::stdin().is_terminal();
    let ending = match (arguments.stay, is_watched) {
        (true, _) => DemoEnding::Stay,
        (false, true) => DemoEnding::Ask,
        (false, false) => DemoEnding::End,
    };
    let options = DemoOptions {
        scenes: arguments.scenes.unwrap_or(usize::MAX),
        ending,
        down_for: arguments.down_for.into(),
    };
    let runtime = Runtime::new().expect("threads can be made");
    let (port, mut out) = (arguments.port, std::io::stdout());
    let played = match is_watched {
        true => runtime.block_on(demo::run(port, options, &mut Terminal::new(), &mut out, stop())),
        false => runtime.block_on(demo::run(port, options, &mut NoViewer, &mut out, stop())),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("railpost: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn stop() {
    // Without a way to hear Ctrl-C, it ends the process by itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A person at a terminal, who presses Enter.
struct Terminal {
    lines: mpsc::UnboundedReceiver<String>,
}

impl Terminal {
    /// Reads lines on a thread of its own: a runtime waits for its threads when it ends, and a read ends with
    /// the next line alone.
    fn new() -> Self {
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    #[allow(clippy::print_stderr, reason = "a question is not a part of the demo's text")]
    async fn ask(&mut self, question: &str) -> String {
        eprint!("\n{question} ");
        // A terminal that is gone reads nothing.
        let _ = std::io::stderr().flush();
        self.lines.recv().await.unwrap_or_default()
    }
}

impl DemoViewer for Terminal {
    async fn next_scene(&mut self) {
        self.ask("Enter shows the next scene; Ctrl-C ends the demo.").await;
    }

    async fn wants_playground(&mut self) -> bool {
        let answer = self.ask("That was all. Keep it running as a playground? [y/N]").await;
        matches!(answer.trim(), "y" | "Y" | "yes")
    }
}
