//! The accept log: at ordinary load a group of accepts is durable as one page.
//!
//! An accepted event has rows in eight trees. A group of one event would write a page of each before its
//! producer is answered, and the next group the same pages again. So a small group is written to the
//! table `accept_log` as a whole. Before anything else is written, and before anyone reads events or
//! deliveries, the log is applied: its groups are added to their tables together, in one transaction that
//! also begins a new generation. Records come ten times a second while something is delivered, so the log
//! is short.
//!
//! Invariants:
//!
//! - The entries of the current generation, in slots from 0 on without a gap, are exactly the groups that
//!   were committed and are not in their tables.
//! - The log is applied by one transaction. After a crash it was applied or it was not: opening the file
//!   applies what is left.
//! - An event of the log is in no table and twice in no log: duplicates are looked up before they are
//!   logged, and a group that has one is written to the tables.
//! - A lane that the log moved on stays in the writer's cache until the log is applied: the file does not
//!   have its last seq.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use railpost_engine::{LaneId, Place, Timestamp};
use railpost_wire::{DeliveryId, EventId, Key, Seq, TenantId};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::errors::Translate;
use super::inserts::{DeliveryInsert, Inserts, NewEvent};
use super::lanes::{Lane, LaneKey, Lanes, key_bytes};
use crate::limits::{ACCEPT_LOG_ENTRY_LEN, ACCEPT_LOG_SLOTS, LANES_CACHED};
use railpost_store::{AcceptBatch, AcceptedBy, Event, Result, StoreError};

/// A delivery takes more than this in an entry, so the log moves on fewer lanes than the cache keeps.
const DELIVERY_LEN_MIN: usize = 64;
const _: () =
    assert!(ACCEPT_LOG_SLOTS as usize * ACCEPT_LOG_ENTRY_LEN / DELIVERY_LEN_MIN < LANES_CACHED);

/// What the writer knows of the log.
#[derive(Debug)]
pub(super) struct AcceptLog {
    generation: i64,
    /// How many entries are not applied: the next one gets this slot.
    entries: u32,
    /// The events of those entries and of the group, by `tenants.num` and id.
    events: FxHashSet<(i64, EventId)>,
    /// The group's events.
    of_group: Vec<(i64, EventId)>,
    /// The group is to be logged.
    pub(super) is_open: bool,
    /// The group cannot be logged: it has to be written to the tables.
    is_refused: bool,
    unapplied: Unapplied,
}

/// Tells readers whether the log has entries that are not applied.
#[derive(Clone, Debug, Default)]
pub(super) struct Unapplied(Arc<AtomicBool>);

impl Unapplied {
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, any: bool) {
        self.0.store(any, Ordering::Release);
    }
}

