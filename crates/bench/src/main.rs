//! Railpost's speed as ratios that anyone can repeat: `cargo run --release -p railpost-bench`.
//!
//! Three tools, each a process of its own so that its CPU is its own: a load generator (`load.rs`), a
//! sink that checks order (`sink.rs`) and a plain forwarder that stores nothing (`forward.rs`). The
//! parent brings up what a case needs, has it measured the same way every time (`measure.rs`), and
//! sets the figures against the floors of the same run (`figures.rs`, `bars.rs`).
//!
//! It measures Railpost from outside, over HTTP, as its users do. It knows nothing of its insides.

mod limits;

mod clock;
mod histogram;
mod payload;
mod parent_channel;
mod http;

mod load;
mod sink;
mod forward;

mod proc;
mod disk;
mod device;
mod child;
mod postgres;
mod source;
mod server;

mod cases;
mod progress;
mod measure;
mod bench;
mod hostile;

mod figures;
mod bars;
mod table;
mod plot;
mod output;
mod args;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::{Command, HELP, Options};
use bench::{Bench, CaseError};
use cases::Case;
use device::OwnDisk;
use figures::{Figures, Row, Rows};
use limits::OWN_DISK_LEN;
use measure::Scale;
use output::Results;
use progress::Progress;

fn main() -> ExitCode {
    let done = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => print(HELP),
        Ok(Command::List) => print(&list()),
        Ok(Command::Run(options)) => return run(&options),
        Ok(Command::Hostile(options)) => run_hostile(&options),
        Ok(Command::Sink { endpoints }) => {
            run_role(parent_channel::worker_threads(), sink::run(endpoints))
        }
        Ok(Command::Load) => run_role(parent_channel::worker_threads(), load::run()),
        Ok(Command::Forward { to_port }) => run_role(cores(), forward::run(to_port)),
        Err(problem) => return complain(&format!("{problem}; --help says what there is"), 2),
    };
    done.map_or_else(|problem| complain(&problem, 1), |()| ExitCode::SUCCESS)
}

fn list() -> String {
    let line = |case: Case| format!("{:<22}{}\n", case.name, case.about);
    cases::all().into_iter().map(line).collect()
}

/// Runs a child's role on so many threads.
fn run_role(threads: usize, role: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(role)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn run(options: &Options) -> ExitCode {
    let cases = match options.pick(cases::all()) {
        Ok(cases) => cases,
        Err(problem) => return complain(&problem, 2),
    };
    let results = match measure_all(options, &cases) {
        Ok(results) => results,
        Err(problem) => return complain(&problem, 1),
    };
    match publish(options, &results) {
        Err(problem) => complain(&problem, 1),
        Ok(()) if results.any_failed() => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn run_hostile(options: &Options) -> Result<(), String> {
    let railpost = find_railpost(options)?;
    let folder = WorkFolder::make(&options.work_dir)?;
    print(&hostile::run(&railpost, &folder.0, options.quick)?)
}

fn measure_all(options: &Options, cases: &[Case]) -> Result<Results, String> {
    let railpost = if cases.iter().any(Case::needs_railpost) {
        find_railpost(options)
    } else {
        Err("no case needs it".to_owned())
    };
    let folder = WorkFolder::make(&options.work_dir)?;
    let disk = options.own_disk.then(|| OwnDisk::mount(&folder.0, OWN_DISK_LEN)).transpose()?;
    let files = disk.as_ref().map_or(&folder.0, |disk| &disk.folder);
    let scale = Scale { quick: options.quick, events_max: options.events };
    let (mut rounds, others) = cases::apart(cases);
    if !options.is_whole() {
        rounds.truncate(1);
    }
    let progress = Progress::new(rounds.iter().map(Vec::len).sum::<usize>() + others.len());
    let mut results = Results::begin(options.is_whole());
    let mut bench = Bench::new(scale, progress, files.clone(), railpost);
    for round in rounds {
        let round = round.iter().map(|case| measure_one(&mut bench, case)).collect();
        results.rounds.push(Rows(round));
    }
    results.rows.0.extend(others.iter().map(|case| measure_one(&mut bench, case)));
    results.end(cases);
    // PostgreSQL has files on the disk until here.
    drop(bench);
    drop(disk);
    Ok(results)
}

fn measure_one(bench: &mut Bench, case: &Case) -> Row {
    bench.progress.begin(case.name);
    let (figures, missing) = match bench.run(case) {
        Ok(figures) => (figures, None),
        Err(CaseError::Missing(what)) => (Figures::default(), Some(what)),
        Err(CaseError::Failed(why)) => (Figures { failure: Some(why), ..Figures::default() }, None),
    };
    let row = Row { case: case.name, about: case.about, figures, missing };
    bench.progress.end(&table::summary(&row));
    row
}

fn publish(options: &Options, results: &Results) -> Result<(), String> {
    print(&results.text())?;
    let saved = results.save(options.json.clone())?;
    print(&format!("\nfigures: {}\n", saved.display()))?;
    let whole = options.is_whole().then(output::images_folder).flatten();
    let Some(folder) = options.plots.clone().or(whole) else { return Ok(()) };
    results.draw(&folder)?;
    print(&format!("drawings: {}\n", folder.display()))
}

/// The binary to measure: the one that was named, or one that is built here.
fn find_railpost(options: &Options) -> Result<PathBuf, String> {
    if let Some(path) = &options.railpost {
        let found = path.canonicalize();
        return found.map_err(|error| format!("{}: {error}", path.display()));
    }
    let mut cargo =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What this program's own cargo says of its package would have build scripts run again, and nearly
    // everything built again that `cargo build --release` has built before.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        cargo.env_remove(name);
    }
    let built = cargo
        .args(["build", "--release", "-p", "railpost"])
        .status()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    let path = output::target_folder()?.join("release").join("railpost");
    if built.success() && path.exists() {
        return Ok(path);
    }
    Err("railpost could not be built; --railpost names a binary".to_owned())
}

fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// A folder for the stores' files that is gone after the run.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn make(parent: &Path) -> Result<Self, String> {
        let folder = parent.join(format!("railpost-bench-{}", std::process::id()));
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|error| format!("{} could not be made: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn complain(problem: &str, code: u8) -> ExitCode {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr().lock(), "railpost-bench: {problem}");
    ExitCode::from(code)
}
