//! The project's chores. `cargo xtask test` is the one test command; `.ci/run` calls it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its user")]

mod edges;
mod postgres;
mod steps;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <command>

commands:
  test     everything that must pass: formatting, lints, the rooms' edges, all tests and a fixed
           set of simulation seeds. Ends at the first failure with the command to repeat it.
  edges    the rooms' edges alone: which crate may depend on which
  with-postgres <cargo arguments>
           runs cargo with a throwaway PostgreSQL server, named in RAILPOST_TEST_POSTGRES:
           cargo xtask with-postgres test -p railpost-store
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["test"] => steps::test(),
        ["edges"] => edges::check(),
        ["with-postgres", ref args @ ..] if !args.is_empty() => steps::with_postgres(args),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("xtask: unknown command `{}`\n\n{HELP}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
