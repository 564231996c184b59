//! The relay against real databases: a PostgreSQL server with `wal_level = logical`, SQLite files, and
//! real stores.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and the judge says what it saw"
)]

mod support;
mod database;
mod writers;
mod poll;
mod publication;
mod parked;
mod refused;
mod trouble;
mod sqlite;
mod checks;
mod interrupted;
mod tail;
mod large;
mod in_the_store;
