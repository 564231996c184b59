//! What can go wrong, in words that say what to do.

use std::fmt;

use crate::Partition;

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why a store refused or failed. Nothing of a refused call was written; of a call that failed as
/// [`StoreError::Unavailable`] it may have been, and asking again is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The store cannot be reached or does not answer; later it may.
    Unavailable(String),
    /// There is no room left where the store writes.
    Full(String),
    /// The store may be read but not written.
    ReadOnly(String),
    /// What is stored does not read back as it was written.
    Corrupt(String),
    /// The disk failed to keep what it was given, so the store stops writing: the process
    /// must end, and another one begin. What the failed call wrote may be there then, or not.
    Stopped(String),
    /// Another process has the store.
    Locked(String),
    /// The store was written by a later version.
    NewerSchema {
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// The master key is not the one that the stored secrets are encrypted under.
    WrongMasterKey,
    /// The master key is being rotated, and only one of the two keys is there.
    BothMasterKeysNeeded,
    /// It contradicts what is stored: something of that name exists, or with other content.
    Conflict {
        /// What it contradicts.
        field: String,
        /// How.
        problem: String,
    },
    /// The idempotency key was used meanwhile, for this request or another: look it up.
    Repeated,
    /// There is no such thing.
    NotFound(String),
    /// No other admin key is valid without an end. Without one the store could not be managed.
    LastAdminKey,
    /// The tenant has as many open deliveries as it may have.
    BacklogFull {
        /// How many are open.
        open: u64,
        /// How many may be.
        max: u64,
    },
    /// Another node owns these endpoints: what this one has to say of them no longer counts.
    Fenced {
        /// The partition that was taken over.
        partition: Partition,
    },
    /// A value is out of bounds.
    Invalid {
        /// Which.
        field: String,
        /// What is wrong with it and what is allowed.
        problem: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without anyone changing it.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            StoreError::Unavailable(_)
                | StoreError::Full(_)
                | StoreError::Locked(_)
                | StoreError::BacklogFull { .. }
        )
    }

    /// Whether the call may have been carried out all the same: its answer was lost.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }

    /// Whether the trouble is the store's surroundings, not the call.
    pub fn is_environment(&self) -> bool {
        matches!(
            self,
            StoreError::Unavailable(_)
                | StoreError::Full(_)
                | StoreError::ReadOnly(_)
                | StoreError::Corrupt(_)
                | StoreError::Stopped(_)
                | StoreError::Locked(_)
        )
    }

    /// The same, naming the row that does not read back.
    pub fn of_row(self, what: &str, id: impl fmt::Display) -> Self {
        match self {
            StoreError::Corrupt(problem) => StoreError::Corrupt(format!("{what} {id}: {problem}")),
            other => other,
        }
    }

    /// A value of this field is out of bounds.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        StoreError::Invalid { field: field.into(), problem: problem.into() }
    }

    /// This field is at odds with what is stored.
    pub fn conflict(field: impl Into<String>, problem: impl Into<String>) -> Self {
        StoreError::Conflict { field: field.into(), problem: problem.into() }
    }

    /// There is no such row.
    pub fn not_found(what: &str, id: impl fmt::Display) -> Self {
        StoreError::NotFound(format!("{what} `{id}`"))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable(problem) => write!(f, "the store is unavailable: {problem}"),
            StoreError::Full(problem) => {
                write!(f, "the store is full: {problem}; make room, and writing goes on by itself")
            }
            StoreError::ReadOnly(problem) => write!(
                f,
                "the store cannot be written: {problem}; check the permissions of the file and its folder"
            ),
            StoreError::Corrupt(problem) => {
                write!(f, "a stored value could not be read: {problem}")
            }
            StoreError::Stopped(problem) => {
                write!(f, "the store has stopped: {problem}; restart the process")
            }
            StoreError::Locked(problem) => write!(f, "the store is in use: {problem}"),
            StoreError::NewerSchema { found, known } => write!(
                f,
                "the store has schema {found}, and this version knows up to {known}: run a newer version"
            ),
            StoreError::WrongMasterKey => f.write_str(
                "the master key is not the one that the stored secrets are encrypted under: \
                 start with that one",
            ),
            StoreError::BothMasterKeysNeeded => f.write_str(
                "the master key is being rotated, and only one of the two keys is there: start with the new \
                 key followed by the old one, 64 bytes in all",
            ),
            StoreError::Conflict { field, problem } => write!(f, "{field}: {problem}"),
            StoreError::Repeated => {
                f.write_str("the idempotency key was used meanwhile: look its response up")
            }
            StoreError::NotFound(what) => write!(f, "no such {what}"),
            StoreError::LastAdminKey => {
                f.write_str("no other admin key is valid without an end: make one first")
            }
            StoreError::BacklogFull { open, max } => write!(
                f,
                "the tenant has {open} open deliveries and may have {max}: wait until some are delivered"
            ),
            StoreError::Fenced { partition } => {
                write!(f, "another node owns partition {partition}: nothing was recorded")
            }
            StoreError::Invalid { field, problem } => write!(f, "{field}: {problem}"),
        }
    }
}

impl std::error::Error for StoreError {}
