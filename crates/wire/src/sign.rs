//! Signing: what a sender puts into the two signature headers.

use crate::EventId;
use crate::secrets::{BadSecret, KeyedBy, Secret, SigningKey};
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
/// In `webhook-signature` the key of an HMAC is the decoded bytes of its secret, as Standard Webhooks has
/// it. In `X-Webhook-Signature` it is the secret's own text, `whsec_…` as it is shown to people, because
/// that is what receivers of this form are given and use.
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

    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Secret(secret) => Some(secret),
            Self::Key(_) => None,
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
    write_standard(signers, &id.to_string(), &timestamp.to_string(), body, &mut text);
    text
}

/// The value of `X-Webhook-Signature`, or nothing if no signer holds a shared secret.
///
/// `timestamp` is the attempt's, in seconds since 1970.
pub fn timestamped_signature(signers: &[Signer], timestamp: i64, body: &[u8]) -> Option<String> {
    let mut text = String::new();
    write_timestamped(signers, &timestamp.to_string(), body, &mut text);
    Some(text).filter(|text| !text.is_empty())
}

pub(crate) fn write_standard(
    signers: &[Signer],
    id: &str,
    timestamp: &str,
    body: &[u8],
    text: &mut String,
) {
    let before = [id, ".", timestamp, "."].concat();
    let parts = [before.as_bytes(), body];
    for (index, signer) in signers.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { " " });
        match signer {
            Signer::Secret(secret) => {
                text.push_str("v1,");
                STANDARD.encode_string(secret.tag(KeyedBy::Bytes, &parts), text);
            }
            Signer::Key(key) => {
                text.push_str("v1a,");
                // Ed25519 reads its message twice, so it needs it in one piece.
                STANDARD.encode_string(key.sign(&parts.concat()), text);
            }
        }
    }
}

/// Writes nothing if no signer holds a shared secret.
pub(crate) fn write_timestamped(
    signers: &[Signer],
    timestamp: &str,
    body: &[u8],
    text: &mut String,
) {
    let mut secrets = signers.iter().filter_map(Signer::secret).peekable();
    if secrets.peek().is_some() {
        text.extend(["t=", timestamp]);
    }
    for secret in secrets {
        text.push_str(",v1=");
        write_hex(&secret.tag(KeyedBy::Text, &[timestamp.as_bytes(), b".", body]), text);
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
