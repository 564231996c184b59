//! What the binary says and how it ends.

use std::process::{Command, Output};

fn sim(args: &str) -> Output {
    let args = args.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_railpost-sim")).args(args).output().expect("it runs")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn seeds_end_with_a_summary() {
    let output = sim("--seeds 3");
    let summary = said(&output.stdout);
    for part in ["3 seeds, ", " events, ", " attempts, ", " crashes: every promise kept", "fault"] {
        assert!(summary.contains(part), "no `{part}` in {summary}");
    }
    assert!(said(&output.stderr).contains("3 of 3 seeds"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_broken_promise_is_told_with_its_seed_and_how_to_see_it_again() {
    let output = sim("--seeds 5 --plant wake-late");
    let told = said(&output.stdout);
    assert!(
        told.contains("broke a promise: nothing idles while work is due and allowed"),
        "{told}"
    );
    let again = "cargo run --release -p railpost-sim -- --seed 0 --trace --plant wake-late";
    assert!(told.contains(again), "{told}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_trace_tells_what_happened_line_by_line() {
    let trace = said(&sim("--seed 7 --trace").stdout);
    for part in
        ["00:00:00.000  ", " accepted for endpoint 1", " recorded as delivered", "the faults stop"]
    {
        assert!(trace.contains(part), "no `{part}`");
    }
}

#[test]
fn help_names_every_planted_defect() {
    let output = sim("--help");
    for (name, _) in railpost_sim::PlantedDefect::ALL {
        assert!(said(&output.stdout).contains(name), "{name}");
    }
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn misuse_is_named() {
    for (args, complaint) in [
        ("", "either `--seeds` or `--seed` is needed"),
        ("--sedes 5", "unknown argument `--sedes`"),
        ("--seeds", "`--seeds` needs a number"),
        ("--seed many", "`--seed` needs a number, not `many`"),
        ("--seeds 0", "`--seeds 0` would prove nothing"),
        ("--seeds 5 --seed 5", "`--seed` goes with neither `--seeds` nor `--first`"),
        ("--seeds 5 --trace", "`--trace` goes with `--seed`"),
        ("--seeds 5 --plant a-tree", "there is no planted defect `a-tree`"),
    ] {
        let output = sim(args);
        assert!(said(&output.stderr).contains(complaint), "{args}: {}", said(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{args}");
    }
}
