//! Where lanes stand: which seq each of them gave out last.
//!
//! Every accept moves some lanes on, and busy lanes lie all over their table: to change their rows, a
//! group would rewrite a page for nearly each of its events. So a group writes all seqs that it gave
//! out into one row of `given`, and settles a few lanes in passing: their rows in `lanes` are brought
//! up to date, neighbours together. A lane's last seq is the highest of its row and of what is not
//! settled yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use railpost_engine::{LaneId, Place};
use railpost_wire::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::inserts::{Inserts, NewLane};
use super::rows::all;
use crate::limits::{LANE_IDS_TAKEN, LANES_CACHED, LANES_SETTLED_SHARE, LANES_UNSETTLED_SHARE};
use crate::rows::Columns;
use crate::{Result, StoreError, packed};

/// The last seqs of lanes.
type Seqs = BTreeMap<LaneId, Seq>;

/// Whose lane it is, and the key; nothing for an endpoint's one lane for everything.
type At = (i64, Option<Key>);

/// Seqs that were given out and committed, but are not in their lanes' rows. Cheap to clone: readers
/// have it too.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsettled(Arc<RwLock<Seqs>>);

impl Unsettled {
    /// The last seq of a lane, if it is not settled. What is in the file now is as new, or newer.
    pub(super) fn get(&self, lane: LaneId) -> Option<Seq> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&lane).copied()
    }

    /// The first `count` from this lane on.
    fn some(&self, from: LaneId, count: usize) -> Vec<(LaneId, Seq)> {
        let seqs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        seqs.range(from..).take(count).map(|(lane, seq)| (*lane, *seq)).collect()
    }

    fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn change(&self, settled: &[(LaneId, Seq)], given: &mut Seqs) {
        let mut seqs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (lane, _) in settled {
            seqs.remove(lane);
        }
        while let Some((lane, seq)) = given.pop_first() {
            seqs.insert(lane, seq);
        }
    }
}

/// What the writer knows of lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    cache: LaneCache,
    /// Numbers for new lanes, taken ahead. What is left of them when the process ends is nobody's.
    ids: Range<u64>,
    /// The seqs given out by this group.
    given: Seqs,
    unsettled: Unsettled,
    round: Round,
    /// What this group settled, and where the round stands if it is committed.
    planned: (Vec<(LaneId, Seq)>, Round),
}

/// One way through all lanes that are not settled.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The least number of its next lane.
    next: u64,
    /// When the round is over, everything in the rows of `given` up to this one is settled.
    settles: i64,
}

impl Lanes {
    pub(super) fn new(unsettled: Unsettled) -> Self {
        Self {
            cache: LaneCache::default(),
            ids: 0..0,
            given: Seqs::new(),
            unsettled,
            round: Round::default(),
            planned: Default::default(),
        }
    }

    /// Forgets what a group did that failed.
    pub(super) fn forget(&mut self) {
        self.given.clear();
        self.planned = Default::default();
        self.cache = LaneCache::default();
        self.ids = 0..0;
    }

    /// Forgets which keys have which lanes: some of them are gone. What the group made so far has to be
    /// in the file.
    pub(super) fn forget_keys(&mut self) {
        self.cache = LaneCache::default();
    }

    /// The end of the line, which is one longer from here on.
    pub(super) fn next_place(
        &mut self,
        db: &Connection,
        inserts: &mut Inserts<'_>,
        endpoint: i64,
        key: Option<Key>,
    ) -> Result<Place> {
        let at = (endpoint, key);
        let lane = match self.cache.get(&at) {
            Some(lane) => lane,
            None => self.find_or_make(db, inserts, &at)?,
        };
        let seq = lane.last.map_or(Seq::FIRST, Seq::next);
        self.cache.young.insert(at, Lane { id: lane.id, last: Some(seq) });
        self.given.insert(lane.id, seq);
        Ok(Place { lane: lane.id, seq })
    }

    fn find_or_make(
        &mut self,
        db: &Connection,
        inserts: &mut Inserts<'_>,
        at: &At,
    ) -> Result<Lane> {
        if let Some(mut lane) = find(db, at)? {
            lane.last = lane.last.max(self.unsettled.get(lane.id));
            lane.last = lane.last.max(self.given.get(&lane.id).copied());
            return Ok(lane);
        }
        let id = self.next_id(db)?;
        let (endpoint, key) = at.clone();
        inserts.add_lane(NewLane { id, endpoint, key });
        Ok(Lane { id, last: None })
    }

    fn next_id(&mut self, db: &Connection) -> Result<LaneId> {
        if self.ids.is_empty() {
            self.ids = take_ids(db)?;
        }
        let id = self.ids.next();
        id.map(LaneId).ok_or_else(|| StoreError::Corrupt("there are no lane ids left".to_owned()))
    }

