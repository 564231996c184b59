//! The steps of `cargo xtask test`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::machine::install;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::{browser, deploy, docs, edges, interop, pgbouncer, python, schemathesis, typescript};

/// Simulation seeds of every test run: the same ones each time, so that a failure is the change's.
const SIM_SEEDS: &str = "300";

pub(crate) fn test() -> Result<(), String> {
    let begun = Instant::now();
    cargo("formatting", &["fmt", "--all", "--check"])?;
    ensure_libraries()?;
    let clippy =
        ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    cargo("lints", &clippy)?;
    step("the rooms' edges", "cargo xtask edges", edges::check)?;
    step("the wording of the docs", "cargo xtask docs", docs::check)?;
    with_services(&["test", "--workspace", "--all-features"])?;
    step("units, manifests and rules", "cargo xtask deploy", deploy::check)?;
    step("the TypeScript receiver", "cargo xtask typescript", typescript::test)?;
    step("the Python package", "cargo xtask python", python::test)?;
    let specification = || schemathesis::check(schemathesis::USUAL);
    step("the specification", "cargo xtask schemathesis", specification)?;
    let sim = ["run", "--quiet", "--release", "-p", "railpost-sim", "--", "--seeds", SIM_SEEDS];
    cargo("simulation", &sim)?;
    println!("== all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs cargo with what the tests need beside it: throwaway PostgreSQL and Redis servers, PgBouncer, the
/// libraries of others to be compared with, and a browser.
pub(crate) fn with_services(args: &[&str]) -> Result<(), String> {
    println!(
        "== throwaway PostgreSQL and Redis servers, PgBouncer, libraries for the interop tests, a browser"
    );
    ensure_libraries()?;
    let postgres = Postgres::start().map_err(|problem| format!("PostgreSQL: {problem}"))?;
    let redis = Redis::start().map_err(|problem| format!("Redis: {problem}"))?;
    let interop = interop::prepare().map_err(|problem| format!("interop: {problem}"))?;
    let [chromium, chromedriver] =
        browser::prepare().map_err(|problem| format!("browser: {problem}"))?;
    let environment = [
        chromium,
        chromedriver,
        pgbouncer::prepare().map_err(|problem| format!("PgBouncer: {problem}"))?,
        ("RAILPOST_TEST_POSTGRES", postgres.url()),
        ("RAILPOST_TEST_POSTGRES_RESTART", postgres.restart_program()?.display().to_string()),
        ("RAILPOST_TEST_REDIS", redis.url()),
        ("RAILPOST_TEST_INTEROP", interop.display().to_string()),
    ];
    let shown = format!("cargo xtask with-services {}", args.join(" "));
    step("tests", &shown, || run(args, &environment))
}

/// Sees to the C libraries that the workspace links with all features: diesel's PostgreSQL needs libpq. Debian's
/// server brings a `pg_config` without the library, so the header decides.
fn ensure_libraries() -> Result<(), String> {
    let found = Command::new("pg_config").arg("--includedir").output();
    let folder = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match folder {
        Ok(folder) if Path::new(&folder).join("libpq-fe.h").exists() => Ok(()),
        _ => install("libpq-dev"),
    }
}

/// Runs cargo as one step; on failure the error says how to repeat it alone.
fn cargo(name: &str, args: &[&str]) -> Result<(), String> {
    step(name, &format!("cargo {}", args.join(" ")), || run(args, &[]))
}

fn run(args: &[&str], environment: &[(&str, String)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(program).args(args).envs(environment.iter().cloned()).status() {
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
