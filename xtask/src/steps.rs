//! The steps of `cargo xtask test`.

use std::process::Command;
use std::time::Instant;

use crate::edges;
use crate::postgres::Postgres;

/// Simulation seeds of every test run: the same ones each time, so that a failure is the change's.
const SIM_SEEDS: &str = "300";

/// Where the tests find a PostgreSQL server.
const POSTGRES: &str = "RAILPOST_TEST_POSTGRES";

pub(crate) fn test() -> Result<(), String> {
    let begun = Instant::now();
    cargo("formatting", &["fmt", "--all", "--check"])?;
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    step("the rooms' edges", "cargo xtask edges", edges::check)?;
    with_postgres(&["test", "--workspace"])?;
    let sim = ["run", "--quiet", "--release", "-p", "railpost-sim", "--", "--seeds", SIM_SEEDS];
    cargo("simulation", &sim)?;
    println!("== all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs cargo with a throwaway PostgreSQL server, unless the environment names one.
pub(crate) fn with_postgres(args: &[&str]) -> Result<(), String> {
    if std::env::var_os(POSTGRES).is_some() {
        return cargo("tests", args);
    }
    println!("== a throwaway PostgreSQL server");
    let server = Postgres::start().map_err(|problem| format!("PostgreSQL: {problem}"))?;
    let shown = format!("cargo xtask with-postgres {}", args.join(" "));
    step("tests", &shown, || run(args, &[(POSTGRES, &server.url())]))
}

/// Runs cargo as one step; on failure the error says how to repeat it alone.
fn cargo(name: &str, args: &[&str]) -> Result<(), String> {
    step(name, &format!("cargo {}", args.join(" ")), || run(args, &[]))
}

fn run(args: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(program).args(args).envs(environment.iter().copied()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(format!("it could not be run: {error}")),
    }
}

fn step(name: &str, command: &str, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}: {command}");
    let begun = Instant::now();
    run()
        .map_err(|problem| format!("{name} failed: {problem}\n       repeat it with: {command}"))?;
    println!("== {name}: passed in {} s", begun.elapsed().as_secs());
    Ok(())
}