    /// Writes down the seqs that the group gave out, and settles a few lanes: its own, if they are as few.
    pub(super) fn write(&mut self, db: &Connection) -> Result<()> {
        if self.given.len() < LANES_SETTLED_SHARE {
            let own = Vec::from_iter(std::mem::take(&mut self.given));
            settle(db, &own)?;
            self.planned = (own, self.round);
            return Ok(());
        }
        let num = db
            .prepare_cached("INSERT INTO given (places) VALUES (?1)")?
            .insert([packed::encode_places(&self.given)])?;
        let count = self.given.len() / LANES_SETTLED_SHARE
            + self.unsettled.len() / LANES_UNSETTLED_SHARE
            + 1;
        let some = self.unsettled.some(LaneId(self.round.next), count);
        settle(db, &some)?;
        let round = match some.last() {
            Some((last, _)) if some.len() == count => Round { next: last.0 + 1, ..self.round },
            _ => {
                let sql = "DELETE FROM given WHERE num <= ?1";
                db.prepare_cached(sql)?.execute([self.round.settles])?;
                Round { next: 0, settles: num - 1 }
            }
        };
        self.planned = (some, round);
        Ok(())
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        let (settled, round) = std::mem::take(&mut self.planned);
        self.round = round;
        self.unsettled.change(&settled, &mut self.given);
        self.cache.make_room();
    }
}

/// Settles all that an earlier process left unsettled.
pub(super) fn settle_all(db: &mut Connection) -> Result<()> {
    let change = db.transaction()?;
    let sql = "SELECT places FROM given ORDER BY num";
    let given: Vec<Vec<u8>> =
        all(&change, sql, [], |columns| columns.blob().map(Option::unwrap_or_default))?;
    let mut seqs = Seqs::new();
    for places in &given {
        seqs.extend(packed::decode_places(places)?);
    }
    settle(&change, &Vec::from_iter(seqs))?;
    change.execute("DELETE FROM given", [])?;
    Ok(change.commit()?)
}

/// Brings the rows of these lanes up to date. A lane that is gone has none, and one that moved on since
/// has a higher seq.
fn settle(db: &Connection, seqs: &[(LaneId, Seq)]) -> Result<()> {
    let sql = "UPDATE lanes SET last_seq = max(last_seq, ?2) WHERE id = ?1";
    let mut statement = db.prepare_cached(sql)?;
    for (lane, last) in seqs {
        statement.execute((lane.0, last.get()))?;
    }
    Ok(())
}

/// Takes ids that were never given out, and will not be given out again. They are counted where SQLite
/// counts those that it gives out itself; its page is spared being written with every new lane.
fn take_ids(db: &Connection) -> Result<Range<u64>> {
    let sql = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'lanes' RETURNING seq";
    let last = db.prepare_cached(sql)?.query_row([LANE_IDS_TAKEN], |row| row.get(0)).optional()?;
    let last: u64 = match last {
        Some(last) => last,
        None => {
            let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('lanes', ?1)";
            db.prepare_cached(sql)?.execute([LANE_IDS_TAKEN])?;
            LANE_IDS_TAKEN
        }
    };
    Ok(last - LANE_IDS_TAKEN + 1..last + 1)
}

/// The lane in the file.
fn find(db: &Connection, (endpoint, key): &At) -> Result<Option<Lane>> {
    let key = key_bytes(key.as_ref());
    let sql = "SELECT l.id, l.last_seq FROM lane_keys AS k JOIN lanes AS l ON l.id = k.lane \
               WHERE k.endpoint = ?1 AND k.key = ?2";
    let found = db.prepare_cached(sql)?.query_row((endpoint, key), |row| {
        Ok(Lane { id: LaneId(row.get(0)?), last: Seq::new(row.get(1)?) })
    });
    Ok(found.optional()?)
}

/// A key as `lane_keys` has it: empty for an endpoint's one lane for everything.
pub(super) fn key_bytes(key: Option<&Key>) -> &[u8] {
    key.map_or("", Key::as_str).as_bytes()
}

/// A lane as far as giving out seqs needs to know it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    id: LaneId,
    last: Option<Seq>,
}

/// The lanes that were used of late, in two generations: when the young one is full, the old one is
/// forgotten.
#[derive(Debug, Default)]
struct LaneCache {
    young: FxHashMap<At, Lane>,
    old: FxHashMap<At, Lane>,
}

impl LaneCache {
    fn get(&self, at: &At) -> Option<Lane> {
        self.young.get(at).or_else(|| self.old.get(at)).copied()
    }

    fn make_room(&mut self) {
        if self.young.len() >= LANES_CACHED {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::desk::{Desk, OpenFile};
    use super::*;
    use crate::{MasterKey, Setup, SystemSource};
    use tempfile::TempDir;

    const KEYS: u64 = 300;
    const GROUP: u64 = 20;

    fn open(path: &Path) -> OpenFile {
        let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) };
        OpenFile::open(path, setup).unwrap()
    }

