//! The folder of database and master key.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// Makes the folder if it is not there. Only its owner may look into it.
pub(crate) fn prepare(dir: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        format!(
            "server.data_dir: cannot make the folder {}: {error}; choose another with --data-dir",
            dir.display()
        )
    })
}

/// The database in the data folder.
pub(crate) fn database(config: &Config) -> PathBuf {
    match config.store.url.strip_prefix("sqlite:") {
        Some(path) => path.into(),
        None => config.server.data_dir.join("railpost.db"),
    }
}

/// Whether there is a database, or one that a restore has not put in place yet.
pub(crate) fn holds_database(path: &Path) -> bool {
    let holds = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let mut restored = path.as_os_str().to_owned();
    restored.push(".restored");
    holds(path) || holds(Path::new(&restored))
}
