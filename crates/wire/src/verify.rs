//! Verifying: what a receiver does before it believes a request.

use crate::EventId;
use crate::headers::{Header, HeaderNames};
use crate::limits::{SIGNATURES_MAX, TOLERANCE_DEFAULT};
use crate::refusal::{Refusal, RequestHeaders};
use crate::secrets::{KeyedBy, Secret, VerifyingKey};
use crate::text::{Unexpected, parse_digits, parse_text};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{array, time::Duration};

/// Checks signatures against the secrets and keys that are trusted, any number of each.
///
/// A request may carry two forms of signature. These rules say which one counts:
///
/// 1. With a `webhook-signature` header, only the standard form is checked: its id and timestamp headers
///    must be there, and if it does not match, the request is refused.
/// 2. Without one, `X-Webhook-Signature` counts, unless the verifier is [`Verifier::standard_only`].
/// 3. With neither, the request is refused for the missing `webhook-signature`.
///
/// Then the headers must be readable, the timestamp fresh, and a signature match: the first of these
/// that fails is the answer. Entries of unknown versions are skipped; an entry of a known version that
/// cannot be a signature is malformed.
///
/// The timestamped form does not cover the event id. An attacker who captures and resends a request could
/// strip the standard headers and change the id, so a receiver that deduplicates by it should insist
/// on the standard form.
#[derive(Debug, Clone)]
pub struct Verifier {
    secrets: Vec<Secret>,
    keys: Vec<VerifyingKey>,
    names: HeaderNames,
    tolerance: Duration,
    standard_only: bool,
}

/// What a verified request proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Which form of signature it carried.
    pub form: SignatureForm,
    /// When it was sent, in seconds since 1970, as signed.
    pub timestamp: i64,
}

/// A form of signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureForm {
    /// `webhook-signature`, over id, timestamp and body, keyed with the decoded bytes of the secret.
    Standard,
    /// `X-Webhook-Signature`, over timestamp and body, keyed with the text of the secret.
    Timestamped,
}

impl Verifier {
    /// Trusts these secrets and keys, with the default header names and five minutes of tolerance.
    pub fn new(secrets: Vec<Secret>, keys: Vec<VerifyingKey>) -> Self {
        let (names, tolerance) = (HeaderNames::default(), TOLERANCE_DEFAULT);
        Self { secrets, keys, names, tolerance, standard_only: false }
    }

    /// Lets timestamps be off by so much, to either side, in whole seconds.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// Looks for headers under these names.
    #[must_use]
    pub fn names(self, names: HeaderNames) -> Self {
        Self { names, ..self }
    }

    /// Refuses requests that carry no `webhook-signature`.
    #[must_use]
    pub fn standard_only(self) -> Self {
        Self { standard_only: true, ..self }
    }

    /// Says whether a request is authentic and fresh.
    ///
    /// `header` finds a header's value by name, without regard to case; `body` is the bytes as they
    /// arrived; `now` is in seconds since 1970.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h [u8]>,
        body: &[u8],
        now: i64,
    ) -> Result<Verified, Refusal> {
        let incoming = RequestHeaders { names: &self.names, lookup: &header };
        if let Some(value) = incoming.get(Header::WebhookSignature) {
            return self.verify_standard(&incoming, value, body, now);
        }
        match incoming.get(Header::XWebhookSignature) {
            Some(value) if !self.standard_only => {
                self.verify_timestamped(&incoming, value, body, now)
            }
            _ => Err(incoming.missing(Header::WebhookSignature)),
        }
    }

    fn verify_standard(
        &self,
        incoming: &RequestHeaders<'_, '_>,
        value: &[u8],
        body: &[u8],
        now: i64,
    ) -> Result<Verified, Refusal> {
        let id = incoming.require(Header::WebhookId, parse_text::<EventId>)?.to_string();
        let timestamp = incoming.require(Header::WebhookTimestamp, Timestamp::parse)?;
        let entries = StandardEntries::parse(value)
            .map_err(|problem| incoming.malformed(Header::WebhookSignature, problem))?;
        self.check_fresh(timestamp.seconds, now)?;

        let parts = [id.as_bytes(), b".", timestamp.text, b".", body];
        if self.any_secret_made(KeyedBy::Bytes, &entries.v1, &parts)
            || self.any_key_made(&entries.v1a, &parts)
        {
            return Ok(Verified { form: SignatureForm::Standard, timestamp: timestamp.seconds });
        }
        Err(Refusal::NoMatch)
    }

    fn verify_timestamped(
        &self,
        incoming: &RequestHeaders<'_, '_>,
        value: &[u8],
        body: &[u8],
        now: i64,
    ) -> Result<Verified, Refusal> {
        let entries = TimestampedEntries::parse(value)
            .map_err(|problem| incoming.malformed(Header::XWebhookSignature, problem))?;
        let timestamp = entries.timestamp;
        self.check_fresh(timestamp.seconds, now)?;

        if self.any_secret_made(KeyedBy::Text, &entries.v1, &[timestamp.text, b".", body]) {
            return Ok(Verified { form: SignatureForm::Timestamped, timestamp: timestamp.seconds });
        }
        Err(Refusal::NoMatch)
    }

    fn check_fresh(&self, timestamp: i64, now: i64) -> Result<(), Refusal> {
        let by = now.abs_diff(timestamp).saturating_sub(self.tolerance.as_secs());
        match by {
            0 => Ok(()),
            by if timestamp < now => Err(Refusal::Stale { by }),
            by => Err(Refusal::Future { by }),
        }
    }

    fn any_secret_made(&self, keyed_by: KeyedBy, signatures: &[[u8; 32]], parts: &[&[u8]]) -> bool {
        // The body is hashed once for each secret, however many signatures came.
        !signatures.is_empty()
            && self.secrets.iter().any(|secret| {
                let tag = secret.tag(keyed_by, parts);
                signatures.iter().any(|signature| secret.verify_tag(tag, signature))
            })
    }

    fn any_key_made(&self, signatures: &[[u8; 64]], parts: &[&[u8]]) -> bool {
        if signatures.is_empty() || self.keys.is_empty() {
            return false;
        }
        let message = parts.concat();
        let made = |key: &VerifyingKey| {
            signatures.iter().any(|signature| key.verifies(&message, signature))
        };
        self.keys.iter().any(made)
    }
}

