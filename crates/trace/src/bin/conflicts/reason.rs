//! Why a line is shared: the location of its data, and the functions that touched it.

use lanefs_trace::{Conflict, Footprint, Granule, Memory, Site, Symbols, Touch};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// Occasional work, which one operation does for many. It is counted separately, and is recognised
/// by the functions on the call path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Apart {
    /// A lane's stash or a thread's heap blocks are refilled or returned, an epoch ends, a
    /// transaction is committed, or the caches are checked.
    Refill,
    /// A timestamp is updated, because the clock ticked since the last change or read of the file.
    Tick,
}

/// For each function that does occasional work: a part of its path, its name, and the kind of work.
const APART: &[(&str, &str, Apart)] = &[
    ("lanefs_journal::credits", "refill", Apart::Refill),
    ("lanefs_ext4::alloc", "refill", Apart::Refill),
    ("lanefs_lanes::heap", "refill", Apart::Refill),
    ("lanefs_lanes::heap", "spill", Apart::Refill),
    // This function runs a commit on the thread that called fsync.
    ("lanefs_journal", "round_in", Apart::Refill),
    ("lanefs_lanes::epoch", "pay", Apart::Refill),
    ("lanefs_ext4", "look_at_caches", Apart::Refill),
    ("lanefs_ext4", "stamp_overwrite", Apart::Tick),
    ("lanefs_ext4", "touch_atime", Apart::Tick),
];

/// Returns the kind of occasional work that `function` and its callees do; `None` for other work.
fn apart(function: &str) -> Option<Apart> {
    let is = |name: &str| function.split("::").any(|word| word == name);
    let found = APART.iter().find(|(path, name, _)| function.contains(path) && is(name));
    found.map(|(.., apart)| *apart)
}

/// A line that two operations share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reason {
    /// The location of the data.
    pub place: String,
    /// How one operation accesses the line, and in which functions.
    pub first: String,
    /// How the other operation accesses the line, and in which functions.
    pub second: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {}", self.place)?;
        writeln!(f, "      {}", self.first)?;
        write!(f, "      {}", self.second)
    }
}

/// Explains accesses, and caches the explanations.
pub struct Reasons {
    symbols: Symbols,
    memory: Memory,
    apart: HashMap<u64, Option<Apart>>,
}

impl Reasons {
    pub fn new() -> Reasons {
        let memory = Memory::look().unwrap_or_default();
        Reasons { symbols: Symbols::new(), memory, apart: HashMap::new() }
    }

    /// Reads the mappings again, since there may be new ones.
    pub fn look_again(&mut self) {
        self.memory = Memory::look().unwrap_or_default();
    }

    /// Returns the part of `footprint` that occurs in every operation.
    pub fn steady(&mut self, footprint: &Footprint) -> Footprint {
        footprint.only(|site| self.apart(site).is_none())
    }

    fn apart(&mut self, site: &Site) -> Option<Apart> {
        let mut ips = site.calls.iter().chain([&site.ip]);
        ips.find_map(|ip| self.apart_at(*ip))
    }

    fn apart_at(&mut self, ip: u64) -> Option<Apart> {
        if let Some(known) = self.apart.get(&ip) {
            return *known;
        }
        let frames = self.symbols.frames(ip);
        let found = frames.iter().find_map(|frame| apart(&frame.function));
        self.apart.insert(ip, found);
        found
    }

    /// Explains why two operations share a line.
    pub fn explain(&mut self, conflict: &Conflict<'_>, granule: Granule) -> Reason {
        let address = conflict.line.address(granule);
        let sites = |touch: &Touch| touch.writes.first().or(touch.reads.first()).cloned();
        let exact = sites(conflict.first).map_or(address, |site| site.address);
        let place = self.memory.place(exact, &mut self.symbols);
        let first = self.describe(conflict.first);
        let second = self.describe(conflict.second);
        let (first, second) = if first <= second { (first, second) } else { (second, first) };
        Reason { place, first, second }
    }

    fn describe(&mut self, touch: &Touch) -> String {
        let (verb, site) = match (touch.writes.first(), touch.reads.first()) {
            (Some(site), _) => ("written", site),
            (None, Some(site)) => ("read", site),
            (None, None) => return String::new(),
        };
        format!("{verb} by {}", self.way(site))
    }

    /// Returns the functions of Lanefs on the call path to an access, innermost first. A function
    /// of `lanefs-lanes` (locks, counters) is named only if it is the innermost one, because its
    /// caller says more about the reason.
    fn way(&mut self, site: &Site) -> String {
        const SHOWN: usize = 5;
        let mut names: Vec<String> = Vec::new();
        for ip in [&site.ip].into_iter().chain(site.calls.iter().rev()) {
            for frame in self.symbols.frames(*ip) {
                let function = &frame.function;
                let is_block = function.trim_start_matches('<').starts_with("lanefs_lanes");
                let ours = function.contains("lanefs") && !is_block;
                if (ours || names.is_empty()) && names.len() < SHOWN {
                    names.push(match (&frame.place, names.is_empty()) {
                        (Some(place), true) => format!("{} ({place})", short(&frame.function)),
                        _ => short(&frame.function),
                    });
                }
            }
        }
        names.join(" < ")
    }
}

/// Returns the last two components of a path, without type parameters.
fn short(function: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0_u32;
    for c in function.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let words: Vec<&str> =
        plain.split("::").filter(|w| !w.is_empty() && !w.starts_with('{')).collect();
    let plain = words[words.len().saturating_sub(2)..].join("::");
    // In the path of a trait's method on a type, most components are in angle brackets, so fewer
    // than two may be left outside of them.
    if words.len() < 2 { function.trim_start_matches("lanefs_").to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rarer_work_is_recognised_by_whole_names() {
        for function in [
            "<lanefs_journal::credits::Credits>::refill",
            "<lanefs_lanes::heap::Magazines>::spill",
            "<lanefs_journal::journal::Journal<lanefs_ext4::object::dirty::Dirty, lanefs_ext4::object::dirty::Deferred>>::round_in::<commit>::{closure#0}",
        ] {
            assert_eq!(apart(function), Some(Apart::Refill), "{function}");
        }
        assert_eq!(apart("<lanefs_ext4::fs::Fs>::stamp_overwrite"), Some(Apart::Tick));
        for function in [
            "<lanefs_conflicts::rounds::Session>::run::{closure#0}",
            "<lanefs_ext4::alloc::Groups>::refill_nothing",
            "<lanefs_journal::journal::Journal<lanefs_ext4::object::dirty::Dirty, lanefs_ext4::object::dirty::Deferred>>::wait",
            "lanefs_lanes::epoch::pin",
        ] {
            assert_eq!(apart(function), None, "{function}");
        }
    }
}
