//! Figures and places in a few bytes: there is a row of figures for every minute of every endpoint, and
//! one of places for every group.
//!
//! First the layout's number, then numbers of seven bits a byte, the lowest first, where a set eighth
//! bit says that more follow. Of figures these are the six counts, then the maps, and from layout 2 on
//! the counts of the objective and the histogram of first attempts; of places it is one map. A map is
//! how many entries it has and the entries. Keys that are numbers are told as the distance to the one
//! before.

use std::collections::BTreeMap;

use railpost_engine::LaneId;
use railpost_wire::Seq;

use crate::histogram::LAST_BUCKET;
use crate::{Figures, Histogram, Result, StoreError};

/// Says how the rest of figures is to be read. Stable: another layout gets another number.
const LAYOUT: u8 = 2;
/// Figures that end before the counts of the objective.
const LAYOUT_BEFORE_OBJECTIVE: u8 = 1;
/// Says how the rest of places is to be read.
const PLACES_LAYOUT: u8 = 1;

/// Figures in a few bytes.
pub fn encode(figures: &Figures) -> Vec<u8> {
    let Figures { accepted, attempts, acknowledged, retryable, permanent, dead, .. } = *figures;
    let mut bytes = vec![LAYOUT];
    for count in [accepted, attempts, acknowledged, retryable, permanent, dead] {
        put(&mut bytes, count);
    }
    let by_status = figures.by_status.iter().map(|(status, count)| (u64::from(*status), *count));
    put_pairs(&mut bytes, by_status);
    put(&mut bytes, figures.by_failure.len() as u64);
    for (failure, count) in &figures.by_failure {
        put(&mut bytes, failure.len() as u64);
        bytes.extend(failure.as_bytes());
        put(&mut bytes, *count);
    }
    put_histogram(&mut bytes, &figures.attempt_us);
    put_histogram(&mut bytes, &figures.deliver_ms);
    let Figures { first_attempts, exhausted, on_time, late_operator, late_receiver, .. } = *figures;
    for count in [first_attempts, exhausted, on_time, late_operator, late_receiver] {
        put(&mut bytes, count);
    }
    put_histogram(&mut bytes, &figures.first_attempt_ms);
    bytes
}

/// Lanes, each with a seq. Files of schema 3 and 4 have them.
#[cfg(test)]
pub fn encode_places(places: &BTreeMap<LaneId, Seq>) -> Vec<u8> {
    let mut bytes = vec![PLACES_LAYOUT];
    put_pairs(&mut bytes, places.iter().map(|(lane, seq)| (lane.0, seq.get())));
    bytes
}

fn put_histogram(bytes: &mut Vec<u8>, histogram: &Histogram) {
    put_pairs(bytes, histogram.buckets().map(|(bucket, count)| (u64::from(bucket), count)));
}

