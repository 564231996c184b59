//! Why a store writes no more.

use std::sync::{Arc, OnceLock};

use rusqlite::{Error, ErrorCode};

use railpost_store::StoreError;

/// Set when the disk has failed to keep what it was given. What a failed sync has lost is not known, and a
/// later one may succeed without it: only a new process, which reads the log from its start, can tell.
#[derive(Clone, Debug, Default)]
pub(super) struct StopReason(Arc<OnceLock<String>>);

impl StopReason {
    /// Stops the store. The first reason stays.
    pub(super) fn set(&self, error: &Error) {
        let _ = self.0.set(format!("the write-ahead log could not be synced: {error}"));
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// An error if the store has stopped.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.0.get().map_or(Ok(()), |reason| Err(StoreError::Stopped(reason.clone())))
    }
}

/// Whether SQLite could not write or sync a file, for another reason than a full disk.
pub(super) fn is_io_failure(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// Whether SQLite could not sync a file or its folder.
pub(super) fn is_sync_failure(error: &Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}
