//! What arrived at one endpoint, and whether it came as promised: in order within a key, and how
//! often twice.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::limits::NUMBER_MAX;
use crate::payload::Payload;

/// A delivery as it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) payload: Payload,
    /// Number of its key and its seq, if it has a lane.
    pub(crate) lane: Option<(u32, u64)>,
    pub(crate) at_us: u64,
}

/// What the endpoint has seen since its figures were last set back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArrivalFigures {
    /// Deliveries that came for the first time.
    pub(crate) fresh: u64,
    /// Deliveries of events that had come before.
    pub(crate) duplicates: u64,
    /// Deliveries that slipped past one that had not come.
    pub(crate) violations: u64,
    /// The first violation, in words.
    pub(crate) violation: Option<String>,
    /// Requests that were no delivery of the load generator's, or not signed as agreed.
    pub(crate) refused: u64,
    /// When the first and the last fresh delivery came.
    pub(crate) first_us: Option<u64>,
    pub(crate) last_us: Option<u64>,
    /// From the time in the payload to the arrival, of fresh deliveries.
    pub(crate) latency: Histogram,
}

/// The figures, and what is needed to judge the next arrival.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) figures: ArrivalFigures,
    numbers: NumberSet,
    /// The highest seq of each key that came without a gap.
    seqs: Vec<u64>,
    /// The latest number of each key from each producer.
    latest: FxHashMap<(u32, u64), u64>,
    /// Number and time of each fresh delivery, if they are noted.
    times: Option<Vec<(u64, u64)>>,
}

impl Ledger {
    /// Sets the figures back. What came stays known, so that order is judged across the whole run.
    pub(crate) fn reset(&mut self) {
        self.figures = ArrivalFigures::default();
    }

    pub(crate) fn add(&mut self, arrival: &Arrival) {
        let Some(fresh) = self.numbers.insert(arrival.payload.number) else {
            self.figures.refused += 1;
            return;
        };
        if let Some((key, seq)) = arrival.lane {
            self.judge(key, seq, fresh, arrival.payload);
        }
        if fresh {
            self.count(arrival);
        } else {
            self.figures.duplicates += 1;
        }
    }

    /// The number and time of each fresh delivery since this was asked last. From the first time on they are
    /// noted.
    pub(crate) fn take_times(&mut self) -> Vec<(u64, u64)> {
        self.times.replace(Vec::new()).unwrap_or_default()
    }

    fn count(&mut self, arrival: &Arrival) {
        if let Some(times) = &mut self.times {
            times.push((arrival.payload.number, arrival.at_us));
        }
        let figures = &mut self.figures;
        figures.fresh += 1;
        figures.first_us.get_or_insert(arrival.at_us);
        figures.last_us = Some(arrival.at_us);
        figures.latency.add(arrival.at_us.saturating_sub(arrival.payload.sent_us));
    }

    /// A seq may repeat, or be the next; it must not leave one out. And what one producer published
    /// for a key comes in the order in which it was published.
    fn judge(&mut self, key: u32, seq: u64, fresh: bool, payload: Payload) {
        let highest = highest_of(&mut self.seqs, key);
        let next = *highest + 1;
        let gap = seq > next;
        *highest = seq.max(*highest);
        let mut overtaken = false;
        if fresh {
            let latest = self.latest.entry((key, payload.producer)).or_insert(payload.number);
            overtaken = payload.number < *latest || seq < next;
            *latest = payload.number.max(*latest);
        }
        if gap || overtaken {
            self.violate(key, seq, next, payload);
        }
    }

    fn violate(&mut self, key: u32, seq: u64, expected: u64, payload: Payload) {
        self.figures.violations += 1;
        self.figures.violation.get_or_insert_with(|| {
            let Payload { number, producer, .. } = payload;
            format!(
                "key k{key}: seq {seq} came when {expected} was next (event {number} of producer \
                 {producer})"
            )
        });
    }
}

fn highest_of(seqs: &mut Vec<u64>, key: u32) -> &mut u64 {
    let index = key as usize;
    if index >= seqs.len() {
        seqs.resize(index + 1, 0);
    }
    &mut seqs[index]
}

/// A set of event numbers: a bit each.
#[derive(Debug, Default)]
struct NumberSet(Vec<u64>);

