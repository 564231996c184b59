//! Sources, as the configuration names them. [`SourceSection`] is what is written, [`SourceConfig`] what
//! was checked.

mod columns;
mod section;

use std::fmt;
use std::path::PathBuf;

use railpost_engine::Span;
use railpost_store::SourceName;
use railpost_wire::TenantId;
use serde::{Deserialize, Serialize};

pub use columns::{Column, Columns, ColumnsSection, TemplatePart};
pub use section::{SourceSection, check_all};

/// What is wrong with a field of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field, such as `batch` or `columns.id`.
    pub field: String,
    /// What is wrong with it and what is allowed.
    pub problem: String,
}

impl ConfigError {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// A source whose configuration was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Its name.
    pub name: SourceName,
    /// Where it is.
    pub location: Location,
    /// How it is read.
    pub mode: Mode,
    /// Whose events they are; nothing if each row says so itself.
    pub tenant: Option<TenantId>,
    /// What its rows look like.
    pub shape: Shape,
    /// Its table. Messages have none.
    pub table: TableName,
    /// Where each part of an event stands in a row.
    pub columns: Columns,
    /// What becomes of a row that was taken.
    pub after: After,
    /// What makes the relay look.
    pub wake: Wake,
    /// The shortest and the longest time between two looks.
    pub poll_interval: (Span, Span),
    /// Most rows that are handed over together.
    pub batch: usize,
    /// In which order rows are taken.
    pub order: Order,
    /// What becomes of a row that is refused.
    pub on_refused: OnRefused,
    /// The replication slot and the publication of a tailed source.
    pub slot: String,
    /// Whether the slot survives a failover of the source, from PostgreSQL 17 on.
    pub failover: bool,
}

/// Where a source is.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A PostgreSQL database.
    Postgres {
        /// `postgres://user:password@host:port/database`. With `?sslmode=require` the connection is
        /// encrypted and the server's certificate verified.
        url: String,
        /// A file with the certificates to verify by, in PEM; nothing for those that browsers trust.
        root_certificates: Option<PathBuf>,
    },
    /// The PostgreSQL database that Railpost's own store is in.
    Store,
    /// A SQLite file, which is only read.
    Sqlite(PathBuf),
}

impl fmt::Debug for Location {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres { .. } => f.write_str("Postgres(…)"),
            Self::Store => f.write_str("Store"),
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
        }
    }
}

/// How a source is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By asking for the rows of a table.
    #[default]
    Poll,
    /// By following the database's log for inserts into a table.
    Tail,
    /// By following the database's log for messages.
    Messages,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll => "poll",
            Self::Tail => "tail",
            Self::Messages => "messages",
        })
    }
}

/// What rows look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// As the table that `init` makes.
    #[default]
    Railpost,
    /// As Debezium's outbox event router expects them.
    Debezium,
    /// As `columns` says.
    Custom,
}

/// What becomes of a row that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// It is deleted.
    #[default]
    Delete,
    /// `columns.done` is set.
    Mark,
}

/// What makes the relay look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// The clock.
    #[default]
    Poll,
    /// A trigger that notifies, which costs the writers of the table.
    Notify,
}

/// In which order rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// By the number that the database gave each row when it was inserted.
    #[default]
    Insert,
    /// By the time at which each row was committed, which needs `track_commit_timestamp`.
    Commit,
}

/// What becomes of a row that is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefused {
    /// It is parked, with all later ones of its key behind it. Other keys go on.
    #[default]
    HoldKey,
    /// The source stops at it.
    Stop,
    /// It is dropped.
    Skip,
}

/// The name of a table, with or without its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Nothing for the first one of the search path that has it.
    pub schema: Option<String>,
    /// Its own name.
    pub name: String,
}

impl TableName {
    /// The name as SQL has it.
    pub fn sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quote(schema), quote(&self.name)),
            None => quote(&self.name),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A name as SQL has it.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
