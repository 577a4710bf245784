//! CPU time of processes.

use std::fs;
use std::time::Duration;

/// User and system time of this process and of the children that it has waited for.
pub(crate) fn of_this_process() -> Option<Duration> {
    from_stat(&fs::read_to_string("/proc/self/stat").ok()?, Children::Counted)
}

/// User and system time of process `pid`, all its threads.
pub(crate) fn of_process(pid: u32) -> Option<Duration> {
    from_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, Children::Ignored)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Children {
    Counted,
    Ignored,
}

/// From a line of proc(5)'s `stat`: fields 14 to 17, in clock ticks. The second field is a name in
/// parentheses that may hold anything, parentheses too.
fn from_stat(line: &str, children: Children) -> Option<Duration> {
    let (_, fields) = line.rsplit_once(')')?;
    let wanted = if children == Children::Counted { 4 } else { 2 };
    let ticks = fields.split_ascii_whitespace().skip(11).take(wanted);
    let sum = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>().ok()?;
    let nanos = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos(sum.checked_mul(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_a_hostile_name() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 5 6 7";
        assert_eq!(from_stat(line, Children::Ignored), Some(Duration::from_millis(2000)));
        assert_eq!(from_stat(line, Children::Counted), Some(Duration::from_millis(2100)));
        assert_eq!(from_stat("42 (a", Children::Ignored), None);
    }

    #[test]
    fn this_process_has_a_time() {
        assert!(of_this_process().is_some());
        assert_eq!(of_process(u32::MAX), None);
    }
}
