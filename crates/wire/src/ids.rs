//! Ids that say what they are and sort by when they were made.
//!
//! A generated id is a prefix, `_`, and a UUIDv7 as 26 characters of lowercase Crockford base32:
//! `ep_01h455vb4pex5vsknk084sn02q`. Its text sorts as its bytes do, and both by time.

use crate::limits::{ID_LEN_MAX, LINE_ID_LEN_MAX, SEQ_MAX};
use crate::text::{Unexpected, serde_as_text, shared_text};
use std::{cmp::Ordering, fmt, num::NonZeroU64, str::FromStr, sync::Arc};

macro_rules! generated_id {
    ($name:ident, $prefix:literal, $what:literal) => {
        #[doc = concat!("The id of ", $what, ", such as `", $prefix, "01h455vb4pex5vsknk084sn02q`.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// What every such id begins with.
            pub const PREFIX: &str = $prefix;

            /// Makes the id of something born at `unix_ms`, told apart from its contemporaries by
            /// `random`.
            pub fn generate(unix_ms: u64, random: [u8; 10]) -> Self {
                Self(uuid_v7(unix_ms, random))
            }

            /// The id with these bytes, as a store keeps it. Stable: the UUID in network order.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes a store keeps. Stable: the UUID in network order.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0
            }

            /// The id with this number, most significant byte first.
            pub const fn from_u128(number: u128) -> Self {
                Self(number.to_be_bytes())
            }

            /// When it was made, in milliseconds since 1970.
            pub fn unix_ms(self) -> u64 {
                uuid_unix_ms(self.0)
            }
        }

        const _: () =
            assert!($prefix.len() <= PREFIX_LEN_MAX, "its text has no room for the prefix");

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(IdText::new($prefix, self.0).as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Unexpected;

            fn from_str(text: &str) -> Result<Self, Unexpected> {
                let bytes = text.strip_prefix($prefix).and_then(parse_base32);
                bytes.map(Self).ok_or_else(|| {
                    let expected = concat!(
                        "the id of ",
                        $what,
                        " such as `",
                        $prefix,
                        "01h455vb4pex5vsknk084sn02q`: `",
                        $prefix,
                        "` and 26 characters"
                    );
                    Unexpected::new(expected, text)
                })
            }
        }

        serde_as_text!($name, {
            "pattern": concat!("^", $prefix, "[0-7][0-9a-hjkmnp-tv-z]{25}$"),
            "description": concat!("The id of ", $what, ": `", $prefix, "` and 26 characters.")
        });
    };
}

generated_id!(EndpointId, "ep_", "an endpoint");
generated_id!(DeliveryId, "dlv_", "a delivery");
generated_id!(AttemptId, "att_", "an attempt");
generated_id!(SecretId, "sec_", "a secret");
generated_id!(ApiKeyId, "key_", "an API key");
generated_id!(ReplayId, "rpl_", "a replay");
generated_id!(AuditId, "aud_", "an audit entry");
generated_id!(NodeId, "node_", "a node");
generated_id!(AlertId, "alr_", "an alert");
generated_id!(SilenceId, "sil_", "a silence");

/// The id of an event: what a receiver deduplicates by.
///
/// Either generated, `evt_` and a UUIDv7, or chosen by the producer: 1 to 64 ASCII letters, digits,
/// `_`, `-` and `:`. There is no `.`, because `.` separates the parts that are signed.
///
/// A chosen id may begin with `evt_` too, as ids that producers bring from elsewhere do. Each text
/// still has one meaning: one that reads as a generated id is held as such.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EventId(EventIdForm);

#[derive(Clone, PartialEq, Eq, Hash)]
enum EventIdForm {
    /// Sixteen bytes in place: the usual id costs no allocation.
    Generated([u8; 16]),
    Chosen(Arc<str>),
}

impl EventId {
    /// What every generated event id begins with.
    pub const PREFIX: &str = "evt_";

    /// Makes the id of an event accepted at `unix_ms`, told apart from its contemporaries by
    /// `random`.
    pub fn generate(unix_ms: u64, random: [u8; 10]) -> Self {
        Self(EventIdForm::Generated(uuid_v7(unix_ms, random)))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            EventIdForm::Generated(bytes) => {
                f.write_str(IdText::new(Self::PREFIX, *bytes).as_str())
            }
            EventIdForm::Chosen(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// In the order of their texts, so that memory and a database's text column agree.
impl Ord for EventId {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (EventIdForm::Generated(a), EventIdForm::Generated(b)) => a.cmp(b),
            (EventIdForm::Chosen(a), EventIdForm::Chosen(b)) => a.cmp(b),
            _ => self.to_string().cmp(&other.to_string()),
        }
    }
}

impl PartialOrd for EventId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for EventId {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if let Some(bytes) = text.strip_prefix(Self::PREFIX).and_then(parse_base32) {
            return Ok(Self(EventIdForm::Generated(bytes)));
        }
        let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b':');
        if (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Self(EventIdForm::Chosen(text.into())));
        }
        let expected = "an event id of 1 to 64 ASCII letters, digits, `_`, `-` and `:`";
        Err(Unexpected::new(expected, text))
    }
}

serde_as_text!(EventId, {
    "pattern": "^[A-Za-z0-9_:-]{1,64}$",
    "description": "The id of an event: `evt_` and 26 characters, or one that its producer chose, of 1 to 64 \
                    letters, digits, `_`, `-` and `:`."
});

