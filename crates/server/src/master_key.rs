//! Where the master key is kept: in a file, or with a key management system that a command asks.
//!
//! A key has 32 bytes. While it is rotated there are two, the new one and then the old one: 64 bytes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use railpost_store::{MasterKey, Source};
use zeroize::Zeroizing;

use crate::config::Config;
use crate::limits::MASTER_KEY_COMMAND_TIMEOUT;

/// Only the owner may.
const OWNER_ALONE: u32 = 0o077;

/// The bytes of a key.
pub(crate) type KeyBytes = Zeroizing<[u8; MasterKey::LEN]>;

/// Where the master key is kept.
#[derive(Clone, Debug)]
pub(crate) enum KeyPlace {
    /// In memory alone.
    Memory,
    /// In this file.
    File(PathBuf),
    /// In the output of this command.
    Command(Vec<String>),
}

/// One key, or the two of a rotation.
pub(crate) struct StoredKeys {
    pub(crate) newest: KeyBytes,
    pub(crate) old: Option<KeyBytes>,
}

impl StoredKeys {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (newest, rest) = bytes.split_first_chunk::<{ MasterKey::LEN }>()?;
        let old = match rest.is_empty() {
            true => None,
            false => Some(Zeroizing::new(rest.try_into().ok()?)),
        };
        Some(Self { newest: Zeroizing::new(*newest), old })
    }

    pub(crate) fn master_key(&self) -> MasterKey {
        match &self.old {
            None => MasterKey::new(&self.newest),
            Some(old) => MasterKey::rotating(&self.newest, old),
        }
    }
}

impl KeyPlace {
    /// The configured one.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let (file, command) = (&config.store.master_key_file, &config.store.master_key_command);
        match (file.as_str(), command.is_empty()) {
            ("", true) => Ok(Self::File(config.server.data_dir.join("master.key"))),
            (path, true) => Ok(Self::File(path.into())),
            ("", false) => Ok(Self::Command(command.clone())),
            _ => Err("store.master_key_command: store.master_key_file is set too: set one of them"
                .to_owned()),
        }
    }

    /// The master key. A file that is not there is made, but never beside a database that was encrypted under
    /// another key.
    pub(crate) fn read_or_make(
        &self,
        database: Option<&Path>,
        source: &dyn Source,
    ) -> Result<MasterKey, String> {
        match self {
            Self::File(path) if !path.exists() => make(path, database, source),
            Self::Memory => Ok(MasterKey::new(&random(source))),
            _ => self.read(),
        }
    }

    /// The master key that is there. None is made: what a store or its backup holds is encrypted under its own.
    pub(crate) fn read(&self) -> Result<MasterKey, String> {
        Ok(self.read_keys()?.master_key())
    }

    /// The key or keys that the next start would find.
    pub(crate) fn read_keys(&self) -> Result<StoredKeys, String> {
        match self {
            Self::Memory => Err("the master key is in memory alone".to_owned()),
            Self::File(path) => read_file(path),
            Self::Command(command) => read_command(command),
        }
    }

    /// Replaces the keys in a file, at once and for good: a crash leaves the ones or the others.
    pub(crate) fn replace(&self, newest: &KeyBytes, old: Option<&KeyBytes>) -> Result<(), String> {
        let Self::File(path) = self else { return Ok(()) };
        let keys = [&newest[..], old.map_or(&[][..], |old| &old[..])].concat();
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let written = write(&temporary, &Zeroizing::new(keys))
            .and_then(|()| fs::rename(&temporary, path))
            .and_then(|()| sync_folder(path));
        written.map_err(|error| format!("cannot write the master key {}: {error}", path.display()))
    }
}

/// Unpredictable bytes of a new key.
pub(crate) fn random(source: &dyn Source) -> KeyBytes {
    let mut key = Zeroizing::new([0; MasterKey::LEN]);
    source.fill_random(&mut *key);
    key
}

/// The one key in this file.
pub(crate) fn read_new(path: &Path) -> Result<KeyBytes, String> {
    let StoredKeys { newest, old } = read_file(path)?;
    match old {
        None => Ok(newest),
        Some(_) => Err(format!("{} has two keys instead of one", path.display())),
    }
}

fn read_file(path: &Path) -> Result<StoredKeys, String> {
    let failed =
        |error: io::Error| format!("cannot read the master key {}: {error}", path.display());
    let mut file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "the master key is missing ({}): copy the key of this store there",
            path.display()
        ),
        _ => failed(error),
    })?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(format!("the master key {} is not a regular file", path.display()));
    }
    if about.mode() & OWNER_ALONE != 0 {
        return Err(format!(
            "the master key {0} may be read by others (mode {1:03o}): run `chmod 600 {0}`",
            path.display(),
            about.mode() & 0o777
        ));
    }
    let bytes = read_bounded(&mut file).map_err(failed)?;
    StoredKeys::parse(&bytes).ok_or_else(|| {
        format!(
            "the master key {} has {} bytes instead of {}, or twice as many while it is rotated: restore it \
             from a backup",
            path.display(),
            about.len(),
            MasterKey::LEN
        )
    })
}

/// The output of a command that ends in time. What it says beside goes where the server's own errors go.
fn read_command(command: &[String]) -> Result<StoredKeys, String> {
    let failed = |problem: String| format!("store.master_key_command: {problem}");
    let (program, arguments) =
        command.split_first().ok_or_else(|| failed("it is empty".to_owned()))?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot run `{program}`: {error}")))?;
    let bytes = output(child).map_err(|problem| failed(format!("`{program}` {problem}")))?;
    StoredKeys::parse(&bytes).ok_or_else(|| {
        let (one, two) = (MasterKey::LEN, 2 * MasterKey::LEN);
        let printed = if bytes.len() > two { "more".to_owned() } else { bytes.len().to_string() };
        failed(format!(
            "`{program}` must print the {one} bytes of the key, or {two} while it is rotated; it printed {printed}"
        ))
    })
}

fn output(mut child: Child) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut stdout = child.stdout.take().expect("its output is piped");
    let (sender, receiver) = mpsc::channel();
    // It ends when the command does, or when it is killed below.
    std::thread::spawn(move || sender.send(read_bounded(&mut stdout)));
    let read = receiver.recv_timeout(Duration::from(MASTER_KEY_COMMAND_TIMEOUT));
    if read.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("cannot be waited for: {error}"))?;
    let bytes = read
        .map_err(|_| format!("did not end within {MASTER_KEY_COMMAND_TIMEOUT}"))?
        .map_err(|error| format!("cannot be read: {error}"))?;
    if !status.success() && bytes.len() <= 2 * MasterKey::LEN {
        return Err(format!("failed: {status}"));
    }
    Ok(bytes)
}

/// Up to one byte more than a key may have.
fn read_bounded(from: &mut impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * MasterKey::LEN + 1));
    from.take(2 * MasterKey::LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn make(path: &Path, database: Option<&Path>, source: &dyn Source) -> Result<MasterKey, String> {
    if let Some(database) = database.filter(|database| database.exists()) {
        return Err(format!(
            "there is a database ({}) but no master key ({}): what is stored in it cannot be read \
             without its key; put the key back",
            database.display(),
            path.display()
        ));
    }
    let key = random(source);
    KeyPlace::File(path.to_owned()).replace(&key, None)?;
    Ok(MasterKey::new(&key))
}

/// A key that is lost is worse than none: it is on the disk, name and all, before it is used.
fn write(path: &Path, keys: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(keys)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
