//! Repeated trouble, logged once in a while.

use std::time::{Duration, Instant};

use crate::limits::TROUBLE_LOGGED_EVERY;

/// Limits how often repeated trouble is logged.
#[derive(Debug, Default)]
pub struct LogThrottle {
    logged_at: Option<Instant>,
    /// Occurrences that were not logged yet.
    times: u64,
}

impl LogThrottle {
    /// Counts an occurrence. If it is time to log: the number of occurrences since the last line.
    pub fn now(&mut self) -> Option<u64> {
        self.times += 1;
        let every = Duration::from(TROUBLE_LOGGED_EVERY);
        if self.logged_at.is_some_and(|at| at.elapsed() < every) {
            return None;
        }
        self.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut self.times))
    }
}
