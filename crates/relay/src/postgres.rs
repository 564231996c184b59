//! Sources in PostgreSQL.

pub(crate) mod connect;
pub(crate) mod mapping;
pub(crate) mod poll;
