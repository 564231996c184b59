//! Encryption at rest: secrets and private keys under one master key.
//!
//! A sealed value is a random nonce of 12 bytes, the ciphertext, and a tag of 16 bytes, by
//! ChaCha20-Poly1305. What the value belongs to is bound in, so that a sealed value that is moved to
//! another row does not open.
//!
//! While the master key is rotated there are two. Values are sealed under the new one, and opened with
//! whichever fits. [`KeyRotation`](crate::KeyRotation) has the steps.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::derived_keys::OldLinkKey;
use crate::{Result, Source, StoreError};

/// The key that secrets are encrypted under. Never shown, wiped when dropped. Clones share it: a rotation reaches
/// all of them.
#[derive(Clone)]
pub struct MasterKey(Arc<RwLock<Keys>>);

pub(crate) struct Keys {
    /// What values are sealed under.
    pub(crate) current: Key,
    /// What the current one replaces, while a rotation is under way.
    pub(crate) old: Option<Key>,
    /// What links of before the last rotation are checked with.
    pub(crate) old_link_key: Option<OldLinkKey>,
}

/// The bytes of one key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(Zeroizing<[u8; MasterKey::LEN]>);

impl MasterKey {
    /// How many bytes it has.
    pub const LEN: usize = 32;

    /// The key with these bytes.
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        Self::with(Keys { current: Key::new(bytes), old: None, old_link_key: None })
    }

    /// The keys of a rotation that is under way.
    pub fn rotating(new: &[u8; Self::LEN], old: &[u8; Self::LEN]) -> Self {
        let old = (new != old).then(|| Key::new(old));
        Self::with(Keys { current: Key::new(new), old, old_link_key: None })
    }

    fn with(keys: Keys) -> Self {
        Self(Arc::new(RwLock::new(keys)))
    }

    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keys_mut(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are two: a rotation is under way.
    pub fn is_rotating(&self) -> bool {
        self.keys().old.is_some()
    }

    /// Whether these bytes are the key that values are sealed under.
    pub fn is_current(&self, bytes: &[u8; Self::LEN]) -> bool {
        self.keys().current == Key::new(bytes)
    }

    /// Seals under the other one's key from here on. Refuses while another rotation is under way.
    pub fn begin_rotation(&self, new: &MasterKey) -> Result<()> {
        let new = new.keys().current.clone();
        let mut keys = self.keys_mut();
        if keys.current == new {
            return Ok(());
        }
        if keys.old.is_some() {
            let problem = "it is being rotated to another key already: wait until that has ended";
            return Err(StoreError::conflict("master_key", problem));
        }
        keys.old = Some(std::mem::replace(&mut keys.current, new));
        Ok(())
    }

    /// Forgets the old key: nothing is sealed under it any more.
    pub fn forget_old(&self) {
        self.keys_mut().old = None;
    }

    /// Encrypts `plain` for what `belongs_to` names.
    pub(crate) fn seal(&self, source: &dyn Source, belongs_to: &str, plain: &[u8]) -> Vec<u8> {
        self.keys().current.seal(source, belongs_to, plain)
    }

    /// Decrypts what was sealed for what `belongs_to` names.
    pub(crate) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let keys = self.keys();
        let opened = keys.current.open(belongs_to, sealed);
        let opened = opened.or_else(|| keys.old.as_ref()?.open(belongs_to, sealed));
        opened.ok_or_else(|| {
            StoreError::Corrupt(format!("the secret of {belongs_to} does not decrypt"))
        })
    }

    /// The same value sealed under the current key, if it is sealed under the old one. What neither opens stays as
    /// it is: it could not be read before.
    pub(crate) fn reseal(
        &self,
        source: &dyn Source,
        belongs_to: &str,
        sealed: &[u8],
    ) -> Option<Vec<u8>> {
        let keys = self.keys();
        let plain = keys.old.as_ref()?.open(belongs_to, sealed)?;
        Some(keys.current.seal(source, belongs_to, &plain))
    }

    /// What a store keeps, to know its master key by.
    pub fn check_value(&self, source: &dyn Source) -> Vec<u8> {
        self.keys().current.check_value(source)
    }

    /// What a backup keeps of a store that writes no check values of its own.
    pub fn checks(&self, source: &dyn Source) -> KeyChecks {
        let keys = self.keys();
        let current = keys.current.check_value(source);
        match &keys.old {
            None => KeyChecks { current, next: None },
            Some(old) => KeyChecks { current: old.check_value(source), next: Some(current) },
        }
    }

    /// Refuses if a store's check values were made by other keys. An old key that the store has done with is
    /// forgotten. Answers whether the store has yet to begin a rotation to the current key.
    pub fn verify(&self, checks: &KeyChecks) -> Result<bool> {
        let mut keys = self.keys_mut();
        let (current, next) = (&checks.current, checks.next.as_deref());
        match (&keys.old, next) {
            (None, None) if keys.current.made(current) => Ok(false),
            (None, Some(next)) if keys.current.made(current) || keys.current.made(next) => {
                Err(StoreError::BothMasterKeysNeeded)
            }
            (Some(_), None) if keys.current.made(current) => {
                keys.old = None;
                Ok(false)
            }
            (Some(old), None) if old.made(current) => Ok(true),
            (Some(old), Some(next)) if old.made(current) && keys.current.made(next) => Ok(false),
            _ => Err(StoreError::WrongMasterKey),
        }
    }
}

