//! A session that can be given commands: what the server is, its slots, and the start of a stream.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;

use crate::backend::Backend;
use crate::error::Operation;
use crate::limits::{
    ANSWER_ROWS_MAX, COMMAND_TIMEOUT, CONNECT_TIMEOUT, SLOT_NAME_LEN_MAX, STATUSES_PER_TIMEOUT,
};
use crate::stream::{Stream, Timing};
use crate::transport::{ServerAddress, Transport};
use crate::{Error, ErrorKind, Lsn, Target, auth};

/// A session of the replication protocol, before its stream.
pub struct Connection {
    transport: Transport,
    version: u32,
    wal_sender_timeout: Duration,
}

/// Which server this is, and where its log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemIdentity {
    /// Of the data: a server that was set up again, or restored from a dump, has another.
    pub system_id: String,
    /// Of this continuation of the data. It counts up when a standby takes over or a backup is restored.
    pub timeline: u32,
    /// How far the log is flushed.
    pub flushed: Lsn,
}

/// A slot to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewSlot<'a> {
    /// Its name: small letters, digits and underscores.
    pub name: &'a str,
    /// Whether standbys keep a copy, so that it survives a failover. Servers before 17 cannot; there it has
    /// no effect.
    pub failover: bool,
    /// How long to wait for a transaction that is open already, in any database of the server. A slot
    /// begins when all of them have ended.
    pub wait_max: Duration,
}

/// A slot as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its output plug-in; nothing for a physical slot.
    pub plugin: Option<String>,
    /// Its database; nothing for a physical slot.
    pub database: Option<String>,
    /// The process of the server that reads from it.
    pub active_pid: Option<u32>,
    /// How far its reader confirmed.
    pub confirmed: Option<Lsn>,
    /// What the server has of the log that it needs.
    pub wal_status: WalStatus,
}

/// Whether a slot's part of the log is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalStatus {
    /// It is.
    Kept,
    /// It may be removed at the next checkpoint.
    AtRisk,
    /// It is gone, and the slot is of no use.
    Lost,
}

/// Where and how a stream begins.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The slot to read from.
    pub slot: &'a str,
    /// The position that the caller has stored, or zero to begin where the slot was confirmed. A position of
    /// another system id or timeline means nothing: compare [`Connection::identify_system`] first.
    pub from: Lsn,
    /// The publications whose tables are read. At least one must be named.
    pub publications: &'a [&'a str],
    /// Whether logical messages are sent too. Servers before 14 cannot.
    pub messages: bool,
}

/// The answer to a command, as text.
type Rows = Vec<Vec<Option<String>>>;

impl Connection {
    /// Begins a session on the first of the target's hosts that will do.
    pub async fn connect(target: &Target) -> Result<Self, Error> {
        let mut last = None;
        for address in ServerAddress::all(target) {
            match timeout(CONNECT_TIMEOUT, Self::connect_to(&address, target)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => last = Some(error),
                Err(_) => {
                    let problem =
                        format!("no session on {address} within {} s", CONNECT_TIMEOUT.as_secs());
                    last = Some(Error::new(ErrorKind::Unreachable, problem));
                }
            }
        }
        Err(last.expect("a target names at least one host"))
    }

