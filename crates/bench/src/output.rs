//! Where the results go: the terminal, a JSON file, the drawings.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bars::{self, Bar};
use crate::cases::Case;
use crate::clock::now_us;
use crate::figures::{Row, Rows, typical};
use crate::{plot, table};

/// A run and the machine it ran on.
#[derive(Serialize)]
pub(crate) struct Results {
    unix_s: u64,
    cores: usize,
    /// Load average of the last minute before the run: what else the machine was doing.
    busy_before: Option<f64>,
    whole: bool,
    optimised: bool,
    pub(crate) rows: Rows,
    /// The cases that bars are judged by, as often as they were measured.
    pub(crate) rounds: Vec<Rows>,
    bars: Vec<Bar>,
}

impl Results {
    /// What can be said before the first case.
    pub(crate) fn begin(whole: bool) -> Self {
        Self {
            unix_s: now_us() / 1_000_000,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            busy_before: load_average(),
            whole,
            optimised: !cfg!(debug_assertions),
            rows: Rows::default(),
            rounds: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Puts everything in the order of `cases`, and judges it.
    pub(crate) fn end(&mut self, cases: &[Case]) {
        for case in cases {
            let of_case = |round: &Rows| round.0.iter().find(|row| row.case == case.name).cloned();
            let rounds: Vec<Row> = self.rounds.iter().filter_map(of_case).collect();
            self.rows.0.extend(typical(&rounds).cloned());
        }
        let place = |name: &str| cases.iter().position(|case| case.name == name);
        self.rows.0.sort_by_key(|row| place(row.case));
        self.rows.compare_all(|name| cases.iter().find(|case| case.name == name)?.floor);
        self.bars = bars::all(&self.rows, &self.rounds);
    }

    pub(crate) fn any_failed(&self) -> bool {
        self.rows.any_failed() || self.rounds.iter().any(Rows::any_failed)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} cores", self.cores);
        if let Some(busy) = self.busy_before {
            text.push_str(&format!(", load average {busy:.2} before the run"));
        }
        if !self.optimised {
            text.push_str("\nNOT OPTIMISED: run it with --release");
        }
        let (figures, bars) = (table::figures(&self.rows), table::bars(&self.bars));
        format!("{text}\n\n{figures}\n{bars}")
    }

    /// Writes the figures as JSON and says where.
    pub(crate) fn save(&self, path: Option<PathBuf>) -> Result<PathBuf, String> {
        let path = match path {
            Some(path) => path,
            None => target_folder()?.join("bench").join(format!("{}.json", self.unix_s)),
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(&path, &text)?;
        Ok(path)
    }

    /// Draws what there is to draw into a folder.
    pub(crate) fn draw(&self, folder: &Path) -> Result<(), String> {
        plot::all(&self.rows).iter().try_for_each(|plot| write(&folder.join(plot.file), &plot.svg))
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{} could not be written: {error}", path.display()))
}

/// Cargo's target directory: this program lies in a folder of it that is named after its profile.
pub(crate) fn target_folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().and_then(Path::parent).map(Path::to_path_buf);
    folder.ok_or_else(|| format!("{} lies in no target directory", program.display()))
}

/// The folder of drawings in the repository, which cargo tells a program it runs.
pub(crate) fn images_folder() -> Option<PathBuf> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    Some(package.parent()?.parent()?.join("docs").join("images"))
}

fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
