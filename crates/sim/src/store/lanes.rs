//! Lanes and their lines: which number comes next, what it follows, and what the wire calls it.

use std::collections::BTreeMap;

use railpost_engine::{LaneId, Place, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, LineId, Seq};

use super::{LaneKey, Store, Undo};

#[derive(Clone)]
pub(super) struct LaneRow {
    pub(super) endpoint: EndpointId,
    key: LaneKey,
    pub(super) last: Seq,
    line: Line,
    /// The lines before it, by the last number of each.
    old_lines: BTreeMap<u64, Line>,
    /// By seq: which one it follows, where that is not the one before.
    pub(super) follows: BTreeMap<u64, u64>,
    used_at: Timestamp,
}

/// One run of a lane's numbers.
#[derive(Clone, Copy)]
struct Line {
    era: u64,
    /// How many numbers the lane had given out before.
    before: u64,
}

/// A delivery's place as the wire has it.
#[derive(Clone, Debug)]
pub(crate) struct LinePlace {
    pub(crate) line: LineId,
    pub(crate) era: u64,
    pub(crate) seq: Seq,
    before: u64,
}

impl LinePlace {
    /// A number of the lane as the line counts; 0 for what lies before it.
    pub(crate) fn number(&self, in_lane: u64) -> u64 {
        in_lane.saturating_sub(self.before)
    }
}

impl LaneRow {
    fn line_of(&self, seq: Seq) -> Line {
        let old = self.old_lines.range(seq.get()..).next().map(|(_, line)| *line);
        old.unwrap_or(self.line)
    }

    fn skipped(&mut self, seq: Seq) {
        let before = self.follows.remove(&seq.get()).unwrap_or(seq.get() - 1);
        match self.follows.values_mut().find(|follows| **follows == seq.get()) {
            Some(follows) => *follows = before,
            None => drop(self.follows.insert(seq.get() + 1, before)),
        }
    }
}

impl Store {
    /// The end of a lane, which is one longer from here on.
    pub(super) fn next_place(
        &mut self,
        endpoint: EndpointId,
        key: LaneKey,
        now: Timestamp,
    ) -> Place {
        let era = self.era;
        if let Some(lane) = self.lane_ids.get(&(endpoint, key.clone())) {
            let row = self.lanes.get_mut(lane).expect("a lane's id is in its row");
            if row.line.era != era {
                row.old_lines.insert(row.last.get(), row.line);
                row.line = Line { era, before: row.last.get() };
            }
            (row.last, row.used_at) = (row.last.next(), now);
            return Place { lane: *lane, seq: row.last };
        }
        self.last_lane += 1;
        let lane = LaneId(self.last_lane);
        self.lane_ids.insert((endpoint, key.clone()), lane);
        let (last, line) = (Seq::FIRST, Line { era, before: 0 });
        let (old_lines, follows) = Default::default();
        let row = LaneRow { endpoint, key, last, line, old_lines, follows, used_at: now };
        self.lanes.insert(lane, row);
        Place { lane, seq: last }
    }

    /// Where a delivery stands or stood, as its line has it; nothing if its lane was pruned.
    pub(crate) fn line_place(&self, id: DeliveryId) -> Option<LinePlace> {
        let Place { lane, seq } = self.rows.get(&id)?.accepted_place?;
        let Line { era, before } = self.lanes.get(&lane)?.line_of(seq);
        let number = Seq::new(seq.get() - before).expect("a line begins with 1");
        Some(LinePlace { line: LineId::of(era, lane.0), era, seq: number, before })
    }

    /// Notes that a number was closed without being delivered.
    pub(super) fn skipped(&mut self, Place { lane, seq }: Place) {
        let Some(row) = self.lanes.get_mut(&lane) else { return };
        self.undo.push(Undo::Follows(lane, row.follows.clone()));
        row.skipped(seq);
    }

    pub(super) fn put_follows(&mut self, lane: LaneId, follows: BTreeMap<u64, u64>) {
        if let Some(row) = self.lanes.get_mut(&lane) {
            row.follows = follows;
        }
    }

    /// Deletes the lanes that have stood empty since `before`, and says how many those were. What is not
    /// durable yet may come back, so nothing goes until it is.
    pub(crate) fn prune_lanes(&mut self, before: Timestamp) -> usize {
        if !self.is_durable() {
            return 0;
        }
        let Self { lanes, open, lane_ids, .. } = self;
        let count = lanes.len();
        lanes.retain(|id, lane| {
            let is_open =
                open.get(&(lane.endpoint, Some(*id))).is_some_and(|open| !open.is_empty());
            let needed = is_open || lane.used_at >= before;
            if !needed {
                lane_ids.remove(&(lane.endpoint, lane.key.clone()));
                open.remove(&(lane.endpoint, Some(*id)));
            }
            needed
        });
        count - lanes.len()
    }
}
