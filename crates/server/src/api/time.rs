//! Timestamps in the API.

use std::fmt;
use std::str::FromStr;

use railpost_engine::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant in RFC 3339, in UTC, to the millisecond: `2026-01-31T12:00:00.000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Timestamp);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
        let at = OffsetDateTime::from_unix_timestamp(seconds).ok();
        let Some(at) = at.filter(|at| at.year() <= 9999) else {
            return f.write_str("9999-12-31T23:59:59.999Z");
        };
        let (hour, minute, second) = at.to_hms();
        // There is one in every answer and every line of the log: digit by digit it takes a fifth of the
        // instructions that `write!` takes.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], at.year().unsigned_abs());
        put(&mut text[5..7], u8::from(at.month()).into());
        for (place, number) in [(8, at.day()), (11, hour), (14, minute), (17, second)] {
            put(&mut text[place..place + 2], number.into());
        }
        put(&mut text[20..23], (millis % 1000) as u32);
        f.write_str(std::str::from_utf8(&text).expect("digits are ASCII"))
    }
}

/// Writes a number in as many digits as there are places.
fn put(places: &mut [u8], mut number: u32) {
    for place in places.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// A text that is no instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadTime;

impl fmt::Display for BadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a time of RFC 3339 from 1970 on, such as `2026-01-31T12:00:00Z`")
    }
}

impl FromStr for Time {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        // The parser takes any separator, and leap seconds, which instants of ours do not have.
        let is_plain = matches!(text.as_bytes().get(10), Some(b'T' | b't'))
            && text.get(17..19).is_some_and(|second| second < "60");
        let at = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| is_plain).ok_or(BadTime)?;
        let millis = at.unix_timestamp_nanos().div_euclid(1_000_000);
        let millis = u64::try_from(millis).map_err(|_| BadTime)?;
        Ok(Self(Timestamp::from_millis(millis)))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "format": "date-time",
            "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]\
                        ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?\
                        ([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
            "description": "An instant of RFC 3339, from 1970 on.",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn an_instant_reads_back_as_itself() {
        for (text, shown, millis) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z", 0),
            ("2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.500Z", 1_769_860_800_500),
            ("2026-01-31T13:00:00.5+01:00", "2026-01-31T12:00:00.500Z", 1_769_860_800_500),
            ("9999-12-31T23:59:59.999-23:59", "9999-12-31T23:59:59.999Z", 253_402_387_139_999),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            let time: Time = text.parse().unwrap();
            assert_eq!((time.0.as_millis(), time.to_string().as_str()), (millis, shown), "{text}");
        }
    }

    #[test]
    fn an_instant_past_the_last_year_is_told_as_its_end() {
        for millis in [253_402_300_800_000, u64::MAX] {
            let time = Time(Timestamp::from_millis(millis));
            assert_eq!(time.to_string(), "9999-12-31T23:59:59.999Z", "{millis}");
        }
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-01-31",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "1969-12-31T23:59:59.9999Z",
            "2026-13-01T00:00:00Z",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
