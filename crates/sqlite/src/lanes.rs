//! Lanes: which seq each of them gave out last, in which line it is, and what a delivery follows.
//!
//! The writer gives out seqs from memory, and writes the last one of each lane that a group moved on
//! once, at the group's end.

use std::ops::Range;

use railpost_engine::{LaneId, Place, Timestamp};
use railpost_wire::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::errors::Translate;
use super::inserts::{Inserts, NewLane};
use crate::limits::{LANE_IDS_TAKEN, LANES_CACHED};
use railpost_store::backend::codes::millis;
use railpost_store::{LinePlace, Result, StoreError};

/// Whose lane it is (`endpoints.num`), and the key; nothing for an endpoint's one lane for everything.
pub(super) type LaneKey = (i64, Option<Key>);

/// What the writer knows of lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    cache: LaneCache,
    /// Numbers for new lanes, taken ahead. Those that are left when the process ends are never used.
    ids: Range<u64>,
    /// This group took them.
    ids_taken: bool,
    era: Option<Era>,
    /// Which group it is: tells a lane that this group has moved on from others.
    group: u64,
    /// The lanes that the group moved on, as they were before; nothing for those it made.
    moved: Vec<(LaneKey, Option<Lane>)>,
    /// The group forgot all lanes. What it looked up since may be of its own making.
    forgot_all: bool,
}

/// The current era.
#[derive(Clone, Copy, Debug)]
struct Era {
    num: i64,
    id: u64,
}

/// A lane as far as giving out seqs needs to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) id: LaneId,
    /// The seq it gave out last, or 0.
    pub(super) last: u64,
    /// Its line: `eras.num`, and how many numbers the lane had given out before.
    pub(super) era: i64,
    pub(super) line_before: u64,
    /// When its last delivery was made.
    pub(super) used_at: i64,
    /// The last seq that its row has.
    written: u64,
    /// The last group that moved it on.
    group: u64,
}

impl Lanes {
    /// The next place in the lane, which is one longer from here on, and where that is in its line.
    pub(super) fn next_place(
        &mut self,
        db: &Connection,
        inserts: &mut Inserts<'_>,
        at: LaneKey,
        now: Timestamp,
    ) -> Result<(Place, LinePlace)> {
        let era = self.era(db)?;
        if !self.cache.young.contains_key(&at) {
            let old = self.cache.old.remove(&at);
            let lane = old.map_or_else(|| self.find_or_make(db, inserts, &at), Ok)?;
            self.cache.young.insert(at.clone(), lane);
        }
        let lane = self.cache.young.get_mut(&at).expect("it was put there");
        if lane.group != self.group {
            let is_new = lane.last == 0;
            self.moved.push((at, Some(*lane).filter(|_| !is_new)));
            lane.group = self.group;
        }
        if lane.era != era.num {
            leave_line(db, lane)?;
            (lane.era, lane.line_before) = (era.num, lane.last);
        }
        lane.last += 1;
        lane.used_at = millis(now);
        let seq = Seq::new(lane.last);
        let seq = seq.ok_or_else(|| StoreError::Corrupt(format!("lane {} is full", lane.id.0)))?;
        let line = LinePlace::new(era.id, lane.id, seq, lane.line_before);
        Ok((Place { lane: lane.id, seq }, line))
    }

