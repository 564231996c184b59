//! How events come from other databases: an event exists if and only if the change that it tells of was
//! committed.
//!
//! A source is a table or a log of somebody else's database ([`config`]). Its reader takes rows in order
//! and hands them to the store's intake ([`Accept`]); a row is removed or confirmed at its source when
//! what became of it is durable here. The row's id is the event's id, so rows that are read twice are
//! accepted once, and relays may overlap.
//!
//! Absent: HTTP, the engine, delivery rules, configuration files. Everything is written through
//! [`Accept`] and [`Sources`](railpost_store::Sources).
//!
//! Start with [`Relay`]: `run.rs` is the task of a source, `handover.rs` the way from rows to events,
//! `postgres/poll.rs`, `postgres/tail.rs` and `sqlite.rs` the readers.

pub mod config;
pub mod limits;

mod context;
mod trouble;
mod status;
mod row;
mod handover;
mod init;
mod check;
mod run;
mod postgres;
mod sqlite;

pub use check::{Finding, Verdict, check, drop_source, init};
pub use config::{ConfigError, SourceConfig, SourceSection, check_all};
pub use context::{
    Accept, EventCheck, NoChecks, NoObserver, Observation, RelayContext, SourceObserver,
    StoreAddress,
};
pub use init::init_sql;
pub use row::SourceRow;
pub use run::Relay;
pub use status::{SlotStatus, SourceState, SourceStatus};
pub use trouble::Trouble;
