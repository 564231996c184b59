//! Positions in the server's write-ahead log.

use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log (WAL): bytes since its beginning. Written as PostgreSQL writes it,
/// `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Before everything; PostgreSQL's "invalid" position.
    pub const ZERO: Lsn = Lsn(0);

    /// The position after so many bytes.
    pub const fn from_u64(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes since the beginning.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// A text that is not a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLsn(String);

impl fmt::Display for InvalidLsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid LSN `{}`: expected two hexadecimal numbers such as 16/B374D848", self.0)
    }
}

impl std::error::Error for InvalidLsn {}

impl FromStr for Lsn {
    type Err = InvalidLsn;

    fn from_str(text: &str) -> Result<Self, InvalidLsn> {
        let half = |digits: &str| match digits.len() {
            1..=8 if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                u64::from_str_radix(digits, 16).ok()
            }
            _ => None,
        };
        let halves = text.split_once('/').and_then(|(high, low)| half(high).zip(half(low)));
        halves.map(|(high, low)| Self(high << 32 | low)).ok_or_else(|| InvalidLsn(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read_as_postgresql_writes_it() {
        for (text, bytes) in [
            ("0/0", 0),
            ("0/1523AF8", 0x0152_3AF8),
            ("16/B374D848", 0x16_B374_D848),
            ("FFFFFFFF/FFFFFFFF", u64::MAX),
        ] {
            assert_eq!(text.parse::<Lsn>().unwrap(), Lsn::from_u64(bytes));
            assert_eq!(Lsn::from_u64(bytes).to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_no_position() {
        for text in ["", "0", "/", "0/", "/0", "0/G", "0/123456789", "+1/0", "0/0/0", " 0/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text:?}");
        }
    }
}
