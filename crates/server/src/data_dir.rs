//! The folder of database and master key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use railpost_store::Source;

use crate::config::Config;

/// Bytes of a master key.
const KEY_LEN: usize = 32;

/// Only the owner may.
const OWNER_ALONE: u32 = 0o077;

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

fn key_file(config: &Config) -> PathBuf {
    match config.store.master_key_file.as_str() {
        "" => config.server.data_dir.join("master.key"),
        path => path.into(),
    }
}

/// The master key. One is made if there is none, but never beside a database that was encrypted under
/// another.
pub(crate) fn master_key(
    config: &Config,
    database: Option<&Path>,
    source: &dyn Source,
) -> Result<[u8; KEY_LEN], String> {
    let file = key_file(config);
    match File::open(&file) {
        Ok(open) => read(&file, open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&file, database, source),
        Err(error) => Err(format!("cannot read the master key {}: {error}", file.display())),
    }
}

/// The master key that is there. None is made: what a store or its backup holds is encrypted under its own.
pub(crate) fn existing_master_key(config: &Config) -> Result<[u8; KEY_LEN], String> {
    let file = key_file(config);
    match File::open(&file) {
        Ok(open) => read(&file, open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "the master key is missing ({}): copy the key of this store there",
            file.display()
        )),
        Err(error) => Err(format!("cannot read the master key {}: {error}", file.display())),
    }
}

fn read(path: &Path, mut file: File) -> Result<[u8; KEY_LEN], String> {
    let failed =
        |error: io::Error| format!("cannot read the master key {}: {error}", path.display());
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & OWNER_ALONE != 0 {
        return Err(format!(
            "the master key {0} may be read by others (mode {1:03o}): run `chmod 600 {0}`",
            path.display(),
            mode & 0o777
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    let len = bytes.len();
    bytes.try_into().map_err(|_| {
        let path = path.display();
        format!(
            "the master key {path} has {len} bytes instead of {KEY_LEN}: restore it from a backup"
        )
    })
}

fn make(
    path: &Path,
    database: Option<&Path>,
    source: &dyn Source,
) -> Result<[u8; KEY_LEN], String> {
    if let Some(database) = database.filter(|database| database.exists()) {
        return Err(format!(
            "there is a database ({}) but no master key ({}): what is stored in it cannot be read \
             without its key; put the key back",
            database.display(),
            path.display()
        ));
    }
    let mut key = [0; KEY_LEN];
    source.fill_random(&mut key);
    let written = write_new(path, &key);
    written.map_err(|error| format!("cannot write the master key {}: {error}", path.display()))?;
    Ok(key)
}

/// A key that is lost is worse than none: it is on the disk, name and all, before it is used.
fn write_new(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key)?;
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
