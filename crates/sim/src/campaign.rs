//! Many seeds, and what came of them.

use std::fmt;
use std::ops::Range;

use crate::{Options, Report, Tally, run};

/// Runs every seed; `progress` hears of each one when it is done.
pub fn run_all(seeds: Range<u64>, options: Options, mut progress: impl FnMut(&Report)) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let report = run(seed, options);
        progress(&report);
        summary.add(report);
    }
    summary
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many there were.
    pub seeds: u64,
    /// How often each thing happened.
    pub tally: Tally,
    /// The runs in which a promise was broken, by seed.
    pub broken: Vec<Report>,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.tally.add(&report.tally);
        self.broken.extend(Some(report).filter(|report| report.breach.is_some()));
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { seeds, tally, broken } = self;
        let events = tally.of("total: events");
        let attempts = tally.of("total: attempts");
        let crashes = tally.of("fault: crash");
        write!(
            f,
            "{tally}{seeds} seeds, {events} events, {attempts} attempts, {crashes} crashes: "
        )?;
        match broken.len() {
            0 => writeln!(f, "every promise kept"),
            count => writeln!(f, "promises broken in {count}"),
        }
    }
}
