//! What a case showed.

use serde::Serialize;

/// The figures of one case. What was not measured, or has no meaning for it, is nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) accepted_per_s: Option<f64>,
    /// Until the last delivery.
    pub(crate) delivered_per_s: Option<f64>,
    /// From sending an event, or when it should have been sent, to its arrival at the sink.
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    /// CPU per delivery: of the server or the forwarder, and of PostgreSQL's processes.
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) postgres_cpu_us: Option<f64>,
    /// Most resident memory of the server.
    pub(crate) peak_bytes: Option<u64>,
    /// Bytes that were written to the device of the stores' files, per delivery.
    pub(crate) written_bytes: Option<f64>,
    /// Against the floors: of rates at full load, of p99 by schedule.
    pub(crate) of_hop: Option<f64>,
    pub(crate) of_forwarder: Option<f64>,
    /// CPU per delivery against the forwarder's.
    pub(crate) cpu_of_forwarder: Option<f64>,
    /// From starting a server again until it is ready.
    pub(crate) ready_ms: Option<f64>,
    /// Cores' worth of CPU that relaying from an outbox adds to a server.
    pub(crate) relay_cores: Option<f64>,
    /// The figure that a case is about against the same figure without what the case is about.
    pub(crate) of_without: Option<f64>,
    /// Whether the load came by schedule.
    pub(crate) scheduled: bool,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
    /// Cores' worth of CPU during the run.
    pub(crate) load_cores: f64,
    pub(crate) sink_cores: f64,
    pub(crate) server_cores: f64,
    /// Cores that the machine's host gave to others meanwhile.
    pub(crate) taken_cores: f64,
    pub(crate) backlog: Option<Backlog>,
    /// What a reader should know before believing the figures.
    pub(crate) notes: Vec<String>,
    /// Why the run counts as failed, if it does.
    pub(crate) failure: Option<String>,
}

/// What a pile of events does.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Backlog {
    pub(crate) events: u64,
    pub(crate) lanes: u32,
    /// How many had piled up, and how many per second were accepted since the point before.
    pub(crate) growth: Vec<(u64, f64)>,
    /// The accept rate of the last tenth against that of an empty server, in turns.
    pub(crate) accept_of_empty: f64,
    /// From starting the server again until it is ready, and until the first delivery.
    pub(crate) ready_ms: f64,
    pub(crate) first_delivery_ms: f64,
    pub(crate) drained_per_s: f64,
    /// Such events through the same server while nothing was down: before the pile and after it.
    pub(crate) normal_per_s: f64,
}

/// A case and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) about: &'static str,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Why it could not be run, if it could not.
    pub(crate) missing: Option<String>,
}

/// Every row of a run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

impl Rows {
    /// The figures of a case, if it was measured.
    pub(crate) fn get(&self, case: &str) -> Option<&Figures> {
        let row = self.0.iter().find(|row| row.case == case)?;
        row.missing.is_none().then_some(&row.figures)
    }

    /// Sets a case against the floors of this run.
    pub(crate) fn compare(&self, figures: &mut Figures, floor: &str) {
        let hop = self.get(&format!("hop{floor}"));
        let forward = self.get(&format!("forward{floor}"));
        figures.of_hop = hop.and_then(|hop| figures.ratio_to(hop));
        figures.of_forwarder = forward.and_then(|forward| figures.ratio_to(forward));
        figures.cpu_of_forwarder =
            forward.and_then(|forward| ratio(figures.server_cpu_us?, forward.server_cpu_us?));
    }

    /// Sets every case that has floors against those of this run.
    pub(crate) fn compare_all(&mut self, floor_of: impl Fn(&str) -> Option<&'static str>) {
        let measured = self.clone();
        for row in &mut self.0 {
            if let Some(floor) = floor_of(row.case) {
                measured.compare(&mut row.figures, floor);
            }
        }
    }

    pub(crate) fn any_failed(&self) -> bool {
        self.0.iter().any(|row| row.figures.failure.is_some())
    }
}

