//! What one durable write costs on the disk that the stores use.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// Appends 4 KiB and syncs the data, `count` times, in a file of its own under `folder`; one after the other,
/// or about so many in a second.
pub(crate) fn syncs(folder: &Path, count: usize, per_s: Option<u64>) -> Result<Histogram, String> {
    let path = folder.join("fdatasync");
    let pause = per_s.map(|per_s| Duration::from_nanos(1_000_000_000 / per_s));
    let measured = measure(&path, count, pause);
    let _ = fs::remove_file(&path);
    measured.map_err(|error| format!("{}: {error}", path.display()))
}

fn measure(path: &Path, count: usize, pause: Option<Duration>) -> std::io::Result<Histogram> {
    let mut file = File::create(path)?;
    let mut took = Histogram::default();
    for _ in 0..count {
        pause.into_iter().for_each(std::thread::sleep);
        let begun = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.add(begun.elapsed().as_micros() as u64);
    }
    Ok(took)
}
