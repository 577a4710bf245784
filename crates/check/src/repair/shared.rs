//! Repairs blocks that are in use more than once: the first file keeps the block, and each later
//! file gets a copy or a hole.

use super::mender::{Mender, Shared};
use super::salvage::push_run;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Finding;
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

impl Mender<'_> {
    /// Separates files that share blocks.
    pub fn mend_shared(&mut self, found: &[Finding]) {
        let mut files: BTreeMap<Ino, Vec<Range<u64>>> = BTreeMap::new();
        for finding in found {
            let Fault::DoublyClaimed { start, len } = finding.fault else { continue };
            match finding.place {
                Place::Attributes { ino, block: Some(block) } => self.part_attributes(ino, block),
                Place::Inode { ino: Ino::RESIZE } => {
                    self.mend_resize();
                }
                place => {
                    let Some(ino) = place.ino() else { continue };
                    files.entry(ino).or_default().push(self.blocks_of(start, len));
                }
            }
        }
        for (ino, ranges) in files {
            self.part_file(ino, &ranges);
        }
    }

    fn part_file(&mut self, ino: Ino, ranges: &[Range<u64>]) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        let mut salvaged = self.salvage(ino, &record);
        let mut copies = HashMap::new();
        let (mut extents, mut cut) = (Vec::new(), false);
        for extent in &salvaged.extents {
            let end = extent.block.0 + u64::from(extent.len);
            if !ranges.iter().any(|range| range.start < end && extent.block.0 < range.end) {
                push_run(&mut extents, *extent);
                continue;
            }
            for n in 0..extent.len {
                let old = Block(extent.block.0 + u64::from(n));
                let is_shared = ranges.iter().any(|range| range.contains(&old.0));
                let start = FileBlock(extent.start.0 + n);
                let block = match is_shared {
                    true => self.copy(&mut copies, old, start),
                    false => Some(old),
                };
                match block {
                    Some(block) => {
                        push_run(&mut extents, Extent { start, len: 1, block, ..*extent })
                    }
                    None => cut = true,
                }
            }
        }
        salvaged.extents = extents;
        if self.rebuild(ino, &mut bytes, salvaged) {
            self.write_inode(ino, bytes);
            let what = match cut {
                true => "blocks that another file uses are cut",
                false => "blocks that another file uses are copied",
            };
            self.act(Place::Inode { ino }, what);
        }
    }

    /// Copies a block. All blocks of one cluster are copied into the same new cluster. Returns
    /// `None` if this repair replaces shared blocks by holes, or if no space is left.
    fn copy(
        &mut self,
        copies: &mut HashMap<(u64, u32), Option<Block>>,
        old: Block,
        start: FileBlock,
    ) -> Option<Block> {
        if self.shared == Shared::Cut {
            return None;
        }
        let geometry = self.run.volume.geometry;
        let (bits, first) = (geometry.cluster_bits(), geometry.first_data_block().0);
        let from_first = old.0.saturating_sub(first);
        // The key includes the position in the file, because one file can use a cluster twice, and
        // each use needs a separate copy.
        let cluster = (from_first >> bits, start.0 >> bits);
        let new = *copies.entry(cluster).or_insert_with(|| self.allocate());
        let block = Block(new?.0 + (from_first & ((1 << bits) - 1)));
        let bytes = self.read_block(old)?;
        self.write_block(block, &bytes);
        Some(block)
    }
}
