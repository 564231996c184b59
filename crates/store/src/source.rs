//! Where a backend gets the time and its random bytes from: handed in, so that tests choose them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use railpost_engine::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The time and randomness that a backend needs of its surroundings.
pub trait Source: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> Timestamp;

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

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemRandom::new().fill(bytes).expect("the machine has a source of randomness");
    }
}
