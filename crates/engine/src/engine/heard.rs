//! What has been heard of, in bounded memory.

use std::collections::BTreeSet;

use crate::limits::HEARD_MAX;

/// Ids that are given out upwards, and arrive nearly so. The latest are remembered one by one; whatever
/// lies below them counts as heard of, though it may not be: then the store is asked, which is slower
/// and never wrong.
#[derive(Debug)]
pub(super) struct Heard<T> {
    below: Option<T>,
    latest: BTreeSet<T>,
}

impl<T> Default for Heard<T> {
    fn default() -> Self {
        Self { below: None, latest: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> Heard<T> {
    /// Notes an id; says whether nobody had heard of it before.
    pub(super) fn note(&mut self, id: T) -> bool {
        let is_new = Some(id) > self.below && self.latest.insert(id);
        if self.latest.len() > HEARD_MAX {
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
        let mut heard = Heard::default();
        let news: Vec<bool> = [3, 1, 2, 3, 1, 9, 5].map(|id| heard.note(id)).to_vec();
        assert_eq!(news, [true, true, true, false, false, true, true]);
    }

    #[test]
    fn what_is_too_old_to_tell_counts_as_heard_of() {
        let mut heard = Heard::default();
        for id in 10..=10 + HEARD_MAX {
            assert!(heard.note(id));
        }
        assert!(!heard.note(5), "perhaps new, perhaps not");
        assert!(heard.note(11 + HEARD_MAX));
        assert_eq!(heard.latest.len(), HEARD_MAX);
    }
}
