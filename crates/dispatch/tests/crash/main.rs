//! `kill -9` under load: nothing acknowledged is lost, order holds, at most once means once.
//!
//! The parent runs a receiver that deduplicates and checks order. A child process accepts events and
//! delivers them; the parent kills it at random moments and starts it again. At the end every accept
//! that the child acknowledged must have arrived.
//!
//! `RAILPOST_CRASH_KILLS=200` makes it longer; `RAILPOST_CRASH_SEED=N` repeats a run's dice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "this test has no harness: it prints its own summary")]

mod child;
mod judge;
mod parent;

use std::process::ExitCode;

/// Where the events of the crash test are stored.
const POSTGRES: &str = "RAILPOST_TEST_POSTGRES";

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(orders) = child::Orders::from_environment() {
        child::run(orders).await;
        return ExitCode::SUCCESS;
    }
    // A listing asked for by a test runner: there is one test per backend, and no way to pick one.
    if std::env::args().any(|arg| arg == "--list") {
        println!("sqlite: test\npostgres: test");
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("crash.db").display());
    let server = std::env::var(POSTGRES)
        .unwrap_or_else(|_| panic!("{POSTGRES} must name a server: run `cargo xtask test`"));
    let postgres = parent::fresh_database(&server).await;
    let mut failed = 0;
    for (name, store) in [("sqlite", sqlite), ("postgres", postgres)] {
        match parent::run(&store).await {
            Ok(summary) => println!("{name}: {summary}"),
            Err(problem) => {
                failed += 1;
                println!("{name}: FAILED: {problem}");
            }
        }
    }
    println!("{} passed, {failed} failed", 2 - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
