//! Texts with rules: the one error for those that break them, and how they are read and written.

use crate::limits::SHOWN_CHARS_MAX;
use serde::{Deserialize, Deserializer, de};
use std::{fmt, str::FromStr};

/// A value was refused: says what was expected and shows the beginning of what came instead.
///
/// What came is cut to a bound and its control characters are escaped, so that the message is safe
/// to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    expected: &'static str,
    got: Option<String>,
}

impl Unexpected {
    pub(crate) fn new(expected: &'static str, got: &str) -> Self {
        let mut chars = got.chars();
        let mut shown: String =
            chars.by_ref().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
        if chars.next().is_some() {
            shown.push('…');
        }
        Self { expected, got: Some(shown) }
    }

    pub(crate) fn bytes(expected: &'static str, got: &[u8]) -> Self {
        // A character has at most four bytes, so this holds all that will be shown and one more.
        let beginning = &got[..got.len().min(4 * (SHOWN_CHARS_MAX + 1))];
        Self::new(expected, &String::from_utf8_lossy(beginning))
    }

    pub(crate) fn missing(expected: &'static str) -> Self {
        Self { expected, got: None }
    }

    /// What would have been right, for people.
    pub fn expected(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.got {
            Some(got) => write!(f, "expected {}; got `{got}`", self.expected),
            None => write!(f, "expected {}; got nothing", self.expected),
        }
    }
}

impl std::error::Error for Unexpected {}

/// Reads a header's bytes as a text with rules of its own.
pub(crate) fn parse_text<T: FromStr<Err = Unexpected>>(bytes: &[u8]) -> Result<T, Unexpected> {
    str::from_utf8(bytes).map_err(|_| Unexpected::bytes("UTF-8", bytes))?.parse()
}

/// Reads a number written in ASCII digits alone: no sign, no space, not beyond what `T` holds.
pub(crate) fn parse_digits<T: FromStr>(
    expected: &'static str,
    bytes: &[u8],
) -> Result<T, Unexpected> {
    let digits = str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Unexpected::bytes(expected, bytes))
}

/// Deserializes what is written as text, by the rules of its `FromStr`.
pub(crate) fn deserialize_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Gives a type with `Display` and `FromStr` its serde form: that same text. Its JSON Schema has these
/// keywords beside `type`, which say what `FromStr` takes.
macro_rules! serde_as_text {
    ($name:ty, { $($schema:tt)+ }) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::text::deserialize_text(deserializer)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", $($schema)+ })
            }
        }
    };
}
pub(crate) use serde_as_text;

/// Gives a newtype over a shared text what all of them have. Its rules are its `FromStr`.
macro_rules! shared_text {
    ($name:ident, $schema:tt) => {
        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        $crate::text::serde_as_text!($name, $schema);
    };
}
pub(crate) use shared_text;
