//! What is counted of deliveries over all their attempts: how they were judged, how long they took, how many
//! attempts they needed, and which statuses came.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use railpost_dispatch::AttemptEnded;
use railpost_engine::{AttemptResult, DeadReason, DeliveryState, Span, Timestamp};
use railpost_wire::DeliveryId;

use super::labels::OTHER;
use super::metrics::{Durations, MetricsText, add};
use crate::limits::{STATUS_MAX, STATUS_VALUES_MAX};

/// When a delivery was made: its id begins with that. For a redelivery this is when it was asked for, for all
/// others when the event was accepted.
pub(super) fn made_at(delivery: DeliveryId) -> Timestamp {
    Timestamp::from_millis(delivery.unix_ms())
}

/// Whether the attempt was acknowledged within the objective.
pub(super) fn is_on_time(ended: &AttemptEnded<'_>, within: Span) -> bool {
    let transition = ended.transition;
    transition.state == DeliveryState::Delivered
        && transition.at.since(made_at(transition.delivery)) <= within
}

/// Whether it was given up on because its attempts were exhausted or its time to live was over.
pub(super) fn is_exhausted(state: DeliveryState) -> bool {
    let DeliveryState::Dead { reason, .. } = state else { return false };
    matches!(reason, DeadReason::AttemptsExhausted | DeadReason::Expired)
}

/// Deliveries that passed the objective, by whose part it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateDeliveries {
    /// The operator's: nothing was sent to the receiver before.
    pub operator: u64,
    /// The receiver's.
    pub receiver: u64,
}

/// What is counted of deliveries.
#[derive(Debug)]
pub(super) struct DeliveryMetrics {
    within: Span,
    on_time: AtomicU64,
    late_operator: AtomicU64,
    late_receiver: AtomicU64,
    first_success_seconds: Durations,
    first_attempt_delay_seconds: Durations,
    attempts: AttemptCounts,
    statuses: Statuses,
    exhausted: AtomicU64,
    dispatched: AtomicU64,
}

impl DeliveryMetrics {
    /// With this objective.
    pub(super) fn new(within: Span) -> Self {
        Self {
            within,
            on_time: AtomicU64::default(),
            late_operator: AtomicU64::default(),
            late_receiver: AtomicU64::default(),
            first_success_seconds: Durations::new(),
            first_attempt_delay_seconds: Durations::new(),
            attempts: AttemptCounts::default(),
            statuses: Statuses::default(),
            exhausted: AtomicU64::default(),
            dispatched: AtomicU64::default(),
        }
    }

    pub(super) fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let (transition, detail) = (ended.transition, ended.detail);
        if let AttemptResult::Response { status, .. } = detail.result {
            self.statuses.count(status);
        }
        if detail.number == 1 {
            add(&self.dispatched, 1);
            let waited = detail.started_at.since(made_at(transition.delivery));
            self.first_attempt_delay_seconds.record(Duration::from(waited));
        }
        match transition.state {
            DeliveryState::Delivered => {
                let began = transition.progress.round_started_at.unwrap_or(detail.started_at);
                self.first_success_seconds.record(Duration::from(transition.at.since(began)));
                self.attempts.record(detail.number);
            }
            DeliveryState::Dead { .. } => self.attempts.record(detail.number),
            _ => {}
        }
        add(&self.on_time, usize::from(is_on_time(ended, self.within)));
        add(&self.exhausted, usize::from(is_exhausted(transition.state)));
    }

    pub(super) fn late(&self, late: LateDeliveries) {
        self.late_operator.fetch_add(late.operator, Ordering::Relaxed);
        self.late_receiver.fetch_add(late.receiver, Ordering::Relaxed);
    }

    pub(super) fn render(&self, page: &mut MetricsText) {
        let judged = [
            ("on_time", &self.on_time),
            ("late_operator", &self.late_operator),
            ("late_receiver", &self.late_receiver),
        ];
        page.labelled("railpost_deliveries_judged_total", "result", judged.into_iter());
        let name = "railpost_first_success_duration_seconds";
        page.durations(name, &self.first_success_seconds);
        let name = "railpost_first_attempt_delay_seconds";
        page.durations(name, &self.first_attempt_delay_seconds);
        self.attempts.render(page);
        self.statuses.render(page);
        page.count("railpost_deliveries_exhausted_total", &self.exhausted);
        page.count("railpost_deliveries_dispatched_total", &self.dispatched);
    }
}

