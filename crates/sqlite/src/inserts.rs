//! Adding what is accepted, many rows with one statement.
//!
//! A statement that runs opens its trees and looks for its place in each of them from the root. The rows
//! of one run share that, and most of them come right behind the one before. So what a group accepts is
//! kept until its end, or until someone looks for it, and then added in as few runs as it takes.

use std::sync::Arc;

use railpost_engine::{Place, Timestamp};
use railpost_wire::DeliveryId;
use rusqlite::{Connection, Result, Statement, ToSql};

use super::lanes::{Lane, LaneKey, key_bytes};
use crate::limits::INSERT_ROWS;
use railpost_store::AcceptBatch;
use railpost_store::backend::accepted_by;
use railpost_store::backend::codes::{PENDING, millis};
use railpost_store::backend::rows::to_json;

/// An event that was accepted.
#[derive(Debug)]
pub(super) struct NewEvent {
    pub(super) num: i64,
    /// The tenant's num.
    pub(super) tenant: i64,
    /// What it came with, and where it stands there.
    pub(super) batch: Arc<AcceptBatch>,
    pub(super) index: usize,
    pub(super) accepted_at: Timestamp,
    /// Its first delivery, and how many there are.
    pub(super) first: DeliveryId,
    pub(super) fanout: usize,
}

/// A lane that was made for a key, or for everything of its endpoint.
#[derive(Debug)]
pub(super) struct NewLane {
    pub(super) at: LaneKey,
    pub(super) lane: Lane,
}

/// A delivery that was made.
#[derive(Debug)]
pub(super) struct DeliveryInsert {
    pub(super) id: DeliveryId,
    /// Its event's num.
    pub(super) event: i64,
    /// Its endpoint's num.
    pub(super) endpoint: i64,
    pub(super) place: Option<Place>,
    /// Whether the event was accepted earlier, and a person asked for it again.
    pub(super) again: bool,
    pub(super) made_at: Timestamp,
}

/// All of an event but its number.
macro_rules! event_values {
    () => {
        "tenant, id, type, key, content_type, schema_version, time, accepted_at, traceparent, \
         cloudevent, first, fanout, payload, accepted_by"
    };
}

/// What is to be added, and the statements that do it.
#[derive(Debug)]
pub(super) struct Inserts<'f> {
    db: &'f Connection,
    events: Vec<NewEvent>,
    lanes: Vec<NewLane>,
    deliveries: Vec<DeliveryInsert>,
    into_first_event: Insert<'f>,
    into_later_events: Insert<'f>,
    into_lanes: Insert<'f>,
    into_lane_keys: Insert<'f>,
    into_deliveries: Insert<'f>,
}

impl<'f> Inserts<'f> {
    pub(super) fn new(db: &'f Connection) -> Result<Self> {
        Ok(Self {
            db,
            events: Vec::new(),
            lanes: Vec::new(),
            deliveries: Vec::new(),
            into_first_event: Insert::new(
                db,
                concat!("events (num, ", event_values!(), ")"),
                &[1],
            )?,
            into_later_events: Insert::new(
                db,
                concat!("events (", event_values!(), ")"),
                &INSERT_ROWS,
            )?,
            into_lanes: Insert::new(
                db,
                "lanes (id, endpoint, last_seq, era, line_before, used_at)",
                &INSERT_ROWS,
            )?,
            into_lane_keys: Insert::new(db, "lane_keys (endpoint, key, lane)", &INSERT_ROWS)?,
            into_deliveries: Insert::new(
                db,
                "deliveries (id, event, endpoint, lane, seq, standing, replay, again, changed_at)",
                &INSERT_ROWS,
            )?,
        })
    }

    /// The events of a group have consecutive numbers: [`Inserts::run`] relies on it.
    pub(super) fn add_event(&mut self, event: NewEvent) {
        let follows = self.events.last().is_none_or(|last| last.num + 1 == event.num);
        assert!(follows, "event number {} is not the next one of its group", event.num);
        self.events.push(event);
    }