impl AcceptLog {
    /// The log of a file that was opened, which applied it.
    pub(super) fn new(db: &Connection, unapplied: Unapplied) -> Result<Self> {
        Ok(Self {
            generation: generation(db)?,
            entries: 0,
            events: FxHashSet::default(),
            of_group: Vec::new(),
            is_open: false,
            is_refused: false,
            unapplied,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(super) fn has_room(&self) -> bool {
        self.entries < ACCEPT_LOG_SLOTS
    }

    /// Starts a group, which is to be logged or not.
    pub(super) fn begin(&mut self, logged: bool) {
        (self.is_open, self.is_refused) = (logged, false);
    }

    /// Has the group given up and written to the tables instead.
    pub(super) fn refuse(&mut self) -> StoreError {
        self.is_refused = true;
        StoreError::Unavailable("the group does not fit the accept log".to_owned())
    }

    /// Whether the group that was given up has to be written to the tables.
    pub(super) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    /// Notes an event of the group; says whether the log did not have it.
    pub(super) fn note(&mut self, tenant: i64, event: &EventId) -> bool {
        let fresh = self.events.insert((tenant, event.clone()));
        if fresh {
            self.of_group.push((tenant, event.clone()));
        }
        fresh
    }

    /// Writes what the group accepted.
    pub(super) fn write(
        &mut self,
        db: &Connection,
        inserts: &Inserts<'_>,
        lanes: &Lanes,
    ) -> Result<()> {
        let entry = Entry::of(inserts, lanes).encode(self.generation);
        let entry = entry.ok_or_else(|| self.refuse())?;
        let sql = "INSERT INTO accept_log (slot, entry) VALUES (?1, ?2) \
                   ON CONFLICT (slot) DO UPDATE SET entry = excluded.entry";
        db.prepare_cached(sql).translated()?.execute((self.entries, entry)).translated()?;
        Ok(())
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        if self.is_open {
            self.entries += 1;
            self.of_group.clear();
            self.is_open = false;
            self.unapplied.set(true);
        }
    }

    /// The group was given up.
    pub(super) fn undo(&mut self) {
        for event in self.of_group.drain(..) {
            self.events.remove(&event);
        }
        self.is_open = false;
    }

    /// The log is applied and that is committed.
    pub(super) fn applied(&mut self) {
        self.generation += 1;
        self.entries = 0;
        self.events.clear();
        self.unapplied.set(false);
    }
}

fn generation(db: &Connection) -> Result<i64> {
    let sql = "SELECT accept_log_generation FROM store";
    db.prepare_cached(sql).translated()?.query_row([], |row| row.get(0)).translated()
}

/// Applies what a process that ended without doing so has left.
pub(super) fn apply_left(db: &mut Connection) -> Result<()> {
    if read(db, 0, generation(db)?)?.is_none() {
        return Ok(());
    }
    let change = db.transaction().translated()?;
    apply(&change, &mut Inserts::new(&change).translated()?)?;
    change.commit().translated()?;
    Ok(())
}

/// Adds the entries of the current generation to their tables and begins the next generation, within a
/// transaction. Without entries it writes nothing.
pub(super) fn apply<'f>(db: &'f Connection, inserts: &mut Inserts<'f>) -> Result<()> {
    let generation = generation(db)?;
    let (mut slot, mut lanes) = (0, Vec::new());
    while let Some(entry) = read(db, slot, generation)? {
        lanes.extend(entry.add_to(inserts));
        slot += 1;
    }
    if slot == 0 {
        return Ok(());
    }
    inserts.run().translated()?;
    write_lanes(db, lanes)?;
    let sql = "UPDATE store SET accept_log_generation = ?1";
    db.prepare_cached(sql).translated()?.execute([generation + 1]).translated()?;
    Ok(())
}

/// Blanks all entries, which have to be applied: what they held may have to go.
pub(super) fn blank(db: &Connection) -> Result<()> {
    let sql = "UPDATE accept_log SET entry = zeroblob(length(entry))";
    db.prepare_cached(sql).translated()?.execute([]).translated()?;
    Ok(())
}

fn read(db: &Connection, slot: u32, generation: i64) -> Result<Option<Entry>> {
    let sql = "SELECT entry FROM accept_log WHERE slot = ?1";
    let entry = db.prepare_cached(sql).translated()?.query_row([slot], |row| {
        let bytes = row.get_ref(0)?.as_blob()?;
        Ok(Entry::decode(bytes, generation))
    });
    entry.optional().translated()?.unwrap_or(Ok(None))
}

/// Writes lanes as the last entry has them, in the order of the table: neighbours share pages.
fn write_lanes(db: &Connection, mut lanes: Vec<LoggedLane>) -> Result<()> {
    lanes.sort_by_key(|lane| lane.id);
    let new = "INSERT INTO lanes (id, endpoint, last_seq, era, line_before, used_at) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let new_key = "INSERT INTO lane_keys (endpoint, key, lane) VALUES (?1, ?2, ?3)";
    let moved = "UPDATE lanes SET last_seq = ?2, era = ?3, line_before = ?4, used_at = ?5 \
                 WHERE id = ?1";
    let (mut new, mut new_key) =
        (db.prepare_cached(new).translated()?, db.prepare_cached(new_key).translated()?);
    let mut moved = db.prepare_cached(moved).translated()?;
    for same in lanes.chunk_by(|lane, next| lane.id == next.id) {
        let (first, last) = (&same[0], &same[same.len() - 1]);
        let (last_seq, era, line_before) = (last.last_seq, last.era, last.line_before);
        if first.is_new {
            new.execute((last.id, last.endpoint, last_seq, era, line_before, last.used_at))
                .translated()?;
            new_key.execute((last.endpoint, key_bytes(last.key.as_ref()), last.id)).translated()?;
        } else {
            moved.execute((last.id, last_seq, era, line_before, last.used_at)).translated()?;
        }
    }
    Ok(())
}

/// A group of accepts. In bytes: the layout's number, the generation (8), the length of the JSON (4), the
/// JSON, the payloads in the order of their events, and zeros up to the length that all entries have.
/// Stable: the next version may find entries that this one left.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    events: Vec<LoggedEvent>,
    deliveries: Vec<LoggedDelivery>,
    lanes: Vec<LoggedLane>,
}

/// Says how an entry is to be read. Stable: another layout gets another number.
const LAYOUT: u8 = 1;
const HEAD_LEN: usize = 13;

#[derive(Debug, Serialize, Deserialize)]
struct LoggedEvent {
    num: i64,
    /// `tenants.num`, and its id.
    tenant: i64,
    of: TenantId,
    accepted_at: Timestamp,
    first: DeliveryId,
    fanout: usize,
    /// Entries of schema 8 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_by: Option<AcceptedBy>,
    /// Without its payload, which has so many bytes behind the JSON.
    event: Event,
    payload_len: usize,
    #[serde(skip)]
    payload: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
struct LoggedDelivery {
    id: DeliveryId,
    event: i64,
    endpoint: i64,
    place: Option<(u64, Seq)>,
    made_at: Timestamp,
}

/// A lane that the group made or moved on, as it is after the group.
#[derive(Debug, Serialize, Deserialize)]
struct LoggedLane {
    id: u64,
    endpoint: i64,
    key: Option<Key>,
    last_seq: u64,
    era: i64,
    line_before: u64,
    used_at: i64,
    is_new: bool,
}

impl Entry {
    fn of(inserts: &Inserts<'_>, lanes: &Lanes) -> Self {
        Self {
            events: inserts.events().iter().map(LoggedEvent::from).collect(),
            deliveries: inserts.deliveries().iter().map(LoggedDelivery::from).collect(),
            lanes: lanes.moved().map(LoggedLane::from).collect(),
        }
    }

