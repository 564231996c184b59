//! What processes cost, as Linux tells it under `/proc`.

use std::fs;
use std::ops::Sub;

/// Microseconds of one tick of CPU time, as Linux reports them to programs.
const TICK_US: u64 = 10_000;

/// What a process, or a tree of them, has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of all threads, user and system.
    pub(crate) cpu_us: u64,
    /// The most memory that was resident at once.
    pub(crate) peak_bytes: u64,
}

impl Usage {
    /// Of one process. What cannot be read counts as nothing: the process may be gone.
    pub(crate) fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = read("stat").ok().and_then(|text| parse_stat(&text)).unwrap_or_default();
        let status = read("status").unwrap_or_default();
        Self {
            cpu_us: stat.own_ticks * TICK_US,
            peak_bytes: field(&status, "VmHWM:").unwrap_or(0) * 1024,
        }
    }

    /// Of a process and its children, those that ended included. Peaks are added up, shared pages
    /// and all.
    pub(crate) fn of_tree(pid: u32) -> Self {
        let mut total = Self::of(pid);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let ended = stat.and_then(|text| parse_stat(&text)).map_or(0, |stat| stat.ended_ticks);
        total.cpu_us += ended * TICK_US;
        for child in children(pid) {
            let usage = Self::of(child);
            total.cpu_us += usage.cpu_us;
            total.peak_bytes += usage.peak_bytes;
        }
        total
    }
}

/// What was used between two readings; the peak is the later one's.
impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us), peak_bytes: self.peak_bytes }
    }
}

/// CPU time of all cores that the host of this machine gave to others while something here wanted it.
pub(crate) fn taken_us() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_taken(&stat).unwrap_or(0) * TICK_US
}

/// The eighth number after the name that stands for all cores.
fn parse_taken(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// Of children that ended and were waited for.
    ended_ticks: u64,
}

/// Reads the fields after the command's name, which may itself hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own_ticks: number(11)? + number(12)?,
        ended_ticks: number(13)? + number(14)?,
    })
}

/// The number after a name, in files of the form `name: number unit`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        stat.and_then(|text| parse_stat(&text)).is_some_and(|stat| stat.parent == parent)
    };
    pids.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_command_is_called() {
        let rest = "S 7 42 42 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 9 0 100 1 2";
        let expected = Stat { parent: 7, own_ticks: 200, ended_ticks: 50 };
        for (name, text, expected) in [
            ("plain", format!("42 (railpost) {rest}"), Some(expected)),
            ("spaces", format!("42 (a b c) {rest}"), Some(expected)),
            ("parentheses", format!("42 (a) S (b) {rest}"), Some(expected)),
            ("cut", "42 (railpost) S 7".to_owned(), None),
            ("empty", String::new(), None),
        ] {
            assert_eq!(parse_stat(&text), expected, "{name}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\n";
        assert_eq!(field(status, "VmHWM:"), Some(512));
        assert_eq!(field(status, "missing:"), None);
        assert_eq!(field("VmHWM:\n", "VmHWM:"), None);
    }

    #[test]
    fn what_the_host_took_is_that_of_all_cores() {
        let stat = "cpu  100 2 30 400 5 6 7 88 9 10\ncpu0 50 1 15 200 2 3 3 44 4 5\nintr 1\n";
        assert_eq!(parse_taken(stat), Some(88));
        for (name, text) in [("old", "cpu  100 2 30 400 5 6 7\n"), ("other", "intr 1\n")] {
            assert_eq!(parse_taken(text), None, "{name}");
        }
    }

    #[test]
    fn this_process_has_used_memory_and_one_that_is_not_has_used_nothing() {
        assert!(Usage::of(std::process::id()).peak_bytes > 0);
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }

    #[test]
    fn what_was_used_between_two_readings_keeps_the_later_peak() {
        let earlier = Usage { cpu_us: 10, peak_bytes: 7 };
        let later = Usage { cpu_us: 25, peak_bytes: 9 };
        let between = Usage { cpu_us: 15, peak_bytes: 9 };
        assert_eq!(later - earlier, between);
    }
}
