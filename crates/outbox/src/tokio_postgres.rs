//! `emit` for tokio-postgres.

use crate::{Event, sql};
use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Error, Transaction};

/// Writes an event in this transaction or savepoint, by the function `railpost_emit`, and returns its id.
/// One round trip; nothing is prepared, so it works behind a pooler in transaction mode too.
pub async fn emit(transaction: &mut Transaction<'_>, event: &Event) -> Result<String, Error> {
    let parameters = event.parameters();
    let typed: [(&(dyn ToSql + Sync), Type); 11] = [
        (&parameters.event_type, Type::TEXT),
        (&parameters.payload, Type::TEXT),
        (&parameters.key, Type::TEXT),
        (&parameters.id, Type::TEXT),
        (&parameters.tenant, Type::TEXT),
        (&parameters.content_type, Type::TEXT),
        (&parameters.schema_version, Type::INT8),
        (&parameters.unix_ms, Type::INT8),
        (&parameters.traceparent, Type::TEXT),
        (&parameters.payload_bytes, Type::BYTEA),
        (&parameters.strict, Type::BOOL),
    ];
    let rows = transaction.query_typed(sql::POSTGRES_EMIT, &typed).await?;
    rows[0].try_get(0)
}
