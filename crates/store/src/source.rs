//! Where a backend gets the time and its random bytes from: handed in, so that tests choose them.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use railpost_engine::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::RANDOM_BUFFER_LEN;

/// The time and randomness that a backend needs of its surroundings.
pub trait Source: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// The time since some fixed moment, by a clock that nobody sets: it goes on at the pace of real time,
    /// also while the machine sleeps.
    fn steady(&self) -> Duration {
        Duration::from_millis(self.now().as_millis())
    }

    /// Fills `bytes` with unpredictable ones.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// The machine's clock and its source of randomness.
#[derive(Debug, Default)]
pub struct SystemSource;

impl Source for SystemSource {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn steady(&self) -> Duration {
        steady()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        thread_local!(static BUFFER: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer::EMPTY) });
        BUFFER.with_borrow_mut(|buffer| buffer.fill(bytes));
    }
}

/// The one clock of Linux that nobody sets and that counts while the machine sleeps.
#[cfg(target_os = "linux")]
fn steady() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(secs.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn steady() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// Random bytes, fetched before they are needed: every event needs a few, and a call of the system for each would cost more
/// than they do.
struct RandomBuffer {
    bytes: [u8; RANDOM_BUFFER_LEN],
    /// How many of them are used.
    used: usize,
}

impl RandomBuffer {
    const EMPTY: Self = Self { bytes: [0; RANDOM_BUFFER_LEN], used: RANDOM_BUFFER_LEN };

    fn fill(&mut self, bytes: &mut [u8]) {
        if bytes.len() > RANDOM_BUFFER_LEN {
            return fetch(bytes);
        }
        if bytes.len() > RANDOM_BUFFER_LEN - self.used {
            fetch(&mut self.bytes);
            self.used = 0;
        }
        let next = &mut self.bytes[self.used..][..bytes.len()];
        bytes.copy_from_slice(next);
        // They may be part of a secret: no copy stays.
        next.fill(0);
        self.used += bytes.len();
    }
}

fn fetch(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the machine has a source of randomness");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn random_bytes_are_never_given_out_twice() {
        let mut buffer = RandomBuffer::EMPTY;
        let mut seen = HashSet::new();
        for _ in 0..4 * RANDOM_BUFFER_LEN {
            let mut bytes = [0; 10];
            buffer.fill(&mut bytes);
            assert!(seen.insert(bytes));
            assert!(buffer.bytes[..buffer.used].iter().all(|byte| *byte == 0), "a copy stays");
        }
    }

    #[test]
    fn any_number_of_bytes_can_be_had() {
        for len in [
            0,
            1,
            RANDOM_BUFFER_LEN - 1,
            RANDOM_BUFFER_LEN,
            RANDOM_BUFFER_LEN + 1,
            3 * RANDOM_BUFFER_LEN,
        ] {
            let mut buffer = RandomBuffer::EMPTY;
            let (mut one, mut other) = (vec![0; len], vec![0; len]);
            buffer.fill(&mut one);
            buffer.fill(&mut other);
            assert!(len < 16 || one != other, "{len}");
        }
    }
}
