//! The checksum at the end of a backup.
//!
//! SQLite's own check finds damaged pages, but not a changed byte in a payload. A backup therefore ends with a mark
//! and the SHA-256 of all before the mark. SQLite does not read past the last page, so it opens such a file too. A
//! copy of a store's file has no checksum: its length is a multiple of its page's.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ring::digest::{Context, Digest, SHA256, SHA256_OUTPUT_LEN};

use railpost_store::{Result, StoreError};

/// What stands before the checksum. Stable.
const MARK: &[u8; 16] = b"railpost sha-256";

/// Bytes of mark and checksum. Stable.
const TRAILER_LEN: u64 = (MARK.len() + SHA256_OUTPUT_LEN) as u64;

/// The length of every SQLite file is a multiple of this: the smallest page.
const PAGE_LEN_MIN: u64 = 512;

/// Bytes that are read at once.
const CHUNK_LEN: usize = 256 * 1024;

/// Appends the checksum of a file, and syncs the file.
pub(super) fn append(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).append(true).open(path)?;
    let found = digest(&mut file)?;
    file.write_all(&[MARK, found.as_ref()].concat())?;
    file.sync_all()
}

/// Compares a file with the checksum at its end, and cuts the checksum off.
pub(super) fn verify_and_remove(path: &Path) -> Result<()> {
    let trouble = |error: io::Error| {
        StoreError::Unavailable(format!("cannot read {}: {error}", path.display()))
    };
    let mut file = File::options().read(true).write(true).open(path).map_err(trouble)?;
    let len = file.metadata().map_err(trouble)?.len();
    match len % PAGE_LEN_MIN {
        0 => return Ok(()),
        TRAILER_LEN => {}
        _ => {
            return Err(corrupt(
                "its length is not that of a backup: it is cut short, or another kind of file",
            ));
        }
    }
    let content_len = len - TRAILER_LEN;
    let found = digest(&mut (&mut file).take(content_len)).map_err(trouble)?;
    let mut trailer = [0; TRAILER_LEN as usize];
    file.seek(SeekFrom::Start(content_len)).map_err(trouble)?;
    file.read_exact(&mut trailer).map_err(trouble)?;
    if trailer[..] != [MARK, found.as_ref()].concat() {
        return Err(corrupt("the file does not match its checksum"));
    }
    file.set_len(content_len).map_err(trouble)
}

fn corrupt(problem: &str) -> StoreError {
    StoreError::Corrupt(problem.to_owned())
}

fn digest(file: &mut impl Read) -> io::Result<Digest> {
    let (mut digest, mut chunk) = (Context::new(&SHA256), vec![0; CHUNK_LEN]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(digest.finish()),
            len => digest.update(&chunk[..len]),
        }
    }
}
