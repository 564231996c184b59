//! Encryption at rest: secrets and private keys under one master key.
//!
//! A sealed value is a random nonce of 12 bytes, the ciphertext, and a tag of 16 bytes, by
//! ChaCha20-Poly1305. What the value belongs to is bound in, so that a sealed value that is moved to
//! another row does not open.

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::{Result, Source, StoreError};

/// The key that secrets are encrypted under. Never shown, wiped when dropped.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<Vec<u8>>);

impl MasterKey {
    /// How many bytes it has.
    pub const LEN: usize = 32;

    /// The key with these bytes.
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0);
        LessSafeKey::new(key.expect("a master key has 32 bytes"))
    }

    /// Encrypts `plain` for what `belongs_to` names.
    pub(crate) fn seal(&self, source: &dyn Source, belongs_to: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        source.fill_random(&mut nonce);
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend(nonce);
        sealed.extend(plain);
        let tag = self
            .cipher()
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(belongs_to.as_bytes()),
                &mut sealed[NONCE_LEN..],
            )
            .expect("what a store encrypts is far shorter than the cipher's bound");
        sealed.extend(tag.as_ref());
        sealed
    }

    /// Decrypts what was sealed for what `belongs_to` names.
    pub(crate) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let refuse = || StoreError::Corrupt(format!("the secret of {belongs_to} does not decrypt"));
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN).ok_or_else(refuse)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| refuse())?;
        let mut plain = Zeroizing::new(rest.to_vec());
        let aad = Aad::from(belongs_to.as_bytes());
        let len = self.cipher().open_in_place(nonce, aad, &mut plain).map_err(|_| refuse())?.len();
        plain.truncate(len);
        Ok(plain)
    }

    /// What a new store keeps, to know its master key by.
    pub fn check_value(&self, source: &dyn Source) -> Vec<u8> {
        self.seal(source, CHECK, CHECK.as_bytes())
    }

    /// Refuses if `check_value` was made by another key.
    pub fn verify(&self, check_value: &[u8]) -> Result<()> {
        self.open(CHECK, check_value).map(drop).map_err(|_| StoreError::WrongMasterKey)
    }
}

/// What the check value belongs to. Stable.
const CHECK: &str = "the store";

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemSource;

    #[test]
    fn a_sealed_value_opens_only_with_its_key_and_in_its_place() {
        let (key, other) = (MasterKey::new(&[1; 32]), MasterKey::new(&[2; 32]));
        let sealed = key.seal(&SystemSource, "sec_1", b"hush");
        assert_eq!(key.open("sec_1", &sealed).unwrap().as_slice(), b"hush");
        assert!(other.open("sec_1", &sealed).is_err());
        assert!(key.open("sec_2", &sealed).is_err());
    }

    #[test]
    fn a_damaged_value_does_not_open() {
        let key = MasterKey::new(&[1; 32]);
        let sealed = key.seal(&SystemSource, "sec_1", b"hush");
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert!(key.open("sec_1", &damaged).is_err(), "byte {index}");
            assert!(key.open("sec_1", &sealed[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn no_two_sealed_values_are_alike() {
        let key = MasterKey::new(&[1; 32]);
        let seal = || key.seal(&SystemSource, "sec_1", b"hush");
        assert_ne!(seal(), seal());
    }

    #[test]
    fn another_key_is_refused_by_the_check_value() {
        let (key, other) = (MasterKey::new(&[1; 32]), MasterKey::new(&[2; 32]));
        let check_value = key.check_value(&SystemSource);
        assert_eq!(key.verify(&check_value), Ok(()));
        assert_eq!(other.verify(&check_value), Err(StoreError::WrongMasterKey));
        assert_eq!(key.verify(b"short"), Err(StoreError::WrongMasterKey));
    }

    #[test]
    fn a_master_key_is_not_shown() {
        assert_eq!(format!("{:?}", MasterKey::new(&[7; 32])), "MasterKey(…)");
    }
}
