//! The project's chores. `cargo xtask test` is the one test command; `.ci/run` calls it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its user")]

mod browser;
mod deploy;
mod docs;
mod edges;
mod interop;
mod machine;
#[cfg(test)]
mod map;
mod pgbouncer;
mod postgres;
mod promtool;
mod python;
mod redis;
mod release;
#[cfg(test)]
mod runbooks;
mod schemathesis;
mod steps;
mod typescript;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <command>

commands:
  test     everything that must pass: formatting, lints, the rooms' edges, the wording of the docs, all
           tests, those of the Python and TypeScript packages, schemathesis, and a fixed set of simulation
           seeds. Ends at the first failure with the command to repeat it.
  edges    the rooms' edges alone: which crate may depend on which
  docs     the wording of the docs alone: line lengths, and words to replace
  deploy   the files of deploy/ alone: systemd units, manifests, Prometheus rules with their tests, dashboard
  release  builds target/package/railpost-VERSION-PLATFORM.tar.gz: binary, completions, manual pages, default
           configuration, units, licences and bill of materials
  typescript
           the receiver package for TypeScript alone: installs its libraries, checks, builds and tests it
  python   the Python package alone: linter, types, tests, the built package in an empty environment
  schemathesis [--examples N] [--seed N]
           schemathesis against a throwaway server that sends nothing anywhere: every operation of the
           specification, with N examples each (3 if not given, 100 for a long look)
  with-services <cargo arguments>
           runs cargo with throwaway PostgreSQL and Redis servers, PgBouncer, the libraries that the
           interop tests compare with, and a browser: cargo xtask with-services test -p railpost-postgres
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["test"] => steps::test(),
        ["edges"] => edges::check(),
        ["docs"] => docs::check(),
        ["deploy"] => deploy::check(),
        ["release"] => release::release(),
        ["typescript"] => typescript::test(),
        ["python"] => python::test(),
        ["schemathesis", ref words @ ..] => {
            schemathesis::Draw::from_words(words).and_then(schemathesis::check)
        }
        ["with-services", ref args @ ..] if !args.is_empty() => steps::with_services(args),
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