/// The id of a tenant: a slug of its own choosing, or a generated one such as
/// `ten_01h455vb4pex5vsknk084sn02q`.
///
/// A slug has 1 to 64 characters out of `a-z`, `0-9`, `_` and `-`, and begins with a letter or digit.
/// A generated id is a slug as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// What every generated tenant id begins with.
    pub const PREFIX: &str = "ten_";

    /// Makes the id of a tenant that appeared at `unix_ms` and chose none.
    pub fn generate(unix_ms: u64, random: [u8; 10]) -> Self {
        Self(IdText::new(Self::PREFIX, uuid_v7(unix_ms, random)).as_str().into())
    }
}

shared_text!(TenantId, {
    "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
    "description": "The id of a tenant: a lowercase letter or digit, then lowercase letters, digits, `_` and `-`, \
                    64 at most."
});

impl FromStr for TenantId {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let letter_or_digit = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let begins = text.bytes().next().is_some_and(letter_or_digit);
        let goes_on = text.bytes().all(|c| letter_or_digit(c) || matches!(c, b'_' | b'-'));
        if begins && goes_on && text.len() <= ID_LEN_MAX {
            return Ok(Self(text.into()));
        }
        let expected = "a tenant id of 1 to 64 characters: a lowercase letter or digit, then lowercase \
                        letters, digits, `_` and `-`";
        Err(Unexpected::new(expected, text))
    }
}

/// The id of a line: one run of a lane's numbers, 1, 2, 3 … without gaps, never used twice.
///
/// Opaque to receivers: 1 to 64 visible ASCII characters that are compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(Arc<str>);

shared_text!(LineId, {
    "pattern": "^[!-~]{1,64}$",
    "description": "The id of a line, as `X-Lane` has it."
});

impl LineId {
    /// The line that this lane has in this era of its store.
    pub fn of(era: u64, lane: u64) -> Self {
        Self(format!("{era:016x}-{lane}").into())
    }
}

impl FromStr for LineId {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let visible = text.bytes().all(|c| c.is_ascii_graphic());
        if visible && (1..=LINE_ID_LEN_MAX).contains(&text.len()) {
            return Ok(Self(text.into()));
        }
        Err(Unexpected::new("the id of a line: 1 to 64 visible ASCII characters", text))
    }
}

/// A delivery's number in its line: 1, 2, 3 … without gaps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "u64", into = "u64")]
pub struct Seq(NonZeroU64);

impl Seq {
    /// The number of a lane's first delivery.
    pub const FIRST: Seq = Seq(NonZeroU64::MIN);

    /// The seq with this number, if it is one: 1 to `i64::MAX`, which is what stores hold.
    pub fn new(number: u64) -> Option<Self> {
        if number > SEQ_MAX {
            return None;
        }
        NonZeroU64::new(number).map(Self)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number after this one. The last seq is its own successor; no lane lives to see it.
    #[must_use]
    pub fn next(self) -> Self {
        Self::new(self.get() + 1).unwrap_or(self)
    }
}

impl TryFrom<u64> for Seq {
    type Error = Unexpected;

    fn try_from(number: u64) -> Result<Self, Unexpected> {
        Self::new(number).ok_or_else(|| Unexpected::new(SEQ_EXPECTED, &number.to_string()))
    }
}

impl From<Seq> for u64 {
    fn from(seq: Seq) -> u64 {
        seq.get()
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

pub(crate) const SEQ_EXPECTED: &str = "a seq from 1 to 9223372036854775807";

/// Lowercase Crockford base32: no `i`, `l`, `o` or `u`, in ASCII order, so that text sorts as bytes do.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 26 characters carry 130 bits; the first one carries only the top three of the 128.
const BASE32_LEN: usize = 26;

/// The longest prefix: `node_`.
const PREFIX_LEN_MAX: usize = 5;

/// The text of a generated id. An event's way has half a dozen of them, so it is made in one piece and in place.
struct IdText {
    bytes: [u8; PREFIX_LEN_MAX + BASE32_LEN],
    len: usize,
}

impl IdText {
    fn new(prefix: &str, id: [u8; 16]) -> Self {
        let mut bytes = [0; PREFIX_LEN_MAX + BASE32_LEN];
        let len = prefix.len() + BASE32_LEN;
        let (before, digits) = bytes[..len].split_at_mut(prefix.len());
        before.copy_from_slice(prefix.as_bytes());
        let mut number = u128::from_be_bytes(id);
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[number as usize & 31];
            number >>= 5;
        }
        Self { bytes, len }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("prefix and alphabet are ASCII")
    }
}

fn parse_base32(text: &str) -> Option<[u8; 16]> {
    // A first character past `7` would overflow 128 bits: another text for some smaller number.
    if text.len() != BASE32_LEN || text.as_bytes()[0] > b'7' {
        return None;
    }
    let number = text.bytes().try_fold(0u128, |number, c| {
        let digit = ALPHABET.iter().position(|&a| a == c)?;
        Some(number << 5 | digit as u128)
    })?;
    Some(number.to_be_bytes())
}

/// RFC 9562: 48 bits of milliseconds, the version, and random bits around the variant.
fn uuid_v7(unix_ms: u64, random: [u8; 10]) -> [u8; 16] {
    const MS_MAX: u64 = (1 << 48) - 1;
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&unix_ms.min(MS_MAX).to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&random);
    bytes[6] = 0x70 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    bytes
}

fn uuid_unix_ms(bytes: [u8; 16]) -> u64 {
    bytes[..6].iter().fold(0, |ms, &byte| ms << 8 | u64::from(byte))
}