    /// Nothing if it is too long for a slot.
    fn encode(&self, generation: i64) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(ACCEPT_LOG_ENTRY_LEN);
        bytes.push(LAYOUT);
        bytes.extend(generation.to_be_bytes());
        bytes.extend([0; 4]);
        serde_json::to_writer(&mut bytes, self).expect("memory takes all that is written");
        let json_len = u32::try_from(bytes.len() - HEAD_LEN).ok()?;
        bytes[9..HEAD_LEN].copy_from_slice(&json_len.to_be_bytes());
        self.events.iter().for_each(|event| bytes.extend_from_slice(&event.payload));
        let fits = bytes.len() <= ACCEPT_LOG_ENTRY_LEN;
        bytes.resize(ACCEPT_LOG_ENTRY_LEN, 0);
        fits.then_some(bytes)
    }

    /// Nothing if it is of another generation.
    fn decode(bytes: &[u8], generation: i64) -> Result<Option<Self>> {
        let refuse = || StoreError::Corrupt("an entry of the accept log does not read back".into());
        let (head, rest) = bytes.split_at_checked(HEAD_LEN).ok_or_else(refuse)?;
        if head[1..9] != generation.to_be_bytes() {
            return Ok(None);
        }
        if head[0] != LAYOUT {
            return Err(refuse());
        }
        let json_len = head[9..].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let (json, mut payloads) = rest.split_at_checked(json_len).ok_or_else(refuse)?;
        let mut entry: Self = serde_json::from_slice(json).map_err(|_| refuse())?;
        for event in &mut entry.events {
            let (payload, rest) =
                payloads.split_at_checked(event.payload_len).ok_or_else(refuse)?;
            (event.payload, payloads) = (Bytes::copy_from_slice(payload), rest);
        }
        Ok(Some(entry))
    }

