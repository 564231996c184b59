//! The engine's time: it passes as real time does, whatever happens to the machine's clock.

use std::time::Duration;

use railpost_engine::Timestamp;
use railpost_store::Source;

use crate::limits::{CLOCK_JITTER, CLOCK_SLEW_SHARE};

/// The time of day when it was made plus what has passed since, by a steady clock. It follows
/// the time of day slowly: a clock that is set forward or back freezes no retry and hurries none.
#[derive(Debug)]
pub(super) struct EngineClock {
    /// The engine's time when it was last read, since 1970.
    last: Duration,
    /// What the source's steady clock said then.
    last_steady: Duration,
}

impl EngineClock {
    pub(super) fn new(source: &dyn Source) -> Self {
        Self { last: time_of_day(source), last_steady: source.steady() }
    }

    pub(super) fn now(&mut self, source: &dyn Source) -> Timestamp {
        let steady = source.steady();
        let passed = steady.saturating_sub(self.last_steady);
        let ahead = self.last + passed;
        let time_of_day = time_of_day(source);
        let slew = passed / CLOCK_SLEW_SHARE;
        // A little ahead is no step, but how finely the clocks are read.
        let most = if time_of_day <= ahead + CLOCK_JITTER { CLOCK_JITTER } else { slew };
        self.last = time_of_day.clamp(ahead.saturating_sub(slew), ahead + most);
        self.last_steady = steady;
        let millis = u64::try_from(self.last.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(millis)
    }
}

fn time_of_day(source: &dyn Source) -> Duration {
    Duration::from_millis(source.now().as_millis())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const DAY: u64 = 1_700_000_000_000;

    /// Both clocks, in milliseconds.
    #[derive(Debug, Default)]
    struct Clocks(Mutex<(u64, u64)>);

    impl Clocks {
        /// Time passes, and the time of day jumps.
        fn pass(&self, millis: u64, jump: i64) {
            let mut clocks = self.0.lock().expect("no one panics with it");
            clocks.0 = clocks.0.saturating_add_signed(jump) + millis;
            clocks.1 += millis;
        }
    }

    impl Source for Clocks {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.lock().expect("no one panics with it").0)
        }

        fn steady(&self) -> Duration {
            Duration::from_millis(self.0.lock().expect("no one panics with it").1)
        }

        fn fill_random(&self, _: &mut [u8]) {}
    }

    fn started() -> (Clocks, EngineClock) {
        let clocks = Clocks::default();
        clocks.pass(0, DAY as i64);
        let clock = EngineClock::new(&clocks);
        (clocks, clock)
    }

    #[test]
    fn it_is_the_time_of_day_while_nobody_sets_that() {
        let (clocks, mut clock) = started();
        for millis in [0, 1, 999, 86_400_000] {
            clocks.pass(millis, 0);
            assert_eq!(clock.now(&clocks), clocks.now());
        }
    }

    #[test]
    fn a_step_of_the_time_of_day_is_followed_slowly() {
        for jump in [3_600_000, -3_600_000] {
            let (clocks, mut clock) = started();
            clocks.pass(0, jump);
            assert_eq!(clock.now(&clocks), Timestamp::from_millis(DAY), "nothing has passed");
            clocks.pass(16_000, 0);
            let slew = 1_000 * jump.signum();
            let expected = (DAY + 16_000).saturating_add_signed(slew);
            assert_eq!(clock.now(&clocks), Timestamp::from_millis(expected));
            clocks.pass(16 * 3_600_000, 0);
            assert_eq!(clock.now(&clocks), clocks.now(), "in the end they agree");
        }
    }

    #[test]
    fn a_step_forward_and_back_leaves_no_trace() {
        let (clocks, mut clock) = started();
        clocks.pass(0, 86_400_000);
        clock.now(&clocks);
        clocks.pass(0, -86_400_000);
        clocks.pass(1_000, 0);
        assert_eq!(clock.now(&clocks), clocks.now());
    }

    #[test]
    fn it_never_goes_back_and_never_stands_still() {
        let (clocks, mut clock) = started();
        let mut last = clock.now(&clocks);
        for jump in [-7_000_000, 5, 9_000_000, -1, -2_000_000_000] {
            for _ in 0..100 {
                clocks.pass(100, jump);
                let now = clock.now(&clocks);
                assert!(now.since(last).as_millis() >= 93, "{last:?} {now:?}");
                last = now;
            }
        }
    }
}
