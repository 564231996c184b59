//! Figures over time: what happened in each minute and each hour, for charts that survive a restart.

use std::collections::BTreeMap;

use railpost_engine::{Span, Timestamp};
use railpost_wire::{EndpointId, TenantId};
use serde::{Deserialize, Serialize};

use crate::backend::packed_figures;
use crate::limits::{FIGURES_BUCKETS_MAX, FIGURES_HOURS_KEPT, FIGURES_MINUTES_KEPT};
use crate::{Histogram, Result, StoreError};

/// Whose figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FiguresScope {
    /// Everyone's together.
    All,
    /// One tenant's.
    Tenant(TenantId),
    /// One endpoint's.
    Endpoint(EndpointId),
}

/// How long a stretch of time one set of figures is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resolution {
    /// A minute; kept for [`FIGURES_MINUTES_KEPT`].
    Minute,
    /// An hour; kept for [`FIGURES_HOURS_KEPT`].
    Hour,
}

impl Resolution {
    const BOTH: [Self; 2] = [Self::Minute, Self::Hour];

    /// How long it is.
    pub const fn span(self) -> Span {
        match self {
            Resolution::Minute => Span::from_mins(1),
            Resolution::Hour => Span::from_hours(1),
        }
    }

    /// When the minute or hour of `at` begins.
    pub const fn start_of(self, at: Timestamp) -> Timestamp {
        let millis = at.as_millis();
        Timestamp::from_millis(millis - millis % self.span().as_millis())
    }

    /// The minutes or hours that begin before this are not kept.
    pub fn kept_from(self, now: Timestamp) -> Timestamp {
        let kept = match self {
            Resolution::Minute => FIGURES_MINUTES_KEPT,
            Resolution::Hour => FIGURES_HOURS_KEPT,
        };
        Timestamp::from_millis(now.as_millis().saturating_sub(kept.as_millis()))
    }
}

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events accepted.
    pub accepted: u64,
    /// Attempts that ended.
    pub attempts: u64,
    /// Attempts that were acknowledged.
    pub acknowledged: u64,
    /// Attempts that failed and may be retried.
    pub retryable: u64,
    /// Attempts that failed for good.
    pub permanent: u64,
    /// Deliveries given up on.
    pub dead: u64,
    /// Attempts by the response's status; 0 for those without a response.
    pub by_status: BTreeMap<u16, u64>,
    /// Attempts without a response, by what went wrong.
    pub by_failure: BTreeMap<String, u64>,
    /// How long attempts took, in microseconds.
    pub attempt_us: Histogram,
    /// How long deliveries took from accept to acknowledgement, in milliseconds.
    pub deliver_ms: Histogram,
    /// Deliveries whose first attempt ended.
    pub first_attempts: u64,
    /// Deliveries given up on because their attempts were exhausted or their time to live was over.
    pub exhausted: u64,
    /// Deliveries acknowledged within the objective.
    pub on_time: u64,
    /// Deliveries that passed the objective before anything was sent to their receiver.
    pub late_operator: u64,
    /// Deliveries that passed the objective because of their receiver.
    pub late_receiver: u64,
    /// How long deliveries waited from accept to the start of their first attempt, in milliseconds.
    pub first_attempt_ms: Histogram,
}

impl Figures {
    /// All that `other` counted happened here too.
    pub fn merge(&mut self, other: &Self) {
        let add = |count: &mut u64, more: u64| *count = count.saturating_add(more);
        add(&mut self.accepted, other.accepted);
        add(&mut self.attempts, other.attempts);
        add(&mut self.acknowledged, other.acknowledged);
        add(&mut self.retryable, other.retryable);
        add(&mut self.permanent, other.permanent);
        add(&mut self.dead, other.dead);
        for (status, count) in &other.by_status {
            add(self.by_status.entry(*status).or_default(), *count);
        }
        for (failure, count) in &other.by_failure {
            add(self.by_failure.entry(failure.clone()).or_default(), *count);
        }
        self.attempt_us.merge(&other.attempt_us);
        self.deliver_ms.merge(&other.deliver_ms);
        add(&mut self.first_attempts, other.first_attempts);
        add(&mut self.exhausted, other.exhausted);
        add(&mut self.on_time, other.on_time);
        add(&mut self.late_operator, other.late_operator);
        add(&mut self.late_receiver, other.late_receiver);
        self.first_attempt_ms.merge(&other.first_attempt_ms);
    }

    /// Deliveries that were judged: on time or late.
    pub fn judged(&self) -> u64 {
        self.on_time.saturating_add(self.late())
    }

    /// Deliveries that passed the objective, by the operator's part or the receiver's.
    pub fn late(&self) -> u64 {
        self.late_operator.saturating_add(self.late_receiver)
    }

    /// What is to be stored where `stored` is, if anything.
    pub fn merged_with_stored(&self, stored: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut sum = stored.map_or_else(|| Ok(Self::default()), packed_figures::decode)?;
        sum.merge(self);
        Ok(packed_figures::encode(&sum))
    }
}

/// Which minute or hour of whom: in the order in which the rows are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bucket {
    /// Whether it is a minute or an hour.
    pub resolution: Resolution,
    /// When it begins.
    pub at: Timestamp,
    /// Whose figures.
    pub scope: FiguresScope,
}

/// Everything that a batch adds, by minute and by hour.
pub fn by_bucket(batch: Vec<(FiguresScope, Timestamp, Figures)>) -> BTreeMap<Bucket, Figures> {
    let mut sums: BTreeMap<Bucket, Figures> = BTreeMap::new();
    for (scope, at, figures) in batch {
        if figures == Figures::default() {
            continue;
        }
        for resolution in Resolution::BOTH {
            let (at, scope) = (resolution.start_of(at), scope.clone());
            sums.entry(Bucket { resolution, at, scope }).or_default().merge(&figures);
        }
    }
    sums
}

/// One row more than may be asked for: it tells that there are too many.
pub const READ_MAX: usize = FIGURES_BUCKETS_MAX + 1;

/// The answer made of up to [`READ_MAX`] rows; refused if there are as many.
pub fn read_buckets(rows: Vec<(Timestamp, Vec<u8>)>) -> Result<Vec<(Timestamp, Figures)>> {
    if rows.len() == READ_MAX {
        let problem = format!("expected one of at most {FIGURES_BUCKETS_MAX} minutes or hours");
        return Err(StoreError::invalid("period", problem));
    }
    rows.into_iter().map(|(at, bytes)| Ok((at, packed_figures::decode(&bytes)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_belongs_to_its_minute_and_its_hour() {
        let at = Timestamp::from_millis(2 * 3_600_000 + 3 * 60_000 + 59_999);
        let start = |resolution: Resolution| resolution.start_of(at).as_millis();
        assert_eq!(start(Resolution::Minute), 2 * 3_600_000 + 3 * 60_000);
        assert_eq!(start(Resolution::Hour), 2 * 3_600_000);
    }

    #[test]
    fn a_batch_is_summed_before_it_is_stored() {
        let one = Figures { accepted: 1, ..Figures::default() };
        let entry = |millis, figures: &Figures| {
            (FiguresScope::All, Timestamp::from_millis(millis), figures.clone())
        };
        let batch = vec![entry(0, &one), entry(59_999, &one), entry(60_000, &one)];
        let nothing = entry(7_200_000, &Figures::default());
        let sums = by_bucket([batch, vec![nothing]].concat());
        let accepted: Vec<_> =
            sums.iter().map(|(bucket, sum)| (bucket.at.as_millis(), sum.accepted)).collect();
        assert_eq!(accepted, [(0, 2), (60_000, 1), (0, 3)]);
    }
}
