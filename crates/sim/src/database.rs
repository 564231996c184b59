//! A receiver's database: the real inbox in SQLite, and the effects beside it in the same transaction.

use railpost_receiver::sqlite::{self, SqliteInbox};
use railpost_receiver::{InboxConfig, Policy, Verdict};
use railpost_wire::{DeliveryId, EndpointId, Received};
use rusqlite::backup::Backup;
use rusqlite::{Connection, Result, Transaction, params};

use crate::planted_defect::PlantedDefect;
use crate::receiver::{AppliedEvent, Body};

pub(crate) struct Database {
    connection: Connection,
    copy: Option<Connection>,
    inbox: SqliteInbox,
    policy: Policy,
    plant: PlantedDefect,
}

const EFFECTS: &str = "create table effects (number integer primary key, event integer not null,
    delivery blob not null, endpoint blob not null, line text, seq integer, replay integer not null)";

impl Database {
    pub(crate) fn new(policy: Policy, plant: PlantedDefect) -> Self {
        let inbox = inbox(policy);
        Self { connection: empty(), copy: None, inbox, policy, plant }
    }

    /// Judges an event and applies it, in one transaction, which `commits` or is rolled back. Says
    /// whether the effect is there.
    pub(crate) fn take(
        &mut self,
        received: &Received,
        application: &AppliedEvent,
        commits: bool,
        seconds: i64,
    ) -> (Verdict, bool) {
        let received = self.plant.received(received);
        let transaction = self.connection.transaction().expect("memory is at hand");
        let verdict = self.inbox.admit(&transaction, &received, seconds).expect("no row is wrong");
        if verdict.applies() {
            insert(&transaction, application).expect("an effect fits its table");
        }
        let commits = commits || !verdict.applies();
        match commits && self.plant.commits(verdict) {
            true => transaction.commit().expect("memory is at hand"),
            false => transaction.rollback().expect("memory is at hand"),
        }
        (verdict, commits && verdict.applies())
    }

    /// A new process over the same database.
    pub(crate) fn restart(&mut self) {
        self.inbox = inbox(self.policy);
    }

    /// A new process with another policy.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.restart();
    }

    pub(crate) fn erase(&mut self) {
        self.connection = empty();
        self.restart();
    }

    pub(crate) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    pub(crate) fn back_up(&mut self) {
        self.copy = Some(copy(&self.connection));
    }

    /// Goes back to the copy, which stays as it is.
    pub(crate) fn restore(&mut self) {
        if let Some(old) = &self.copy {
            self.connection = copy(old);
            self.restart();
        }
    }

    pub(crate) fn effects(&self) -> Vec<AppliedEvent> {
        let sql =
            "select event, delivery, endpoint, line, seq, replay from effects order by number";
        let mut statement = self.connection.prepare(sql).expect("the table is there");
        let rows = statement.query_map([], read).expect("the table is there");
        rows.collect::<Result<_>>().expect("it was written here")
    }
}

fn inbox(policy: Policy) -> SqliteInbox {
    SqliteInbox::new(InboxConfig { policy, ..InboxConfig::named("events") })
}

fn empty() -> Connection {
    let connection = Connection::open_in_memory().expect("memory is at hand");
    sqlite::create_tables(&connection).expect("the database is empty");
    connection.execute_batch(EFFECTS).expect("the database is empty");
    connection
}

fn copy(from: &Connection) -> Connection {
    let mut to = Connection::open_in_memory().expect("memory is at hand");
    let whole = -1;
    Backup::new(from, &mut to).and_then(|backup| backup.step(whole)).expect("memory is at hand");
    to
}

fn insert(transaction: &Transaction<'_>, application: &AppliedEvent) -> Result<()> {
    let AppliedEvent { body, place, replay } = application;
    let (line, seq) = (place.as_ref().map(|it| it.0.as_str()), place.as_ref().map(|it| it.1.get()));
    let sql = "insert into effects (event, delivery, endpoint, line, seq, replay)
               values (?1, ?2, ?3, ?4, ?5, ?6)";
    let (delivery, endpoint) = (body.delivery.to_bytes(), body.endpoint.to_bytes());
    let values = params![body.event, delivery, endpoint, line, seq, replay];
    transaction.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn read(row: &rusqlite::Row<'_>) -> Result<AppliedEvent> {
    let (delivery, endpoint): ([u8; 16], [u8; 16]) = (row.get(1)?, row.get(2)?);
    let body = Body {
        event: row.get(0)?,
        delivery: DeliveryId::from_u128(u128::from_be_bytes(delivery)),
        endpoint: EndpointId::from_u128(u128::from_be_bytes(endpoint)),
    };
    let line = row.get::<_, Option<String>>(3)?.and_then(|line| line.parse().ok());
    let seq = row.get::<_, Option<u64>>(4)?.and_then(railpost_wire::Seq::new);
    Ok(AppliedEvent { body, place: line.zip(seq), replay: row.get(5)? })
}