    async fn connect_to(address: &ServerAddress, target: &Target) -> Result<Self, Error> {
        let mut transport = Transport::connect(address, target).await?;
        let version = auth::log_in(&mut transport, target).await?;
        let wal_sender_timeout = target.wal_sender_timeout;
        let mut connection = Self { transport, version, wal_sender_timeout };
        let wanted = match target.config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => "off",
            TargetSessionAttrs::ReadOnly => "on",
            _ => return Ok(connection),
        };
        let rows = connection.query("SHOW transaction_read_only").await?;
        if text(&rows, 0)? == wanted {
            return Ok(connection);
        }
        let problem = format!("{address} is not the server that `target_session_attrs` wants");
        Err(Error::new(ErrorKind::Unreachable, problem))
    }

    /// The server's major version, such as 17.
    pub fn server_version(&self) -> u32 {
        self.version
    }

    /// Which server this is.
    pub async fn identify_system(&mut self) -> Result<SystemIdentity, Error> {
        let rows = self.query("IDENTIFY_SYSTEM").await?;
        let timeline = text(&rows, 1)?.parse().map_err(|_| unexpected("a timeline"))?;
        let flushed = lsn(text(&rows, 2)?)?;
        Ok(SystemIdentity { system_id: text(&rows, 0)?.to_owned(), timeline, flushed })
    }

    /// Creates a logical slot of the plug-in `pgoutput`, and returns the position that it begins at. The
    /// publication must be there before: one that is younger than the slot fails on every change between.
    pub async fn create_slot(&mut self, slot: &NewSlot<'_>) -> Result<Lsn, Error> {
        check_slot_name(slot.name)?;
        // The server itself gives up: a client that did would leave a slot behind that is created later.
        let wait_max = slot.wait_max.as_millis().max(1);
        self.query(&format!("SET lock_timeout = {wait_max}")).await?;
        let options = match slot.failover {
            true if self.version >= 17 => "(SNAPSHOT 'nothing', FAILOVER)",
            _ => "NOEXPORT_SNAPSHOT",
        };
        let command = format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput {options}", slot.name);
        // The server waits for three snapshots, one after the other.
        let time_max = COMMAND_TIMEOUT + 3 * slot.wait_max;
        let created = self.command(Operation::CreateSlot, &command, time_max).await;
        self.query("SET lock_timeout = 0").await?;
        lsn(text(&created?, 1)?)
    }

    /// Removes a slot that nobody reads from.
    pub async fn drop_slot(&mut self, name: &str) -> Result<(), Error> {
        check_slot_name(name)?;
        let command = format!("DROP_REPLICATION_SLOT {name}");
        self.command(Operation::DropSlot, &command, COMMAND_TIMEOUT).await.map(drop)
    }

    /// The slot of that name, if there is one.
    pub async fn slot(&mut self, name: &str) -> Result<Option<Slot>, Error> {
        check_slot_name(name)?;
        let rows = self
            .query(&format!(
                "SELECT plugin, database, active_pid, confirmed_flush_lsn, wal_status \
                 FROM pg_catalog.pg_replication_slots WHERE slot_name = '{name}'"
            ))
            .await?;
        let [row] = &rows[..] else { return Ok(None) };
        let [plugin, database, active_pid, confirmed, wal_status] = &row[..] else {
            return Err(unexpected("a slot of five columns"));
        };
        Ok(Some(Slot {
            plugin: plugin.clone(),
            database: database.clone(),
            active_pid: active_pid.as_deref().and_then(|pid| pid.parse().ok()),
            confirmed: confirmed.as_deref().map(lsn).transpose()?,
            wal_status: match wal_status.as_deref() {
                Some("reserved" | "extended") => WalStatus::Kept,
                Some("unreserved") => WalStatus::AtRisk,
                _ => WalStatus::Lost,
            },
        }))
    }

    /// Starts the stream, if the server has everything from the position on that is asked for. The server
    /// itself would not say that it has not.
    pub async fn start(mut self, start: &Start<'_>) -> Result<Stream, Error> {
        let slot = self.check_slot(start.slot).await?;
        let confirmed = slot.confirmed.unwrap_or_default();
        if start.from != Lsn::ZERO {
            self.check_position(start, confirmed).await?;
        }
        self.check_publications(start.publications).await?;
        if start.messages && self.version < 14 {
            let problem = format!("PostgreSQL {} sends no logical messages; 14 does", self.version);
            return Err(Error::new(ErrorKind::Version, problem));
        }
        let from = start.from.max(confirmed);
        self.begin_copy(&start_command(start, from)).await?;
        let status = self.wal_sender_timeout / STATUSES_PER_TIMEOUT;
        let timing = Timing { status, ..Timing::default() };
        Ok(Stream::spawn(self.transport.socket, self.transport.input, from, timing))
    }

    async fn check_position(&mut self, start: &Start<'_>, confirmed: Lsn) -> Result<(), Error> {
        let (slot, from) = (start.slot, start.from);
        if from < confirmed {
            let problem = format!("slot `{slot}` was confirmed to {confirmed}, after {from}");
            return Err(Error::new(ErrorKind::SlotAhead { from, confirmed }, problem));
        }
        let flushed = self.identify_system().await?.flushed;
        if flushed < from {
            let problem = format!("the server's log ends at {flushed}, before {from}");
            return Err(Error::new(ErrorKind::LogBehind { from, flushed }, problem));
        }
        Ok(())
    }

    async fn check_slot(&mut self, name: &str) -> Result<Slot, Error> {
        let missing = || Error::new(ErrorKind::SlotMissing, format!("there is no slot `{name}`"));
        let slot = self.slot(name).await?.ok_or_else(missing)?;
        let rows = self.query("SELECT pg_catalog.current_database()").await?;
        let database = text(&rows, 0)?;
        if slot.plugin.as_deref() != Some("pgoutput") || slot.database.as_deref() != Some(database)
        {
            let of = |what: &Option<String>| what.clone().unwrap_or_else(|| "none".to_owned());
            let (plugin, its_own) = (of(&slot.plugin), of(&slot.database));
            let problem = format!(
                "slot `{name}` has plug-in `{plugin}` and database `{its_own}`; expected `pgoutput` \
                 and `{database}`"
            );
            return Err(Error::new(ErrorKind::SlotMismatch, problem));
        }
        if slot.wal_status == WalStatus::Lost {
            let problem =
                format!("the server gave up slot `{name}`: the log that it needs is gone");
            return Err(Error::new(ErrorKind::SlotLost, problem));
        }
        Ok(slot)
    }

    /// From version 18 on a server passes over a publication that is missing, and over its changes.
    async fn check_publications(&mut self, names: &[&str]) -> Result<(), Error> {
        if names.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "at least one publication must be named"));
        }
        for name in names {
            let sql = format!(
                "SELECT pubname FROM pg_catalog.pg_publication WHERE pubname = {}",
                quoted('\'', name)
            );
            if self.query(&sql).await?.is_empty() {
                let problem = format!("there is no publication `{name}`");
                return Err(Error::new(ErrorKind::PublicationMissing, problem));
            }
        }
        Ok(())
    }

    /// Sends the command that turns the session into a stream.
    async fn begin_copy(&mut self, command: &str) -> Result<(), Error> {
        let begin = async {
            self.send_query(command).await?;
            loop {
                match self.transport.receive().await? {
                    Backend::CopyBoth => return Ok(()),
                    Backend::Error(error) => return Err(Error::of_server(Operation::Start, error)),
                    Backend::Ready => return Err(unexpected("a stream")),
                    _ => {}
                }
            }
        };
        timeout(COMMAND_TIMEOUT, begin).await.unwrap_or_else(|_| Err(unanswered(COMMAND_TIMEOUT)))
    }

    async fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.command(Operation::Query, sql, COMMAND_TIMEOUT).await
    }

    async fn command(
        &mut self,
        operation: Operation,
        command: &str,
        time_max: Duration,
    ) -> Result<Rows, Error> {
        let answer = async {
            self.send_query(command).await?;
            self.receive_rows(operation).await
        };
        timeout(time_max, answer).await.unwrap_or_else(|_| Err(unanswered(time_max)))
    }

    async fn send_query(&mut self, command: &str) -> Result<(), Error> {
        let mut message = BytesMut::new();
        frontend::query(command, &mut message)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("invalid name: {error}")))?;
        self.transport.send(&message).await
    }

    /// Reads to the end of the answer, also after an error, so that the session is ready for the next
    /// command.
    async fn receive_rows(&mut self, operation: Operation) -> Result<Rows, Error> {
        let (mut rows, mut failed) = (Rows::new(), None);
        loop {
            match self.transport.receive().await? {
                Backend::Row(row) if rows.len() < ANSWER_ROWS_MAX => rows.push(row),
                Backend::Row(_) => return Err(unexpected("a short answer")),
                Backend::Error(error) => failed = Some(Error::of_server(operation, error)),
                Backend::Ready => return failed.map_or(Ok(rows), Err),
                Backend::Other | Backend::Notice(_) | Backend::Parameter { .. } => {}
                _ => return Err(unexpected("rows")),
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("version", &self.version).finish_non_exhaustive()
    }
}

fn start_command(start: &Start<'_>, from: Lsn) -> String {
    let publications: Vec<_> = start.publications.iter().map(|name| quoted('"', name)).collect();
    let publications = quoted('\'', &publications.join(","));
    let mut command = format!(
        "START_REPLICATION SLOT {} LOGICAL {from} (proto_version '1', publication_names {publications}",
        start.slot
    );
    if start.messages {
        let _ = write!(command, ", messages 'true'");
    }
    command.push(')');
    command
}

/// A name or text in quotes; a quote inside is doubled.
fn quoted(quote: char, text: &str) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

/// PostgreSQL's own rule. It makes the name safe to write into a command.
fn check_slot_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..=SLOT_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    let problem =
        format!("invalid slot name {name:?}: expected 1 to {SLOT_NAME_LEN_MAX} of a-z, 0-9 and _");
    Err(Error::new(ErrorKind::Invalid, problem))
}