    fn era(&mut self, db: &Connection) -> Result<Era> {
        if let Some(era) = self.era {
            return Ok(era);
        }
        let sql = "SELECT num, id FROM eras ORDER BY num DESC LIMIT 1";
        let row = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)));
        let (num, id) = row.translated()?;
        let era = Era { num, id: id.cast_unsigned() };
        self.era = Some(era);
        Ok(era)
    }

    /// Another era has begun.
    pub(super) fn era_changed(&mut self) {
        self.era = None;
    }

    fn find_or_make(
        &mut self,
        db: &Connection,
        inserts: &mut Inserts<'_>,
        at: &LaneKey,
    ) -> Result<Lane> {
        if let Some(lane) = find(db, at)? {
            return Ok(lane);
        }
        let (id, era) = (self.next_id(db)?, self.era(db)?.num);
        let lane =
            Lane { id, last: 0, era, line_before: 0, used_at: 0, written: 0, group: NO_GROUP };
        inserts.add_lane(NewLane { at: at.clone(), lane });
        Ok(lane)
    }

    fn next_id(&mut self, db: &Connection) -> Result<LaneId> {
        if self.ids.is_empty() {
            self.ids = take_ids(db)?;
            self.ids_taken = true;
        }
        let id = self.ids.next();
        id.map(LaneId).ok_or_else(|| StoreError::Corrupt("there are no lane ids left".to_owned()))
    }

    /// Brings lanes that are about to be added up to date.
    pub(super) fn complete(&mut self, new: &mut [NewLane]) {
        for NewLane { at, lane } in new {
            let known = self.cache.young.get_mut(at).expect("the group that makes a lane has it");
            known.written = known.last;
            *lane = *known;
        }
    }

    /// The lanes that the group made or moved on, and whether it made them.
    pub(super) fn moved(&self) -> impl Iterator<Item = (&LaneKey, &Lane, bool)> {
        self.moved.iter().map(|(at, before)| {
            let lane = self.cache.young.get(at).expect("the group that moves a lane on has it");
            (at, lane, before.is_none())
        })
    }

    /// Writes the last seqs of the lanes that the group moved on.
    pub(super) fn write(&mut self, db: &Connection) -> Result<()> {
        let Self { cache, moved, .. } = self;
        let mut lanes: Vec<&LaneKey> = moved.iter().map(|(at, _)| at).collect();
        // In the order of the table: neighbours share pages.
        lanes.sort_unstable_by_key(|at| cache.young.get(*at).map(|lane| lane.id));
        let sql = "UPDATE lanes SET last_seq = ?2, era = ?3, line_before = ?4, used_at = ?5 \
                   WHERE id = ?1";
        let mut update = db.prepare_cached(sql).translated()?;
        for at in lanes {
            // One that was forgotten is written already.
            if let Some(lane) = cache.young.get_mut(at)
                && lane.written != lane.last
            {
                let Lane { id, last, era, line_before, used_at, .. } = *lane;
                update.execute((id.0, last, era, line_before, used_at)).translated()?;
                lane.written = last;
            }
        }
        Ok(())
    }

    /// Forgets a lane that is gone. The group's lanes have to be written.
    pub(super) fn forget(&mut self, at: &LaneKey) {
        self.cache.young.remove(at);
        self.cache.old.remove(at);
    }

    /// Forgets all lanes: some are gone. The group's lanes have to be written.
    pub(super) fn forget_all(&mut self) {
        self.cache = LaneCache::default();
        self.forgot_all = true;
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        self.moved.clear();
        self.next_group();
        self.cache.make_room();
    }

    /// The group was given up.
    pub(super) fn undo(&mut self) {
        for (at, before) in self.moved.drain(..) {
            match before {
                Some(lane) => drop(self.cache.young.insert(at, lane)),
                None => drop(self.cache.young.remove(&at)),
            }
        }
        if self.forgot_all {
            self.cache = LaneCache::default();
        }
        // The file gives these ids out again.
        if self.ids_taken {
            self.ids = 0..0;
        }
        self.era = None;
        self.next_group();
    }

    fn next_group(&mut self) {
        self.group += 1;
        (self.ids_taken, self.forgot_all) = (false, false);
    }
}

/// The group of a lane that no group has moved on.
const NO_GROUP: u64 = u64::MAX;

/// Writes down the line that a lane leaves, if it has any number.
fn leave_line(db: &Connection, lane: &Lane) -> Result<()> {
    if lane.last > lane.line_before {
        let sql = "INSERT INTO old_lines (lane, through, era, line_before) VALUES (?1, ?2, ?3, ?4)";
        let values = (lane.id.0, lane.last, lane.era, lane.line_before);
        db.prepare_cached(sql).translated()?.execute(values).translated()?;
    }
    Ok(())
}

/// Notes that a number of a lane was closed without being delivered: what followed it follows the one
/// that it followed. Rows that the lane has passed go.
pub(super) fn skip(db: &Connection, endpoint: i64, lane: i64, seq: i64) -> Result<()> {
    let sql = "DELETE FROM lane_follows WHERE lane = ?1 AND seq = ?2 RETURNING follows";
    let follows = db
        .prepare_cached(sql)
        .translated()?
        .query_row((lane, seq), |row| row.get(0))
        .optional()
        .translated()?;
    let follows: i64 = follows.unwrap_or(seq - 1);
    let sql = "UPDATE lane_follows SET follows = ?3 WHERE lane = ?1 AND follows = ?2";
    if db.prepare_cached(sql).translated()?.execute((lane, seq, follows)).translated()? == 0 {
        let sql = "INSERT INTO lane_follows (lane, seq, follows) VALUES (?1, ?2, ?3)";
        db.prepare_cached(sql).translated()?.execute((lane, seq + 1, follows)).translated()?;
    }
    let sql = "DELETE FROM lane_follows WHERE lane = ?1 AND seq < coalesce( \
                 (SELECT seq FROM deliveries INDEXED BY deliveries_open \
                   WHERE endpoint = ?2 AND lane = ?1 AND standing <= 3 ORDER BY seq LIMIT 1), \
                 (SELECT last_seq + 1 FROM lanes WHERE id = ?1))";
    db.prepare_cached(sql).translated()?.execute((lane, endpoint)).translated()?;
    Ok(())
}

