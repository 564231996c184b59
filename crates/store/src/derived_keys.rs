//! Keys that are derived from the master key, each for one purpose: stored answers and links.

use bytes::Bytes;
use railpost_engine::Timestamp;
use ring::hmac;
use zeroize::Zeroizing;

use crate::seal::Key;
use crate::{MasterKey, Source};

/// What a sealed answer begins with. No answer in JSON does.
const MARK: u8 = 0;

/// What sealed answers belong to: nothing, so that they can be stored under any idempotency key.
const ANSWER: &str = "";

/// What the sealed key of old links belongs to. Stable.
const OLD_LINKS: &str = "old links";

/// What links of before a rotation are checked with.
#[derive(Clone)]
pub(crate) struct OldLinkKey {
    key: Key,
    /// When the last of these links has expired.
    until: Timestamp,
}

impl MasterKey {
    /// Encrypts an answer that may show secrets.
    pub fn seal_answer(&self, source: &dyn Source, plain: &[u8]) -> Vec<u8> {
        marked(&answer_key(&self.keys().current).seal(source, ANSWER, plain))
    }

    /// What was sealed, or what was never sealed as it is; `None` if it does not decrypt.
    pub fn open_answer(&self, stored: &Bytes) -> Option<Bytes> {
        let Some((&MARK, sealed)) = stored.split_first() else { return Some(stored.clone()) };
        let keys = self.keys();
        let mut tried = [Some(&keys.current), keys.old.as_ref()].into_iter().flatten();
        let plain = tried.find_map(|key| answer_key(key).open(ANSWER, sealed))?;
        Some(Bytes::copy_from_slice(&plain))
    }

    /// The same answer sealed under the current key, if it is sealed under the old one.
    pub(crate) fn reseal_answer(&self, source: &dyn Source, stored: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        let (mark, sealed) = stored.split_first()?;
        let plain = answer_key(keys.old.as_ref()?).open(ANSWER, sealed)?;
        (*mark == MARK).then(|| marked(&answer_key(&keys.current).seal(source, ANSWER, &plain)))
    }

    /// Signs a link.
    pub fn sign_link(&self, text: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac_key(&link_key(&self.keys().current)), text)
    }

    /// Whether this is a signature of the link. Links of before a rotation count until the last of them has
    /// expired.
    pub fn verify_link(&self, text: &[u8], tag: &[u8], now: Timestamp) -> bool {
        let keys = self.keys();
        let is_by = |key: &Key| hmac::verify(&hmac_key(key), text, tag).is_ok();
        is_by(&link_key(&keys.current))
            || keys.old.as_ref().is_some_and(|old| is_by(&link_key(old)))
            || keys.old_link_key.as_ref().is_some_and(|old| now < old.until && is_by(&old.key))
    }

    /// What the store keeps of the old key when a rotation ends, sealed under the new one: links that are out are
    /// checked with it until then. Nothing without an old key.
    pub fn seal_old_links(&self, source: &dyn Source, until: Timestamp) -> Option<Vec<u8>> {
        let keys = self.keys();
        let key = link_key(keys.old.as_ref()?);
        let plain = [&key.bytes()[..], &until.as_millis().to_be_bytes()].concat();
        Some(keys.current.seal(source, OLD_LINKS, &Zeroizing::new(plain)))
    }

    /// Checks links with what [`seal_old_links`](Self::seal_old_links) made, too. What does not decrypt checks
    /// none.
    pub fn set_old_links(&self, sealed: Option<&[u8]>) {
        let plain = sealed.and_then(|sealed| self.open(OLD_LINKS, sealed).ok());
        let old_link_key = plain.and_then(|plain| {
            let (key, until) = plain.split_first_chunk::<{ MasterKey::LEN }>()?;
            let until = Timestamp::from_millis(u64::from_be_bytes(until.try_into().ok()?));
            Some(OldLinkKey { key: Key::new(key), until })
        });
        self.keys_mut().old_link_key = old_link_key;
    }
}

fn marked(sealed: &[u8]) -> Vec<u8> {
    [&[MARK], sealed].concat()
}

fn answer_key(master: &Key) -> Key {
    derived(master, "railpost answers")
}

fn link_key(master: &Key) -> Key {
    derived(master, "railpost thin links")
}

fn hmac_key(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.bytes())
}

fn derived(master: &Key, purpose: &str) -> Key {
    let tag = hmac::sign(&hmac_key(master), purpose.as_bytes());
    let bytes = tag.as_ref().try_into().expect("an HMAC-SHA256 has 32 bytes");
    Key::new(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemSource;

    fn key(byte: u8) -> MasterKey {
        MasterKey::new(&[byte; 32])
    }

    #[test]
    fn an_answer_opens_under_the_same_master_key_alone() {
        let text = Bytes::from_static(b"{\"value\":\"whsec_x\"}");
        let sealed: Bytes = key(1).seal_answer(&SystemSource, &text).into();
        assert!(!sealed.windows(7).any(|part| part == b"whsec_x"));
        assert_eq!(key(1).open_answer(&sealed).unwrap(), text);
        assert_eq!(key(2).open_answer(&sealed), None);
        assert_eq!(key(1).open_answer(&sealed.slice(..20)), None);
        assert_eq!(key(1).open_answer(&text).unwrap(), text);
        assert_eq!(key(1).open_answer(&Bytes::new()).unwrap(), Bytes::new());
    }

    #[test]
    fn an_answer_follows_a_rotation() {
        let text = Bytes::from_static(b"{}");
        let master = key(1);
        let sealed: Bytes = master.seal_answer(&SystemSource, &text).into();
        master.begin_rotation(&key(2)).unwrap();
        assert_eq!(master.open_answer(&sealed).unwrap(), text);
        let resealed: Bytes = master.reseal_answer(&SystemSource, &sealed).unwrap().into();
        assert_eq!(key(2).open_answer(&resealed).unwrap(), text);
        assert_eq!(master.reseal_answer(&SystemSource, &resealed), None);
        assert_eq!(master.reseal_answer(&SystemSource, &text), None, "it was never sealed");
    }

    #[test]
    fn links_of_before_a_rotation_count_until_they_have_expired() {
        let at = Timestamp::from_millis;
        let master = key(1);
        let tag = master.sign_link(b"a link");
        let tag = tag.as_ref();
        master.begin_rotation(&key(2)).unwrap();
        assert!(master.verify_link(b"a link", tag, at(1)));
        assert!(!master.verify_link(b"another", tag, at(1)));
        let kept = master.seal_old_links(&SystemSource, at(5)).unwrap();
        master.forget_old();
        assert!(!master.verify_link(b"a link", tag, at(4)));
        master.set_old_links(Some(&kept));
        assert!(master.verify_link(b"a link", tag, at(4)));
        assert!(!master.verify_link(b"a link", tag, at(5)));
        let started_later = key(2);
        started_later.set_old_links(Some(&kept));
        assert!(started_later.verify_link(b"a link", tag, at(4)));
        assert_eq!(started_later.seal_old_links(&SystemSource, at(9)), None);
    }
}
