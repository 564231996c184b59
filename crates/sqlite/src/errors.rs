//! SQLite's errors, in the store's words.

use rusqlite::{Error, ErrorCode};

use railpost_store::StoreError;

/// Says what was being done when SQLite failed.
pub(super) trait Translate<T>: Sized {
    fn at(self, doing: &str) -> Result<T, StoreError>;

    /// Without words for what was being done: the statement is in the message if it matters.
    fn translated(self) -> Result<T, StoreError> {
        self.at("a statement")
    }
}

impl<T> Translate<T> for Result<T, Error> {
    fn at(self, doing: &str) -> Result<T, StoreError> {
        self.map_err(|error| translate(&error, doing))
    }
}

fn translate(error: &Error, doing: &str) -> StoreError {
    let problem = format!("{doing}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(problem),
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
        ) => StoreError::ReadOnly(problem),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(problem),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked(problem),
        Some(_) => StoreError::Unavailable(problem),
        // A row that does not read back as what was written: a type, a text or a row too few.
        None => StoreError::Corrupt(problem),
    }
}

/// What is said of a database that some other program made.
pub(super) fn refuse_not_ours() -> StoreError {
    StoreError::Corrupt("the file is a SQLite database, but not a Railpost store".to_owned())
}
