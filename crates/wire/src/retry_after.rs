//! `Retry-After`: what a receiver may answer to be left alone for a while.

use crate::limits::RETRY_AFTER_MAX;
use crate::text::parse_digits;
use std::time::{Duration, SystemTime};

/// How long a `Retry-After` header asks to wait, from `now` in seconds since 1970.
///
/// It holds seconds in digits, or a date in one of HTTP's three forms; a date that has passed asks for
/// no wait. Longer waits than a year are cut to one. Anything else (a sign, a fraction, garbage) says
/// nothing.
pub fn retry_after(value: &[u8], now: i64) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim_ascii();
    let seconds = seconds(text).or_else(|| seconds_until(text, now))?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    // Digits that are no number are too many of them.
    digits.then(|| parse_digits("seconds", text.as_bytes()).unwrap_or(u64::MAX))
}

fn seconds_until(date: &str, now: i64) -> Option<u64> {
    let then = httpdate::parse_http_date(date).ok()?;
    let then = then.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    Some(u64::try_from(i128::from(then) - i128::from(now)).unwrap_or(0))
}
