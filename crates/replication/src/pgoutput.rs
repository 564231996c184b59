//! What the server's output plug-in `pgoutput` sends, in version 1 of its protocol.
//!
//! A transaction arrives whole and after its commit: [`Message::Begin`], its changes, [`Message::Commit`].
//! A [`Message::Relation`] comes before the first insert into a table, and again when the table changed.

use std::fmt;

use bytes::Bytes;

use crate::Lsn;
use crate::cursor::{Cursor, Malformed};

/// One message of the plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A transaction that was committed begins.
    Begin(Begin),
    /// It ends.
    Commit(Commit),
    /// How a table looks from here on.
    Relation(Relation),
    /// A row was inserted.
    Insert(Insert),
    /// `pg_logical_emit_message` was called.
    Logical(LogicalMessage),
    /// Any other message, by its tag: updates, deletes, truncates, origins, types.
    Other(u8),
}

/// The head of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Where its commit record begins.
    pub commit_lsn: Lsn,
    /// When it was committed, in microseconds since 1970.
    pub commit_time_us: i64,
    /// Its transaction id, the low 32 bits.
    pub xid: u32,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Where its commit record begins.
    pub commit_lsn: Lsn,
    /// Where its commit record ends: the position to confirm once the transaction is stored.
    pub end_lsn: Lsn,
    /// When it was committed, in microseconds since 1970.
    pub commit_time_us: i64,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its number, which inserts name.
    pub id: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What of the old row an update or delete brings: `d`, `n`, `f` or `i`.
    pub replica_identity: u8,
    /// Its columns, in the order of the values of an insert.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Whether it is part of the replica identity.
    pub is_key: bool,
    /// Its name.
    pub name: String,
    /// The number of its type.
    pub type_oid: u32,
    /// What its type was declared with, or -1.
    pub type_modifier: i32,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The number of its table.
    pub relation: u32,
    /// One value per column of the table.
    pub values: Vec<Value>,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// A large value that did not change and was not sent. No insert has one.
    Unchanged,
    /// The value as text, in UTF-8 if the database's encoding can be converted to it.
    Text(Bytes),
    /// The value in its type's binary form, which this client does not ask for.
    Binary(Bytes),
}

/// What `pg_logical_emit_message(transactional, prefix, content)` was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalMessage {
    /// Whether it is part of the transaction around it. One that is not comes outside of `Begin` and
    /// `Commit`, and even if its transaction is rolled back.
    pub transactional: bool,
    /// Where its record ends: the position to confirm if it is not transactional.
    pub lsn: Lsn,
    /// Its prefix.
    pub prefix: String,
    /// Its content.
    pub content: Bytes,
}

/// A message that does not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    tag: Option<u8>,
    problem: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Some(tag) => {
                write!(f, "invalid pgoutput message `{}`: {}", tag.escape_ascii(), self.problem)
            }
            None => write!(f, "invalid pgoutput message: {}", self.problem),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads one message. What is left over at its end is an error: nothing is skipped.
pub fn decode(message: Bytes) -> Result<Message, DecodeError> {
    let mut cursor = Cursor::new(message);
    let tag = cursor.u8().map_err(|Malformed(problem)| DecodeError { tag: None, problem })?;
    decode_body(tag, &mut cursor)
        .map_err(|Malformed(problem)| DecodeError { tag: Some(tag), problem })
}

fn decode_body(tag: u8, cursor: &mut Cursor) -> Result<Message, Malformed> {
    let message = match tag {
        b'B' => Message::Begin(begin(cursor)?),
        b'C' => Message::Commit(commit(cursor)?),
        b'R' => Message::Relation(relation(cursor)?),
        b'I' => Message::Insert(insert(cursor)?),
        b'M' => Message::Logical(logical_message(cursor)?),
        other => return Ok(Message::Other(other)),
    };
    if cursor.is_empty() { Ok(message) } else { Err(Malformed("it goes on after its end")) }
}

fn begin(cursor: &mut Cursor) -> Result<Begin, Malformed> {
    let (commit_lsn, commit_time_us) = (lsn(cursor)?, time(cursor)?);
    Ok(Begin { commit_lsn, commit_time_us, xid: cursor.u32()? })
}

fn commit(cursor: &mut Cursor) -> Result<Commit, Malformed> {
    // Flags, of which none is in use.
    cursor.u8()?;
    let (commit_lsn, end_lsn) = (lsn(cursor)?, lsn(cursor)?);
    Ok(Commit { commit_lsn, end_lsn, commit_time_us: time(cursor)? })
}

fn relation(cursor: &mut Cursor) -> Result<Relation, Malformed> {
    let id = cursor.u32()?;
    let schema = cursor.text()?;
    // An empty name stands for the schema that is always there.
    let schema = if schema.is_empty() { "pg_catalog".to_owned() } else { schema };
    let (name, replica_identity) = (cursor.text()?, cursor.u8()?);
    let count = usize::from(cursor.u16()?);
    let columns = (0..count).map(|_| column(cursor)).collect::<Result<_, _>>()?;
    Ok(Relation { id, schema, name, replica_identity, columns })
}

fn column(cursor: &mut Cursor) -> Result<Column, Malformed> {
    let is_key = cursor.u8()? & 1 == 1;
    let (name, type_oid) = (cursor.text()?, cursor.u32()?);
    Ok(Column { is_key, name, type_oid, type_modifier: cursor.i32()? })
}

fn insert(cursor: &mut Cursor) -> Result<Insert, Malformed> {
    let relation = cursor.u32()?;
    if cursor.u8()? != b'N' {
        return Err(Malformed("expected the new row"));
    }
    let count = usize::from(cursor.u16()?);
    let values = (0..count).map(|_| value(cursor)).collect::<Result<_, _>>()?;
    Ok(Insert { relation, values })
}

fn value(cursor: &mut Cursor) -> Result<Value, Malformed> {
    Ok(match cursor.u8()? {
        b'n' => Value::Null,
        b'u' => Value::Unchanged,
        b't' => Value::Text(counted(cursor)?),
        b'b' => Value::Binary(counted(cursor)?),
        _ => return Err(Malformed("a value of an unknown kind")),
    })
}

fn logical_message(cursor: &mut Cursor) -> Result<LogicalMessage, Malformed> {
    let transactional = cursor.u8()? & 1 == 1;
    let (lsn, prefix) = (lsn(cursor)?, cursor.text()?);
    Ok(LogicalMessage { transactional, lsn, prefix, content: counted(cursor)? })
}

fn counted(cursor: &mut Cursor) -> Result<Bytes, Malformed> {
    let len = usize::try_from(cursor.i32()?).map_err(|_| Malformed("a negative length"))?;
    cursor.bytes(len)
}

fn lsn(cursor: &mut Cursor) -> Result<Lsn, Malformed> {
    cursor.u64().map(Lsn::from_u64)
}

fn time(cursor: &mut Cursor) -> Result<i64, Malformed> {
    Ok(cursor.i64()?.saturating_add(crate::backend::POSTGRES_EPOCH_US))
}
