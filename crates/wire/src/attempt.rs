//! The headers of one attempt: made in one place, and read back in one place.

use crate::headers::{Header, HeaderNames};
use crate::ids::{EventId, LineId, SEQ_EXPECTED, Seq};
use crate::limits::SEQ_MAX;
use crate::names::{EventType, Key};
use crate::refusal::{Refusal, RequestHeaders};
use crate::rfc3339;
use crate::sign::{Signer, write_standard, write_timestamped};
use crate::text::{Unexpected, parse_digits, parse_text};
use crate::verify::Timestamp;
use std::fmt::{self, Write};

/// One attempt, as far as its headers tell of it.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The event's id: the same for every attempt, whatever happens.
    pub event_id: &'a EventId,
    /// The event's type.
    pub event_type: &'a EventType,
    /// When the event happened, in milliseconds since 1970. Beyond the year 9999 no header says it.
    pub event_unix_ms: u64,
    /// The version of its type's schema, if it has one.
    pub schema_version: Option<u32>,
    /// The event's key, if it has one.
    pub key: Option<&'a Key>,
    /// The line of numbers that it stands in, if it has a lane.
    pub line: Option<&'a LineId>,
    /// The delivery's number in its line, if it has a lane.
    pub seq: Option<Seq>,
    /// The seq of the line that must have been applied before, where that is not the one before: what
    /// lies between was skipped. 0 if nothing has to be.
    pub after: Option<u64>,
    /// Which attempt it is, from 1.
    pub number: u32,
    /// Whether a person asked for it.
    pub replay: bool,
    /// Whether the body says where to fetch the event instead of holding it.
    pub thin: bool,
    /// When it is made, in seconds since 1970.
    pub timestamp: i64,
    /// The bytes that are sent.
    pub body: &'a [u8],
    /// The active secrets and keys.
    pub signers: &'a [Signer],
}

impl Attempt<'_> {
    /// Its headers, by the endpoint's names. Every value is visible ASCII and spaces.
    pub fn headers<'n>(&self, names: &'n HeaderNames) -> Vec<(&'n str, String)> {
        let values = self.values();
        values.iter().map(|(header, value)| (names.name(header), value.to_owned())).collect()
    }

    /// The values of its headers.
    pub fn values(&self) -> HeaderValues {
        let (id, timestamp) = (self.event_id.to_string(), self.timestamp.to_string());
        let mut text = String::with_capacity(VALUES_LEN);
        let mut ends = [0; Header::ALL.len()];
        for header in Header::ALL {
            self.write_value(header, &id, &timestamp, &mut text);
            ends[header as usize] = text.len();
        }
        HeaderValues { text, ends }
    }

    /// Writes the value of one header, or nothing if the attempt does not have it.
    fn write_value(&self, header: Header, id: &str, timestamp: &str, text: &mut String) {
        let (signers, body) = (self.signers, self.body);
        match header {
            Header::WebhookId | Header::IdempotencyKey => text.push_str(id),
            Header::WebhookTimestamp => text.push_str(timestamp),
            Header::WebhookSignature => write_standard(signers, id, timestamp, body, text),
            Header::XWebhookSignature => write_timestamped(signers, timestamp, body, text),
            Header::XEventType => text.push_str(self.event_type.as_str()),
            Header::XEventTime => write_shown(rfc3339::format(self.event_unix_ms), text),
            Header::XSchemaVersion => write_shown(self.schema_version, text),
            Header::XKey => text.extend(self.key.into_iter().flat_map(Key::header_parts)),
            Header::XLane => text.push_str(self.line.map_or("", LineId::as_str)),
            Header::XSeq => write_shown(self.seq, text),
            Header::XAfter => write_shown(self.after, text),
            Header::XAttempt => write_shown(Some(self.number), text),
            Header::XReplay => text.push_str(if self.replay { "true" } else { "" }),
            Header::XThin => text.push_str(if self.thin { "true" } else { "" }),
        }
    }
}

/// Room for the values of most attempts: two ids, two signatures, type and time, and the short ones.
const VALUES_LEN: usize = 384;

fn write_shown(value: Option<impl fmt::Display>, text: &mut String) {
    if let Some(value) = value {
        write!(text, "{value}").expect("a string takes everything");
    }
}

/// The values of one attempt's headers, one after the other in one text: every attempt has them, and a
/// piece of memory for each would cost more than what is written into it.
#[derive(Debug, Clone)]
pub struct HeaderValues {
    text: String,
    /// By header: where its value ends. It begins where the one before it ends.
    ends: [usize; Header::ALL.len()],
}

