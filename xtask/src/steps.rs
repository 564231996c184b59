//! The steps of `cargo xtask test`.

use std::process::Command;
use std::time::Instant;

use crate::edges;

pub(crate) fn test() -> Result<(), String> {
    let begun = Instant::now();
    cargo("formatting", &["fmt", "--all", "--check"])?;
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    step("the rooms' edges", "cargo xtask edges", edges::check)?;
    cargo("tests", &["test", "--workspace"])?;
    println!("== all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs cargo as one step; on failure the error says how to repeat it alone.
fn cargo(name: &str, args: &[&str]) -> Result<(), String> {
    let shown = format!("cargo {}", args.join(" "));
    step(name, &shown, || {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(program).args(args).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("it ended with {status}")),
            Err(error) => Err(format!("it could not be run: {error}")),
        }
    })
}

fn step(
    name: &str,
    command: &str,
    run: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    println!("== {name}: {command}");
    let begun = Instant::now();
    run().map_err(|problem| format!("{name} failed: {problem}\n       repeat it with: {command}"))?;
    println!("== {name}: passed in {} s", begun.elapsed().as_secs());
    Ok(())
}
