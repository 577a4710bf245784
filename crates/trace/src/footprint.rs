//! The cache lines that one run touched.

use std::collections::BTreeMap;

/// A cache line, or a pair of lines: its address divided by the size of the [`Granule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

impl Line {
    /// Returns the address of the line's first byte.
    pub fn address(self, granule: Granule) -> u64 {
        self.0 << granule.shift()
    }
}

/// The unit in which memory moves between processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granule {
    /// A line of 64 bytes.
    #[default]
    Line,
    /// Two adjacent lines, which some processors fetch together.
    Pair,
}

impl Granule {
    fn shift(self) -> u32 {
        match self {
            Granule::Line => 6,
            Granule::Pair => 7,
        }
    }
}

/// An instruction and the calls on the path to it, innermost last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The address of the instruction.
    pub ip: u64,
    /// The addresses of the call instructions.
    pub calls: Vec<u64>,
    /// The address of the lowest byte that the instruction touched in the line.
    pub address: u64,
}

/// The accesses to a line.
#[derive(Debug, Clone, Default)]
pub struct Touch {
    /// The sites that only read the line: each instruction once, and only the first few.
    pub reads: Vec<Site>,
    /// The sites that wrote the line: each instruction once, and only the first few.
    pub writes: Vec<Site>,
}

/// The largest number of read sites, and also of write sites, that are kept for each line; more
/// would add no information.
const SITES: usize = 12;

impl Touch {
    /// Returns whether the line was written.
    pub fn is_written(&self) -> bool {
        !self.writes.is_empty()
    }

    fn merge(&mut self, other: &Touch) {
        for (mine, others) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            for site in others {
                add(mine, site.ip, || site.clone());
            }
        }
    }
}

fn add(sites: &mut Vec<Site>, ip: u64, site: impl FnOnce() -> Site) {
    if sites.len() < SITES && sites.iter().all(|known| known.ip != ip) {
        sites.push(site());
    }
}

/// The lines that a run touched, and its number of instructions.
#[derive(Debug, Clone, Default)]
pub struct Footprint {
    lines: BTreeMap<Line, Touch>,
    instructions: u64,
    system_calls: u64,
}

impl Footprint {
    /// Creates an empty footprint.
    pub fn new() -> Footprint {
        Footprint::default()
    }

    /// Returns the lines, by address.
    pub fn lines(&self) -> &BTreeMap<Line, Touch> {
        &self.lines
    }

    /// Returns the number of executed instructions. Each repetition of a repeated instruction
    /// counts.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns the number of system calls. Lines that these calls share inside the kernel are
    /// unknown.
    pub fn system_calls(&self) -> u64 {
        self.system_calls
    }

    /// Adds the lines of another run.
    pub fn merge(&mut self, other: &Footprint) {
        for (line, touch) in &other.lines {
            self.lines.entry(*line).or_default().merge(touch);
        }
        self.instructions += other.instructions;
        self.system_calls += other.system_calls;
    }

    /// Returns the same footprint with `granule` as the size of a line.
    pub fn in_granules(&self, granule: Granule) -> Footprint {
        let mut coarse = Footprint { lines: BTreeMap::new(), ..*self };
        let shift = granule.shift() - Granule::Line.shift();
        for (line, touch) in &self.lines {
            coarse.lines.entry(Line(line.0 >> shift)).or_default().merge(touch);
        }
        coarse
    }

    /// Returns the footprint of the accesses for which `keep` is true.
    pub fn only(&self, mut keep: impl FnMut(&Site) -> bool) -> Footprint {
        let mut left = Footprint { lines: BTreeMap::new(), ..*self };
        for (line, touch) in &self.lines {
            let mut filter = |sites: &[Site]| -> Vec<Site> {
                sites.iter().filter(|site| keep(site)).cloned().collect()
            };
            let touch = Touch { reads: filter(&touch.reads), writes: filter(&touch.writes) };
            if !(touch.reads.is_empty() && touch.writes.is_empty()) {
                left.lines.insert(*line, touch);
            }
        }
        left
    }

    pub(crate) fn count_instruction(&mut self) {
        self.instructions += 1;
    }

    pub(crate) fn count_system_call(&mut self) {
        self.system_calls += 1;
    }

    pub(crate) fn touch(
        &mut self,
        address: u64,
        bytes: u64,
        read: bool,
        written: bool,
        ip: u64,
        calls: &[u64],
    ) {
        let last = address.saturating_add(bytes - 1);
        for line in address >> 6..=last >> 6 {
            let touch = self.lines.entry(Line(line)).or_default();
            let sites = if written { &mut touch.writes } else { &mut touch.reads };
            debug_assert!(read || written, "an access is one of the two");
            let address = address.max(line << 6);
            add(sites, ip, || Site { ip, calls: calls.to_vec(), address });
        }
    }
}
