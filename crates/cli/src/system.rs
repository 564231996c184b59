//! The time of day and chance, as this machine has them.

use std::time::{SystemTime, UNIX_EPOCH};

use railpost_engine::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The time of day.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Unpredictable bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}
