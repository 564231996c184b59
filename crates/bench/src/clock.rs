//! The one clock that processes of one machine share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970. Wall-clock time, because a sink must be able to read what a load
/// generator wrote.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
