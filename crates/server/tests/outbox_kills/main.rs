//! Servers that are killed or stopped while they relay from an outbox: every committed event arrives, none that
//! was rolled back, none before its commit, and those of a key arrive in order.
//!
//! Writers commit and roll back events in a PostgreSQL source. `railpost serve` relays and delivers them, is
//! killed with `kill -9` at a random moment after it has relayed an event, and is started again on the same
//! store. Several servers, each with a source and a store of its own, are killed side by side. Others stand still
//! (SIGSTOP) until another server reads their source, and go on.
//!
//! `RAILPOST_OUTBOX_KILLS=200` (per mode, on SQLite) makes it longer; `RAILPOST_CRASH_SEED=N` repeats a run's
//! dice. An argument without dashes picks the cases whose names contain it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic; this one has no harness and prints its own summary"
)]

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "the tests of `serve` need all of it")]
mod process;

mod judge;
mod source;
mod writers;
mod receiver;
mod kills;
mod stops;

use std::process::ExitCode;

use kills::{Mode, Store};

/// What is done to servers.
#[derive(Clone, Copy)]
enum Case {
    Kills(Mode, Store),
    /// Two servers with stores of their own stand still in turns.
    Stops(Mode),
    /// A server that stood still finds its store taken over.
    Takeover(Mode),
}

impl Case {
    fn all() -> Vec<Self> {
        let of_mode = |mode| {
            [
                Self::Kills(mode, Store::Sqlite),
                Self::Kills(mode, Store::Postgres),
                Self::Stops(mode),
                Self::Takeover(mode),
            ]
        };
        Mode::ALL.into_iter().flat_map(of_mode).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Kills(mode, Store::Sqlite) => format!("{}-kills", mode.name()),
            Self::Kills(mode, Store::Postgres) => format!("{}-kills-postgres", mode.name()),
            Self::Stops(mode) => format!("{}-stops", mode.name()),
            Self::Takeover(mode) => format!("{}-takeover", mode.name()),
        }
    }

    /// What it came to.
    async fn run(self) -> Result<String, String> {
        match self {
            Self::Kills(mode, store) => kills::run(mode, store).await.map(|run| run.to_string()),
            Self::Stops(mode) => stops::own_stores(mode).await.map(|run| run.to_string()),
            Self::Takeover(mode) => stops::shared_store(mode).await.map(|run| run.to_string()),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        Case::all().iter().for_each(|case| println!("{}: test", case.name()));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|text| !text.starts_with('-')).collect();
    let is_picked = |case: &Case| {
        filters.is_empty() || filters.iter().any(|filter| case.name().contains(*filter))
    };
    let runs: Vec<_> = Case::all()
        .into_iter()
        .filter(is_picked)
        .map(|case| (case.name(), tokio::spawn(case.run())))
        .collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, run) in runs {
        match run.await.unwrap_or_else(|error| Err(error.to_string())) {
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
