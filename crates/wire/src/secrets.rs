//! Secrets and keys: parsed, made from random bytes, never shown, wiped when dropped.
//!
//! A secret type keeps its bytes on the heap, so that moving it leaves no copy behind. What the
//! cryptography derives from them it builds for each use, on the stack: a derived key that is kept
//! would be as good as the secret, and would not be wiped.

use crate::limits::{SECRET_LEN_MAX, SECRET_LEN_MIN};
use crate::text::serde_as_text;
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::{fmt, str::FromStr};
use zeroize::Zeroizing;

/// A text is not the secret or key it should be. It is not shown: it may be one, mistyped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadSecret {
    expected: &'static str,
}

impl fmt::Display for BadSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for BadSecret {}

/// A shared secret for HMAC-SHA256, written `whsec_` and the base64 of its 24 to 64 bytes.
///
/// `webhook-signature` is keyed with these bytes, decoded; `X-Webhook-Signature` with the text itself.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// What every secret's text begins with.
    pub const PREFIX: &str = "whsec_";
    const EXPECTED: BadSecret =
        BadSecret { expected: "a secret: `whsec_` and the base64 of 24 to 64 bytes" };

    /// Makes a new secret of random bytes.
    pub fn generate(random: &[u8; 32]) -> Self {
        Self(Zeroizing::new(random.to_vec()))
    }

    /// The secret with these bytes: 24 to 64 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSecret> {
        if !(SECRET_LEN_MIN..=SECRET_LEN_MAX).contains(&bytes.len()) {
            return Err(Self::EXPECTED);
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Its text, `whsec_…`, for the one who may see it.
    pub fn reveal(&self) -> Zeroizing<String> {
        reveal(Self::PREFIX, &self.0)
    }

    /// The HMAC of `parts`, one after the other, without joining them first.
    pub(crate) fn tag(&self, keyed_by: KeyedBy, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.hmac_key(keyed_by));
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Whether `given` is `tag`, in constant time: it compares HMACs of the two.
    pub(crate) fn verify_tag(&self, tag: hmac::Tag, given: &[u8]) -> bool {
        let key = self.hmac_key(KeyedBy::Bytes);
        let tag_of_tag = hmac::sign(&key, tag.as_ref());
        hmac::verify(&key, given, tag_of_tag.as_ref()).is_ok()
    }

    fn hmac_key(&self, keyed_by: KeyedBy) -> hmac::Key {
        match keyed_by {
            KeyedBy::Bytes => hmac::Key::new(hmac::HMAC_SHA256, &self.0),
            KeyedBy::Text => hmac::Key::new(hmac::HMAC_SHA256, self.reveal().as_bytes()),
        }
    }
}

/// Which form of a secret is the key of an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyedBy {
    /// Its decoded bytes, as Standard Webhooks has it.
    Bytes,
    /// Its text, `whsec_…`, as it is shown to people: receivers of the timestamped form pass the string
    /// that they were given to their HMAC, prefix and all.
    Text,
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        Self::from_bytes(&decode(Self::PREFIX, text).ok_or(Self::EXPECTED)?)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// An Ed25519 private key, written `whsk_` and the base64 of its 32-byte seed.
///
/// The form of 64 bytes, seed and public key, is read as well if its halves belong together.
#[derive(Clone)]
pub struct SigningKey(Zeroizing<Vec<u8>>);

impl SigningKey {
    /// What every signing key's text begins with.
    pub const PREFIX: &str = "whsk_";
    const EXPECTED: BadSecret = BadSecret {
        expected: "a signing key: `whsk_` and the base64 of a 32-byte Ed25519 seed, or of seed and public key",
    };

    /// Makes a new key from a random seed.
    pub fn generate(random: &[u8; 32]) -> Self {
        Self(Zeroizing::new(random.to_vec()))
    }

    /// Its text, `whsk_…`, for the one who may see it.
    pub fn reveal(&self) -> Zeroizing<String> {
        reveal(Self::PREFIX, &self.0)
    }

    /// The public key that goes with it.
    pub fn verifying_key(&self) -> VerifyingKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.key_pair().public_key().as_ref());
        VerifyingKey(bytes)
    }

    pub(crate) fn sign(&self, message: &[u8]) -> ring::signature::Signature {
        self.key_pair().sign(message)
    }

    fn key_pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0).expect("a signing key holds a 32-byte seed")
    }
}

impl FromStr for SigningKey {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let bytes = decode(Self::PREFIX, text).ok_or(Self::EXPECTED)?;
        let (seed, public) = bytes.split_at_checked(32).ok_or(Self::EXPECTED)?;
        let key = Self(Zeroizing::new(seed.to_vec()));
        if public.is_empty() || public == key.verifying_key().0 {
            return Ok(key);
        }
        Err(Self::EXPECTED)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// An Ed25519 public key, written `whpk_` and the base64 of its 32 bytes. No secret: it may be shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerifyingKey([u8; 32]);

impl VerifyingKey {
    /// What every verifying key's text begins with.
    pub const PREFIX: &str = "whpk_";

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl FromStr for VerifyingKey {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let bytes = decode(Self::PREFIX, text).and_then(|bytes| bytes.as_slice().try_into().ok());
        let expected = "a verifying key: `whpk_` and the base64 of a 32-byte Ed25519 public key";
        bytes.map(Self).ok_or(BadSecret { expected })
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reveal(Self::PREFIX, &self.0))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serde_as_text!(VerifyingKey, {
    "pattern": "^whpk_[A-Za-z0-9+/]{43}=$",
    "description": "A public Ed25519 key: `whpk_` and its base64."
});

fn reveal(prefix: &str, bytes: &[u8]) -> Zeroizing<String> {
    // Room for all of it from the start: growing would leave a copy behind.
    let mut text =
        Zeroizing::new(String::with_capacity(prefix.len() + bytes.len().div_ceil(3) * 4));
    text.push_str(prefix);
    STANDARD.encode_string(bytes, &mut text);
    text
}

/// The bytes behind `prefix`, or nothing if they are not base64 or too many for any secret.
fn decode(prefix: &str, text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let encoded = text.strip_prefix(prefix)?;
    let mut bytes = Zeroizing::new(vec![0; SECRET_LEN_MAX + 2]);
    let len = STANDARD.decode_slice(encoded, &mut bytes).ok()?;
    bytes.truncate(len);
    Some(bytes)
}
