//! Delivery ids: one after the other, so that an event's deliveries are a range.

use railpost_engine::Timestamp;
use railpost_wire::DeliveryId;

use crate::Source;

/// Makes delivery ids that ascend. Those made without another instant in between follow each other
/// without a gap: an event's row names the first one and how many there are, and no index from
/// events to deliveries is needed.
#[derive(Debug, Default)]
pub struct DeliveryIds {
    /// The last id given out, or 0.
    last: u128,
}

impl DeliveryIds {
    /// The first of the ids of one event accepted at `now`; the others follow by [`nth`]. With
    /// `count` 0 it is an id that no delivery gets.
    pub fn take(&mut self, source: &dyn Source, now: Timestamp, count: usize) -> DeliveryId {
        let first = self.next_free(source, now);
        self.last = first + count.saturating_sub(1) as u128;
        DeliveryId::from_u128(first)
    }

    /// Counts on within a millisecond (and while a clock that was set back catches up), and starts
    /// again from a random number with the next.
    fn next_free(&self, source: &dyn Source, now: Timestamp) -> u128 {
        let last = DeliveryId::from_u128(self.last);
        if self.last != 0 && last.unix_ms() >= now.as_millis() {
            return self.last + 1;
        }
        let mut random = [0; 10];
        source.fill_random(&mut random);
        // The highest of the 62 bits to count in starts as zero: counting never runs over.
        random[2] &= 0b0001_1111;
        let at = now.as_millis().max(last.unix_ms());
        u128::from_be_bytes(DeliveryId::generate(at, random).to_bytes())
    }
}

/// The id that comes `index` after `first`.
pub fn nth(first: DeliveryId, index: usize) -> DeliveryId {
    DeliveryId::from_u128(u128::from_be_bytes(first.to_bytes()).saturating_add(index as u128))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemSource;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn ids_of_one_millisecond_follow_each_other_without_overlap() {
        let mut ids = DeliveryIds::default();
        let first = ids.take(&SystemSource, at(5), 3);
        let second = ids.take(&SystemSource, at(5), 1);
        assert!(nth(first, 2) < second);
        assert_eq!([first, nth(first, 2), second].map(DeliveryId::unix_ms), [5, 5, 5]);
    }

    #[test]
    fn ids_ascend_even_when_the_clock_is_set_back() {
        let mut ids = DeliveryIds::default();
        let mut last = ids.take(&SystemSource, at(9), 1);
        for millis in [9, 3, 10, 10, 2] {
            let next = ids.take(&SystemSource, at(millis), 2);
            assert!(next > last);
            last = next;
        }
    }
}