fn put_pairs(bytes: &mut Vec<u8>, pairs: impl ExactSizeIterator<Item = (u64, u64)>) {
    put(bytes, pairs.len() as u64);
    let mut last = 0;
    for (key, count) in pairs {
        put(bytes, key - last);
        put(bytes, count);
        last = key;
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads back what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<Figures> {
    let refuse = || StoreError::Corrupt("figures do not read back".to_owned());
    Reader(bytes).figures().ok_or_else(refuse)
}

/// Reads back what [`encode_places`] wrote.
pub fn decode_places(bytes: &[u8]) -> Result<Vec<(LaneId, Seq)>> {
    let refuse = || StoreError::Corrupt("places do not read back".to_owned());
    Reader(bytes).places().ok_or_else(refuse)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn figures(&mut self) -> Option<Figures> {
        let [layout @ (LAYOUT_BEFORE_OBJECTIVE | LAYOUT)] = *self.take(1)? else { return None };
        let mut figures = Figures {
            accepted: self.number()?,
            attempts: self.number()?,
            acknowledged: self.number()?,
            retryable: self.number()?,
            permanent: self.number()?,
            dead: self.number()?,
            by_status: self.by_status()?,
            by_failure: self.by_failure()?,
            attempt_us: self.histogram()?,
            deliver_ms: self.histogram()?,
            ..Figures::default()
        };
        if layout == LAYOUT {
            figures.first_attempts = self.number()?;
            figures.exhausted = self.number()?;
            figures.on_time = self.number()?;
            figures.late_operator = self.number()?;
            figures.late_receiver = self.number()?;
            figures.first_attempt_ms = self.histogram()?;
        }
        self.0.is_empty().then_some(figures)
    }

    fn places(&mut self) -> Option<Vec<(LaneId, Seq)>> {
        let [PLACES_LAYOUT] = self.take(1)? else { return None };
        let places = self.pairs()?.into_iter();
        let places: Option<_> =
            places.map(|(lane, seq)| Some((LaneId(lane), Seq::new(seq)?))).collect();
        places.filter(|_| self.0.is_empty())
    }

    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.take(1)?[0];
            let part = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            number |= Some(part << shift).filter(|shifted| shifted >> shift == part)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift = Some(shift + 7).filter(|shift| *shift < u64::BITS)?;
        }
    }

    fn pairs(&mut self) -> Option<Vec<(u64, u64)>> {
        let mut last = 0_u64;
        let pairs = (0..self.number()?).map(|_| {
            last = last.checked_add(self.number()?)?;
            Some((last, self.number()?))
        });
        pairs.collect()
    }

    fn by_status(&mut self) -> Option<BTreeMap<u16, u64>> {
        let pairs = self.pairs()?.into_iter();
        pairs.map(|(status, count)| Some((u16::try_from(status).ok()?, count))).collect()
    }

    fn by_failure(&mut self) -> Option<BTreeMap<String, u64>> {
        let entries = (0..self.number()?).map(|_| {
            let len = usize::try_from(self.number()?).ok()?;
            let failure = String::from_utf8(self.take(len)?.to_vec()).ok()?;
            Some((failure, self.number()?))
        });
        entries.collect()
    }

    fn histogram(&mut self) -> Option<Histogram> {
        let mut histogram = Histogram::default();
        for (bucket, count) in self.pairs()? {
            let bucket = u8::try_from(bucket).ok().filter(|bucket| *bucket <= LAST_BUCKET)?;
            histogram.add(bucket, count);
        }
        Some(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    fn usual() -> Figures {
        Figures {
            accepted: 1,
            attempts: 300,
            acknowledged: 3,
            retryable: 4,
            permanent: 5,
            dead: 6,
            by_status: [(0, 1), (200, 2)].into(),
            by_failure: [("dns".to_owned(), 1)].into(),
            attempt_us: histogram(&[7, 7, 9]),
            deliver_ms: histogram(&[]),
            first_attempts: 7,
            exhausted: 8,
            on_time: 9,
            late_operator: 10,
            late_receiver: 300,
            first_attempt_ms: histogram(&[5]),
        }
    }

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        vec(any::<u64>(), 0..9).prop_map(|values| histogram(&values))
    }

    prop_compose! {
        fn any_figures()(
            counts in any::<[u64; 11]>(),
            by_status in btree_map(any::<u16>(), any::<u64>(), 0..9),
            by_failure in btree_map(".{0,9}", any::<u64>(), 0..5),
            attempt_us in any_histogram(),
            deliver_ms in any_histogram(),
            first_attempt_ms in any_histogram(),
        ) -> Figures {
            let [
                accepted, attempts, acknowledged, retryable, permanent, dead,
                first_attempts, exhausted, on_time, late_operator, late_receiver,
            ] = counts;
            Figures {
                accepted, attempts, acknowledged, retryable, permanent, dead,
                by_status, by_failure, attempt_us, deliver_ms,
                first_attempts, exhausted, on_time, late_operator, late_receiver, first_attempt_ms,
            }
        }
    }

    /// What the counts and maps of [`usual`] are in every layout.
    fn usual_counts_and_maps() -> Vec<u8> {
        let parts = [
            &[1, 0xac, 2, 3, 4, 5, 6][..],
            &[2, 0, 1, 0xc8, 1, 2],
            &[1, 3, b'd', b'n', b's', 1],
            &[2, 7, 2, 1, 1],
            &[0],
        ];
        parts.concat()
    }

    #[test]
    fn the_layout_never_changes() {
        let objective = [7, 8, 9, 10, 0xac, 2, 1, 5, 1];
        let expected = [&[2], &usual_counts_and_maps()[..], &objective].concat();
        assert_eq!(encode(&usual()), expected);
    }

    #[test]
    fn figures_that_were_stored_before_the_objective_read_back() {
        let stored = [&[1], &usual_counts_and_maps()[..]].concat();
        let expected = Figures {
            first_attempts: 0,
            exhausted: 0,
            on_time: 0,
            late_operator: 0,
            late_receiver: 0,
            first_attempt_ms: histogram(&[]),
            ..usual()
        };
        assert_eq!(decode(&stored), Ok(expected));
        for len in 0..stored.len() {
            assert!(decode(&stored[..len]).is_err(), "{len}");
        }
        let sum = usual().merged_with_stored(Some(&stored)).map(|bytes| decode(&bytes));
        let on_time = sum.map(|sum| sum.map(|sum| (sum.accepted, sum.on_time)));
        assert_eq!(on_time, Ok(Ok((2, 9))), "they add up");
    }

    #[test]
    fn bytes_that_are_cut_or_too_many_are_refused() {
        let bytes = encode(&usual());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(decode(&[&[3], &bytes[1..]].concat()).is_err(), "another layout");
    }

    fn places(pairs: &[(u64, u64)]) -> BTreeMap<LaneId, Seq> {
        let place = |(lane, seq): &(u64, u64)| (LaneId(*lane), Seq::new(*seq).unwrap());
        pairs.iter().map(place).collect()
    }

    #[test]
    fn the_layout_of_places_never_changes() {
        let places = places(&[(3, 1), (5, 300)]);
        let bytes = [1, 2, 3, 1, 2, 0xac, 2];
        assert_eq!(encode_places(&places), bytes);
        assert_eq!(decode_places(&bytes), Ok(Vec::from_iter(places)));
        for len in 0..bytes.len() {
            assert!(decode_places(&bytes[..len]).is_err(), "{len}");
        }
        assert!(decode_places(&[1, 1, 3, 0]).is_err(), "a seq of 0");
    }

    proptest! {
        #[test]
        fn whatever_is_stored_reads_back(figures in any_figures()) {
            prop_assert_eq!(decode(&encode(&figures)), Ok(figures));
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in vec(any::<u8>(), 0..60)) {
            let _ = (decode(&bytes), decode_places(&bytes));
        }
    }
}