/// What a store knows its master key by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChecks {
    /// Made by the key that the store is under, or that a rotation replaces.
    pub current: Vec<u8>,
    /// Made by the key that a rotation goes to.
    pub next: Option<Vec<u8>>,
}

/// What the check value belongs to. Stable.
const CHECK: &str = "the store";

impl Key {
    pub(crate) fn new(bytes: &[u8; MasterKey::LEN]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; MasterKey::LEN] {
        &self.0
    }

    fn check_value(&self, source: &dyn Source) -> Vec<u8> {
        self.seal(source, CHECK, CHECK.as_bytes())
    }

    fn made(&self, check_value: &[u8]) -> bool {
        self.open(CHECK, check_value).is_some()
    }

    pub(crate) fn seal(&self, source: &dyn Source, belongs_to: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        source.fill_random(&mut nonce);
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend(nonce);
        sealed.extend(plain);
        let tag = cipher(self.bytes())
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(belongs_to.as_bytes()),
                &mut sealed[NONCE_LEN..],
            )
            .expect("what a store encrypts is far shorter than the cipher's bound");
        sealed.extend(tag.as_ref());
        sealed
    }

    pub(crate) fn open(&self, belongs_to: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = Zeroizing::new(rest.to_vec());
        let aad = Aad::from(belongs_to.as_bytes());
        let len = cipher(self.bytes()).open_in_place(nonce, aad, &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

fn cipher(key: &[u8; MasterKey::LEN]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    LessSafeKey::new(key.expect("a key has 32 bytes"))
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemSource;

    fn keys() -> (MasterKey, MasterKey) {
        (MasterKey::new(&[1; 32]), MasterKey::new(&[2; 32]))
    }

    #[test]
    fn a_sealed_value_opens_only_with_its_key_and_in_its_place() {
        let (key, other) = keys();
        let sealed = key.seal(&SystemSource, "sec_1", b"hush");
        assert_eq!(key.open("sec_1", &sealed).unwrap().as_slice(), b"hush");
        assert!(other.open("sec_1", &sealed).is_err());
        assert!(key.open("sec_2", &sealed).is_err());
    }

    #[test]
    fn a_damaged_value_does_not_open() {
        let (key, _) = keys();
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
        let (key, _) = keys();
        let seal = || key.seal(&SystemSource, "sec_1", b"hush");
        assert_ne!(seal(), seal());
    }

    #[test]
    fn both_keys_of_a_rotation_open_and_the_new_one_seals() {
        let (key, new) = keys();
        let shared = key.clone();
        let sealed = key.seal(&SystemSource, "sec_1", b"hush");
        key.begin_rotation(&new).unwrap();
        assert!(shared.is_rotating());
        assert_eq!(shared.open("sec_1", &sealed).unwrap().as_slice(), b"hush");
        let resealed = key.reseal(&SystemSource, "sec_1", &sealed).unwrap();
        assert_eq!(new.open("sec_1", &resealed).unwrap().as_slice(), b"hush");
        assert_eq!(key.reseal(&SystemSource, "sec_1", &resealed), None);
        assert_eq!(key.reseal(&SystemSource, "sec_1", b"damaged"), None);
        assert!(key.begin_rotation(&new).is_ok(), "the same again");
        assert!(key.begin_rotation(&MasterKey::new(&[3; 32])).is_err(), "one at a time");
        key.forget_old();
        assert!(shared.open("sec_1", &sealed).is_err());
        assert!(shared.open("sec_1", &resealed).is_ok());
    }

    #[test]
    fn check_values_say_which_keys_a_store_needs() {
        let value = |byte| MasterKey::new(&[byte; 32]).check_value(&SystemSource);
        let settled = |byte| KeyChecks { current: value(byte), next: None };
        let rotating = KeyChecks { current: value(1), next: Some(value(2)) };
        let (one, other) = keys();
        let both = || MasterKey::rotating(&[2; 32], &[1; 32]);
        assert_eq!(one.verify(&settled(1)), Ok(false));
        assert_eq!(other.verify(&settled(1)), Err(StoreError::WrongMasterKey));
        let short = KeyChecks { current: b"short".to_vec(), next: None };
        assert_eq!(one.verify(&short), Err(StoreError::WrongMasterKey));
        for half in [one, other] {
            assert_eq!(half.verify(&rotating), Err(StoreError::BothMasterKeysNeeded));
        }
        assert_eq!(both().verify(&rotating), Ok(false));
        assert_eq!(both().verify(&settled(1)), Ok(true), "the store has to begin");
        assert_eq!(both().verify(&settled(3)), Err(StoreError::WrongMasterKey));
        let done = both();
        assert_eq!(done.verify(&settled(2)), Ok(false));
        assert!(!done.is_rotating(), "the store has done with the old key");
        let backwards = MasterKey::rotating(&[1; 32], &[2; 32]);
        assert_eq!(backwards.verify(&rotating), Err(StoreError::WrongMasterKey));
    }

    #[test]
    fn a_master_key_is_not_shown() {
        assert_eq!(format!("{:?}", MasterKey::new(&[7; 32])), "MasterKey(…)");
    }
}
