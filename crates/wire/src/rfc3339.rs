//! Times by RFC 3339, in UTC.

use crate::text::Unexpected;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A time that is given in milliseconds since 1970, such as `2026-01-31T12:00:00.5Z`: no fraction where
/// there is none, and no zeros at its end. Nothing beyond the year 9999, which has no form.
pub(crate) fn format(unix_ms: u64) -> Option<String> {
    let nanoseconds = i128::from(unix_ms) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?.format(&Rfc3339).ok()
}

/// Reads a time as milliseconds since 1970. What is finer is cut off.
pub(crate) fn parse(value: &[u8]) -> Result<i64, Unexpected> {
    let expected = "a time of RFC 3339 such as `2026-01-31T12:00:00Z`";
    let text = str::from_utf8(value).ok();
    let time = text.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    let unix_ms = time.map(|time| time.unix_timestamp_nanos().div_euclid(1_000_000));
    let unix_ms = unix_ms.and_then(|unix_ms| i64::try_from(unix_ms).ok());
    unix_ms.ok_or_else(|| Unexpected::bytes(expected, value))
}