/// Takes ids that were never given out, and will not be given out again. They are counted where SQLite
/// counts those that it gives out itself; its page is spared being written with every new lane.
fn take_ids(db: &Connection) -> Result<Range<u64>> {
    let sql = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'lanes' RETURNING seq";
    let last = db
        .prepare_cached(sql)
        .translated()?
        .query_row([LANE_IDS_TAKEN], |row| row.get(0))
        .optional()
        .translated()?;
    let last: u64 = match last {
        Some(last) => last,
        None => {
            let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('lanes', ?1)";
            db.prepare_cached(sql).translated()?.execute([LANE_IDS_TAKEN]).translated()?;
            LANE_IDS_TAKEN
        }
    };
    Ok(last - LANE_IDS_TAKEN + 1..last + 1)
}

/// The lane in the file.
fn find(db: &Connection, (endpoint, key): &LaneKey) -> Result<Option<Lane>> {
    let key = key_bytes(key.as_ref());
    let sql = "SELECT l.id, l.last_seq, l.era, l.line_before, l.used_at FROM lane_keys AS k \
               JOIN lanes AS l ON l.id = k.lane WHERE k.endpoint = ?1 AND k.key = ?2";
    let found = db.prepare_cached(sql).translated()?.query_row((endpoint, key), |row| {
        let last = row.get(1)?;
        Ok(Lane {
            id: LaneId(row.get(0)?),
            last,
            era: row.get(2)?,
            line_before: row.get(3)?,
            used_at: row.get(4)?,
            written: last,
            group: NO_GROUP,
        })
    });
    found.optional().translated()
}

/// A key as `lane_keys` has it: empty for an endpoint's one lane for everything.
pub(super) fn key_bytes(key: Option<&Key>) -> &[u8] {
    key.map_or("", Key::as_str).as_bytes()
}

/// The lanes that were used of late, in two generations: when the young one is full, the old one is
/// forgotten.
#[derive(Debug, Default)]
struct LaneCache {
    young: FxHashMap<LaneKey, Lane>,
    old: FxHashMap<LaneKey, Lane>,
}

