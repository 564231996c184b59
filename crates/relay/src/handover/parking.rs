//! What a batch of rows parks: the refused ones, and the later ones of their keys.

use std::collections::{BTreeMap, HashMap, HashSet};

use railpost_store::limits::PARKED_ROW_LEN_MAX;
use railpost_store::{Hold, RowRefusal, RowToPark};

use crate::config::OnRefused;
use crate::row::SourceRow;

/// What a batch holds and parks. Nothing of it counts before it is parked.
pub(super) struct Parking<'r> {
    pub(super) rows: &'r [SourceRow],
    on_refused: OnRefused,
    /// From which row on the rows of a key wait.
    held: HashMap<Hold, usize>,
    /// By the row's place.
    pub(super) refused: BTreeMap<usize, Option<RowRefusal>>,
    /// Where the source stops, and why: this row and those behind it stay there.
    pub(super) stop: Option<(usize, RowRefusal)>,
}

impl<'r> Parking<'r> {
    pub(super) fn new(rows: &'r [SourceRow], on_refused: OnRefused, holds: &HashSet<Hold>) -> Self {
        let held = holds.iter().map(|hold| (*hold, 0)).collect();
        Self { rows, on_refused, held, refused: BTreeMap::new(), stop: None }
    }

    /// Whether another row in front of this one holds its key.
    pub(super) fn is_held(&self, index: usize, hold: Option<Hold>) -> bool {
        hold.and_then(|hold| self.held.get(&hold)).is_some_and(|from| *from <= index)
    }

    /// Whether the row waits behind another one. If so it is to be parked.
    pub(super) fn waits(&mut self, index: usize, hold: Option<Hold>) -> bool {
        let waits = self.is_held(index, hold);
        if waits {
            self.refused.insert(index, None);
        }
        waits
    }

    pub(super) fn refuse(&mut self, index: usize, hold: Option<Hold>, refusal: RowRefusal) {
        match (self.on_refused, hold) {
            (OnRefused::Stop, _) => return self.stop_at(index, refusal),
            (OnRefused::HoldKey, Some(hold)) => self.hold_from(index, hold),
            (OnRefused::HoldKey, None) | (OnRefused::Skip, _) => {}
        }
        self.refused.insert(index, Some(refusal));
    }

    fn stop_at(&mut self, index: usize, refusal: RowRefusal) {
        self.refused.split_off(&index);
        self.stop = Some((index, refusal));
    }

    /// Later rows of the key wait, also those that are refused themselves: one row holds a key.
    fn hold_from(&mut self, index: usize, hold: Hold) {
        self.held.insert(hold, index);
        for (later, refusal) in self.refused.range_mut(index..) {
            if self.rows[*later].hold() == Some(hold) {
                *refusal = None;
            }
        }
    }

    /// How many of the first rows are not left at the source.
    pub(super) fn end(&self) -> usize {
        self.stop.as_ref().map_or(self.rows.len(), |(index, _)| *index)
    }
}

/// Cuts rows into what one call may park.
pub(super) fn parkable(rows: impl Iterator<Item = RowToPark>) -> Vec<Vec<RowToPark>> {
    let (mut calls, mut bytes) = (vec![Vec::new()], 0);
    for row in rows {
        bytes += row.bytes();
        if bytes > PARKED_ROW_LEN_MAX {
            bytes = row.bytes();
            calls.push(Vec::new());
        }
        calls.last_mut().expect("there is a first call").push(row);
    }
    calls
}

#[cfg(test)]
mod tests {
    use railpost_store::SourceFields;

    use super::*;

    #[test]
    fn rows_are_cut_into_what_one_call_may_park_and_stay_in_order() {
        let row = |len: usize| RowToPark {
            hold: None,
            refusal: None,
            fields: SourceFields::default(),
            payload: Some(vec![0; len].into()),
        };
        let half = PARKED_ROW_LEN_MAX / 2;
        for (lens, expected) in [
            (vec![1, 2, 3], vec![vec![1, 2, 3]]),
            (vec![half, 1, half], vec![vec![half, 1], vec![half]]),
            (vec![half, half, half], vec![vec![half], vec![half], vec![half]]),
        ] {
            let calls = parkable(lens.into_iter().map(row));
            let len = |row: &RowToPark| row.payload.as_ref().unwrap().len();
            let calls: Vec<Vec<usize>> =
                calls.iter().map(|rows| rows.iter().map(len).collect()).collect();
            assert_eq!(calls, expected);
        }
    }
}
