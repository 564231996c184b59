//! How often which value came, in few numbers: four buckets per power of two.

use std::collections::BTreeMap;

/// Buckets per power of two, as a power of two. Stable: the buckets' numbers are stored.
const SPLIT_BITS: u32 = 2;

/// How many times each value came, roughly: values that share a bucket are not told apart. A bucket
/// is at most a quarter as wide as its values are large; values below 8 have buckets of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How often by bucket, without empty ones.
    buckets: BTreeMap<u8, u64>,
}

impl Histogram {
    /// A value came.
    pub fn record(&mut self, value: u64) {
        self.add(bucket_of(value), 1);
    }

    /// All that `other` counted came here too.
    pub fn merge(&mut self, other: &Self) {
        other.buckets.iter().for_each(|(bucket, count)| self.add(*bucket, *count));
    }

    /// How many values came.
    pub fn count(&self) -> u64 {
        self.buckets.values().fold(0, |all, count| all.saturating_add(*count))
    }

    /// The value that this share of all values do not exceed, such as 0.99; nothing if none came. It
    /// is the middle of a bucket: off by at most an eighth of the true one.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((share * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0_u64;
        let reaches = |(_, count): &(&u8, &u64)| {
            seen = seen.saturating_add(**count);
            seen >= rank
        };
        self.buckets.iter().find(reaches).map(|(bucket, _)| middle_of(*bucket))
    }

    /// How often by bucket, the lowest first.
    pub(crate) fn buckets(&self) -> impl ExactSizeIterator<Item = (u8, u64)> {
        self.buckets.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// So many values of one bucket came.
    pub(crate) fn add(&mut self, bucket: u8, count: u64) {
        if count > 0 {
            let total = self.buckets.entry(bucket).or_default();
            *total = total.saturating_add(count);
        }
    }
}

/// The last bucket: that of the largest value.
pub(crate) const LAST_BUCKET: u8 = bucket_of(u64::MAX);

/// A value's bucket: its power of two and the two bits after its highest one.
const fn bucket_of(value: u64) -> u8 {
    if value < 1 << SPLIT_BITS {
        return value as u8;
    }
    let power = value.ilog2() - SPLIT_BITS;
    // With its highest bit, the part is 4 to 7: that counts the power up by one.
    ((power << SPLIT_BITS) + (value >> power) as u32) as u8
}

/// The value in the middle of a bucket.
fn middle_of(bucket: u8) -> u64 {
    let (power, part) = (u64::from(bucket) >> SPLIT_BITS, u64::from(bucket) & 3);
    let Some(power) = power.checked_sub(1) else { return part };
    let width = 1_u64 << power;
    (part + 4) * width + (width - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// Values of every size: a plain `u64` is nearly always huge.
    fn values() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
    }

    #[test]
    fn the_numbers_of_buckets_never_change() {
        for (value, bucket) in [
            (0, 0),
            (3, 3),
            (4, 4),
            (7, 7),
            (8, 8),
            (9, 8),
            (10, 9),
            (15, 11),
            (16, 12),
            (1_000, 35),
            (1 << 62, 244),
            (u64::MAX, 251),
        ] {
            assert_eq!(bucket_of(value), bucket, "{value}");
        }
    }

    #[test]
    fn nothing_came_and_nothing_is_known() {
        let none = Histogram::default();
        assert_eq!((none.count(), none.quantile(0.5)), (0, None));
    }

    #[test]
    fn small_values_are_known_exactly() {
        let seven = of(&[1, 2, 3, 4, 5, 6, 7]);
        for (share, value) in [(0.0, 1), (0.01, 1), (0.5, 4), (0.99, 7), (1.0, 7), (9.0, 7)] {
            assert_eq!(seven.quantile(share), Some(value), "{share}");
        }
    }

    #[test]
    fn counts_saturate() {
        let mut full = Histogram::default();
        full.add(3, u64::MAX);
        full.merge(&of(&[3, 100]));
        assert_eq!((full.count(), full.quantile(0.5)), (u64::MAX, Some(3)));
    }

    proptest! {
        #[test]
        fn a_quantile_is_off_by_an_eighth_at_most(
            mut values in vec(values(), 1..200),
            share in 0.0..=1.0_f64,
        ) {
            let found = of(&values).quantile(share).unwrap();
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(found.abs_diff(exact) <= exact / 8, "{found} for {exact}");
        }

        #[test]
        fn merging_is_recording_both(a in vec(values(), 0..100), b in vec(values(), 0..100)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged.count(), (a.len() + b.len()) as u64);
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
