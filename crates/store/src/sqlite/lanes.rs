//! Where lanes stand: which seq each of them gave out last, and who has a place in it.
//!
//! Every accept moves some lanes on, and busy lanes lie all over their tables: to change their rows, a
//! group would rewrite a page or two for nearly each of its events. So a group writes all seqs that it
//! gave out into one row of `given`, and settles a few lanes in passing: their rows in `lanes` are brought
//! up to date, and those who still stand there get their rows in `places`, neighbours together. Most
//! deliveries are closed before it is their lane's turn, and never have one.
//!
//! A lane's last seq is the highest of its row and of what is not settled yet. Whoever has a lower seq than
//! that row is closed, or has a row in `places`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use railpost_engine::{LaneId, Place};
use railpost_wire::{DeliveryId, Key, Seq};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::inserts::{Inserts, NewLane};
use super::rows::all;
use super::unsettled::{Portion, Settling, Stood, Unsettled};
use crate::fanout::Subscriber;
use crate::limits::{
    LANE_IDS_TAKEN, LANES_CACHED, SETTLE_GROUP_MIN, SETTLE_ROUND, SETTLED_AT_ONCE_MAX, SETTLED_MIN,
    UNSETTLED_MAX,
};
use crate::numbers::LAST_OPEN;
use crate::rows::Columns;
use crate::{Result, StoreError, packed};

/// The last seqs of lanes.
type Seqs = BTreeMap<LaneId, Seq>;

/// Whose lane it is, and the key; nothing for an endpoint's one lane for everything.
type At = (i64, Option<Key>);

/// Where `places` has delivery `?1`, if it stands in lane `?2` at `?3`.
macro_rules! at_place {
    () => {
        "WHERE endpoint = (SELECT endpoint FROM deliveries WHERE id = ?1) AND lane = ?2 \
         AND seq = ?3 AND delivery = ?1"
    };
}

/// Gives deliveries their rows in `places`, if they are open and have none.
macro_rules! place_sql {
    ($which:literal) => {
        concat!(
            "INSERT OR IGNORE INTO places (endpoint, lane, seq, delivery, standing) \
             SELECT endpoint, lane, seq, id, standing FROM deliveries WHERE ",
            $which,
            " AND standing <= 3 AND lane IS NOT NULL"
        )
    };
}

/// What the writer knows of lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    cache: LaneCache,
    /// Numbers for new lanes, taken ahead. What is left of them when the process ends is nobody's.
    ids: Range<u64>,
    /// What this group did.
    group: Group,
    unsettled: Unsettled,
    round: Round,
    pub(super) pace: Pace,
}

/// How soon lanes are settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Places that a group may settle itself.
    pub(super) at_once_max: usize,
    /// Places that are given out in a round, and those that a group counts for at least.
    pub(super) round: usize,
    pub(super) group_min: usize,
    /// Deliveries that may be unsettled.
    pub(super) unsettled_max: usize,
    /// Deliveries that any group may settle.
    pub(super) settled_min: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_once_max: SETTLED_AT_ONCE_MAX,
            round: SETTLE_ROUND,
            group_min: SETTLE_GROUP_MIN,
            unsettled_max: UNSETTLED_MAX,
            settled_min: SETTLED_MIN,
        }
    }
}

/// What a group did. It counts when the group is committed.
#[derive(Debug, Default)]
struct Group {
    /// The seqs that it gave out last.
    given: Seqs,
    /// Who got a place.
    stood: Vec<Stood>,
    /// Which places were left by those who are not settled.
    left: Vec<Place>,
    /// What it settled.
    settled: Vec<Settling>,
    /// Where the round stands then, if it went on.
    round: Option<Round>,
}

/// One way through all lanes that are not settled.
#[derive(Clone, Debug, Default)]
struct Round {
    /// The lanes, ascending, and how many of them it is through with.
    lanes: Arc<[LaneId]>,
    passed: usize,
    /// When the round is over, everything in the rows of `given` up to this one is settled.
    settles: i64,
    /// Places given out since it last went on.
    waited: usize,
}

