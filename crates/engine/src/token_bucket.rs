//! A token bucket in whole numbers, so that it neither drifts nor rounds.

use crate::{RateLimit, Span, Timestamp};

/// Tokens saved up under a [`RateLimit`]. A token is worth as many units as its period has
/// milliseconds, so that each millisecond earns exactly `count` units.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    limit: RateLimit,
    units: u64,
    at: Timestamp,
}

impl TokenBucket {
    /// A full one.
    pub(crate) fn new(limit: RateLimit, now: Timestamp) -> Self {
        let mut bucket = Self { limit, units: 0, at: now };
        bucket.units = bucket.capacity();
        bucket
    }

    /// Puts other bounds on what is saved up.
    pub(crate) fn set_limit(&mut self, limit: RateLimit, now: Timestamp) {
        self.refill(now);
        let tokens = self.units / self.token();
        self.limit = limit;
        self.units = tokens.saturating_mul(self.token()).min(self.capacity());
    }

    /// When the next token can be had: `now` if there is one.
    pub(crate) fn ready_at(&mut self, now: Timestamp) -> Timestamp {
        self.refill(now);
        let missing = self.token().saturating_sub(self.units);
        now + Span::from_millis(missing.div_ceil(u64::from(self.limit.count)))
    }

    /// Takes the token that [`TokenBucket::ready_at`] said is there.
    pub(crate) fn take(&mut self) {
        debug_assert!(self.units >= self.token(), "a token is there");
        self.units = self.units.saturating_sub(self.token());
    }

    fn refill(&mut self, now: Timestamp) {
        let earned = now.since(self.at).as_millis().saturating_mul(u64::from(self.limit.count));
        self.units = self.units.saturating_add(earned).min(self.capacity());
        self.at = self.at.max(now);
    }

    fn token(&self) -> u64 {
        self.limit.per.as_millis()
    }

    fn capacity(&self) -> u64 {
        self.token().saturating_mul(u64::from(self.limit.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let limit = RateLimit { count: 2, per: Span::from_secs(1), burst: 3 };
        let mut bucket = TokenBucket::new(limit, at(0));
        let mut now = at(0);
        let mut starts = Vec::new();
        while starts.len() < 6 {
            now = bucket.ready_at(now);
            assert_eq!(bucket.ready_at(now), now);
            bucket.take();
            starts.push(now.as_millis());
        }
        assert_eq!(starts, [0, 0, 0, 500, 1000, 1500]);
    }

    #[test]
    fn a_lower_limit_takes_away_what_it_does_not_allow_to_save() {
        let limit = RateLimit { count: 10, per: Span::from_secs(1), burst: 10 };
        let mut bucket = TokenBucket::new(limit, at(0));
        bucket.set_limit(RateLimit { count: 1, per: Span::from_secs(1), burst: 1 }, at(0));
        assert_eq!(bucket.ready_at(at(0)), at(0));
        bucket.take();
        assert_eq!(bucket.ready_at(at(0)), at(1000));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_sees_more_than_the_limit(
            count in 1u32..50,
            per_ms in 1u64..5_000,
            burst in 1u32..20,
            waits in prop::collection::vec(0u64..300, 1..200),
        ) {
            let limit = RateLimit { count, per: Span::from_millis(per_ms), burst };
            let mut bucket = TokenBucket::new(limit, at(0));
            let mut now = at(0);
            let mut taken = Vec::new();
            for wait in waits {
                now = now + Span::from_millis(wait);
                while bucket.ready_at(now) <= now {
                    bucket.take();
                    taken.push(now.as_millis());
                }
            }
            for (first, start) in taken.iter().enumerate() {
                for (last, end) in taken.iter().enumerate().skip(first) {
                    let allowed = u64::from(burst) + (end - start) * u64::from(count) / per_ms + 1;
                    prop_assert!((last - first + 1) as u64 <= allowed);
                }
            }
        }
    }
}