    /// Has its events and deliveries added; answers its lanes.
    fn add_to(self, inserts: &mut Inserts<'_>) -> Vec<LoggedLane> {
        self.events.into_iter().for_each(|event| inserts.add_event(event.into()));
        self.deliveries.into_iter().for_each(|delivery| inserts.add_delivery(delivery.into()));
        self.lanes
    }
}

impl From<&NewEvent> for LoggedEvent {
    fn from(new: &NewEvent) -> Self {
        let mut event = new.batch.events[new.index].clone();
        let payload = std::mem::take(&mut event.payload);
        Self {
            num: new.num,
            tenant: new.tenant,
            of: new.batch.tenant.clone(),
            accepted_at: new.accepted_at,
            first: new.first,
            fanout: new.fanout,
            accepted_by: new.batch.accepted_by.clone(),
            event,
            payload_len: payload.len(),
            payload,
        }
    }
}

impl From<LoggedEvent> for NewEvent {
    fn from(logged: LoggedEvent) -> Self {
        let events = vec![Event { payload: logged.payload, ..logged.event }];
        let (tenant, accepted_by) = (logged.of, logged.accepted_by);
        Self {
            num: logged.num,
            tenant: logged.tenant,
            batch: Arc::new(AcceptBatch { tenant, events, accepted_by, idempotency: None }),
            index: 0,
            accepted_at: logged.accepted_at,
            first: logged.first,
            fanout: logged.fanout,
        }
    }
}

impl From<&DeliveryInsert> for LoggedDelivery {
    fn from(new: &DeliveryInsert) -> Self {
        let DeliveryInsert { id, event, endpoint, place, made_at, .. } = *new;
        Self { id, event, endpoint, place: place.map(|place| (place.lane.0, place.seq)), made_at }
    }
}

/// People's redeliveries are never logged.
impl From<LoggedDelivery> for DeliveryInsert {
    fn from(logged: LoggedDelivery) -> Self {
        let LoggedDelivery { id, event, endpoint, place, made_at } = logged;
        let place = place.map(|(lane, seq)| Place { lane: LaneId(lane), seq });
        Self { id, event, endpoint, place, again: false, made_at }
    }
}

impl From<(&LaneKey, &Lane, bool)> for LoggedLane {
    fn from(((endpoint, key), lane, is_new): (&LaneKey, &Lane, bool)) -> Self {
        let Lane { id, last, era, line_before, used_at, .. } = *lane;
        Self {
            id: id.0,
            endpoint: *endpoint,
            key: key.clone(),
            last_seq: last,
            era,
            line_before,
            used_at,
            is_new,
        }
    }
}

#[cfg(test)]
mod tests {
    use railpost_wire::EndpointId;
    use tempfile::TempDir;

    use super::super::session::testing::{self, in_a_group};
    use super::super::session::{OpenFile, WriteSession};
    use super::*;
    use railpost_store::{
        EndpointPrivate, EndpointSettings, NewEndpoint, Receipt, TenantSettings, Write,
    };

    fn tenant() -> TenantId {
        "acme".parse().unwrap()
    }

    fn batch(number: u64, payload_len: usize) -> Arc<AcceptBatch> {
        let event = Event {
            id: EventId::generate(number, [0; 10]),
            event_type: "a.b".parse().unwrap(),
            key: Some("k".parse().unwrap()),
            payload: Bytes::from(vec![b'x'; payload_len]),
            content_type: "text/plain".parse().unwrap(),
            schema_version: Some(3),
            time: Timestamp::from_millis(number),
            traceparent: None,
            cloudevent: None,
        };
        Arc::new(AcceptBatch {
            tenant: tenant(),
            events: vec![event],
            accepted_by: None,
            idempotency: None,
        })
    }

    /// A file with a tenant, an endpoint and event 1, so that the tenant's backlog is counted.
    fn open(folder: &TempDir) -> OpenFile {
        testing::open(&folder.path().join("store.db"))
    }

    fn fill(session: &mut WriteSession<'_>) {
        in_a_group(session, |session| {
            let create = Write::CreateTenant(tenant(), TenantSettings::default());
            session.commit(&create.into()).unwrap();
            let endpoint = NewEndpoint {
                id: EndpointId::from_u128(1),
                tenant: tenant(),
                settings: EndpointSettings::all_events("https://example.com"),
                private: EndpointPrivate::default(),
            };
            session.commit(&Write::CreateEndpoint(endpoint).into()).unwrap();
        });
        in_a_group(session, |session| session.accept(&batch(1, 10)).unwrap());
    }

    /// Logs an event; answers the seq of its delivery.
    fn log(session: &mut WriteSession<'_>, number: u64, payload_len: usize) -> Result<u64> {
        session.begin_logged()?;
        let receipts = session.accept(&batch(number, payload_len));
        let done = receipts.and_then(|receipts| session.end().map(|()| receipts));
        if done.is_err() {
            session.give_up();
        }
        let [Receipt::Accepted { deliveries, .. }] = &done?[..] else { panic!("it is new") };
        Ok(deliveries[0].accepted.place.unwrap().seq.get())
    }

