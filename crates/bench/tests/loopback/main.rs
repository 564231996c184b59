//! The benchmark against a stand-in for the server, over real sockets and in real processes: a few
//! hundred events per case, and nothing is said about time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "this test has no harness: it prints its own summary")]

mod stand_in;

use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use serde_json::Value;

type Test = (&'static str, fn());

const TESTS: [Test; 7] = [
    ("every_kind_of_case_delivers_all_it_published", every_kind_of_case_delivers_all_it_published),
    ("a_backlog_survives_a_crash_and_drains", a_backlog_survives_a_crash_and_drains),
    ("a_seq_that_is_left_out_fails_the_run", a_seq_that_is_left_out_fails_the_run),
    ("an_unsigned_delivery_fails_the_run", an_unsigned_delivery_fails_the_run),
    ("duplicates_are_counted_and_fail_nothing", duplicates_are_counted_and_fail_nothing),
    (
        "a_missing_server_is_said_and_the_floors_stand",
        a_missing_server_is_said_and_the_floors_stand,
    ),
    ("an_unknown_case_is_misuse", an_unknown_case_is_misuse),
];

fn main() -> ExitCode {
    // The benchmark starts this program as the server it measures.
    if let Ok(address) = std::env::var("RAILPOST_SERVER_LISTEN") {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(stand_in::serve(&address));
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let chosen = TESTS.iter().filter(|(name, _)| name.contains(&filter));
    let failed = chosen.filter(|(name, test)| !passes(name, *test)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(name: &str, test: fn()) -> bool {
    let passed = catch_unwind(test).is_ok();
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}

/// A run of the benchmark and what it wrote.
struct Run {
    output: Output,
    results: Value,
    drawings: Vec<String>,
}

impl Run {
    /// Runs some cases, at most 300 events each, on a server that does one thing wrong, or nothing.
    fn of(cases: &[&str], wrong: &str) -> Self {
        Self::with(cases, wrong, &std::env::current_exe().unwrap())
    }

    fn with(cases: &[&str], wrong: &str, server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("figures.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_railpost-bench"));
        command.args(["--quick", "--events", "300"]).env(stand_in::WRONG, wrong);
        command.arg("--railpost").arg(server).arg("--work-dir").arg(folder.path());
        command.arg("--json").arg(&json).arg("--plots").arg(folder.path());
        command.args(cases.iter().flat_map(|case| ["--only", case]));
        let output = command.output().unwrap();
        let results = std::fs::read(&json).ok();
        let results = results.map(|json| serde_json::from_slice(&json).unwrap());
        let names = std::fs::read_dir(folder.path()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let drawings = names.filter(|name| Path::new(name).extension() == Some("svg".as_ref()));
        Self { drawings: drawings.collect(), output, results: results.unwrap_or_default() }
    }

    fn row(&self, case: &str) -> &Value {
        let rows = self.results["rows"].as_array().unwrap();
        rows.iter().find(|row| row["case"] == case).unwrap()
    }

    fn text(&self) -> String {
        let Output { stdout, stderr, .. } = &self.output;
        String::from_utf8_lossy(stdout).into_owned() + &String::from_utf8_lossy(stderr)
    }
}

fn every_kind_of_case_delivers_all_it_published() {
    let cases = [
        ("hop", 1),
        ("forward", 1),
        ("sequential", 1),
        ("hop-2000", 1),
        ("sqlite-single", 1),
        ("sqlite-batch", 1),
        ("sqlite-stream", 1),
        ("sqlite-8k", 1),
        ("sqlite-100-endpoints", 1),
        ("sqlite-fan-out-10", 10),
        ("sqlite-hot-key", 1),
        ("sqlite-no-keys", 1),
        ("sqlite-2000", 1),
        ("beside-hanging", 1),
        ("tenants-noisy", 1),
    ];
    let run = Run::of(&cases.map(|(name, _)| name), "");
    assert!(run.output.status.success(), "{}", run.text());
    for (case, deliveries_per_event) in cases {
        let row = run.row(case);
        let accepted = row["accepted"].as_u64().unwrap();
        assert!(accepted > 0, "{case}: {row}");
        let delivered = row["delivered"].as_u64().unwrap();
        assert_eq!(delivered, accepted * deliveries_per_event, "{case}: {row}");
        assert_eq!(row["failure"], Value::Null, "{case}");
    }
    assert!(run.row("sqlite-single")["of_forwarder"].is_number());
    assert!(run.drawings.contains(&"bench-throughput.svg".to_owned()), "{:?}", run.drawings);
    assert!(run.drawings.contains(&"bench-latency.svg".to_owned()), "{:?}", run.drawings);
}

fn a_backlog_survives_a_crash_and_drains() {
    let run = Run::of(&["backlog"], "");
    assert!(run.output.status.success(), "{}", run.text());
    let row = run.row("backlog");
    assert_eq!(row["delivered"], 300, "{row}");
    assert_eq!(row["backlog"]["events"], 300);
    assert!(row["backlog"]["first_delivery_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(run.drawings, ["bench-backlog.svg"]);
}

fn a_seq_that_is_left_out_fails_the_run() {
    let run = Run::of(&["memory-single"], "leaves one out");
    assert_eq!(run.output.status.code(), Some(1));
    let failure = run.row("memory-single")["failure"].to_string();
    assert!(failure.contains("violations of order"), "{failure}");
    assert!(run.text().contains("FAILED"));
}

fn an_unsigned_delivery_fails_the_run() {
    let run = Run::of(&["memory-single"], "does not sign");
    assert_eq!(run.output.status.code(), Some(1));
    let failure = run.row("memory-single")["failure"].to_string();
    assert!(failure.contains("not signed"), "{failure}");
}

fn duplicates_are_counted_and_fail_nothing() {
    let run = Run::of(&["memory-single"], "sends twice");
    assert!(run.output.status.success(), "{}", run.text());
    assert!(run.row("memory-single")["duplicates"].as_u64().unwrap() > 0);
}

fn a_missing_server_is_said_and_the_floors_stand() {
    let run = Run::with(&["hop", "sqlite-single"], "", Path::new("no-such-binary"));
    assert!(run.output.status.success(), "{}", run.text());
    assert!(run.row("hop")["delivered_per_s"].is_number());
    assert!(run.row("sqlite-single")["missing"].to_string().contains("no-such-binary"));
    assert!(run.text().contains("not measured"));
}

fn an_unknown_case_is_misuse() {
    let run = Run::of(&["sqlite-tripel"], "");
    assert_eq!(run.output.status.code(), Some(2));
    assert!(run.text().contains("there is no case `sqlite-tripel`"), "{}", run.text());
}
