//! Room on the disk of the server's files.

use std::path::Path;

/// Room on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that the server may still write.
    pub free_bytes: u64,
    /// Bytes of the whole file system.
    pub size_bytes: u64,
}

impl DiskSpace {
    /// Of the file system that has this folder; nothing if it does not tell.
    pub fn of(folder: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Self { free_bytes: bytes(disk.f_bavail), size_bytes: bytes(disk.f_blocks) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_no_more_room_than_it_is_large() {
        let disk = DiskSpace::of(Path::new("/")).unwrap();
        assert!(disk.size_bytes > 0 && disk.free_bytes <= disk.size_bytes, "{disk:?}");
        assert_eq!(DiskSpace::of(Path::new("/no/such/folder")), None);
    }
}