/// Upper bounds of the buckets: most deliveries need one attempt, and a day of retries makes about twenty.
const ATTEMPT_BOUNDS: [u32; 7] = [1, 2, 3, 5, 8, 13, 21];

/// How many deliveries needed how many attempts.
#[derive(Debug, Default)]
struct AttemptCounts {
    counts: [AtomicU64; ATTEMPT_BOUNDS.len() + 1],
    attempts: AtomicU64,
}

impl AttemptCounts {
    fn record(&self, attempts: u32) {
        let bucket = ATTEMPT_BOUNDS.partition_point(|bound| *bound < attempts);
        add(&self.counts[bucket], 1);
        self.attempts.fetch_add(attempts.into(), Ordering::Relaxed);
    }

    fn render(&self, page: &mut MetricsText) {
        let name = "railpost_delivery_attempts";
        let bounds = ATTEMPT_BOUNDS.iter().map(ToString::to_string);
        let sum = self.attempts.load(Ordering::Relaxed);
        page.head(name);
        page.buckets(name, &[], bounds, &self.counts, sum);
    }
}

/// How often each status came: the first few that came by themselves, the rest together.
#[derive(Debug)]
struct Statuses {
    counts: [AtomicU64; STATUS_MAX as usize + 1],
    known: AtomicU64,
    other: AtomicU64,
}

impl Default for Statuses {
    fn default() -> Self {
        let counts = [const { AtomicU64::new(0) }; STATUS_MAX as usize + 1];
        Self { counts, known: AtomicU64::default(), other: AtomicU64::default() }
    }
}

impl Statuses {
    fn count(&self, status: u16) {
        let count = self.counts.get(usize::from(status));
        add(count.filter(|count| self.is_known(count)).unwrap_or(&self.other), 1);
    }

    /// Whether it came before, or is new and there is room for it.
    fn is_known(&self, count: &AtomicU64) -> bool {
        if count.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let has_room = |known| (known < STATUS_VALUES_MAX).then_some(known + 1);
        self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_ok()
    }

    fn render(&self, page: &mut MetricsText) {
        let name = "railpost_attempt_statuses_total";
        page.head(name);
        let mut sample = |status: &str, count: &AtomicU64| {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                page.sample(name, &[("status", status)], count);
            }
        };
        for (status, count) in self.counts.iter().enumerate() {
            sample(&status.to_string(), count);
        }
        sample(OTHER, &self.other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_statuses_is_told_apart() {
        let statuses = Statuses::default();
        for status in (200..200 + STATUS_VALUES_MAX as u16 + 7).chain([200, 200, 65_535]) {
            statuses.count(status);
        }
        let mut page = MetricsText::default();
        statuses.render(&mut page);
        let text = page.into_text();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len() as u64, STATUS_VALUES_MAX + 1);
        assert_eq!(samples[0], r#"railpost_attempt_statuses_total{status="200"} 3"#);
        assert_eq!(samples.last(), Some(&r#"railpost_attempt_statuses_total{status="other"} 8"#));
    }

    #[test]
    fn attempts_are_counted_up_to_each_bound() {
        let attempts = AttemptCounts::default();
        [1, 1, 4, 22].into_iter().for_each(|count| attempts.record(count));
        let mut page = MetricsText::default();
        attempts.render(&mut page);
        let text = page.into_text();
        for line in [
            "_bucket{le=\"1\"} 2",
            "_bucket{le=\"3\"} 2",
            "_bucket{le=\"5\"} 3",
            "_bucket{le=\"21\"} 3",
            "_bucket{le=\"+Inf\"} 4",
            "_sum 28",
            "_count 4",
        ] {
            let line = format!("railpost_delivery_attempts{line}\n");
            assert!(text.contains(&line), "{line} not in {text}");
        }
    }
}
