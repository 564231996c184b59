//! Sums of figures over windows of time, kept in memory: each minute and hour is read once it is there, and
//! again while it may still change.

use std::collections::BTreeMap;

use railpost_engine::{Span, Timestamp};
use railpost_store::{Figures, Histogram, Resolution};
use railpost_wire::TenantId;

use crate::limits::MINUTES_WINDOW_MAX;

/// The figures that rules look at: those of all tenants together, and of single tenants.
#[derive(Clone, Debug, Default)]
pub struct FigureHistory {
    /// Those of all tenants together.
    pub all: FigureSeries,
    /// By tenant, if a rule looks at each.
    pub tenants: BTreeMap<TenantId, FigureSeries>,
}

/// What happened in each of the latest minutes and hours.
#[derive(Clone, Debug, Default)]
pub struct FigureSeries {
    minutes: BTreeMap<Timestamp, WindowSum>,
    hours: BTreeMap<Timestamp, WindowSum>,
}

/// What rules count of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowSum {
    /// Deliveries first sent.
    pub dispatched: u64,
    /// Deliveries that died with their attempts exhausted, or expired.
    pub exhausted: u64,
    /// Deliveries that were judged: on time or late.
    pub judged: u64,
    /// Deliveries that were late.
    pub late: u64,
    /// How long attempts took, in microseconds.
    pub attempt_us: Histogram,
}

impl WindowSum {
    fn add(&mut self, other: &Self) {
        self.dispatched += other.dispatched;
        self.exhausted += other.exhausted;
        self.judged += other.judged;
        self.late += other.late;
        self.attempt_us.merge(&other.attempt_us);
    }
}

impl From<&Figures> for WindowSum {
    fn from(figures: &Figures) -> Self {
        Self {
            dispatched: figures.first_attempts,
            exhausted: figures.exhausted,
            judged: figures.judged(),
            late: figures.late(),
            attempt_us: figures.attempt_us.clone(),
        }
    }
}

impl FigureSeries {
    /// Takes over what was read, in place of what was known of the same minutes or hours. What is older
    /// than `longest` before `now` is forgotten.
    pub fn take(
        &mut self,
        resolution: Resolution,
        read: &[(Timestamp, Figures)],
        (now, longest): (Timestamp, Span),
    ) {
        let (series, kept) = match resolution {
            Resolution::Minute => (&mut self.minutes, longest.min(MINUTES_WINDOW_MAX)),
            Resolution::Hour => (&mut self.hours, longest),
        };
        series.extend(read.iter().map(|(at, figures)| (*at, WindowSum::from(figures))));
        *series = series.split_off(&before(now, kept));
    }

    /// From where on to read: what may have changed since the latest minute or hour known, or all of a
    /// window.
    pub fn read_from(
        &self,
        resolution: Resolution,
        (now, longest): (Timestamp, Span),
    ) -> Timestamp {
        let (series, kept) = match resolution {
            Resolution::Minute => (&self.minutes, longest.min(MINUTES_WINDOW_MAX)),
            Resolution::Hour => (&self.hours, longest),
        };
        let all = before(now, kept);
        // Figures of a minute are written some seconds after its end.
        let last = series.last_key_value().map(|(at, _)| before(*at, resolution.span()));
        last.map_or(all, |last| last.max(all))
    }

    /// What happened in the last `window` before `now`, to the minute or, for long windows, to the hour.
    pub fn sum(&self, now: Timestamp, window: Span) -> WindowSum {
        self.sum_between(before(now, window), now, window)
    }

    /// What happened in each of the latest `count` intervals, the latest first.
    pub fn intervals(&self, now: Timestamp, interval: Span, count: u32) -> Vec<WindowSum> {
        let end = |n: u32| before(now, interval.times(u64::from(n)));
        (0..count)
            .map(|n| self.sum_between(end(n + 1), end(n), interval.times(u64::from(count))))
            .collect()
    }

    /// The minutes or hours that begin after `from`, up to `to`.
    fn sum_between(&self, from: Timestamp, to: Timestamp, window: Span) -> WindowSum {
        let series = if window <= MINUTES_WINDOW_MAX { &self.minutes } else { &self.hours };
        let mut sum = WindowSum::default();
        let first = Timestamp::from_millis(from.as_millis() + 1);
        for (_, figures) in series.range(first..=to) {
            sum.add(figures);
        }
        sum
    }
}

pub(crate) fn before(at: Timestamp, span: Span) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(span.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn at(minute: u64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE)
    }

    fn figures(count: u64) -> Figures {
        Figures { first_attempts: count, ..Figures::default() }
    }

    #[test]
    fn a_window_has_the_minutes_that_begin_in_it() {
        let mut series = FigureSeries::default();
        let read: Vec<_> = (0..100).map(|n| (at(n), figures(1))).collect();
        series.take(Resolution::Minute, &read, (at(99), Span::from_hours(6)));
        assert_eq!(series.sum(at(99), Span::from_mins(15)).dispatched, 15);
        let later = Timestamp::from_millis(at(99).as_millis() + 30_000);
        assert_eq!(series.sum(later, Span::from_mins(15)).dispatched, 15);
        assert_eq!(series.sum(at(120), Span::from_mins(15)).dispatched, 0);
        let intervals = series.intervals(at(99), Span::from_mins(5), 3);
        assert_eq!(intervals.iter().map(|sum| sum.dispatched).collect::<Vec<_>>(), [5, 5, 5]);
    }

    #[test]
    fn what_is_read_again_counts_once() {
        let mut series = FigureSeries::default();
        let windows = (at(10), Span::from_hours(1));
        series.take(Resolution::Minute, &[(at(9), figures(1)), (at(10), figures(1))], windows);
        assert_eq!(series.read_from(Resolution::Minute, windows), at(9));
        series.take(Resolution::Minute, &[(at(10), figures(5))], windows);
        assert_eq!(series.sum(at(10), Span::from_mins(15)).dispatched, 6);
    }

    #[test]
    fn what_is_older_than_the_longest_window_is_forgotten() {
        let mut series = FigureSeries::default();
        let read: Vec<_> = (0..1_000).map(|n| (at(n), figures(1))).collect();
        series.take(Resolution::Minute, &read, (at(999), Span::from_days(3)));
        assert_eq!(series.minutes.len(), 361);
        assert_eq!(
            FigureSeries::default().read_from(Resolution::Minute, (at(999), Span::from_days(3))),
            at(639)
        );
    }

    #[test]
    fn a_long_window_is_summed_up_by_the_hour() {
        let mut series = FigureSeries::default();
        let read: Vec<_> = (0..100).map(|n| (at(n * 60), figures(1))).collect();
        let now = at(99 * 60 + 30);
        series.take(Resolution::Hour, &read, (now, Span::from_days(3)));
        assert_eq!(series.sum(now, Span::from_days(1)).dispatched, 24);
        assert_eq!(series.sum(now, Span::from_days(3)).dispatched, 72);
    }
}