    /// The events that are to be added.
    pub(super) fn events(&self) -> &[NewEvent] {
        &self.events
    }

    /// The deliveries that are to be added.
    pub(super) fn deliveries(&self) -> &[DeliveryInsert] {
        &self.deliveries
    }

    pub(super) fn add_lane(&mut self, lane: NewLane) {
        self.lanes.push(lane);
    }

    /// The lanes that are to be added.
    pub(super) fn new_lanes(&mut self) -> &mut [NewLane] {
        &mut self.lanes
    }

    pub(super) fn add_delivery(&mut self, delivery: DeliveryInsert) {
        self.deliveries.push(delivery);
    }

    /// Adds everything. If it fails, the group must be given up.
    pub(super) fn run(&mut self) -> Result<()> {
        let follows = |pair: &[NewEvent]| pair[0].num + 1 == pair[1].num;
        assert!(self.events.windows(2).all(follows), "events are numbered without a gap");
        let (first, later) = self.events.split_at(self.events.len().min(1));
        self.into_first_event.run(first, bind_numbered_event)?;
        self.into_later_events.run(later, bind_event)?;
        self.assert_event_numbers();
        self.into_lanes.run(&self.lanes, bind_lane)?;
        self.into_lane_keys.run(&self.lanes, bind_lane_key)?;
        self.into_deliveries.run(&self.deliveries, bind_delivery)?;
        self.forget();
        Ok(())
    }

    /// SQLite numbered the later events itself. If the last one has its number, all of them do, because each
    /// got the highest number plus one. Deliveries name their events by these numbers.
    fn assert_event_numbers(&self) {
        if let Some(last) = self.events.last() {
            let stored = self.db.last_insert_rowid();
            assert_eq!(
                stored, last.num,
                "SQLite gave an event another number than its deliveries know"
            );
        }
    }

    /// Forgets what was to be added.
    pub(super) fn forget(&mut self) {
        self.events.clear();
        self.lanes.clear();
        self.deliveries.clear();
    }
}

fn bind_numbered_event(new: &NewEvent, values: &mut Values<'_, '_>) -> Result<()> {
    values.bind(new.num)?;
    bind_event(new, values)
}

/// Without its number: SQLite counts on from the event before. [`Inserts::assert_event_numbers`] checks it.
fn bind_event(new: &NewEvent, values: &mut Values<'_, '_>) -> Result<()> {
    let event = &new.batch.events[new.index];
    values.bind(new.tenant)?;
    values.bind(event.id.to_string())?;
    values.bind(event.event_type.as_str())?;
    values.bind(event.key.as_ref().map(|key| key.as_str().as_bytes()))?;
    values.bind(event.content_type.as_str())?;
    values.bind(event.schema_version)?;
    values.bind(millis(event.time))?;
    values.bind(millis(new.accepted_at))?;
    values.bind(&event.traceparent)?;
    values.bind(event.cloudevent.as_ref().map(to_json))?;
    values.bind(new.first.to_bytes())?;
    values.bind(new.fanout)?;
    values.bind(&event.payload[..])?;
    values.bind(new.batch.accepted_by.as_ref().map(accepted_by::encode))
}

fn bind_lane(new: &NewLane, values: &mut Values<'_, '_>) -> Result<()> {
    let Lane { id, last, era, line_before, used_at, .. } = new.lane;
    values.bind(id.0)?;
    values.bind(new.at.0)?;
    values.bind(last)?;
    values.bind(era)?;
    values.bind(line_before)?;
    values.bind(used_at)
}

fn bind_lane_key(new: &NewLane, values: &mut Values<'_, '_>) -> Result<()> {
    let (endpoint, key) = &new.at;
    values.bind(*endpoint)?;
    values.bind(key_bytes(key.as_ref()))?;
    values.bind(new.lane.id.0)
}

