//! `emit` for diesel and PostgreSQL.

use crate::{Event, sql};
use ::diesel::connection::{AnsiTransactionManager, TransactionManager};
use ::diesel::deserialize::{self, QueryableByName};
use ::diesel::pg::{Pg, PgConnection};
use ::diesel::result::Error;
use ::diesel::row::NamedRow;
use ::diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};
use ::diesel::{QueryResult, RunQueryDsl, sql_query};

/// Writes an event in the connection's transaction, by the function `railpost_emit`, and returns its id.
///
/// Diesel has no type for an open transaction, so this looks for one and refuses with
/// [`Error::NotInTransaction`] where `connection.transaction(…)` is not under way.
pub fn emit(connection: &mut PgConnection, event: &Event) -> QueryResult<String> {
    let status = AnsiTransactionManager::transaction_manager_status_mut(connection);
    if status.transaction_depth()?.is_none() {
        return Err(Error::NotInTransaction);
    }
    let parameters = event.parameters();
    let query = sql_query(sql::POSTGRES_EMIT)
        .bind::<Text, _>(parameters.event_type)
        .bind::<Nullable<Text>, _>(parameters.payload)
        .bind::<Nullable<Text>, _>(parameters.key)
        .bind::<Nullable<Text>, _>(parameters.id)
        .bind::<Nullable<Text>, _>(parameters.tenant)
        .bind::<Text, _>(parameters.content_type)
        .bind::<Nullable<BigInt>, _>(parameters.schema_version)
        .bind::<Nullable<BigInt>, _>(parameters.unix_ms)
        .bind::<Nullable<Text>, _>(parameters.traceparent)
        .bind::<Nullable<Binary>, _>(parameters.payload_bytes)
        .bind::<Bool, _>(parameters.strict);
    query.get_result::<Emitted>(connection).map(|emitted| emitted.id)
}

/// The one row of the answer.
struct Emitted {
    id: String,
}

impl QueryableByName<Pg> for Emitted {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let id = NamedRow::get::<Text, String>(row, "railpost_emit")?;
        Ok(Self { id })
    }
}
