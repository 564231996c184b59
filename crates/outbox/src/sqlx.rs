//! `emit` for sqlx and PostgreSQL.

use crate::{Event, sql};
use ::sqlx::{Error, Postgres, Transaction};

/// Writes an event in this transaction or savepoint, by the function `railpost_emit`, and returns its id.
pub async fn emit(
    transaction: &mut Transaction<'_, Postgres>,
    event: &Event,
) -> Result<String, Error> {
    let parameters = event.parameters();
    ::sqlx::query_scalar(sql::POSTGRES_EMIT)
        .bind(parameters.event_type)
        .bind(parameters.payload)
        .bind(parameters.key)
        .bind(parameters.id)
        .bind(parameters.tenant)
        .bind(parameters.content_type)
        .bind(parameters.schema_version)
        .bind(parameters.unix_ms)
        .bind(parameters.traceparent)
        .bind(parameters.payload_bytes)
        .bind(parameters.strict)
        .fetch_one(&mut **transaction)
        .await
}
