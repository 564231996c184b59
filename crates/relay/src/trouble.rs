//! Why a source cannot be read, in words that say what to do.

use std::fmt;

use railpost_store::limits::PARKED_ROW_LEN_MAX;
use railpost_store::{ParkedSummary, RowRefusal, StoreError, is_lease_lost};
use tokio_postgres::error::SqlState;

use crate::config::{Column, SourceConfig};

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not answer, or fails.
    Unavailable(String),
    /// It is not as it has to be.
    Wrong {
        /// What is wrong.
        problem: String,
        /// What to run or change.
        remedy: String,
    },
    /// Railpost's own store is away or full. Nothing is confirmed at the source meanwhile.
    Store(StoreError),
    /// Another process reads it.
    Elsewhere(String),
    /// A row was refused, and `on_refused = "stop"`.
    Stopped {
        /// Which row: the event's id, or its number.
        row: String,
        /// Why.
        refusal: RowRefusal,
        /// How many rows of its batch stand in front of it. They are taken: it and those behind it are
        /// not.
        before: usize,
    },
    /// As many rows are parked as may be.
    ParkedFull(ParkedSummary),
}

impl Trouble {
    pub(crate) fn wrong(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Wrong { problem: problem.into(), remedy: remedy.into() }
    }

    /// The source is behind a connection pooler, as `sign` shows.
    pub(crate) fn pooler(sign: &str) -> Self {
        Self::wrong(
            format!("PostgreSQL is behind a connection pooler: {sign}"),
            "name PostgreSQL itself in `url`, not the pooler: reading needs a session's own locks, \
             settings and notifications",
        )
    }

    /// A row of the table that can neither be accepted nor be parked, and what is in the column that names it.
    pub(crate) fn too_large(
        row: &str,
        config: &SourceConfig,
        named_by: &Column,
        name: &str,
    ) -> Self {
        let problem = format!(
            "row {row} has {PARKED_ROW_LEN_MAX} bytes or more: it can neither be accepted nor be parked"
        );
        let (table, column) = (config.table.sql(), named_by.sql());
        let name = name.replace('\'', "''");
        let remedy =
            format!("DELETE FROM {table} WHERE {column} = '{name}'; -- or make the row smaller");
        Self::wrong(problem, remedy)
    }

    /// What a person can do, if anything.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Wrong { remedy, .. } => Some(remedy),
            Self::Stopped { .. } => Some(
                "fix what refuses it; or correct or delete the row at its source, unless the log is followed; or set \
                 on_refused = \"hold_key\"",
            ),
            Self::ParkedFull(_) => {
                Some("retry, skip or discard parked rows: railpost outbox parked")
            }
            Self::Unavailable(_) | Self::Store(_) | Self::Elsewhere(_) => None,
        }
    }

    /// In a word: a metric's label.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Wrong { .. } => "wrong",
            Self::Store(StoreError::BacklogFull { .. }) => "backlog_full",
            Self::Store(_) => "store",
            Self::Elsewhere(_) => "elsewhere",
            Self::Stopped { .. } => "stopped",
            Self::ParkedFull(_) => "parked_full",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(problem) | Self::Wrong { problem, .. } => f.write_str(problem),
            Self::Store(error) => write!(f, "the store takes nothing: {error}"),
            Self::Elsewhere(holder) => write!(f, "another process reads it ({holder})"),
            Self::Stopped { row, refusal, .. } => {
                write!(f, "stopped at row {row}: {}: {}", refusal.code, refusal.reason)
            }
            Self::ParkedFull(summary) => {
                write!(
                    f,
                    "as many rows are parked as may be: {} rows, {} bytes",
                    summary.rows, summary.bytes
                )
            }
        }
    }
}

impl std::error::Error for Trouble {}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        if is_lease_lost(&error) { Self::Elsewhere(error.to_string()) } else { Self::Store(error) }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            return Self::Unavailable(format!("PostgreSQL: {error}{}", cause.unwrap_or_default()));
        };
        let problem = format!("PostgreSQL: {} ({})", db.message(), db.code().code());
        match *db.code() {
            SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME => {
                Self::wrong(problem, "make the table: railpost outbox init")
            }
            SqlState::UNDEFINED_COLUMN => Self::wrong(
                problem,
                "name the columns that the table has in `columns`, or add the column",
            ),
            SqlState::INSUFFICIENT_PRIVILEGE => {
                Self::wrong(problem, "grant what is missing: railpost outbox check names it")
            }
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                Self::wrong(problem, "correct the user or password in `url`")
            }
            SqlState::INVALID_CATALOG_NAME => Self::wrong(problem, "correct the database in `url`"),
            SqlState::SYNTAX_ERROR | SqlState::UNDEFINED_FUNCTION | SqlState::DATATYPE_MISMATCH => {
                Self::wrong(problem, "correct the SQL expression in `columns`")
            }
            _ if db.message().contains("unsupported startup parameter") => {
                Self::pooler(db.message())
            }
            _ => Self::Unavailable(problem),
        }
    }
}
