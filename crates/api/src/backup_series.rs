//! The series of backups that `keep` asks for: names by time, and which are deleted.

use std::fs;
use std::path::{Path, PathBuf};

use railpost_engine::Time;

/// The folder of the series, in the folder of backups. Every file in it with [`ENDING`] belongs to the series.
const FOLDER: &str = "scheduled";

const ENDING: &str = ".backup";

/// The file of a backup that is made at this time. Names sort by time, and have no colon: tools for copying take what
/// stands before one for a host.
pub(super) fn next_name(at: Time) -> PathBuf {
    Path::new(FOLDER).join(format!("{}{ENDING}", at.to_string().replace(':', "-")))
}

/// Deletes all backups that are older than the newest `keep` whole ones, and what crashes left of them: an empty file
/// with the name, and a partial one. Answers the deleted files. A file that cannot be deleted is left for the next time.
pub(super) fn prune(backups: &Path, keep: u32) -> Vec<String> {
    let folder = backups.join(FOLDER);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.ends_with(ENDING));
    names.sort();
    let is_whole =
        |name: &&String| fs::metadata(folder.join(name)).is_ok_and(|file| file.len() > 0);
    let oldest_kept = names.iter().rev().filter(is_whole).nth(keep as usize - 1).cloned();
    names.retain(|name| {
        oldest_kept.as_ref().is_some_and(|oldest| name < oldest) && delete(&folder.join(name))
    });
    names.into_iter().map(|name| format!("backups/{FOLDER}/{name}")).collect()
}

fn delete(file: &Path) -> bool {
    let _ = fs::remove_file(partial(file));
    fs::remove_file(file).is_ok()
}

/// The file that a backup is written to before it has its name.
pub(super) fn partial(file: &Path) -> PathBuf {
    file.with_added_extension("partial")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use railpost_engine::Timestamp;

    use super::*;

    #[test]
    fn names_sort_by_time() {
        let name = |millis| next_name(Timestamp::from_millis(millis).into()).display().to_string();
        assert_eq!(name(1_790_000_000_123), "scheduled/2026-09-21T14-13-20.123Z.backup");
        assert!(name(1_790_000_000_123) < name(1_790_000_001_000));
        assert!(name(1_790_000_000_999) < name(1_800_000_000_000));
    }

    #[test]
    fn the_newest_whole_backups_are_kept_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let backups = folder.path();
        fs::create_dir(backups.join(FOLDER)).unwrap();
        let write =
            |name: &str, text: &str| fs::write(backups.join(FOLDER).join(name), text).unwrap();
        for name in ["1.backup", "2.backup", "4.backup", "5.backup", "0.db"] {
            write(name, "whole");
        }
        // A crash left number 3.
        write("3.backup", "");
        write("3.backup.partial", "half");
        assert_eq!(prune(backups, 5), [] as [&str; 0]);
        assert_eq!(prune(backups, 3), ["backups/scheduled/1.backup"]);
        let deleted = ["backups/scheduled/2.backup", "backups/scheduled/3.backup"];
        assert_eq!(prune(backups, 2), deleted);
        let left = fs::read_dir(backups.join(FOLDER)).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.db", "4.backup", "5.backup"]);
    }
}