fn bind_delivery(new: &DeliveryInsert, values: &mut Values<'_, '_>) -> Result<()> {
    values.bind(new.id.to_bytes())?;
    values.bind(new.event)?;
    values.bind(new.endpoint)?;
    values.bind(new.place.map(|place| place.lane.0))?;
    values.bind(new.place.map(|place| place.seq.get()))?;
    values.bind(PENDING)?;
    values.bind(new.again)?;
    values.bind(new.again)?;
    values.bind(millis(new.made_at))
}

/// The values of a statement, one after the other.
struct Values<'a, 'f> {
    statement: &'a mut Statement<'f>,
    bound: usize,
}

impl Values<'_, '_> {
    fn bind(&mut self, value: impl ToSql) -> Result<()> {
        self.bound += 1;
        self.statement.raw_bind_parameter(self.bound, value)
    }
}

/// Statements that add rows to one table. They are prepared once: even to find them among those that the
/// connection keeps would be a twentieth of the writer's time.
#[derive(Debug)]
struct Insert<'f> {
    /// Each with how many rows it adds, from the most to one.
    by_rows: Vec<(usize, Statement<'f>)>,
}

impl<'f> Insert<'f> {
    /// `into` is the table and, in brackets, its columns that are given; `rows` how many may be added at
    /// once, from the most to one.
    fn new(db: &'f Connection, into: &str, rows: &[usize]) -> Result<Self> {
        let by_rows = rows.iter().map(|rows| Ok((*rows, db.prepare(&insert_sql(into, *rows))?)));
        Ok(Self { by_rows: by_rows.collect::<Result<_>>()? })
    }