    fn next_place(desk: &mut Desk<'_>, key: Option<Key>) -> Place {
        desk.notes.lanes.next_place(desk.db, &mut desk.inserts, 1, key).unwrap()
    }

    /// Which seq each key got last, in a world where nothing fails.
    #[derive(Clone, Default)]
    struct Model {
        seqs: BTreeMap<u64, (LaneId, u64)>,
        step: u64,
    }

    impl Model {
        /// Gives out some places, half of them in a few busy lanes.
        fn give(&mut self, desk: &mut Desk<'_>, count: u64) {
            for _ in 0..count {
                self.step += 1;
                let key =
                    self.step * self.step * 7 % if self.step.is_multiple_of(2) { KEYS } else { 10 };
                let text = Some(key.to_string().parse().unwrap());
                let place = next_place(desk, text);
                let (lane, seq) = self.seqs.entry(key).or_insert((place.lane, 0));
                *seq += 1;
                assert_eq!((place.lane, place.seq.get()), (*lane, *seq), "key {key}");
            }
        }

        fn check(&self, desk: &Desk<'_>) {
            let unsettled = &desk.notes.lanes.unsettled;
            for (lane, seq) in self.seqs.values() {
                let sql = "SELECT last_seq FROM lanes WHERE id = ?1";
                let row = desk.db.query_row(sql, [lane.0], |row| row.get(0)).unwrap();
                let last = Seq::new(row).max(unsettled.get(*lane));
                assert_eq!(last.map(Seq::get), Some(*seq), "{lane:?}");
            }
        }
    }

    fn given_rows(desk: &Desk<'_>) -> u64 {
        desk.db.query_row("SELECT count(*) FROM given", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn seqs_go_on_without_a_gap_through_failed_groups_and_new_processes() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store.db");
        let mut model = Model::default();
        for _ in 0..4 {
            let file = open(&path);
            let mut desk = file.desk(Unsettled::default()).unwrap();
            assert_eq!((given_rows(&desk), desk.notes.lanes.unsettled.len()), (0, 0));
            model.check(&desk);
            for group in 0..200 {
                let count = [GROUP, 1, 0, GROUP, 2][group % 5];
                desk.begin(false).unwrap();
                if group % 7 == 3 {
                    model.clone().give(&mut desk, count);
                    desk.give_up();
                } else {
                    model.give(&mut desk, count);
                    desk.end().unwrap();
                }
                model.check(&desk);
            }
        }
    }

    #[test]
    fn what_is_given_out_is_settled_in_time() {
        let dir = TempDir::new().unwrap();
        let file = open(&dir.path().join("store.db"));
        let mut desk = file.desk(Unsettled::default()).unwrap();
        let mut model = Model::default();
        let mut most = 0;
        for _ in 0..1_000 {
            desk.begin(false).unwrap();
            model.give(&mut desk, GROUP);
            desk.end().unwrap();
            most = most.max(given_rows(&desk));
        }
        assert!(most > 10, "a lane is not settled by every group: {most}");
        // A round takes a group for each few lanes, and a row goes with the second round at the latest.
        let lanes_per_group = GROUP / 2 / LANES_SETTLED_SHARE as u64;
        assert!(most < 2 * (KEYS / lanes_per_group + 2), "{most}");
    }

    #[test]
    fn a_lanes_id_is_never_given_out_twice() {
        let dir = TempDir::new().unwrap();
        let mut last = 0;
        for process in 0..3 {
            let file = open(&dir.path().join("store.db"));
            let mut desk = file.desk(Unsettled::default()).unwrap();
            for group in 0..2 * LANE_IDS_TAKEN / GROUP {
                desk.begin(false).unwrap();
                let ids: Vec<u64> = (0..GROUP)
                    .map(|number| format!("{process} {group} {number}").parse().unwrap())
                    .map(|key| next_place(&mut desk, Some(key)).lane.0)
                    .collect();
                assert!(ids.is_sorted_by(|id, next| id < next) && ids[0] > last, "{last} {ids:?}");
                if group % 7 == 3 {
                    desk.give_up();
                } else {
                    desk.end().unwrap();
                    last = ids[ids.len() - 1];
                }
            }
            desk.db.execute_batch("DELETE FROM lanes; DELETE FROM lane_keys").unwrap();
        }
    }

    #[test]
    fn a_lane_that_was_forgotten_in_the_middle_of_a_group_goes_on_where_it_was() {
        let dir = TempDir::new().unwrap();
        let file = open(&dir.path().join("store.db"));
        let mut desk = file.desk(Unsettled::default()).unwrap();
        desk.begin(false).unwrap();
        let seqs = (0..3).map(|_| {
            desk.add_accepted().unwrap();
            desk.notes.lanes.forget_keys();
            next_place(&mut desk, None).seq.get()
        });
        assert_eq!(seqs.collect::<Vec<_>>(), [1, 2, 3]);
    }
}
