//! PostgreSQL's errors, in the store's words.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use railpost_store::StoreError;

/// What the store's own functions say to a caller that is not the store's holder.
const NOT_THE_HOLDER: &str = "RP001";

/// Says it in the store's words.
pub(super) trait Translate<T> {
    fn translated(self) -> Result<T, StoreError>;
}

impl<T> Translate<T> for Result<T, Error> {
    fn translated(self) -> Result<T, StoreError> {
        self.map_err(|error| translate(&error))
    }
}

pub(super) fn translate(error: &Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        return StoreError::Unavailable(format!("PostgreSQL: {}", with_cause(error)));
    };
    let problem = format!("PostgreSQL: {} ({})", db.message(), db.code().code());
    match db.code() {
        code if code.code() == NOT_THE_HOLDER => StoreError::Locked(db.message().to_owned()),
        &SqlState::DISK_FULL => StoreError::Full(problem),
        &SqlState::READ_ONLY_SQL_TRANSACTION | &SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::ReadOnly(problem)
        }
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => StoreError::Corrupt(problem),
        _ => StoreError::Unavailable(problem),
    }
}

/// The driver keeps what went wrong in the cause.
fn with_cause(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Whether two nodes stepped on each other's toes, so that trying again is all it takes.
pub(super) fn is_collision(error: &Error) -> bool {
    let collisions = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ];
    error.code().is_some_and(|code| collisions.contains(code))
}
