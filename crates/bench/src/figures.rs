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
    /// Bytes that server and PostgreSQL sent to the disk, per delivery.
    pub(crate) written_bytes: Option<f64>,
    /// Against the floors: of rates at full load, of p99 by schedule.
    pub(crate) of_hop: Option<f64>,
    pub(crate) of_forwarder: Option<f64>,
    /// CPU per delivery against the forwarder's.
    pub(crate) cpu_of_forwarder: Option<f64>,
    /// Whether the load came by schedule.
    pub(crate) scheduled: bool,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
    /// Cores' worth of CPU during the stretch.
    pub(crate) load_cores: f64,
    pub(crate) sink_cores: f64,
    pub(crate) server_cores: f64,
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
    /// The accept rate of the last tenth against the first.
    pub(crate) accept_of_empty: f64,
    /// From starting the server again until it is ready, and until the first delivery.
    pub(crate) ready_ms: f64,
    pub(crate) first_delivery_ms: f64,
    pub(crate) drained_per_s: f64,
    /// The same events through the same server while nothing was down.
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

    pub(crate) fn any_failed(&self) -> bool {
        self.0.iter().any(|row| row.figures.failure.is_some())
    }
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
}
