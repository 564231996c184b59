//! How long things took: counts in buckets that grow with the value, so that a microsecond and a
//! minute fit in one small table with the same relative error.

use serde::{Deserialize, Serialize};

/// Buckets per doubling: a quantile is at most 1/64 above the true value.
const PER_DOUBLING: u64 = 64;
const PER_DOUBLING_BITS: u32 = PER_DOUBLING.trailing_zeros();

/// Doublings that are told apart: up to 2^40 µs, about twelve days.
const DOUBLINGS: u32 = 40;
const BUCKETS: usize = ((DOUBLINGS - PER_DOUBLING_BITS + 1) as usize) * PER_DOUBLING as usize;

/// Microseconds, counted. Travels between processes as pairs of bucket and count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, micros: u64) {
        self.add_many(bucket_of(micros), 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.filled() {
            self.add_many(bucket, count);
        }
    }

    /// The smallest bucket's end that at least `quantile` of the values do not exceed; nothing when
    /// nothing was counted.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<u64> {
        let wanted = ((self.total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.filled().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map(|(bucket, _)| end_of(bucket))
    }

    fn add_many(&mut self, bucket: usize, count: u64) {
        self.counts[bucket.min(BUCKETS - 1)] += count;
        self.total += count;
    }

    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }
}

impl From<Vec<(usize, u64)>> for Histogram {
    fn from(filled: Vec<(usize, u64)>) -> Self {
        let mut histogram = Self::default();
        filled.into_iter().for_each(|(bucket, count)| histogram.add_many(bucket, count));
        histogram
    }
}

impl From<Histogram> for Vec<(usize, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.filled().collect()
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < PER_DOUBLING {
        return micros as usize;
    }
    let shift = micros.ilog2() - PER_DOUBLING_BITS;
    let bucket = u64::from(shift) * PER_DOUBLING + (micros >> shift);
    (bucket as usize).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_DOUBLING {
        return bucket;
    }
    let shift = bucket / PER_DOUBLING - 1;
    let within = bucket % PER_DOUBLING + PER_DOUBLING;
    ((within + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.add(value));
        histogram
    }

    #[test]
    fn quantiles_are_exact_below_128_microseconds() {
        for (values, quantile, expected) in [
            (vec![], 0.5, None),
            (vec![7], 0.5, Some(7)),
            (vec![7], 0.99, Some(7)),
            (vec![1, 2, 3, 4], 0.5, Some(2)),
            (vec![1, 2, 3, 4], 0.51, Some(3)),
            (vec![4, 3, 2, 1], 1.0, Some(4)),
            (vec![0, 0, 0, 127], 0.75, Some(0)),
            ((1..=100).collect(), 0.99, Some(99)),
        ] {
            assert_eq!(of(values.clone()).quantile(quantile), expected, "{quantile} of {values:?}");
        }
    }

    #[test]
    fn every_value_lies_in_its_bucket_within_a_sixty_fourth() {
        for power in 0..DOUBLINGS {
            for value in [1 << power, (1 << power) + 1, (1_u64 << power) * 3 / 2] {
                let end = of([value]).quantile(1.0).unwrap();
                assert!(end >= value, "{value} ends at {end}");
                assert!(end - value <= value / PER_DOUBLING, "{value} ends at {end}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gap() {
        for bucket in 1..BUCKETS - 1 {
            assert_eq!(bucket_of(end_of(bucket)), bucket);
            assert_eq!(bucket_of(end_of(bucket) + 1), bucket + 1);
        }
    }

    #[test]
    fn what_is_longer_than_the_table_counts_in_the_last_bucket() {
        let histogram = of([u64::MAX]);
        assert_eq!(histogram.quantile(0.5), Some(end_of(BUCKETS - 1)));
    }

    #[test]
    fn a_merged_histogram_counts_both() {
        let mut merged = of([1, 1, 1]);
        merged.merge(&of([90]));
        assert_eq!(merged.total, 4);
        assert_eq!(merged.quantile(0.75), Some(1));
        assert_eq!(merged.quantile(0.76), Some(90));
    }

    #[test]
    fn a_histogram_survives_the_way_between_processes() {
        let histogram = of([3, 70, 5_000, 5_000_000]);
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    }
}
