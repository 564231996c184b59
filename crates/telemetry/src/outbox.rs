//! Metrics of the sources that events are relayed from, labelled by source.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use railpost_store::SourceName;

use super::metrics::{Durations, MetricsText};

/// A source, when someone asks for the metrics.
#[derive(Clone, Debug, Default)]
pub struct SourceSample {
    /// Its name.
    pub source: String,
    /// Whether this server or another one reads it.
    pub up: bool,
    /// Whether this server does.
    pub leader: bool,
    /// Rows that were accepted for the first time.
    pub relayed: u64,
    /// Rows that had been accepted before.
    pub duplicates: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// Rows that are parked.
    pub parked: u64,
    /// Rows that are known to wait.
    pub pending: u64,
    /// Age of the oldest row of the last batch.
    pub lag_seconds: f64,
    /// Reads because the poll interval was over.
    pub wakes_by_poll: u64,
    /// Reads after a notification, a change in the log, or a command.
    pub wakes_by_notify: u64,
    /// The replication slot, if it has one.
    pub slot: Option<SlotSample>,
}

/// A replication slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotSample {
    /// Bytes of log that the database keeps for it.
    pub retained_bytes: u64,
    /// Bytes that it may keep further, if that is bounded.
    pub safe_bytes: Option<u64>,
    /// Whether it is lost.
    pub lost: bool,
}

/// What is counted of sources where it happens.
#[derive(Debug, Default)]
pub struct OutboxMetrics {
    batch_seconds: Mutex<BTreeMap<SourceName, Durations>>,
}

impl OutboxMetrics {
    /// A batch of rows was stored.
    pub fn batch(&self, source: &SourceName, took: Duration) {
        let mut sources = self.batch_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        match sources.get(source) {
            Some(durations) => durations.record(took),
            None => sources.entry(source.clone()).or_insert_with(Durations::new).record(took),
        }
    }

    pub(super) fn render(&self, page: &mut MetricsText, sources: &[SourceSample]) {
        let mut each = |name: &str, value: &dyn Fn(&SourceSample) -> Option<f64>| {
            page.head(name);
            for sample in sources {
                let labels = [("source", sample.source.as_str())];
                value(sample).into_iter().for_each(|value| page.sample(name, &labels, value));
            }
        };
        each("railpost_outbox_relayed_total", &|sample| Some(sample.relayed as f64));
        each("railpost_outbox_duplicates_total", &|sample| Some(sample.duplicates as f64));
        each("railpost_outbox_refused_total", &|sample| Some(sample.refused as f64));
        each("railpost_outbox_parked", &|sample| Some(sample.parked as f64));
        each("railpost_outbox_pending", &|sample| Some(sample.pending as f64));
        each("railpost_outbox_lag_seconds", &|sample| Some(sample.lag_seconds));
        each("railpost_outbox_up", &|sample| Some(f64::from(sample.up)));
        each("railpost_outbox_leader", &|sample| Some(f64::from(sample.leader)));
        let slot = |sample: &SourceSample| sample.slot;
        each("railpost_outbox_slot_retained_bytes", &|sample| {
            slot(sample).map(|slot| slot.retained_bytes as f64)
        });
        each("railpost_outbox_slot_safe_bytes", &|sample| {
            slot(sample)?.safe_bytes.map(|bytes| bytes as f64)
        });
        each("railpost_outbox_slot_lost", &|sample| slot(sample).map(|slot| f64::from(slot.lost)));
        self.render_batches(page);
        render_wakes(page, sources);
    }

    fn render_batches(&self, page: &mut MetricsText) {
        const NAME: &str = "railpost_outbox_batch_seconds";
        page.head(NAME);
        let sources = self.batch_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, durations) in &*sources {
            page.labelled_durations(NAME, &[("source", source.as_str())], durations);
        }
    }
}

fn render_wakes(page: &mut MetricsText, sources: &[SourceSample]) {
    const NAME: &str = "railpost_outbox_wakes_total";
    page.head(NAME);
    for sample in sources {
        for (by, wakes) in [("poll", sample.wakes_by_poll), ("notify", sample.wakes_by_notify)] {
            page.sample(NAME, &[("source", &sample.source), ("by", by)], wakes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::{Metrics, Sample, TelemetrySettings};

    #[test]
    fn sources_are_labelled_and_what_is_not_known_of_a_slot_is_left_out() {
        let metrics = Metrics::new([], &TelemetrySettings::default());
        metrics.outbox.batch(&"shop".parse().unwrap(), Duration::from_millis(2));
        let slot = Some(SlotSample { retained_bytes: 1 << 40, safe_bytes: None, lost: false });
        let shop =
            SourceSample { source: "shop".to_owned(), relayed: 7, slot, ..Default::default() };
        let app = SourceSample { source: "app".to_owned(), wakes_by_poll: 3, ..Default::default() };
        let page = metrics.render(&Sample { sources: vec![shop, app], ..Sample::default() });
        for line in [
            "railpost_outbox_relayed_total{source=\"shop\"} 7",
            "railpost_outbox_wakes_total{source=\"app\",by=\"poll\"} 3",
            "railpost_outbox_slot_retained_bytes{source=\"shop\"} 1099511627776",
            "railpost_outbox_batch_seconds_bucket{source=\"shop\",le=\"0.0025\"} 1",
            "railpost_outbox_batch_seconds_count{source=\"shop\"} 1",
        ] {
            assert!(page.lines().any(|other| other == line), "{line} not in {page}");
        }
        assert!(!page.contains("slot_safe_bytes{") && !page.contains("slot_lost{source=\"app\""));
    }
}
