//! Chance, drawn from the seed and from nothing else.

use std::ops::RangeInclusive;

use railpost_engine::Span;

/// A generator with the few draws that this world needs.
pub(crate) struct SeededRng(fastrand::Rng);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    pub(crate) fn number(&mut self, range: RangeInclusive<u32>) -> u32 {
        self.0.u32(range)
    }

    pub(crate) fn millis(&mut self, range: RangeInclusive<u64>) -> Span {
        Span::from_millis(self.0.u64(range))
    }

    pub(crate) fn secs(&mut self, range: RangeInclusive<u64>) -> Span {
        Span::from_secs(self.0.u64(range))
    }

    pub(crate) fn mins(&mut self, range: RangeInclusive<u64>) -> Span {
        Span::from_mins(self.0.u64(range))
    }

    pub(crate) fn seed(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.usize(0..from.len())].clone()
    }
}
