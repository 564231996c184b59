//! Ids that were seen, in bounded memory.

use std::collections::BTreeSet;

use crate::limits::SEEN_IDS_MAX;

/// Ids that are given out upwards, and arrive nearly so. The latest are remembered one by one; whatever
/// lies below them counts as seen, though it may not be: then the store is asked, which is slower
/// and never wrong.
#[derive(Debug)]
pub(super) struct SeenIds<T> {
    below: Option<T>,
    latest: BTreeSet<T>,
}

impl<T> Default for SeenIds<T> {
    fn default() -> Self {
        Self { below: None, latest: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> SeenIds<T> {
    /// Notes an id; says whether it is new.
    pub(super) fn note(&mut self, id: T) -> bool {
        let is_new = Some(id) > self.below && self.latest.insert(id);
        if self.latest.len() > SEEN_IDS_MAX {
            self.below = self.latest.pop_first();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_new_once_even_when_they_come_out_of_order() {
        let mut seen = SeenIds::default();
        let news: Vec<bool> = [3, 1, 2, 3, 1, 9, 5].map(|id| seen.note(id)).to_vec();
        assert_eq!(news, [true, true, true, false, false, true, true]);
    }

    #[test]
    fn an_id_too_old_to_tell_counts_as_seen() {
        let mut seen = SeenIds::default();
        for id in 10..=10 + SEEN_IDS_MAX {
            assert!(seen.note(id));
        }
        assert!(!seen.note(5), "perhaps new, perhaps not");
        assert!(seen.note(11 + SEEN_IDS_MAX));
        assert_eq!(seen.latest.len(), SEEN_IDS_MAX);
    }
}
