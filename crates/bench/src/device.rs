//! The device that the stores' files lie on, and how much is written to it.
//!
//! Bytes are counted in sectors of the device after a sync. What Linux counts for a process (`write_bytes`) is
//! what the process made dirty, by whole pieces of the page cache: far more than is written, or less, because a
//! block that changes again before it is written counts twice.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What Linux counts in, whatever the device's own sectors are.
const SECTOR_LEN: u64 = 512;

/// The device of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    folder: PathBuf,
    stat: PathBuf,
}

impl Device {
    /// Nothing where the folder's file system has no device that is counted, such as one in memory.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let number = fs::metadata(folder).ok()?.dev();
        let stat = format!("/sys/dev/block/{}:{}/stat", major(number), minor(number));
        let device = Self { folder: folder.to_owned(), stat: stat.into() };
        device.sectors()?;
        Some(device)
    }

    /// All bytes that were ever written to it, after all that waits is.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        let mut sync = Command::new("sync");
        let synced = sync.arg("-f").arg(&self.folder).stderr(Stdio::null()).status();
        synced.ok().filter(std::process::ExitStatus::success)?;
        self.sectors().map(|sectors| sectors * SECTOR_LEN)
    }

    fn sectors(&self) -> Option<u64> {
        parse_sectors(&fs::read_to_string(&self.stat).ok()?)
    }
}

/// The seventh number is the sectors that were written.
fn parse_sectors(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(6)?.parse().ok()
}

fn major(device: u64) -> u64 {
    (device >> 32) & 0xffff_f000 | (device >> 8) & 0xfff
}

fn minor(device: u64) -> u64 {
    (device >> 12) & 0xffff_ff00 | device & 0xff
}

/// A file system in a file, on a device of its own: nobody else writes to it. Dropping it unmounts it.
#[derive(Debug)]
pub(crate) struct OwnDisk {
    file: PathBuf,
    pub(crate) folder: PathBuf,
}

impl OwnDisk {
    /// Makes one in a folder. It takes root, `mkfs.ext4` and loop devices.
    pub(crate) fn mount(parent: &Path, len: u64) -> Result<Self, String> {
        let disk = Self { file: parent.join("disk.img"), folder: parent.join("disk") };
        let made = fs::create_dir_all(&disk.folder).and_then(|()| fs::File::create(&disk.file));
        made.and_then(|file| file.set_len(len)).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.file))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&disk.file).arg(&disk.folder))?;
        Ok(disk)
    }
}

impl Drop for OwnDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(&self.folder));
        let _ = fs::remove_file(&self.file);
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name} could not be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_written_are_the_seventh_number() {
        let stat = "  41200  7147  3723890  13322  22157  41644  4324416  12548  0  4368  26643\n";
        assert_eq!(parse_sectors(stat), Some(4_324_416));
        for (name, text) in [("cut", "1 2 3 4 5 6"), ("no number", "1 2 3 4 5 6 x")] {
            assert_eq!(parse_sectors(text), None, "{name}");
        }
    }

    #[test]
    fn a_devices_number_is_taken_apart_as_linux_puts_it_together() {
        for (number, expected) in [(0x700, (7, 0)), (0xfe00, (254, 0)), (0x10_3a_05, (0x3a, 0x105))]
        {
            assert_eq!((major(number), minor(number)), expected, "{number:#x}");
        }
    }

    #[test]
    fn a_folder_in_memory_has_no_device() {
        assert!(Device::of(Path::new("/proc")).is_none());
    }
}
