//! Servers that are killed while they relay from an outbox: every committed event arrives, none that was
//! rolled back, and those of a key arrive in order.
//!
//! Writers commit and roll back events in a PostgreSQL source. `railpost serve` relays and delivers them, is
//! killed with `kill -9` at a random moment after it has relayed an event, and is started again on the same
//! store. Several servers, each with a source and a store of its own, are killed side by side.
//!
//! `RAILPOST_OUTBOX_KILLS=200` (per mode) makes it longer; `RAILPOST_CRASH_SEED=N` repeats a run's dice. An
//! argument without dashes picks the modes whose names contain it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic; this one has no harness and prints its own summary"
)]

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "the tests of `serve` need all of it")]
mod process;

mod source;
mod writers;
mod receiver;
mod judge;
mod kills;

use std::process::ExitCode;

use kills::Mode;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        Mode::ALL.iter().for_each(|mode| println!("{}: test", mode.name()));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|text| !text.starts_with('-')).collect();
    let is_picked = |mode: &Mode| {
        filters.is_empty() || filters.iter().any(|filter| mode.name().contains(*filter))
    };
    let runs: Vec<_> = Mode::ALL
        .into_iter()
        .filter(is_picked)
        .map(|mode| (mode.name(), tokio::spawn(kills::run(mode))))
        .collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, run) in runs {
        match run.await.unwrap() {
            Ok(summary) => {
                passed += 1;
                println!("{name}: {summary}");
            }
            Err(problem) => {
                failed += 1;
                println!("{name}: FAILED: {problem}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