impl HeaderValues {
    /// The headers that the attempt has, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (Header, &str)> {
        let all = Header::ALL.iter().map(|header| (*header, self.value(*header)));
        all.filter(|(_, value)| !value.is_empty())
    }

    fn value(&self, header: Header) -> &str {
        let index = header as usize;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[index]]
    }

    /// All values, one after the other.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What a request's headers say of its event and attempt. Only the id and the timestamp are signed,
/// with the body; the rest is as trustworthy as the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The event's id: what to deduplicate by.
    pub event_id: EventId,
    /// The event's type, if the sender says so.
    pub event_type: Option<EventType>,
    /// When the event happened, in milliseconds since 1970, if the sender says so.
    pub event_unix_ms: Option<i64>,
    /// The version of its type's schema, if it has one and the sender says so.
    pub schema_version: Option<u32>,
    /// The event's key, if it has one.
    pub key: Option<Key>,
    /// The line of numbers that it stands in, if it has a lane: what an inbox keeps its place by.
    pub line: Option<LineId>,
    /// The delivery's number in its line, if it has a lane.
    pub seq: Option<Seq>,
    /// The seq of the line that must have been applied before, if the sender says so; otherwise it is
    /// the one before. See [`Received::follows`].
    pub after: Option<u64>,
    /// Which attempt it is, from 1, if the sender counts.
    pub attempt: Option<u32>,
    /// Whether a person asked for it.
    pub replay: bool,
    /// Whether the body says where to fetch the event instead of holding it.
    pub thin: bool,
    /// When it was sent, in seconds since 1970.
    pub timestamp: i64,
}

impl Received {
    /// Reads a request's headers, found by `header` without regard to case. It verifies nothing.
    ///
    /// The id comes from `webhook-id`; `Idempotency-Key` must agree if it is there too.
    pub fn parse<'h>(
        names: &HeaderNames,
        header: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<Self, Refusal> {
        let incoming = RequestHeaders { names, lookup: &header };
        Ok(Self {
            event_id: event_id(&incoming)?,
            event_type: incoming.read(Header::XEventType, parse_text::<EventType>)?,
            event_unix_ms: incoming.read(Header::XEventTime, rfc3339::parse)?,
            schema_version: incoming.read(Header::XSchemaVersion, parse_schema_version)?,
            key: incoming.read(Header::XKey, Key::from_header)?,
            line: incoming.read(Header::XLane, parse_text::<LineId>)?,
            seq: incoming.read(Header::XSeq, parse_seq)?,
            after: incoming.read(Header::XAfter, parse_after)?,
            attempt: incoming.read(Header::XAttempt, parse_attempt)?,
            replay: incoming.read(Header::XReplay, parse_truth)?.unwrap_or(false),
            thin: incoming.read(Header::XThin, parse_truth)?.unwrap_or(false),
            timestamp: incoming.require(Header::WebhookTimestamp, Timestamp::parse)?.seconds,
        })
    }

    /// The seq of its line that must have been applied before it; 0 if nothing has to be. Nothing if it
    /// stands in no line.
    pub fn follows(&self) -> Option<u64> {
        let seq = self.seq.filter(|_| self.line.is_some())?;
        let before = seq.get() - 1;
        Some(self.after.map_or(before, |after| after.min(before)))
    }
}

fn event_id(incoming: &RequestHeaders<'_, '_>) -> Result<EventId, Refusal> {
    let id = incoming.require(Header::WebhookId, parse_text::<EventId>)?;
    let again = incoming.get(Header::IdempotencyKey);
    if let Some(other) = again.filter(|other| *other != id.to_string().as_bytes()) {
        let problem = Unexpected::bytes("the same event id in both its headers", other);
        return Err(incoming.malformed(Header::IdempotencyKey, problem));
    }
    Ok(id)
}

fn parse_schema_version(value: &[u8]) -> Result<u32, Unexpected> {
    parse_digits("a schema's version from 0 to 4294967295", value)
}

fn parse_seq(value: &[u8]) -> Result<Seq, Unexpected> {
    parse_digits::<u64>(SEQ_EXPECTED, value)?.try_into()
}

fn parse_after(value: &[u8]) -> Result<u64, Unexpected> {
    let expected = "a seq, or 0";
    match parse_digits(expected, value)? {
        after if after <= SEQ_MAX => Ok(after),
        _ => Err(Unexpected::bytes(expected, value)),
    }
}

fn parse_attempt(value: &[u8]) -> Result<u32, Unexpected> {
    let expected = "an attempt's number from 1";
    match parse_digits(expected, value)? {
        0 => Err(Unexpected::bytes(expected, value)),
        number => Ok(number),
    }
}

fn parse_truth(value: &[u8]) -> Result<bool, Unexpected> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Unexpected::bytes("`true` or `false`", value)),
    }
}
