//! Time as the engine sees it: instants and lengths handed in from outside, in milliseconds.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant: milliseconds since the Unix epoch. Arithmetic saturates instead of wrapping.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant that many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long `earlier` lies back; zero when it does not lie back at all.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Timestamp {
    type Output = Timestamp;

    fn add(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

/// A length of time in whole milliseconds, written as a number with one unit: `250ms`, `30s`,
/// `10m`, `72h`, `5d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Largest first, so that a length is shown in the largest unit that divides it.
pub(crate) const UNITS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// That many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// That many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// That many minutes.
    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins.saturating_mul(60))
    }

    /// That many hours.
    pub const fn from_hours(hours: u64) -> Self {
        Self::from_mins(hours.saturating_mul(60))
    }

    /// That many days.
    pub const fn from_days(days: u64) -> Self {
        Self::from_hours(days.saturating_mul(24))
    }

    /// The length in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This length that many times over.
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Duration::from_millis(span.0)
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let (unit, millis) = UNITS
            .into_iter()
            .find(|(_, millis)| self.0.is_multiple_of(*millis))
            .expect("every length is a multiple of a millisecond");
        write!(f, "{}{unit}", self.0 / millis)
    }
}

/// A text that is no length of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanError;

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a length of time: a whole number and ms, s, m, h or d, such as `30s`")
    }
}

impl std::error::Error for SpanError {}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| SpanError)?;
        let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(SpanError)?;
        number.checked_mul(millis).map(Span).ok_or(SpanError)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as \"30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h|d)$",
            "description": "A length of time: a whole number and a unit, such as `250ms`, `30s`, `10m`, `72h`, `5d`."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_reads_back_in_the_largest_unit_that_divides_it() {
        for (text, shown, millis) in [
            ("0s", "0s", 0),
            ("0d", "0s", 0),
            ("250ms", "250ms", 250),
            ("1000ms", "1s", 1_000),
            ("90s", "90s", 90_000),
            ("600s", "10m", 600_000),
            ("72h", "3d", 259_200_000),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.as_millis(), span.to_string().as_str()), (millis, shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_is_refused() {
        for text in
            ["", "s", "10", "1.5s", "-1s", "1 s", "1S", "1w", "99999999999999999999s", "９s"]
        {
            assert_eq!(text.parse::<Span>(), Err(SpanError), "{text:?}");
        }
        assert_eq!(format!("{}d", u64::MAX).parse::<Span>(), Err(SpanError));
    }

    proptest! {
        #[test]
        fn every_length_reads_back_as_itself(millis: u64) {
            let span = Span::from_millis(millis);
            prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Span>();
        }
    }
}