/// Of the rows of one case, one a round, the one to show: the median by what the case is about, but one
/// that failed or is missing before all others.
pub(crate) fn typical(rows: &[Row]) -> Option<&Row> {
    let bad = |row: &&Row| row.figures.failure.is_some() || row.missing.is_some();
    let about = |row: &Row| {
        let figures = &row.figures;
        let p99 = figures.p99_us.map(|micros| micros as f64);
        let rate = figures.delivered_per_s.filter(|_| !figures.scheduled);
        rate.or(p99).unwrap_or_default()
    };
    rows.iter().find(bad).or_else(|| median(rows, about))
}

/// The one in the middle by its figure; the lower of two.
pub(crate) fn median<T>(items: &[T], figure: impl Fn(&T) -> f64) -> Option<&T> {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

impl Figures {
    fn ratio_to(&self, floor: &Self) -> Option<f64> {
        if self.scheduled {
            return ratio(self.p99_us? as f64, floor.p99_us? as f64);
        }
        ratio(self.delivered_per_s?, floor.delivered_per_s?)
    }
}

/// One figure against another; nothing against nothing.
pub(crate) fn ratio(figure: f64, floor: f64) -> Option<f64> {
    (floor > 0.0).then(|| figure / floor)
}

/// So many in so long, per second; nothing in no time.
pub(crate) fn per_second(count: u64, micros: u64) -> Option<f64> {
    ratio(count as f64 * 1e6, micros as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &'static str, delivered_per_s: f64, p99_us: u64) -> Row {
        let figures = Figures {
            delivered_per_s: Some(delivered_per_s),
            p99_us: Some(p99_us),
            server_cpu_us: Some(20.0),
            ..Figures::default()
        };
        Row { case, about: "", figures, missing: None }
    }

    #[test]
    fn rates_are_compared_at_full_load_and_p99_by_schedule() {
        let rows = Rows(vec![row("hop", 400.0, 10), row("forward-200", 200.0, 50)]);
        let mut full = row("x", 100.0, 100).figures;
        rows.compare(&mut full, "");
        assert_eq!((full.of_hop, full.of_forwarder), (Some(0.25), None));
        let mut paced = Figures { scheduled: true, ..row("x", 200.0, 100).figures };
        rows.compare(&mut paced, "-200");
        assert_eq!((paced.of_hop, paced.of_forwarder), (None, Some(2.0)));
        assert_eq!(paced.cpu_of_forwarder, Some(1.0));
    }

    #[test]
    fn a_case_that_could_not_run_has_no_figures() {
        let missing = Row { missing: Some("no".to_owned()), ..row("hop", 1.0, 1) };
        assert!(Rows(vec![missing]).get("hop").is_none());
    }

    #[test]
    fn nothing_is_compared_with_nothing() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(per_second(10, 0), None);
        assert_eq!(per_second(10, 2_000_000), Some(5.0));
    }

    #[test]
    fn the_row_in_the_middle_is_shown_unless_one_went_wrong() {
        let rates = |rates: &[f64]| rates.iter().map(|rate| row("x", *rate, 1)).collect::<Vec<_>>();
        let shown = |rows: &[Row]| typical(rows).and_then(|row| row.figures.delivered_per_s);
        for (rounds, expected) in [
            (&[][..], None),
            (&[3.0][..], Some(3.0)),
            (&[3.0, 1.0][..], Some(1.0)),
            (&[9.0, 1.0, 5.0][..], Some(5.0)),
        ] {
            assert_eq!(shown(&rates(rounds)), expected, "{rounds:?}");
        }
        let mut rows = rates(&[9.0, 1.0, 5.0]);
        rows[1].figures.failure = Some("1 violation of order".to_owned());
        assert_eq!(shown(&rows), Some(1.0));
    }

    #[test]
    fn by_schedule_the_middle_is_that_of_p99() {
        let mut rows = [row("x", 1.0, 30), row("x", 2.0, 20), row("x", 3.0, 10)];
        rows.iter_mut().for_each(|row| row.figures.scheduled = true);
        assert_eq!(typical(&rows).and_then(|row| row.figures.p99_us), Some(20));
    }
}