/// A column of the only row.
fn text(rows: &Rows, column: usize) -> Result<&str, Error> {
    let row = rows.first().and_then(|row| row.get(column));
    row.and_then(Option::as_deref).ok_or_else(|| unexpected("a value"))
}

fn lsn(text: &str) -> Result<Lsn, Error> {
    text.parse().map_err(|error| Error::new(ErrorKind::Protocol, format!("{error}")))
}

fn unexpected(expected: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("unexpected answer of the server: expected {expected}"))
}

fn unanswered(time_max: Duration) -> Error {
    let problem = format!("the server does not answer within {} s", time_max.as_secs());
    Error::new(ErrorKind::TimedOut, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_name_that_postgresql_refuses_is_refused() {
        let long = "a".repeat(64);
        for (name, valid) in [
            ("shop_1", true),
            (&long[1..], true),
            (&long[..], false),
            ("", false),
            ("Shop", false),
            ("a b", false),
            ("a; DROP TABLE b", false),
            ("é", false),
        ] {
            assert_eq!(check_slot_name(name).is_ok(), valid, "{name}");
        }
    }

    #[test]
    fn a_publication_may_have_any_name() {
        let publications = ["shop", "it's \"odd\", very"];
        let start =
            Start { slot: "s", from: Lsn::ZERO, publications: &publications, messages: true };
        assert_eq!(
            start_command(&start, Lsn::from_u64(10)),
            "START_REPLICATION SLOT s LOGICAL 0/A (proto_version '1', publication_names \
             '\"shop\",\"it''s \"\"odd\"\", very\"', messages 'true')"
        );
    }
}