impl Lanes {
    pub(super) fn new(unsettled: Unsettled) -> Self {
        Self {
            cache: LaneCache::default(),
            ids: 0..0,
            group: Group::default(),
            unsettled,
            round: Round::default(),
            pace: Pace::default(),
        }
    }

    /// Forgets what a group did that failed.
    pub(super) fn forget(&mut self) {
        self.group = Group::default();
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
        to: &Subscriber,
        key: Option<Key>,
        delivery: DeliveryId,
    ) -> Result<Place> {
        let at = (to.num, key);
        let lane = match self.cache.young.get_mut(&at) {
            Some(lane) => lane,
            None => {
                let old = self.cache.old.remove(&at);
                let lane = old.map_or_else(|| self.find_or_make(db, inserts, &at), Ok)?;
                self.cache.young.entry(at).or_insert(lane)
            }
        };
        let seq = lane.last.map_or(Seq::FIRST, Seq::next);
        lane.last = Some(seq);
        let place = Place { lane: lane.id, seq };
        self.group.given.insert(lane.id, seq);
        self.group.stood.push(Stood { place, delivery, endpoint: to.id });
        Ok(place)
    }

    fn find_or_make(
        &mut self,
        db: &Connection,
        inserts: &mut Inserts<'_>,
        at: &At,
    ) -> Result<Lane> {
        if let Some(mut lane) = find(db, at)? {
            lane.last = lane.last.max(self.unsettled.last(lane.id));
            lane.last = lane.last.max(self.group.given.get(&lane.id).copied());
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

    /// Writes down where a delivery with a place stands from here on.
    pub(super) fn stands(
        &mut self,
        db: &Connection,
        (delivery, place): (DeliveryId, Place),
        standing: i64,
    ) -> Result<()> {
        let is_open = standing <= LAST_OPEN;
        if self.unsettled.stands(place) {
            if !is_open {
                self.group.left.push(place);
            }
            return Ok(());
        }
        let (id, lane, seq) = (delivery.to_bytes(), place.lane.0, place.seq.get());
        if is_open {
            let sql = concat!("UPDATE places SET standing = ?4 ", at_place!());
            db.prepare_cached(sql)?.execute((id, lane, seq, standing))?;
        } else {
            let sql = concat!("DELETE FROM places ", at_place!());
            db.prepare_cached(sql)?.execute((id, lane, seq))?;
        }
        Ok(())
    }

    /// Writes down the seqs that the group gave out, and settles a few lanes: its own, if that is as little.
    pub(super) fn write(&mut self, db: &Connection) -> Result<()> {
        if self.group.stood.is_empty() {
            return Ok(());
        }
        let settling = match self.own() {
            Some(own) => own,
            None => {
                let num = self.write_given(db)?;
                self.next_of_round(db, num)?
            }
        };
        settle(db, &settling)?;
        self.group.settled = settling;
        Ok(())
    }

    /// The group's own lanes, if not many stand there.
    fn own(&self) -> Option<Vec<Settling>> {
        let (Group { given, stood, .. }, max) = (&self.group, self.pace.at_once_max);
        if stood.len() > max {
            return None;
        }
        let own = given.iter().map(|(lane, last)| {
            let seen = self.unsettled.see(*lane, Seq::FIRST, max);
            let before = seen.map(|seen| seen.deliveries).unwrap_or_default();
            let now = stood.iter().filter(|stood| stood.place.lane == *lane);
            let deliveries = before.into_iter().chain(now.map(|stood| stood.delivery)).collect();
            Settling { lane: *lane, through: *last, deliveries }
        });
        let own: Vec<_> = own.collect();
        let count: usize = own.iter().map(|settling| settling.deliveries.len()).sum();
        (count <= max).then_some(own)
    }

    /// The number of the group's row.
    fn write_given(&self, db: &Connection) -> Result<i64> {
        let Group { given, stood, .. } = &self.group;
        let first = stood.iter().map(|stood| stood.delivery).min().map(DeliveryId::to_bytes);
        let mut statement =
            db.prepare_cached("INSERT INTO given (places, first) VALUES (?1, ?2)")?;
        Ok(statement.insert((packed::encode_places(given), first))?)
    }

    /// What is to be settled next. The group's row has this number.
    fn next_of_round(&mut self, db: &Connection, num: i64) -> Result<Vec<Settling>> {
        let (count, pace) = (self.group.stood.len(), self.pace);
        let mut round = self.round.clone();
        round.waited += count.max(pace.group_min);
        let (lanes, deliveries) = self.unsettled.len();
        let portion = Portion {
            lanes: lanes * round.waited / pace.round,
            deliveries: deliveries.saturating_sub(pace.unsettled_max),
            deliveries_max: (2 * count).max(pace.settled_min),
        };
        let mut settling = Vec::new();
        if portion.lanes > 0 || portion.deliveries > 0 {
            let passed;
            (settling, passed) = self.unsettled.next(&round.lanes[round.passed..], portion);
            round.passed += passed;
            round.waited = 0;
            if round.passed == round.lanes.len() {
                let sql = "DELETE FROM given WHERE num <= ?1";
                db.prepare_cached(sql)?.execute([round.settles])?;
                let lanes = self.unsettled.lanes().into();
                round = Round { lanes, settles: num - 1, ..Round::default() };
            }
        }
        self.group.round = Some(round);
        Ok(settling)
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        let Group { given, stood, left, settled, round } = &mut self.group;
        given.clear();
        if let Some(round) = round.take() {
            self.round = round;
        }
        self.unsettled.change(stood.drain(..), settled.drain(..), left.drain(..));
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
    for (lane, last) in seqs {
        settle_seq(&change, lane, last)?;
    }
    let sql = concat!(
        place_sql!("id >= (SELECT min(first) FROM given)"),
        " ORDER BY endpoint, lane, seq"
    );
    change.execute(sql, [])?;
    change.execute("DELETE FROM given", [])?;
    Ok(change.commit()?)
}

fn settle(db: &Connection, lanes: &[Settling]) -> Result<()> {
    let mut place = db.prepare_cached(place_sql!("id = ?1"))?;
    for Settling { lane, through, deliveries } in lanes {
        settle_seq(db, *lane, *through)?;
        for delivery in deliveries {
            place.execute([delivery.to_bytes()])?;
        }
    }
    Ok(())
}

/// Brings a lane's row up to date. A lane that is gone has none, and one that moved on since has a
/// higher seq.
fn settle_seq(db: &Connection, lane: LaneId, last: Seq) -> Result<()> {
    let sql = "UPDATE lanes SET last_seq = max(last_seq, ?2) WHERE id = ?1";
    db.prepare_cached(sql)?.execute((lane.0, last.get()))?;
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
    fn make_room(&mut self) {
        if self.young.len() >= LANES_CACHED {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::super::desk::testing::open;
    use super::*;
    use crate::EndpointSettings;
    use railpost_wire::EndpointId;
    use tempfile::TempDir;

    const KEYS: u64 = 300;
    const GROUP: u64 = 20;

    fn next_place(desk: &mut Desk<'_>, key: Option<Key>) -> Place {
        let settings = EndpointSettings::all_events("https://example.com");
        let to = Subscriber::new(1, EndpointId::from_u128(1), &settings);
        let delivery = DeliveryId::from_u128(1);
        desk.notes.lanes.next_place(desk.db, &mut desk.inserts, &to, key, delivery).unwrap()
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
                let last = Seq::new(row).max(unsettled.last(*lane));
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
            assert_eq!((given_rows(&desk), desk.notes.lanes.unsettled.len()), (0, (0, 0)));
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
        let pace = Pace { round: 1_000, group_min: 10, ..Pace::default() };
        desk.notes.lanes.pace = pace;
        let mut model = Model::default();
        let mut most = 0;
        for _ in 0..1_000 {
            desk.begin(false).unwrap();
            model.give(&mut desk, GROUP);
            desk.end().unwrap();
            most = most.max(given_rows(&desk));
        }
        let groups = pace.round as u64 / GROUP;
        assert!(most > groups, "a lane is not settled by every group: {most}");
        // A row goes with the second round at the latest. Each is a little longer, because nothing is
        // settled before it makes one lane.
        assert!(most < 3 * groups, "{most}");
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
