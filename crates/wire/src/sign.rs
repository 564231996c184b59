//! Signing: what a sender puts into the two signature headers.

use crate::EventId;
use crate::secrets::{BadSecret, Secret, SigningKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::SHA256_OUTPUT_LEN;
use ring::hmac;
use std::str::FromStr;
use zeroize::Zeroizing;

/// What one signature entry is made with. Each active secret has its own, in the order given.
///
/// | header | signed bytes | an entry |
/// |---|---|---|
/// | `webhook-signature` | `id.timestamp.body` | `v1,` base64 of HMAC-SHA256, or `v1a,` base64 of Ed25519 |
/// | `X-Webhook-Signature` | `timestamp.body` | `v1=` lower-case hex of HMAC-SHA256, after `t=timestamp` |
///
/// The key of an HMAC is the decoded bytes of its secret, in both headers.
#[derive(Debug, Clone)]
pub enum Signer {
    /// Signs with HMAC-SHA256, in both headers.
    Secret(Secret),
    /// Signs with Ed25519, in `webhook-signature` alone.
    Key(SigningKey),
}

impl Signer {
    /// Its text, `whsec_…` or `whsk_…`, for the one who may see it.
    pub fn reveal(&self) -> Zeroizing<String> {
        match self {
            Self::Secret(secret) => secret.reveal(),
            Self::Key(key) => key.reveal(),
        }
    }
}

impl FromStr for Signer {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        if text.starts_with(SigningKey::PREFIX) {
            return text.parse().map(Self::Key);
        }
        text.parse().map(Self::Secret)
    }
}

/// The value of `webhook-signature`: an entry for each signer, with spaces between them.
///
/// `timestamp` is the attempt's, in seconds since 1970.
pub fn standard_signature(signers: &[Signer], id: &EventId, timestamp: i64, body: &[u8]) -> String {
    let mut text = String::new();
    let signatures = Signatures::new(signers, &id.to_string(), &timestamp.to_string(), body);
    signatures.write_standard(&mut text);
    text
}

/// The value of `X-Webhook-Signature`, or nothing if no signer holds a shared secret.
///
/// `timestamp` is the attempt's, in seconds since 1970.
pub fn timestamped_signature(signers: &[Signer], timestamp: i64, body: &[u8]) -> Option<String> {
    let (mut text, timestamp) = (String::new(), timestamp.to_string());
    Signatures::new(signers, "", &timestamp, body).write_timestamped(&timestamp, &mut text);
    Some(text).filter(|text| !text.is_empty())
}

/// The signatures of both headers. They are made together, because a secret's HMAC key is built anew for each
/// use, and that hashes two blocks more.
pub(crate) struct Signatures(Vec<Entry>);

/// What one signer made.
enum Entry {
    Tags { standard: hmac::Tag, timestamped: hmac::Tag },
    Signature(ring::signature::Signature),
}

impl Signatures {
    pub(crate) fn new(signers: &[Signer], id: &str, timestamp: &str, body: &[u8]) -> Self {
        let before = [id, ".", timestamp, "."].concat();
        let standard = [before.as_bytes(), body];
        let timestamped = [&standard[0][id.len() + 1..], body];
        let entry = |signer: &Signer| match signer {
            Signer::Secret(secret) => {
                let [standard, timestamped] = secret.tags([&standard, &timestamped]);
                Entry::Tags { standard, timestamped }
            }
            // Ed25519 reads its message twice, so it needs it in one piece.
            Signer::Key(key) => Entry::Signature(key.sign(&standard.concat())),
        };
        Self(signers.iter().map(entry).collect())
    }

    pub(crate) fn write_standard(&self, text: &mut String) {
        for (index, entry) in self.0.iter().enumerate() {
            text.push_str(if index == 0 { "" } else { " " });
            match entry {
                Entry::Tags { standard, .. } => {
                    text.push_str("v1,");
                    STANDARD.encode_string(standard, text);
                }
                Entry::Signature(signature) => {
                    text.push_str("v1a,");
                    STANDARD.encode_string(signature, text);
                }
            }
        }
    }

    /// Nothing, if no signer holds a shared secret.
    pub(crate) fn write_timestamped(&self, timestamp: &str, text: &mut String) {
        let mut tags = self
            .0
            .iter()
            .filter_map(|entry| match entry {
                Entry::Tags { timestamped, .. } => Some(timestamped),
                Entry::Signature(_) => None,
            })
            .peekable();
        if tags.peek().is_some() {
            text.extend(["t=", timestamp]);
        }
        for tag in tags {
            text.push_str(",v1=");
            write_hex(tag, text);
        }
    }
}

fn write_hex(tag: &hmac::Tag, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 2 * SHA256_OUTPUT_LEN];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(tag.as_ref()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text.push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
}