/// A timestamp, and its text as it came, because that is what was signed.
#[derive(Clone, Copy)]
pub(crate) struct Timestamp<'h> {
    text: &'h [u8],
    pub(crate) seconds: i64,
}

impl<'h> Timestamp<'h> {
    pub(crate) fn parse(text: &'h [u8]) -> Result<Self, Unexpected> {
        let seconds = parse_digits("a timestamp in seconds since 1970, in digits", text)?;
        Ok(Self { text, seconds })
    }
}

/// The entries of `webhook-signature` that can be judged here.
#[derive(Default)]
struct StandardEntries {
    v1: Vec<[u8; 32]>,
    v1a: Vec<[u8; 64]>,
}

impl StandardEntries {
    fn parse(value: &[u8]) -> Result<Self, Unexpected> {
        let mut entries = Self::default();
        for entry in bounded_entries(value, b' ')? {
            let (version, signature) = split_once(entry, b',').ok_or_else(|| {
                Unexpected::bytes("entries `version,signature` with spaces between them", entry)
            })?;
            match version {
                b"v1" => entries.v1.push(parse_base64("the base64 of 32 bytes", signature)?),
                b"v1a" => entries.v1a.push(parse_base64("the base64 of 64 bytes", signature)?),
                _ => {}
            }
        }
        Ok(entries)
    }
}

/// The entries of `X-Webhook-Signature` that can be judged here, and the time they are for.
struct TimestampedEntries<'h> {
    timestamp: Timestamp<'h>,
    v1: Vec<[u8; 32]>,
}

impl<'h> TimestampedEntries<'h> {
    fn parse(value: &'h [u8]) -> Result<Self, Unexpected> {
        let expected = "`t=timestamp,v1=signature`, with one `t`";
        let refused = || Unexpected::bytes(expected, value);
        let (mut timestamp, mut v1) = (None, Vec::new());
        for entry in bounded_entries(value, b',')? {
            match split_once(entry, b'=').ok_or_else(refused)? {
                (b"t", _) if timestamp.is_some() => return Err(refused()),
                (b"t", seconds) => timestamp = Some(Timestamp::parse(seconds)?),
                (b"v1", signature) => v1.push(parse_hex(signature)?),
                _ => {}
            }
        }
        Ok(Self { timestamp: timestamp.ok_or_else(refused)?, v1 })
    }
}

/// The entries of a list, trimmed, without empty ones: at least one, and not too many.
fn bounded_entries(value: &[u8], separator: u8) -> Result<Vec<&[u8]>, Unexpected> {
    let entries = value.split(|&c| c == separator).map(<[u8]>::trim_ascii);
    let entries: Vec<_> =
        entries.filter(|entry| !entry.is_empty()).take(SIGNATURES_MAX + 1).collect();
    if (1..=SIGNATURES_MAX).contains(&entries.len()) {
        return Ok(entries);
    }
    Err(Unexpected::bytes("1 to 32 entries", value))
}

fn split_once(entry: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = entry.iter().position(|&c| c == separator)?;
    Some((&entry[..at], &entry[at + 1..]))
}

fn parse_base64<const N: usize>(
    expected: &'static str,
    text: &[u8],
) -> Result<[u8; N], Unexpected> {
    // Four characters make three bytes: anything longer is refused before it is decoded.
    let fits = text.len() == N.div_ceil(3) * 4;
    let bytes = fits.then(|| STANDARD.decode(text).ok()).flatten();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| Unexpected::bytes(expected, text))
}

fn parse_hex(text: &[u8]) -> Result<[u8; 32], Unexpected> {
    let digits: Option<Vec<u32>> = text.iter().map(|&c| char::from(c).to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64);
    let digits = digits.ok_or_else(|| Unexpected::bytes("64 hex digits", text))?;
    Ok(array::from_fn(|at| (digits[2 * at] << 4 | digits[2 * at + 1]) as u8))
}