    fn run<R>(
        &mut self,
        rows: &[R],
        bind: fn(&R, &mut Values<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let mut rest = rows;
        for (count, statement) in &mut self.by_rows {
            while let Some((rows, later)) = rest.split_at_checked(*count) {
                let mut values = Values { statement, bound: 0 };
                rows.iter().try_for_each(|row| bind(row, &mut values))?;
                statement.raw_execute()?;
                // They are copies, and payloads may be large.
                statement.clear_bindings();
                rest = later;
            }
        }
        Ok(())
    }
}

/// `OR FAIL`, because a group that fails is rolled back whole. To undo a single run, SQLite would copy every
/// page that the run changes.
///
/// It does that nevertheless where many rows come with their row numbers, because those may not be numbers. So
/// events leave theirs out. Lanes do not: theirs are not the next ones, and lie on one page.
fn insert_sql(into: &str, rows: usize) -> String {
    let row = format!("({})", vec!["?"; into.split(',').count()].join(", "));
    format!("INSERT OR FAIL INTO {into} VALUES {}", vec![&row[..]; rows].join(", "))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use railpost_wire::{AuditId, EndpointId, EventId, Seq, TenantId};
    use tempfile::TempDir;

    use super::super::session::testing::{self, in_a_group};
    use super::super::session::{OpenFile, WriteSession};
    use super::*;
    use railpost_store::{
        AuditEntry, EndpointPrivate, EndpointSettings, Event, NewEndpoint, Receipt, RedeliverBatch,
        TenantSettings, Write,
    };

    const ENDPOINT: EndpointId = EndpointId::from_u128(1);

    fn tenant() -> TenantId {
        "acme".parse().unwrap()
    }

    /// The entry that tells of the end of erasing the tenant.
    fn ended() -> AuditEntry {
        AuditEntry {
            id: AuditId::from_u128(1),
            at: Timestamp::default(),
            tenant: None,
            actor: String::new(),
            address: None,
            action: String::new(),
            target: String::new(),
            detail: serde_json::Value::Null,
        }
    }

    fn event(number: u64) -> Event {
        Event {
            id: EventId::generate(number, [0; 10]),
            event_type: "a.b".parse().unwrap(),
            key: Some(format!("k{number}").parse().unwrap()),
            payload: Bytes::from(number.to_string()),
            content_type: "text/plain".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(number),
            traceparent: None,
            cloudevent: None,
        }
    }

    fn batch(numbers: impl IntoIterator<Item = u64>) -> Arc<AcceptBatch> {
        let events = numbers.into_iter().map(event).collect();
        Arc::new(AcceptBatch { tenant: tenant(), events, accepted_by: None, idempotency: None })
    }

    /// A file with a tenant and an endpoint.
    fn open(folder: &TempDir) -> OpenFile {
        let file = testing::open(&folder.path().join("store.db"));
        let mut session = file.session().unwrap();
        let endpoint = NewEndpoint {
            id: ENDPOINT,
            tenant: tenant(),
            settings: EndpointSettings::all_events("https://example.com"),
            private: EndpointPrivate::default(),
        };
        in_a_group(&mut session, |session| {
            let create = Write::CreateTenant(tenant(), TenantSettings::default());
            session.commit(&create.into()).unwrap();
            session.commit(&Write::CreateEndpoint(endpoint).into()).unwrap();
        });
        drop(session);
        file
    }

    fn numbers(session: &WriteSession<'_>, sql: &str) -> Vec<u64> {
        let mut statement = session.db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn however_many_a_group_accepts_each_is_added_once() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        let [most, ..] = INSERT_ROWS;
        let mut before = 0;
        for count in (0..=2 * most as u64 + 1).step_by(3) {
            let numbers_now = before..before + count;
            let accepted =
                in_a_group(&mut session, |session| session.accept(&batch(numbers_now)).unwrap());
            assert_eq!(accepted.len() as u64, count);
            before += count;
        }
        let all: Vec<u64> = (0..before).collect();
        let payloads = "SELECT CAST(CAST(payload AS TEXT) AS INTEGER) FROM events ORDER BY num";
        assert_eq!(numbers(&session, payloads), all);
        // Each has a lane of its own, and its delivery stands there.
        let delivered = "SELECT CAST(substr(CAST(k.key AS TEXT), 2) AS INTEGER) FROM deliveries AS d \
                         JOIN lane_keys AS k USING (lane) JOIN lanes AS l ON l.id = d.lane \
                         JOIN events AS e ON e.num = d.event AND e.key = k.key ORDER BY d.id";
        assert_eq!(numbers(&session, delivered), all);
        assert_eq!(numbers(&session, "SELECT count(*) FROM deliveries WHERE seq <> 1"), [0]);
    }

    #[test]
    fn events_have_the_numbers_their_deliveries_know_even_after_the_last_ones_are_gone() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        in_a_group(&mut session, |session| session.accept(&batch(0..10)).unwrap());
        in_a_group(&mut session, |session| {
            let gone = "DELETE FROM deliveries WHERE event > 5; DELETE FROM events WHERE num > 5";
            session.db.execute_batch(gone).unwrap();
        });
        in_a_group(&mut session, |session| session.accept(&batch(10..30)).unwrap());
        let keys = "SELECT CAST(substr(CAST(e.key AS TEXT), 2) AS INTEGER) FROM deliveries AS d \
                    JOIN lane_keys AS k USING (lane) \
                    JOIN events AS e ON e.num = d.event AND e.key = k.key ORDER BY d.id";
        assert_eq!(numbers(&session, keys), Vec::from_iter((0..5).chain(10..30)));
    }

