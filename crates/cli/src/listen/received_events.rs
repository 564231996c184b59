//! The events that a receiver has seen, to detect duplicates and wrong order.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use railpost_wire::{EventId, LineId, Received, Seq};

use crate::limits::LISTEN_REMEMBERED_MAX;

/// Which events were acknowledged, and how far each line has come.
#[derive(Debug, Default)]
pub(crate) struct ReceivedEvents {
    acknowledged: RecentMap<EventId, ()>,
    lines: RecentMap<LineId, Seq>,
}

impl ReceivedEvents {
    /// Writes down what came, and says what is remarkable about it.
    pub(crate) fn note(&mut self, received: &Received, acknowledges: bool) -> Option<String> {
        let remark = self.remark(received);
        if acknowledges {
            self.acknowledged.put(received.event_id.clone(), ());
            if let (Some(line), Some(seq)) = (&received.line, received.seq) {
                let last = self.lines.get(line).copied();
                self.lines.put(line.clone(), last.map_or(seq, |last| last.max(seq)));
            }
        }
        remark
    }

    fn remark(&self, received: &Received) -> Option<String> {
        if self.acknowledged.get(&received.event_id).is_some() {
            return Some("duplicate".to_owned());
        }
        let last = self.lines.get(received.line.as_ref()?)?.get();
        let (seq, follows) = (received.seq?.get(), received.follows()?);
        match () {
            () if seq <= last => Some(format!("behind seq {last}")),
            () if follows > last => Some(format!("ahead of seq {}", last + 1)),
            () => None,
        }
    }
}

/// A map that forgets its oldest entries.
#[derive(Debug)]
struct RecentMap<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> RecentMap<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    fn put(&mut self, key: K, value: V) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > LISTEN_REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn received(id: &str, line: &str, seq: u64, after: Option<u64>) -> Received {
        Received {
            event_id: id.parse().unwrap(),
            event_type: None,
            event_unix_ms: None,
            schema_version: None,
            key: Some("k".parse().unwrap()),
            line: Some(line.parse().unwrap()),
            seq: Some(seq.try_into().unwrap()),
            after,
            attempt: Some(1),
            replay: false,
            thin: false,
            timestamp: 0,
        }
    }

    #[test]
    fn duplicates_and_disorder_are_remarked_and_retries_are_not() {
        let mut received_events = ReceivedEvents::default();
        for (id, line, seq, after, acknowledges, remark) in [
            ("a", "x", 4, None, false, None),
            ("a", "x", 4, None, true, None),
            ("b", "x", 5, None, true, None),
            ("a", "x", 4, None, true, Some("duplicate")),
            ("c", "x", 6, None, true, None),
            ("e", "x", 8, None, true, Some("ahead of seq 7")),
            ("d", "x", 7, None, true, Some("behind seq 8")),
            ("g", "x", 12, Some(8), true, None),
            // The same key in another line: its numbers begin at 1.
            ("f", "y", 1, None, true, None),
        ] {
            let noted = received_events.note(&received(id, line, seq, after), acknowledges);
            assert_eq!(noted.as_deref(), remark, "{id}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut remembered = RecentMap::default();
        for number in 0..=LISTEN_REMEMBERED_MAX {
            remembered.put(number, ());
        }
        assert_eq!(remembered.get(&0), None);
        assert_eq!(remembered.get(&1), Some(&()));
        assert_eq!(remembered.entries.len(), LISTEN_REMEMBERED_MAX);
    }
}
