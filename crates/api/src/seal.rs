//! Keys for encryption and signing by the server itself, derived from the master key, each for one purpose.

use bytes::Bytes;
use railpost_store::Source;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

/// What a sealed text begins with. No answer in JSON does.
const MARK: u8 = 0;

/// A key of 32 bytes for one purpose.
pub(crate) fn derived_key(master: &[u8; 32], purpose: &str) -> Zeroizing<[u8; 32]> {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master), purpose.as_bytes());
    Zeroizing::new(tag.as_ref().try_into().expect("an HMAC-SHA256 has 32 bytes"))
}

/// Encrypts answers that may show secrets.
pub struct Seal(LessSafeKey);

impl Seal {
    /// Encrypts under a key derived from the master key.
    pub fn new(master: &[u8; 32]) -> Self {
        let key = derived_key(master, "railpost answers");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*key);
        Self(LessSafeKey::new(key.expect("a derived key has 32 bytes")))
    }

    /// Marked, then a nonce, the text encrypted, and a tag.
    pub(crate) fn seal(&self, source: &dyn Source, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        source.fill_random(&mut nonce);
        let mut text = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_append_tag(unique, Aad::empty(), &mut text);
        sealed.expect("an answer is far shorter than the cipher's bound");
        [&[MARK][..], &nonce, &text].concat()
    }

    /// What was sealed, or what was never sealed as it is; `None` if it does not decrypt.
    pub(crate) fn open_if_sealed(&self, stored: Bytes) -> Option<Bytes> {
        if stored.first() != Some(&MARK) {
            return Some(stored);
        }
        let (nonce, rest) = stored[1..].split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = rest.to_vec();
        let len = self.0.open_in_place(nonce, Aad::empty(), &mut text).ok()?.len();
        text.truncate(len);
        Some(text.into())
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use railpost_store::SystemSource;

    #[test]
    fn what_is_sealed_opens_under_the_same_master_key_alone() {
        let text = Bytes::from_static(b"{\"value\":\"whsec_x\"}");
        let sealed: Bytes = Seal::new(&[1; 32]).seal(&SystemSource, &text).into();
        assert!(!sealed.windows(7).any(|part| part == b"whsec_x"));
        assert_eq!(Seal::new(&[1; 32]).open_if_sealed(sealed.clone()).unwrap(), text);
        assert_eq!(Seal::new(&[2; 32]).open_if_sealed(sealed.clone()), None);
        assert_eq!(Seal::new(&[1; 32]).open_if_sealed(sealed.slice(..20)), None);
        assert_eq!(Seal::new(&[1; 32]).open_if_sealed(text.clone()).unwrap(), text);
    }
}