impl LaneCache {
    fn make_room(&mut self) {
        if self.young.len() >= LANES_CACHED {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::session::WriteSession;
    use super::super::session::testing::open;
    use super::super::upkeep::begin_era;
    use super::*;
    use tempfile::TempDir;

    const KEYS: u64 = 300;
    const GROUP: u64 = 20;

    fn next_place(session: &mut WriteSession<'_>, key: Option<Key>) -> (Place, LinePlace) {
        let now = session.now();
        let lanes = &mut session.cache.lanes;
        lanes.next_place(session.db, &mut session.inserts, (1, key), now).unwrap()
    }

    /// Which seq each key got last, in a world where nothing fails.
    #[derive(Clone, Default)]
    struct Model {
        seqs: BTreeMap<u64, (LaneId, u64)>,
        step: u64,
    }

    impl Model {
        /// Gives out some places, half of them in a few busy lanes.
        fn give(&mut self, session: &mut WriteSession<'_>, count: u64) {
            for _ in 0..count {
                self.step += 1;
                let busy = !self.step.is_multiple_of(2);
                let key = self.step * self.step * 7 % if busy { 10 } else { KEYS };
                let (place, _) = next_place(session, Some(key.to_string().parse().unwrap()));
                let (lane, seq) = self.seqs.entry(key).or_insert((place.lane, 0));
                *seq += 1;
                assert_eq!((place.lane, place.seq.get()), (*lane, *seq), "key {key}");
            }
        }

        fn check(&self, session: &WriteSession<'_>) {
            for (lane, seq) in self.seqs.values() {
                let sql = "SELECT last_seq FROM lanes WHERE id = ?1";
                let last: u64 = session.db.query_row(sql, [lane.0], |row| row.get(0)).unwrap();
                assert_eq!(last, *seq, "{lane:?}");
            }
        }
    }

    #[test]
    fn seqs_go_on_without_a_gap_through_failed_groups_and_new_processes() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store.db");
        let mut model = Model::default();
        for _ in 0..3 {
            let file = open(&path);
            let mut session = file.session().unwrap();
            for group in 0..100 {
                let count = [GROUP, 1, 0, GROUP, 2][group % 5];
                session.begin(false).unwrap();
                if group % 7 == 3 {
                    model.clone().give(&mut session, count);
                    session.flush().unwrap();
                    session.give_up();
                } else {
                    model.give(&mut session, count);
                    session.end().unwrap();
                }
                model.check(&session);
            }
        }
    }

    #[test]
    fn a_lanes_id_is_never_given_out_twice() {
        let dir = TempDir::new().unwrap();
        let mut last = 0;
        for process in 0..3 {
            let file = open(&dir.path().join("store.db"));
            let mut session = file.session().unwrap();
            for group in 0..2 * LANE_IDS_TAKEN / GROUP {
                session.begin(false).unwrap();
                let ids: Vec<u64> = (0..GROUP)
                    .map(|number| format!("{process} {group} {number}").parse().unwrap())
                    .map(|key| next_place(&mut session, Some(key)).0.lane.0)
                    .collect();
                assert!(ids.is_sorted_by(|id, next| id < next) && ids[0] > last, "{last} {ids:?}");
                if group % 7 == 3 {
                    session.give_up();
                } else {
                    session.end().unwrap();
                    last = ids[ids.len() - 1];
                }
            }
            session.db.execute_batch("DELETE FROM lanes; DELETE FROM lane_keys").unwrap();
        }
    }

    #[test]
    fn a_lane_that_was_forgotten_in_the_middle_of_a_group_goes_on_where_it_was() {
        let dir = TempDir::new().unwrap();
        let file = open(&dir.path().join("store.db"));
        let mut session = file.session().unwrap();
        for (given_up, expected) in [(true, [1, 2, 3]), (false, [1, 2, 3]), (false, [4, 5, 6])] {
            session.begin(false).unwrap();
            let seqs = (0..3).map(|_| {
                session.flush().unwrap();
                session.cache.lanes.forget_all();
                next_place(&mut session, None).0.seq.get()
            });
            assert_eq!(seqs.collect::<Vec<_>>(), expected);
            if given_up {
                session.give_up();
            } else {
                session.end().unwrap();
            }
        }
    }

    #[test]
    fn an_era_that_was_given_up_begins_no_line() {
        let dir = TempDir::new().unwrap();
        let file = open(&dir.path().join("store.db"));
        let mut session = file.session().unwrap();
        let mut lines = Vec::new();
        for era in [None, Some(true), None, Some(false), None] {
            session.begin(false).unwrap();
            if era.is_some() {
                begin_era(&mut session).unwrap();
            }
            let (place, line) = next_place(&mut session, None);
            if era == Some(true) {
                assert_eq!(line.seq, Seq::FIRST);
                session.give_up();
                continue;
            }
            session.end().unwrap();
            lines.push((line.line.to_string(), place.seq.get(), line.seq.get()));
        }
        let [first, second, third, fourth] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&first.0, second.1, second.2), (&second.0, 2, 2));
        assert_ne!(second.0, third.0);
        assert_eq!((&third.0, third.1, third.2), (&fourth.0, 3, 1));
        assert_eq!((fourth.1, fourth.2), (4, 2));
        let sql = "SELECT count(*), max(through) FROM old_lines";
        let old: (i64, i64) =
            session.db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(old, (1, 2));
    }

    /// The rows of `lane_follows` of a lane, after some of its numbers were skipped.
    fn follows(session: &WriteSession<'_>) -> Vec<(i64, i64)> {
        let sql = "SELECT seq, follows FROM lane_follows ORDER BY seq";
        let mut statement = session.db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(std::result::Result::unwrap).collect()
    }

    #[test]
    fn what_a_lane_has_passed_is_not_kept() {
        let dir = TempDir::new().unwrap();
        let file = open(&dir.path().join("store.db"));
        let session = file.session().unwrap();
        session
            .db
            .execute_batch("INSERT INTO lanes (id, endpoint, last_seq) VALUES (1, 1, 9)")
            .unwrap();
        // As if 8 and 9 were open.
        for (number, seq) in [(1_u8, 8), (2, 9)] {
            let sql = "INSERT INTO deliveries (id, event, endpoint, lane, seq, standing, changed_at) \
                       VALUES (?1, 1, 1, 1, ?2, 0, 1)";
            session.db.execute(sql, ([number; 16], seq)).unwrap();
        }
        skip(session.db, 1, 1, 3).unwrap();
        assert_eq!(follows(&session), [], "4 is closed");
        skip(session.db, 1, 1, 7).unwrap();
        assert_eq!(follows(&session), [(8, 6)]);
        session.db.execute_batch("UPDATE deliveries SET standing = 6 WHERE seq = 8").unwrap();
        skip(session.db, 1, 1, 8).unwrap();
        assert_eq!(follows(&session), [(9, 6)]);
        session.db.execute_batch("UPDATE deliveries SET standing = 6 WHERE seq = 9").unwrap();
        skip(session.db, 1, 1, 9).unwrap();
        assert_eq!(follows(&session), [(10, 6)], "the next one of the lane");
    }
}
