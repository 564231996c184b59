//! What one durable write costs on the disk that the stores use.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::histogram::Histogram;

/// Appends 4 KiB and syncs the data, `count` times, in a file of its own under `folder`.
pub(crate) fn syncs(folder: &Path, count: usize) -> Result<Histogram, String> {
    let path = folder.join("fdatasync");
    let measured = measure(&path, count);
    let _ = fs::remove_file(&path);
    measured.map_err(|error| format!("{}: {error}", path.display()))
}

fn measure(path: &Path, count: usize) -> std::io::Result<Histogram> {
    let mut file = File::create(path)?;
    let mut took = Histogram::default();
    for _ in 0..count {
        let begun = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.add(begun.elapsed().as_micros() as u64);
    }
    Ok(took)
}
