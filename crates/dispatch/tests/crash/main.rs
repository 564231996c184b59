//! Processes that die under load: nothing acknowledged is lost, each event is applied once and in order, at
//! most once means once.
//!
//! Three processes: the parent, a sender that accepts events and delivers them, and a receiver with the inbox
//! of `railpost-receiver`, whose rows commit with its effects. The parent kills both with `kill -9` at random
//! moments and starts them again; in another run it restarts PostgreSQL under a sender that goes on. At the
//! end it reads the receiver's database.
//!
//! `RAILPOST_CRASH_KILLS=200` and `RAILPOST_CRASH_RESTARTS=100` make it longer; `RAILPOST_CRASH_SEED=N` repeats
//! a run's dice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "this test has no harness: it prints its own summary")]

mod child_config;
mod sender;
mod receiver;
mod judge;
mod database;
mod parent;

use std::process::ExitCode;

use child_config::{ReceiverChildConfig, SenderChildConfig};

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(config) = SenderChildConfig::from_environment() {
        sender::run(config).await;
        return ExitCode::SUCCESS;
    }
    if let Some(config) = ReceiverChildConfig::from_environment() {
        receiver::run(config).await;
        return ExitCode::SUCCESS;
    }
    // A listing asked for by a test runner: there is one test per run, and no way to pick one.
    if std::env::args().any(|arg| arg == "--list") {
        println!("sqlite: test\npostgres: test\npostgres_restarts: test");
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("crash.db").display());
    let runs = [
        ("sqlite", parent::kill_both(&sqlite).await),
        ("postgres", parent::kill_both(&database::fresh("kills").await).await),
        ("postgres restarts", parent::restart_postgres(&database::fresh("restarts").await).await),
    ];
    let mut failed = 0;
    for (name, outcome) in &runs {
        match outcome {
            Ok(summary) => println!("{name}: {summary}"),
            Err(problem) => {
                failed += 1;
                println!("{name}: FAILED: {problem}");
            }
        }
    }
    println!("{} passed, {failed} failed", runs.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
