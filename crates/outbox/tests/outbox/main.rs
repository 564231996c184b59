//! The outbox on real databases: PostgreSQL as `RAILPOST_TEST_POSTGRES` names it, and SQLite in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bounds;
mod docs;
mod drivers;
mod function;
mod support;
