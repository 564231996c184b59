//! The words of a search, as ranges of indexed columns, and the order of what is found.

use std::str::FromStr;

use railpost_wire::{DeliveryId, EndpointId, ReplayId};

use crate::limits::{FIND_ID_LEN_MIN, FIND_PART_LEN_MIN, FIND_RESULTS_MAX, FIND_WORDS_LEN_MAX};
use crate::{FindQuery, Found, FoundItem, MatchedField, Result, StoreError};

/// A stretch of values, both ends included.
pub type Range<T> = (T, T);

/// What a search looks for.
#[derive(Clone, Debug)]
pub struct Needle {
    words: String,
}

impl Needle {
    /// Refuses words that are too few or too many.
    pub fn new(query: &FindQuery) -> Result<Self> {
        let words = query.words.clone();
        if (1..=FIND_WORDS_LEN_MAX).contains(&words.len()) {
            return Ok(Self { words });
        }
        let problem = format!("expected 1 to {FIND_WORDS_LEN_MAX} bytes; got {}", words.len());
        Err(StoreError::invalid("words", problem))
    }

    /// The ids of events and tenants that match: themselves, or from so many characters on by their beginning.
    /// Nothing if no id is like that.
    pub fn text_ids(&self) -> Option<Range<String>> {
        let in_ids = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b':');
        if !self.words.bytes().all(in_ids) {
            return None;
        }
        // No character of an id comes behind `~`.
        let last = if self.is_beginning() { "~" } else { "" };
        Some((self.words.clone(), format!("{}{last}", self.words)))
    }

    /// The ids of deliveries that match, as their bytes.
    pub fn deliveries(&self) -> Option<Range<[u8; 16]>> {
        self.generated(DeliveryId::to_bytes)
    }

    /// The ids of endpoints that match, as their bytes.
    pub fn endpoints(&self) -> Option<Range<[u8; 16]>> {
        self.generated(EndpointId::to_bytes)
    }

    /// The ids of replays that match, as their bytes.
    pub fn replays(&self) -> Option<Range<[u8; 16]>> {
        self.generated(ReplayId::to_bytes)
    }

    fn is_beginning(&self) -> bool {
        self.words.len() >= FIND_ID_LEN_MIN
    }

    /// Fills the beginning of an id up to the lowest and the highest that begin so.
    fn generated<Id: FromStr>(&self, bytes: fn(Id) -> [u8; 16]) -> Option<Range<[u8; 16]>> {
        if !self.is_beginning() {
            return None;
        }
        let (_, digits) = self.words.split_once('_')?;
        let missing = GENERATED_DIGITS.checked_sub(digits.len())?;
        let filled = |digit: &str| format!("{}{}", self.words, digit.repeat(missing)).parse().ok();
        Some((bytes(filled("0")?), bytes(filled("z")?)))
    }

    /// The keys that are these words.
    pub fn key(&self) -> Range<&[u8]> {
        (self.words.as_bytes(), self.words.as_bytes())
    }

    /// The keys that begin with these words; nothing if they are too short.
    pub fn keys(&self) -> Option<Range<Vec<u8>>> {
        let words = self.words.as_bytes();
        // No key holds this byte, because it is no UTF-8.
        let last = [words, &[u8::MAX]].concat();
        (self.words.len() >= FIND_PART_LEN_MIN).then(|| (words.to_vec(), last))
    }

    /// What a URL or a description has a part of, in lower case; nothing if it is too short or no such text
    /// holds it.
    pub fn part(&self) -> Option<String> {
        let part = self.words.to_ascii_lowercase();
        (part.len() >= FIND_PART_LEN_MIN && !part.contains('\0')).then_some(part)
    }

    /// The `id` of a CloudEvent; nothing if none is like that.
    pub fn cloudevent_id(&self) -> Option<&str> {
        Some(self.words.as_str()).filter(|words| !words.contains('\0'))
    }

    /// The answer out of all that was found: one entry for each thing, by its first field that matched; those
    /// that are just these words first.
    pub fn answer(&self, mut found: Vec<Found>) -> Vec<Found> {
        let place = |found: &Found| {
            let (kind, id) = found.item.place();
            (kind, found.tenant.clone(), id)
        };
        found.sort_by_cached_key(|found| (place(found), found.why));
        found.dedup_by_key(|found| place(found));
        found.sort_by_cached_key(|found| {
            let (kind, tenant, id) = place(found);
            (kind, found.why, !self.is_exact(&found.item), tenant, id)
        });
        let mut answer: Vec<Found> = Vec::new();
        for kind in found.chunk_by(|one, next| one.item.place().0 == next.item.place().0) {
            answer.extend_from_slice(&kind[..kind.len().min(FIND_RESULTS_MAX)]);
        }
        answer
    }

    fn is_exact(&self, item: &FoundItem) -> bool {
        match item {
            FoundItem::Event { id, key, .. } => {
                id.to_string() == self.words || key.as_ref().is_some_and(|key| self.is_key(key))
            }
            FoundItem::Lane { key, .. } => self.is_key(key),
            _ => true,
        }
    }

    fn is_key(&self, key: &railpost_wire::Key) -> bool {
        key.as_str() == self.words
    }

    /// Whether a text has the words as a part, whatever the case of their letters.
    pub(crate) fn is_part_of(&self, text: &str) -> bool {
        self.part().is_some_and(|part| text.to_ascii_lowercase().contains(&part))
    }
}

/// How many characters an id has behind its prefix.
const GENERATED_DIGITS: usize = 26;

/// The fields of an endpoint that matched, the more telling one first.
pub fn endpoint_field(needle: &Needle, url: &str) -> MatchedField {
    if needle.is_part_of(url) { MatchedField::Url } else { MatchedField::Description }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needle(words: &str) -> Needle {
        Needle::new(&FindQuery { tenant: None, words: words.to_owned() }).unwrap()
    }

    #[test]
    fn an_id_matches_by_its_beginning_from_six_characters_on() {
        let id = DeliveryId::from_u128(0x0192_0000_0000_0000_0000_0000_0000_0001);
        let text = id.to_string();
        assert_eq!(needle(&text).deliveries(), Some((id.to_bytes(), id.to_bytes())));
        assert_eq!(needle(&text).endpoints(), None, "it is a delivery's");
        for len in 6..text.len() {
            let (from, to) = needle(&text[..len]).deliveries().unwrap();
            assert!(from <= id.to_bytes() && id.to_bytes() <= to, "{len}");
        }
        for none in ["dlv_0", "dlv_8zzzzz", "dlv_01il", &format!("{text}0")] {
            assert_eq!(needle(none).deliveries(), None, "{none}");
        }
    }

    #[test]
    fn a_producers_id_matches_itself_and_from_six_characters_on_by_its_beginning() {
        assert_eq!(needle("o-1").text_ids(), Some(("o-1".into(), "o-1".into())));
        assert_eq!(needle("order-").text_ids(), Some(("order-".into(), "order-~".into())));
        assert_eq!(needle("no id").text_ids(), None);
    }

    #[test]
    fn a_key_is_any_text_and_its_beginning_has_three_bytes() {
        assert_eq!(needle("k\0").key(), (&b"k\0"[..], &b"k\0"[..]));
        assert_eq!(needle("ab").keys(), None);
        assert_eq!(needle("é1").keys(), Some(("é1".into(), b"\xc3\xa91\xff".to_vec())));
    }

    #[test]
    fn words_without_a_bound_are_refused() {
        for words in [String::new(), "x".repeat(FIND_WORDS_LEN_MAX + 1)] {
            assert!(Needle::new(&FindQuery { tenant: None, words }).is_err());
        }
    }
}
