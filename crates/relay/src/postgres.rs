//! Sources in PostgreSQL.

pub(crate) mod connect;
pub(crate) mod mapping;
pub(crate) mod log_rows;
pub(crate) mod poll;
pub(crate) mod publication;
mod slot;
pub(crate) mod table;
pub(crate) mod tail;
