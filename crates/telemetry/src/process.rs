//! Figures of this process: memory, open files, start time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Figures of the process; 0 for what the machine does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub(super) started_at_seconds: u64,
    pub(super) resident_bytes: u64,
    pub(super) open_files: usize,
}

impl Process {
    /// As it is now; it was started at `started_at`.
    pub fn sampled(started_at: SystemTime) -> Self {
        let since = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started_at_seconds: since.as_secs(),
            resident_bytes: resident_bytes().unwrap_or_default(),
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
