//! The headers of one attempt: made in one place, and read back in one place.

use crate::headers::{Header, HeaderNames};
use crate::ids::{EventId, SEQ_EXPECTED, Seq};
use crate::names::Key;
use crate::refusal::{Incoming, Refusal};
use crate::sign::{Signer, standard_signature, timestamped_signature};
use crate::text::{Unexpected, parse_digits, parse_text};
use crate::verify::Timestamp;

/// One attempt, as far as its headers tell of it.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The event's id: the same for every attempt, whatever happens.
    pub event_id: &'a EventId,
    /// The event's key, if it has one.
    pub key: Option<&'a Key>,
    /// The delivery's number in its lane, if it has a lane.
    pub seq: Option<Seq>,
    /// Which attempt it is, from 1.
    pub number: u32,
    /// Whether a person asked for it.
    pub replay: bool,
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
        let value = |header| self.value(header).map(|value| (names.name(header), value));
        Header::ALL.into_iter().filter_map(value).collect()
    }

    fn value(&self, header: Header) -> Option<String> {
        let Self { signers, timestamp, body, .. } = *self;
        match header {
            Header::WebhookId | Header::IdempotencyKey => Some(self.event_id.to_string()),
            Header::WebhookTimestamp => Some(timestamp.to_string()),
            Header::WebhookSignature if signers.is_empty() => None,
            Header::WebhookSignature => {
                Some(standard_signature(signers, self.event_id, timestamp, body))
            }
            Header::XWebhookSignature => timestamped_signature(signers, timestamp, body),
            Header::XKey => self.key.map(Key::to_header),
            Header::XSeq => self.seq.map(|seq| seq.to_string()),
            Header::XAttempt => Some(self.number.to_string()),
            Header::XReplay => self.replay.then(|| "true".to_owned()),
        }
    }
}

/// What a request's headers say of its event and attempt. Only the id and the timestamp are signed,
/// with the body; the rest is as trustworthy as the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The event's id: what to deduplicate by.
    pub event_id: EventId,
    /// The event's key, if it has one.
    pub key: Option<Key>,
    /// The delivery's number in its lane, if it has a lane.
    pub seq: Option<Seq>,
    /// Which attempt it is, from 1, if the sender counts.
    pub attempt: Option<u32>,
    /// Whether a person asked for it.
    pub replay: bool,
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
        let incoming = Incoming { names, lookup: &header };
        Ok(Self {
            event_id: event_id(&incoming)?,
            key: incoming.read(Header::XKey, Key::from_header)?,
            seq: incoming.read(Header::XSeq, parse_seq)?,
            attempt: incoming.read(Header::XAttempt, parse_attempt)?,
            replay: incoming.read(Header::XReplay, parse_replay)?.unwrap_or(false),
            timestamp: incoming.require(Header::WebhookTimestamp, Timestamp::parse)?.seconds,
        })
    }
}

fn event_id(incoming: &Incoming<'_, '_>) -> Result<EventId, Refusal> {
    let id = incoming.require(Header::WebhookId, parse_text::<EventId>)?;
    let again = incoming.get(Header::IdempotencyKey);
    if let Some(other) = again.filter(|other| *other != id.to_string().as_bytes()) {
        let problem = Unexpected::bytes("the same event id in both its headers", other);
        return Err(incoming.malformed(Header::IdempotencyKey, problem));
    }
    Ok(id)
}

fn parse_seq(value: &[u8]) -> Result<Seq, Unexpected> {
    parse_digits::<u64>(SEQ_EXPECTED, value)?.try_into()
}

fn parse_attempt(value: &[u8]) -> Result<u32, Unexpected> {
    let expected = "an attempt's number from 1";
    match parse_digits(expected, value)? {
        0 => Err(Unexpected::bytes(expected, value)),
        number => Ok(number),
    }
}

fn parse_replay(value: &[u8]) -> Result<bool, Unexpected> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Unexpected::bytes("`true` or `false`", value)),
    }
}