impl NumberSet {
    /// Says whether the number is new; nothing if it is too large to be one.
    fn insert(&mut self, number: u64) -> Option<bool> {
        if number > NUMBER_MAX {
            return None;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        Some(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(key: Option<u32>, seq: u64, number: u64) -> Arrival {
        let payload = Payload { number, producer: 0, sent_us: 1_000 };
        Arrival { payload, lane: key.map(|key| (key, seq)), at_us: 1_000 + number }
    }

    /// (key, seq, number) of what arrives, then fresh, duplicates, violations.
    #[test]
    fn order_within_a_key_and_duplicates_are_judged() {
        let a = Some(1);
        let b = Some(2);
        for (name, arrivals, expected) in [
            ("in order", vec![(a, 1, 10), (a, 2, 20), (a, 3, 30)], (3, 0, 0)),
            ("two keys in any order", vec![(b, 1, 11), (a, 1, 10), (b, 2, 12)], (3, 0, 0)),
            ("the same delivery again", vec![(a, 1, 10), (a, 1, 10), (a, 2, 20)], (2, 1, 0)),
            ("an old one again", vec![(a, 1, 10), (a, 2, 20), (a, 1, 10)], (2, 1, 0)),
            ("a gap", vec![(a, 1, 10), (a, 3, 30)], (2, 0, 1)),
            ("a gap at the start", vec![(a, 2, 20)], (1, 0, 1)),
            ("slipped past, then filled", vec![(a, 1, 1), (a, 3, 3), (a, 2, 2)], (3, 0, 2)),
            ("one gap is one violation", vec![(a, 1, 1), (a, 3, 3), (a, 4, 4)], (3, 0, 1)),
            ("published later, came first", vec![(a, 1, 20), (a, 2, 10)], (2, 0, 1)),
            ("no key, any order", vec![(None, 0, 3), (None, 0, 1)], (2, 0, 0)),
            ("no key, twice", vec![(None, 0, 3), (None, 0, 3)], (1, 1, 0)),
        ] {
            let mut ledger = Ledger::default();
            for (key, seq, number) in arrivals {
                ledger.add(&arrival(key, seq, number));
            }
            let ArrivalFigures { fresh, duplicates, violations, .. } = ledger.figures;
            assert_eq!((fresh, duplicates, violations), expected, "{name}");
        }
    }

    #[test]
    fn producers_of_one_key_need_not_agree_on_an_order() {
        let mut ledger = Ledger::default();
        for (seq, number, producer) in [(1, 20, 1), (2, 10, 2), (3, 21, 1), (4, 11, 2)] {
            let payload = Payload { number, producer, sent_us: 0 };
            ledger.add(&Arrival { payload, lane: Some((0, seq)), at_us: 0 });
        }
        assert_eq!(ledger.figures.violations, 0);
    }

    #[test]
    fn a_reset_forgets_the_figures_but_not_what_came() {
        let mut ledger = Ledger::default();
        ledger.add(&arrival(Some(1), 1, 10));
        ledger.reset();
        assert_eq!(ledger.figures, ArrivalFigures::default());
        ledger.add(&arrival(Some(1), 1, 10));
        ledger.add(&arrival(Some(1), 3, 30));
        assert_eq!(ledger.figures.duplicates, 1);
        assert_eq!(ledger.figures.violations, 1);
    }

    #[test]
    fn times_are_noted_from_the_first_question_on() {
        let mut ledger = Ledger::default();
        ledger.add(&arrival(None, 0, 1));
        assert_eq!(ledger.take_times(), []);
        for number in [2, 3, 3] {
            ledger.add(&arrival(None, 0, number));
        }
        assert_eq!(ledger.take_times(), [(2, 1_002), (3, 1_003)]);
        assert_eq!(ledger.take_times(), []);
    }

    #[test]
    fn a_number_beyond_the_bound_is_refused() {
        let mut ledger = Ledger::default();
        ledger.add(&arrival(None, 0, NUMBER_MAX));
        ledger.add(&arrival(None, 0, NUMBER_MAX + 1));
        assert_eq!((ledger.figures.fresh, ledger.figures.refused), (1, 1));
    }

    #[test]
    fn latency_runs_from_the_payload_to_the_arrival_of_fresh_deliveries() {
        let mut ledger = Ledger::default();
        for number in [10, 20, 20] {
            ledger.add(&arrival(None, 0, number));
        }
        assert_eq!(ledger.figures.latency.quantile(0.5), Some(10));
        assert_eq!(ledger.figures.latency.quantile(1.0), Some(20));
        assert_eq!((ledger.figures.first_us, ledger.figures.last_us), (Some(1_010), Some(1_020)));
    }
}
