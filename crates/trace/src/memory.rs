//! Finds the kind of memory at an address, from `/proc/self/maps`.

use crate::symbols::Symbols;
use std::fs;
use std::io;

/// The memory mappings of this process.
#[derive(Debug, Default)]
pub struct Memory {
    mappings: Vec<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    start: u64,
    end: u64,
    name: String,
}

impl Memory {
    /// Reads the mappings.
    ///
    /// # Errors
    /// Errors of reading `/proc/self/maps`.
    pub fn look() -> io::Result<Memory> {
        Ok(Memory::parse(&fs::read_to_string("/proc/self/maps")?))
    }

    fn parse(maps: &str) -> Memory {
        let mapping = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let name = words.nth(4).unwrap_or_default().to_owned();
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some(Mapping { start: hex(start)?, end: hex(end)?, name })
        };
        Memory { mappings: maps.lines().filter_map(mapping).collect() }
    }

    /// Returns the location of the data at `address`: the heap, a thread's stack, a file, or the
    /// name of a static.
    pub fn place(&self, address: u64, symbols: &mut Symbols) -> String {
        let found = self.mappings.iter().position(|m| (m.start..m.end).contains(&address));
        let Some(at) = found else { return "unmapped since".into() };
        let mapping = &self.mappings[at];
        match mapping.name.as_str() {
            "[heap]" | "" => {
                // Statics whose initial value is zero are in anonymous memory, which follows the
                // last mapped part of their file.
                match symbols.variable(address) {
                    Some(variable) => format!("static {variable}"),
                    None if self.is_stack(at) => "stack".into(),
                    None => "heap".into(),
                }
            }
            "[stack]" => "stack".into(),
            name if name.starts_with('[') => name.into(),
            file => match symbols.variable(address) {
                Some(variable) => format!("static {variable}"),
                None => format!("data of {}", file.rsplit('/').next().unwrap_or(file)),
            },
        }
    }

    /// Returns whether a mapping is a thread's stack. In this process each stack has a guard page
    /// below it, which is a separate mapping without access.
    fn is_stack(&self, at: usize) -> bool {
        let Some(below) = at.checked_sub(1).map(|at| &self.mappings[at]) else { return false };
        below.end == self.mappings[at].start && below.end - below.start == 4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
7f0000001000-7f0000200000 rw-p 00000000 00:00 0 
7f0000300000-7f0000400000 rw-p 00000000 00:00 0 
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn stacks_are_distinguished_from_the_heap_by_their_guard_page() {
        let (memory, mut symbols) = (Memory::parse(MAPS), Symbols::new());
        let mut place = |address| memory.place(address, &mut symbols);
        assert_eq!(place(0x7f00_0000_1010), "stack");
        assert_eq!(place(0x7f00_0030_0010), "heap");
        assert_eq!(place(0x7ffc_0000_0010), "stack");
        assert_eq!(place(0x10), "unmapped since");
    }
}
