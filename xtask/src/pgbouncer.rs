//! PgBouncer, a connection pooler: the tests start one where they need it.

use std::path::PathBuf;

use crate::machine::install;

/// Sees to it that it is there, and says how the tests find it.
pub(crate) fn prepare() -> Result<(&'static str, String), String> {
    if find().is_none() {
        install("pgbouncer")?;
    }
    let program = find().ok_or("PgBouncer was not found even after installing it")?;
    Ok(("RAILPOST_TEST_PGBOUNCER", program.display().to_string()))
}

/// On the path, or where Debian puts it: not every user has that folder on the path.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.exists())
}
