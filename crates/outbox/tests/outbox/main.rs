//! The outbox on real databases: PostgreSQL as `RAILPOST_TEST_POSTGRES` names it, and SQLite in memory.

mod bounds;
mod drivers;
mod strict;
mod support;