    #[test]
    #[should_panic(expected = "another number than its deliveries know")]
    fn an_event_that_sqlite_numbers_otherwise_is_never_committed() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        session.begin(true).unwrap();
        session.accept(&batch(0..3)).unwrap();
        let elsewhere = concat!(
            "INSERT INTO events (num, ",
            event_values!(),
            ") SELECT 99, num, 'x', 'a', NULL, 'text/plain', NULL, 0, 0, NULL, NULL, x'', 0, x'', NULL FROM tenants"
        );
        session.db.execute_batch(elsewhere).unwrap();
        let _ = session.end();
    }

    #[test]
    #[should_panic(expected = "event number 3 is not the next one of its group")]
    fn a_gap_in_the_numbers_of_a_group_is_noticed() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        session.begin(true).unwrap();
        session.accept(&batch([0])).unwrap();
        session.cache.next_event(session.db).unwrap();
        let _ = session.accept(&batch([1]));
    }

    /// A statement of many rows that may have to be undone by itself keeps a copy of each page that it
    /// changes, in a temporary file if there are many.
    #[test]
    fn to_add_many_events_or_deliveries_copies_no_page() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let session = file.session().unwrap();
        let Inserts { into_later_events, into_lane_keys, into_deliveries, .. } = &session.inserts;
        for (rows, statement) in
            [into_later_events, into_lane_keys, into_deliveries].iter().flat_map(|i| &i.by_rows)
        {
            let sql = statement.expanded_sql().unwrap();
            let mut explained = session.db.prepare(&format!("EXPLAIN {sql}")).unwrap();
            let steps = explained.query_map([], |row| Ok((row.get(1)?, row.get(3)?))).unwrap();
            let steps: Vec<(String, i64)> = steps.map(Result::unwrap).collect();
            assert!(steps.iter().any(|(name, _)| name == "Insert" || name == "IdxInsert"));
            // The second value of a halt is what becomes of the statement; 2 is that it is undone.
            let may_be_undone = |(name, value): &&(String, i64)| {
                name == "MustBeInt" || name == "Halt" && *value == 2
            };
            assert_eq!(steps.iter().find(may_be_undone), None, "{rows} rows: {sql}");
        }
    }

    #[test]
    fn a_look_up_finds_what_its_own_group_accepted() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        session.begin(true).unwrap();
        session.accept(&batch([1])).unwrap();
        session.accept(&batch([1])).unwrap();
        session.end().unwrap_err();
        session.give_up();
        assert!(session.looks_up_next());
        in_a_group(&mut session, |session| {
            let first = session.accept(&batch([1])).unwrap();
            assert!(matches!(first[..], [Receipt::Accepted { .. }]), "{first:?}");
            let second = session.accept(&batch([1])).unwrap();
            assert!(matches!(second[..], [Receipt::Duplicate { .. }]), "{second:?}");
        });
        in_a_group(&mut session, |session| {
            session.accept(&batch([2])).unwrap();
            let orders = vec![(event(2).id, ENDPOINT)];
            let again = RedeliverBatch { tenant: tenant(), orders, audit: None, idempotency: None };
            let place = session.redeliver(&again).unwrap()[0].place.unwrap();
            assert_eq!(place.seq, Seq::FIRST.next());
        });
        in_a_group(&mut session, |session| {
            session.accept(&batch([3])).unwrap();
            session.commit(&Write::EraseTenant(tenant()).into()).unwrap();
            assert!(session.erase_tenant(&tenant(), &ended()).unwrap());
        });
        assert_eq!(numbers(&session, "SELECT count(*) FROM events"), [0]);
        assert_eq!(numbers(&session, "SELECT count(*) FROM deliveries"), [0]);
    }

    #[test]
    fn what_a_failed_group_accepted_is_not_added_by_the_next() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder);
        let mut session = file.session().unwrap();
        session.begin(true).unwrap();
        session.accept(&batch([1, 2])).unwrap();
        session.give_up();
        in_a_group(&mut session, |session| session.accept(&batch([3])).unwrap());
        assert_eq!(
            numbers(&session, "SELECT CAST(CAST(payload AS TEXT) AS INTEGER) FROM events"),
            [3]
        );
        assert_eq!(numbers(&session, "SELECT count(*) FROM lane_keys"), [1]);
        assert_eq!(numbers(&session, "SELECT count(*) FROM deliveries"), [1]);
    }
}
