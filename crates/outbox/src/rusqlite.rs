//! `emit` for rusqlite.

use crate::{Event, sql};
use ::rusqlite::types::{ToSqlOutput, ValueRef};
use ::rusqlite::{Connection, Error, Savepoint, Transaction, params};
use std::ops::Deref;

/// A transaction or savepoint of rusqlite.
pub trait OpenTransaction: Deref<Target = Connection> + sealed::Sealed {}

impl OpenTransaction for Transaction<'_> {}
impl OpenTransaction for Savepoint<'_> {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for ::rusqlite::Transaction<'_> {}
    impl Sealed for ::rusqlite::Savepoint<'_> {}
}

/// Writes an event in this transaction or savepoint, and returns its id.
pub fn emit(transaction: &mut impl OpenTransaction, event: &Event) -> Result<String, Error> {
    let parameters = event.parameters();
    let bytes = || ValueRef::Blob(parameters.payload_bytes.unwrap_or_default());
    let payload = parameters.payload.map_or_else(bytes, ValueRef::from);
    let mut insert = transaction.prepare_cached(sql::SQLITE_INSERT)?;
    insert.query_row(
        params![
            parameters.event_type,
            ToSqlOutput::Borrowed(payload),
            parameters.key,
            parameters.id,
            parameters.tenant,
            parameters.content_type,
            parameters.schema_version,
            parameters.unix_ms,
            parameters.traceparent,
        ],
        |row| row.get(0),
    )
}