    /// Events, deliveries and the last seq of the lane, as the tables have them.
    fn tables(session: &WriteSession<'_>) -> (u64, u64, u64) {
        let number = |sql: &str| session.db.query_row(sql, [], |row| row.get(0)).unwrap();
        (
            number("SELECT count(*) FROM events AS e JOIN deliveries AS d ON d.event = e.num"),
            number("SELECT count(*) FROM deliveries"),
            number("SELECT last_seq FROM lanes"),
        )
    }

    #[test]
    fn what_is_logged_comes_to_its_tables_when_the_log_is_applied() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        for number in 2..=5 {
            assert_eq!(log(&mut session, number, 100), Ok(number));
        }
        assert_eq!((tables(&session), file.unapplied().any()), ((1, 1, 1), true));
        session.apply_log().unwrap();
        assert_eq!((tables(&session), file.unapplied().any()), ((5, 5, 5), false));
        session.apply_log().unwrap();
        assert_eq!(log(&mut session, 6, 100), Ok(6));
        session.apply_log().unwrap();
        assert_eq!(tables(&session), (6, 6, 6), "entries are applied once");
    }

    #[test]
    fn a_process_that_ended_leaves_its_log_to_the_next() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        (2..=4).for_each(|number| assert_eq!(log(&mut session, number, 100), Ok(number)));
        drop(session);
        drop(file);
        for expected in [4, 4] {
            let file = open(&folder);
            let session = file.session().unwrap();
            assert_eq!(tables(&session), (expected, expected, expected));
        }
    }

    #[test]
    fn a_group_that_is_given_up_leaves_nothing_in_the_log() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        assert_eq!(log(&mut session, 2, 100), Ok(2));
        session.begin_logged().unwrap();
        session.accept(&batch(3, 100)).unwrap();
        session.give_up();
        assert_eq!(log(&mut session, 3, 100), Ok(3), "it is not known from the group before");
        session.apply_log().unwrap();
        assert_eq!(tables(&session), (3, 3, 3));
    }

    #[test]
    fn what_does_not_fit_or_was_accepted_before_is_for_the_tables() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        assert_eq!(log(&mut session, 2, 100), Ok(2));
        for (what, number, payload_len) in
            [("too long", 3, ACCEPT_LOG_ENTRY_LEN), ("in the log", 2, 100), ("in a table", 1, 10)]
        {
            assert!(log(&mut session, number, payload_len).is_err(), "{what}");
            assert!(session.log.take_refusal(), "{what}");
        }
        session.apply_log().unwrap();
        assert_eq!(tables(&session), (2, 2, 2));
    }

    #[test]
    fn a_failed_apply_leaves_the_log_as_it_was() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        assert_eq!(log(&mut session, 2, 100), Ok(2));
        session.db.pragma_update(None, "query_only", true).unwrap();
        assert!(session.apply_log().is_err());
        session.db.pragma_update(None, "query_only", false).unwrap();
        assert!(file.unapplied().any());
        session.apply_log().unwrap();
        assert_eq!(tables(&session), (2, 2, 2));
    }

    #[test]
    fn an_entry_of_another_layout_is_refused_and_one_of_another_generation_left_alone() {
        let entry = Entry { events: vec![], deliveries: vec![], lanes: vec![] };
        let mut bytes = entry.encode(7).unwrap();
        assert_eq!(bytes.len(), ACCEPT_LOG_ENTRY_LEN);
        assert!(Entry::decode(&bytes, 7).unwrap().is_some());
        assert!(Entry::decode(&bytes, 8).unwrap().is_none());
        assert!(Entry::decode(&bytes[..HEAD_LEN + 3], 7).is_err(), "it is cut");
        bytes[0] += 1;
        assert!(Entry::decode(&bytes, 7).is_err());
    }

    #[test]
    fn blanked_entries_are_nobodys() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        fill(&mut session);
        assert_eq!(log(&mut session, 2, 100), Ok(2));
        session.apply_log().unwrap();
        in_a_group(&mut session, |session| blank(session.db).unwrap());
        let sql = "SELECT count(*) FROM accept_log WHERE entry <> zeroblob(length(entry))";
        let left: u64 = session.db.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
        assert_eq!(log(&mut session, 3, 100), Ok(3));
        session.apply_log().unwrap();
        assert_eq!(tables(&session), (3, 3, 3));
    }
}
