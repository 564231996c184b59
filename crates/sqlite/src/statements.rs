//! Statements that are prepared once and run many times.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};

use crate::limits::SQLITE_STATEMENTS_CACHED;

/// Lets a connection keep the statements it prepared, with the plans they were prepared with.
///
/// Left alone, SQLite prepares a statement again whenever a value is bound that could make another plan
/// better, be it a limit or a number to compare with. There is one good plan for each of ours, and making
/// it takes longer than most of them run.
pub(super) fn configure(db: &Connection) -> Result<()> {
    db.set_prepared_statement_cache_capacity(SQLITE_STATEMENTS_CACHED);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_kept_statement_is_not_prepared_again_for_other_values() {
        let db = Connection::open_in_memory().unwrap();
        configure(&db).unwrap();
        db.execute_batch("CREATE TABLE t (a INTEGER, b INTEGER); CREATE INDEX i ON t (a, b)")
            .unwrap();
        let sql = "SELECT b FROM t WHERE a = ?1 AND b >= ?2 ORDER BY b LIMIT ?3";
        for (a, b, limit) in [(0, 1, 2), (1, 0, 16), (70_000, 3, 1)] {
            let mut statement = db.prepare_cached(sql).unwrap();
            let _ = statement.query((a, b, limit)).unwrap().next().unwrap();
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{a} {b} {limit}");
        }
    }
}
